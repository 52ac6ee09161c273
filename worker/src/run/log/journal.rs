//! The driver's hold on its run's stream: the folded state, and appends under the lease's epoch.
//!
//! Results are carried until the next intents are known, so that a turn takes two appends. An append
//! that is refused because somebody else wrote (a person told the run something) is answered with
//! what is missing: it is folded, the results are appended *unchanged*, the intents are decided
//! anew. No answer that was paid for is thrown away.

use std::time::{Duration, Instant};

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{BlobHash, Epoch, EventHash, RunId, Seq, TreeHash, Turn},
    run::{CorruptLog, EventMeta, FailureKind, RunEnded, RunEvent, RunOutcome, RunState},
    wire::{AppendRequest, BLOB_HASHES_MAX, BlobUpload, DelegateRequest, Problem, ProblemCode},
};

use super::{
    failpoint::Failpoints,
    outgoing::{Outgoing, PARTS_PER_APPEND_MAX},
};
use crate::{
    bootstrap::FailWhen,
    client::{Client, ClientError, patiently_without_room},
};

/// Blobs of one append above this are uploaded before it: a body stays far under the API's limit.
pub(in crate::run) const INLINE_BLOBS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often an append is tried again because others wrote to the stream in between.
const CONFLICTS_MAX: u32 = 100;

/// An append that cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The lease is no more: another worker may have the run. Nothing more may be written.
    #[error("the lease is no more ({})", .0.detail)]
    LeaseLost(Box<Problem>),
    /// For longer than the lease lasts, the coordinator could not be reached or could not take an append: its
    /// store is away or full, or too many requests come. Nothing of it is the run's fault.
    #[error("the coordinator could not take an append before the lease's hard deadline")]
    Unreachable(#[source] ClientError),
    /// The coordinator refuses the append for another reason.
    #[error("the coordinator refuses an append: {}", .0.detail)]
    Refused(Box<Problem>),
    /// The stream does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// Others write faster than the driver can follow.
    #[error("the stream went on {CONFLICTS_MAX} times between two attempts to append")]
    Contended,
}

/// See the module.
pub struct Journal {
    pub(in crate::run) client: Client,
    pub(in crate::run) run: RunId,
    pub(in crate::run) epoch: Epoch,
    pub(in crate::run) patience: Duration,
    /// Model providers that have a limit, as of the last append.
    pub(in crate::run) limited: Vec<String>,
    /// Some batch has a budget, as of the last append.
    pub(in crate::run) budgets: bool,
    failpoints: Failpoints,
    /// The state as the log has it: only acknowledged events.
    state: RunState,
}

impl Journal {
    /// A journal on a stream that `state` was folded from.
    pub const fn new(
        client: Client,
        run: RunId,
        epoch: Epoch,
        patience: Duration,
        failpoints: Failpoints,
        state: RunState,
    ) -> Self {
        Self { client, run, epoch, patience, limited: Vec::new(), budgets: false, failpoints, state }
    }

    /// The state as the log has it.
    pub const fn state(&self) -> &RunState {
        &self.state
    }

    /// The state as it will be once `results` are in the log.
    ///
    /// # Errors
    /// [`CorruptLog`]: they cannot follow.
    pub fn state_with(&self, results: &Outgoing) -> Result<RunState, CorruptLog> {
        let mut state = self.state.clone();
        fold(&mut state, self.epoch, &results.events)?;
        Ok(state)
    }

    /// Appends `results` and whatever `decide` makes of the state after them. Where others wrote in
    /// between, `decide` is asked again on the state with what they wrote.
    ///
    /// # Errors
    /// [`JournalError`], or what `decide` answers.
    pub async fn append<T, E, F>(&mut self, results: &Outgoing, mut decide: F) -> Result<T, E>
    where
        E: From<JournalError>,
        F: AsyncFnMut(&RunState) -> Result<(Outgoing, T), E>,
    {
        let blobs = self.append_ahead(results).await?;
        for _ in 0..CONFLICTS_MAX {
            let state = self.state_with(results).map_err(JournalError::from)?;
            let (intents, decided) = decide(&state).await?;
            let mut events = results.events.clone();
            events.extend(intents.events);
            let mut whole = Outgoing { ahead: Vec::new(), events, blobs: blobs.to_vec() };
            whole.blobs.extend(intents.blobs);
            if whole.is_empty() || self.try_append(&whole).await? {
                return Ok(decided);
            }
        }
        Err(JournalError::Contended.into())
    }

    /// Appends the parts of a snapshot that one append cannot hold, with the contents of them all; answers
    /// the blobs that are still to go.
    async fn append_ahead<'o>(
        &mut self,
        results: &'o Outgoing,
    ) -> Result<&'o [(BlobRef, Bytes)], JournalError> {
        if results.ahead.is_empty() {
            return Ok(&results.blobs);
        }
        let deadline = Instant::now() + self.patience;
        // Kept by being stored just now: the parts have no room to name them.
        patiently_without_room(deadline, || self.client.put_all(results.blobs.clone()))
            .await
            .map_err(of_client)?;
        for parts in results.ahead.chunks(PARTS_PER_APPEND_MAX) {
            let parts = Outgoing { ahead: Vec::new(), events: parts.to_vec(), blobs: Vec::new() };
            let mut tries = 0;
            while !self.try_append(&parts).await? {
                tries += 1;
                if tries == CONFLICTS_MAX {
                    return Err(JournalError::Contended);
                }
            }
        }
        Ok(&[])
    }

    /// Appends `results` alone.
    ///
    /// # Errors
    /// [`JournalError`].
    pub async fn append_results(&mut self, results: &Outgoing) -> Result<(), JournalError> {
        self.append(results, async |_| Ok((Outgoing::default(), ()))).await
    }

    /// Records the end of the run as failed, which no decision of its engine led to.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(in crate::run) async fn append_failure(
        &mut self,
        why: FailureKind,
        message: String,
        tree: Option<TreeHash>,
    ) -> Result<(), JournalError> {
        let result = RunOutcome::Failed { why, message };
        let mut out = Outgoing::default();
        out.push(self.state.turn, RunEnded { result, summary: None, tree, unverified: None, decision: None });
        self.append_results(&out).await
    }

    /// Gives work away. The coordinator writes that into the stream, and answers what it holds by now. `Some` = it
    /// cannot be done as it is asked, and why.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(in crate::run) async fn delegate(
        &mut self,
        request: DelegateRequest,
    ) -> Result<Option<Box<Problem>>, JournalError> {
        let request = DelegateRequest { epoch: self.epoch, after: self.state.seq, ..request };
        let seqs = span(self.state.seq.next(), 1);
        self.failpoints.reached(self.epoch, seqs.clone(), FailWhen::Before);
        let deadline = Instant::now() + self.patience;
        match patiently_without_room(deadline, || self.client.delegate(self.run, &request)).await {
            Ok(answer) => {
                self.failpoints.reached(self.epoch, seqs, FailWhen::After);
                let known = self.state.seq;
                for event in answer.events.iter().filter(|event| event.seq > known) {
                    self.state.apply_envelope(event)?;
                }
                Ok(None)
            }
            Err(ClientError::Refused(problem)) => match problem.code {
                ProblemCode::InvalidRequest
                | ProblemCode::IdTaken
                | ProblemCode::TooLarge
                | ProblemCode::WrongState => Ok(Some(problem)),
                ProblemCode::Unauthorized
                | ProblemCode::Forbidden
                | ProblemCode::NotFound
                | ProblemCode::Ambiguous
                | ProblemCode::WrongSeq
                | ProblemCode::Fenced
                | ProblemCode::LeaseExpired
                | ProblemCode::Ended
                | ProblemCode::BlobMissing
                | ProblemCode::BlobMismatch
                | ProblemCode::MethodNotAllowed
                | ProblemCode::UnsupportedMedia
                | ProblemCode::TooMany
                | ProblemCode::Unavailable
                | ProblemCode::StorageFull
                | ProblemCode::Corrupt
                | ProblemCode::Internal => Err(of_problem(problem)),
            },
            Err(error) => Err(JournalError::Unreachable(error)),
        }
    }

    /// Appends, or folds what others wrote and answers `false`.
    async fn try_append(&mut self, outgoing: &Outgoing) -> Result<bool, JournalError> {
        let first = self.state.seq.next();
        let events = &outgoing.events;
        self.failpoints.reached(self.epoch, span(first, events.len()), FailWhen::Before);
        let request = self.request(outgoing).await?;
        let deadline = Instant::now() + self.patience;
        match patiently_without_room(deadline, || self.client.append(self.run, &request)).await {
            Ok(response) => {
                self.failpoints.reached(self.epoch, span(first, events.len()), FailWhen::After);
                fold(&mut self.state, self.epoch, &outgoing.events)?;
                self.state.hash = response.head.hash;
                self.limited = response.limited;
                self.budgets = response.budgets;
                Ok(true)
            }
            Err(ClientError::Refused(problem)) => self.refused(problem).map(|()| false),
            Err(error) => Err(JournalError::Unreachable(error)),
        }
    }

    async fn request(&self, outgoing: &Outgoing) -> Result<AppendRequest, JournalError> {
        let mut names: Vec<BlobHash> = Vec::new();
        let mut blobs = Vec::new();
        if outgoing.bytes() > INLINE_BLOBS_BYTES_MAX {
            let mut named = outgoing.blobs.clone();
            let rest = named.split_off(named.len().min(BLOB_HASHES_MAX));
            names.extend(named.iter().map(|(blob, _)| blob.hash));
            let deadline = Instant::now() + self.patience;
            // What is stored already is kept by its name in the append; what an append has no room to
            // name is kept by being stored again.
            patiently_without_room(deadline, || self.client.upload_all(named.clone()))
                .await
                .map_err(of_client)?;
            patiently_without_room(deadline, || self.client.put_all(rest.clone()))
                .await
                .map_err(of_client)?;
        } else {
            blobs.extend(outgoing.blobs.iter().map(|(blob, bytes)| upload(*blob, bytes)));
        }
        let events: Vec<NewEvent> = outgoing.events.iter().map(|(turn, event)| event.encode(*turn)).collect();
        Ok(AppendRequest { expected_seq: self.state.seq, epoch: self.epoch, events, blobs, names })
    }

    fn refused(&mut self, problem: Box<Problem>) -> Result<(), JournalError> {
        if problem.code != ProblemCode::WrongSeq || problem.missing.is_empty() {
            return Err(of_problem(problem));
        }
        for event in &problem.missing {
            self.state.apply_envelope(event)?;
        }
        Ok(())
    }
}

pub(in crate::run) fn of_client(error: ClientError) -> JournalError {
    match error {
        ClientError::Refused(problem) => of_problem(problem),
        other => JournalError::Unreachable(other),
    }
}

/// What a refusal means for the run. The caller has waited for what passes by itself.
fn of_problem(problem: Box<Problem>) -> JournalError {
    match problem.code {
        // The run did nothing wrong: the next worker continues where the log ends.
        ProblemCode::Unavailable | ProblemCode::TooMany | ProblemCode::StorageFull => {
            JournalError::Unreachable(ClientError::Refused(problem))
        }
        ProblemCode::Fenced | ProblemCode::LeaseExpired | ProblemCode::Ended | ProblemCode::Unauthorized => {
            JournalError::LeaseLost(problem)
        }
        ProblemCode::InvalidRequest
        | ProblemCode::Forbidden
        | ProblemCode::NotFound
        | ProblemCode::Ambiguous
        | ProblemCode::IdTaken
        | ProblemCode::WrongState
        | ProblemCode::WrongSeq
        | ProblemCode::BlobMissing
        | ProblemCode::BlobMismatch
        | ProblemCode::MethodNotAllowed
        | ProblemCode::UnsupportedMedia
        | ProblemCode::TooLarge
        | ProblemCode::Corrupt
        | ProblemCode::Internal => JournalError::Refused(problem),
    }
}

pub(in crate::run) fn upload(blob: BlobRef, bytes: &[u8]) -> BlobUpload {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    BlobUpload { blob, b64: STANDARD.encode(bytes) }
}

fn span(first: Seq, count: usize) -> std::ops::Range<u64> {
    first.0..first.0 + count as u64
}

/// Folds events that are not yet in the log. Their hashes are the coordinator's to make: the head's
/// is set from its answer, and none other is ever looked at.
pub(in crate::run) fn fold(
    state: &mut RunState,
    epoch: Epoch,
    events: &[(Turn, RunEvent)],
) -> Result<(), CorruptLog> {
    for (turn, event) in events {
        let meta = EventMeta { seq: state.seq.next(), hash: EventHash::ZERO, turn: *turn, epoch };
        state.apply(meta, event.clone())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use docket_schema::wire::{MissingBlobsRequest, MissingBlobsResponse};

    use axum::{
        Json, Router,
        extract::{DefaultBodyLimit, Path, State},
        http::StatusCode,
        routing::{post, put},
    };

    use super::*;
    use crate::secret::Secret;

    /// A refusal that says nothing about the run gives it back; no such refusal may end it as failed.
    #[test]
    fn trouble_of_the_coordinator_gives_the_run_back() {
        use ProblemCode::{Ended, Fenced, LeaseExpired, StorageFull, TooMany, Unauthorized, Unavailable};
        for code in ProblemCode::ALL {
            let error = of_client(ClientError::Refused(Box::new(code.problem("no"))));
            let passes = [Unavailable, TooMany, StorageFull].contains(&code);
            let lost = [Ended, Fenced, LeaseExpired, Unauthorized].contains(&code);
            assert_eq!(matches!(error, JournalError::Unreachable(_)), passes, "{code:?}");
            assert_eq!(matches!(error, JournalError::LeaseLost(_)), lost, "{code:?}");
        }
    }

    /// Answers which blobs are missing (all but one), and counts those that are stored.
    async fn blob_server() -> (Client, Arc<Mutex<Vec<String>>>) {
        let stored = Arc::new(Mutex::new(Vec::new()));
        let missing = async |Json(mut asked): Json<MissingBlobsRequest>| {
            asked.hashes.retain(|hash| *hash != BlobHash::of(b"known"));
            Json(MissingBlobsResponse { missing: asked.hashes })
        };
        let put_one = |State(stored): State<Arc<Mutex<Vec<String>>>>, Path(hash): Path<String>| async move {
            stored.lock().unwrap().push(hash);
            StatusCode::NO_CONTENT
        };
        let router = Router::new()
            .route("/v1/blobs/missing", post(missing))
            .route("/v1/blobs/{hash}", put(put_one))
            .layer(DefaultBodyLimit::disable())
            .with_state(Arc::clone(&stored));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        (Client::new(&url, Secret::new("dk_test").unwrap()).unwrap(), stored)
    }

    #[tokio::test]
    async fn a_large_append_sends_what_is_missing_and_names_all() {
        let (client, stored) = blob_server().await;
        let run: RunId = "01920000-0000-7000-8000-000000000001".parse().unwrap();
        let journal = Journal::new(
            client,
            run,
            Epoch(1),
            Duration::from_secs(5),
            Failpoints::new(Vec::new()),
            RunState::default(),
        );
        let mut out = Outgoing::default();
        let large = vec![7; INLINE_BLOBS_BYTES_MAX + 1];
        for bytes in [large.clone(), b"known".to_vec(), b"new".to_vec()] {
            out.blob(BlobRef::of(&bytes), bytes);
        }
        let request = journal.request(&out).await.unwrap();
        assert!(request.blobs.is_empty());
        let all = [&large[..], b"known", b"new"].map(BlobHash::of);
        assert_eq!(request.names, all, "a blob that is stored already is kept by its name");
        let mut sent = stored.lock().unwrap().clone();
        sent.sort();
        let mut missing = [all[0].to_string(), all[2].to_string()];
        missing.sort();
        assert_eq!(sent, missing);
    }
}
