//! The driver's hold on its run's stream: the folded state, and appends under the lease's epoch.
//!
//! Results are carried until the next intents are known, so that a turn takes two appends. An append
//! that is refused because somebody else wrote (a person told the run something) is answered with
//! what is missing: it is folded, the results are appended *unchanged*, the intents are decided
//! anew. No answer that was paid for is thrown away.

use std::time::{Duration, Instant};

use bytes::Bytes;
use docket_schema::{
    api::{AppendRequest, BLOB_HASHES_MAX, BlobUpload, DelegateRequest, ProblemCode, ProblemDetails},
    content::BlobRef,
    event::{NewEvent, TypedEvent as _},
    ids::{BlobHash, Epoch, EventHash, RunId, Seq, TreeHash, Turn},
    run::{CorruptLog, EventMeta, FailureKind, RunEnded, RunEvent, RunOutcome, RunState},
};

use super::{
    failpoint::Failpoints,
    pending_append::{PARTS_PER_APPEND_MAX, PendingAppend},
};
use crate::{
    bootstrap::FailpointTiming,
    client::{ClientError, CoordinatorClient, retry_until_with_room},
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
    LeaseLost(Box<ProblemDetails>),
    /// For longer than the lease lasts, the coordinator could not be reached or could not take an append: its
    /// store is away or full, or too many requests come. Nothing of it is the run's fault.
    #[error("the coordinator could not take an append before the lease's hard deadline")]
    Unreachable(#[source] ClientError),
    /// The coordinator refuses the append for another reason.
    #[error("the coordinator refuses an append: {}", .0.detail)]
    Refused(Box<ProblemDetails>),
    /// The stream does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// Others write faster than the driver can follow.
    #[error("the stream went on {CONFLICTS_MAX} times between two attempts to append")]
    Contended,
}

/// See the module.
pub struct Journal {
    pub(in crate::run) client: CoordinatorClient,
    pub(in crate::run) run: RunId,
    pub(in crate::run) epoch: Epoch,
    pub(in crate::run) patience: Duration,
    /// Model providers that have a limit, as of the last append.
    pub(in crate::run) limited_providers: Vec<String>,
    /// Some batch has a budget, as of the last append.
    pub(in crate::run) has_batch_budgets: bool,
    failpoints: Failpoints,
    /// The state as the log has it: only acknowledged events.
    state: RunState,
}

impl Journal {
    /// A journal on a stream that `state` was folded from.
    pub const fn new(
        client: CoordinatorClient,
        run: RunId,
        epoch: Epoch,
        patience: Duration,
        failpoints: Failpoints,
        state: RunState,
    ) -> Self {
        Self {
            client,
            run,
            epoch,
            patience,
            limited_providers: Vec::new(),
            has_batch_budgets: false,
            failpoints,
            state,
        }
    }

    /// The state as the log has it.
    pub const fn state(&self) -> &RunState {
        &self.state
    }

    /// The state as it will be once `results` are in the log.
    ///
    /// # Errors
    /// [`CorruptLog`]: they cannot follow.
    pub fn state_with(&self, results: &PendingAppend) -> Result<RunState, CorruptLog> {
        let mut state = self.state.clone();
        fold_unrecorded(&mut state, self.epoch, &results.events)?;
        Ok(state)
    }

    /// Appends `results` and whatever `decide` makes of the state after them. Where others wrote in
    /// between, `decide` is asked again on the state with what they wrote.
    ///
    /// # Errors
    /// [`JournalError`], or what `decide` answers.
    pub async fn append<T, E, F>(&mut self, results: &PendingAppend, mut decide: F) -> Result<T, E>
    where
        E: From<JournalError>,
        F: AsyncFnMut(&RunState) -> Result<(PendingAppend, T), E>,
    {
        let blobs = self.append_leading_parts(results).await?;
        for _ in 0..CONFLICTS_MAX {
            let state = self.state_with(results).map_err(JournalError::from)?;
            let (intents, decided) = decide(&state).await?;
            let mut events = results.events.clone();
            events.extend(intents.events);
            let mut whole = PendingAppend { leading_parts: Vec::new(), events, blobs: blobs.to_vec() };
            whole.blobs.extend(intents.blobs);
            if whole.is_empty() || self.try_append(&whole).await? {
                return Ok(decided);
            }
        }
        Err(JournalError::Contended.into())
    }

    /// Appends the parts of a snapshot that one append cannot hold, with the contents of them all; answers
    /// the blobs that are still to go.
    async fn append_leading_parts<'o>(
        &mut self,
        results: &'o PendingAppend,
    ) -> Result<&'o [(BlobRef, Bytes)], JournalError> {
        if results.leading_parts.is_empty() {
            return Ok(&results.blobs);
        }
        let deadline = Instant::now() + self.patience;
        // Kept by being stored just now: the parts have no room to name them.
        retry_until_with_room(deadline, || self.client.put_blobs(results.blobs.clone()))
            .await
            .map_err(from_client_error)?;
        for parts in results.leading_parts.chunks(PARTS_PER_APPEND_MAX) {
            let parts =
                PendingAppend { leading_parts: Vec::new(), events: parts.to_vec(), blobs: Vec::new() };
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
    pub async fn append_results(&mut self, results: &PendingAppend) -> Result<(), JournalError> {
        self.append(results, async |_| Ok((PendingAppend::default(), ()))).await
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
        let mut out = PendingAppend::default();
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
    ) -> Result<Option<Box<ProblemDetails>>, JournalError> {
        let request = DelegateRequest { epoch: self.epoch, after: self.state.seq, ..request };
        let seqs = seq_range(self.state.seq.next(), 1);
        self.failpoints.trigger_matching(self.epoch, seqs.clone(), FailpointTiming::Before);
        let deadline = Instant::now() + self.patience;
        match retry_until_with_room(deadline, || self.client.delegate(self.run, &request)).await {
            Ok(answer) => {
                self.failpoints.trigger_matching(self.epoch, seqs, FailpointTiming::After);
                let known = self.state.seq;
                for event in answer.events.iter().filter(|event| event.seq > known) {
                    self.state.apply_envelope(event)?;
                }
                Ok(None)
            }
            Err(ClientError::Problem(problem)) => match problem.code {
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
                | ProblemCode::Internal => Err(from_problem(problem)),
            },
            Err(error) => Err(JournalError::Unreachable(error)),
        }
    }

    /// Appends, or folds what others wrote and answers `false`.
    async fn try_append(&mut self, outgoing: &PendingAppend) -> Result<bool, JournalError> {
        let first = self.state.seq.next();
        let events = &outgoing.events;
        self.failpoints.trigger_matching(self.epoch, seq_range(first, events.len()), FailpointTiming::Before);
        let request = self.build_append_request(outgoing).await?;
        let deadline = Instant::now() + self.patience;
        match retry_until_with_room(deadline, || self.client.append(self.run, &request)).await {
            Ok(response) => {
                self.failpoints.trigger_matching(
                    self.epoch,
                    seq_range(first, events.len()),
                    FailpointTiming::After,
                );
                fold_unrecorded(&mut self.state, self.epoch, &outgoing.events)?;
                self.state.hash = response.head.hash;
                self.limited_providers = response.limited;
                self.has_batch_budgets = response.budgets;
                Ok(true)
            }
            Err(ClientError::Problem(problem)) => self.fold_missing_events(problem).map(|()| false),
            Err(error) => Err(JournalError::Unreachable(error)),
        }
    }

    async fn build_append_request(&self, outgoing: &PendingAppend) -> Result<AppendRequest, JournalError> {
        let mut names: Vec<BlobHash> = Vec::new();
        let mut blobs = Vec::new();
        if outgoing.blob_bytes() > INLINE_BLOBS_BYTES_MAX {
            let mut named = outgoing.blobs.clone();
            let rest = named.split_off(named.len().min(BLOB_HASHES_MAX));
            names.extend(named.iter().map(|(blob, _)| blob.hash));
            let deadline = Instant::now() + self.patience;
            // What is stored already is kept by its name in the append; what an append has no room to
            // name is kept by being stored again.
            retry_until_with_room(deadline, || self.client.upload_missing_blobs(named.clone()))
                .await
                .map_err(from_client_error)?;
            retry_until_with_room(deadline, || self.client.put_blobs(rest.clone()))
                .await
                .map_err(from_client_error)?;
        } else {
            blobs.extend(outgoing.blobs.iter().map(|(blob, bytes)| blob_upload(*blob, bytes)));
        }
        let events: Vec<NewEvent> = outgoing.events.iter().map(|(turn, event)| event.encode(*turn)).collect();
        Ok(AppendRequest { expected_seq: self.state.seq, epoch: self.epoch, events, blobs, names })
    }

    fn fold_missing_events(&mut self, problem: Box<ProblemDetails>) -> Result<(), JournalError> {
        if problem.code != ProblemCode::WrongSeq || problem.missing.is_empty() {
            return Err(from_problem(problem));
        }
        for event in &problem.missing {
            self.state.apply_envelope(event)?;
        }
        Ok(())
    }
}

pub(in crate::run) fn from_client_error(error: ClientError) -> JournalError {
    match error {
        ClientError::Problem(problem) => from_problem(problem),
        other => JournalError::Unreachable(other),
    }
}

/// What a refusal means for the run. The caller has waited for what passes by itself.
fn from_problem(problem: Box<ProblemDetails>) -> JournalError {
    match problem.code {
        // The run did nothing wrong: the next worker continues where the log ends.
        ProblemCode::Unavailable | ProblemCode::TooMany | ProblemCode::StorageFull => {
            JournalError::Unreachable(ClientError::Problem(problem))
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

pub(in crate::run) fn blob_upload(blob: BlobRef, bytes: &[u8]) -> BlobUpload {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    BlobUpload { blob, b64: STANDARD.encode(bytes) }
}

fn seq_range(first: Seq, count: usize) -> std::ops::Range<u64> {
    first.0..first.0 + count as u64
}

/// Folds events that are not yet in the log. Their hashes are the coordinator's to make: the head's
/// is set from its answer, and none other is ever looked at.
pub(in crate::run) fn fold_unrecorded(
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

    use docket_schema::api::{MissingBlobsRequest, MissingBlobsResponse};

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
    fn coordinator_outage_releases_the_run() {
        use ProblemCode::{Ended, Fenced, LeaseExpired, StorageFull, TooMany, Unauthorized, Unavailable};
        for code in ProblemCode::ALL {
            let error = from_client_error(ClientError::Problem(Box::new(code.to_problem("no"))));
            let passes = [Unavailable, TooMany, StorageFull].contains(&code);
            let lost = [Ended, Fenced, LeaseExpired, Unauthorized].contains(&code);
            assert_eq!(matches!(error, JournalError::Unreachable(_)), passes, "{code:?}");
            assert_eq!(matches!(error, JournalError::LeaseLost(_)), lost, "{code:?}");
        }
    }

    /// Answers which blobs are missing (all but one), and counts those that are stored.
    async fn blob_server() -> (CoordinatorClient, Arc<Mutex<Vec<String>>>) {
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
        (CoordinatorClient::new(&url, Secret::new("dk_test").unwrap()).unwrap(), stored)
    }

    #[tokio::test]
    async fn large_append_uploads_missing_blobs_and_names_all() {
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
        let mut out = PendingAppend::default();
        let large = vec![7; INLINE_BLOBS_BYTES_MAX + 1];
        for bytes in [large.clone(), b"known".to_vec(), b"new".to_vec()] {
            out.push_blob(BlobRef::for_bytes(&bytes), bytes);
        }
        let request = journal.build_append_request(&out).await.unwrap();
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
