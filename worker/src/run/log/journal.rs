//! A run's stream: the folded state, and appends under the lease's epoch.
//!
//! Results wait until the next intents are known, so that a turn takes two appends. When an append conflicts with
//! another writer (a user message, for example), the missing events are folded, the results are appended *unchanged*,
//! and the intents are decided again. No reply that was paid for is thrown away.

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

/// Blobs above this total are uploaded before the append, which keeps the request body far below the API's limit.
pub(in crate::run) const INLINE_BLOBS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// How often an append is retried after conflicts with other writers.
const CONFLICTS_MAX: u32 = 100;

/// Why an append failed.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The lease is lost: another worker may have the run. Nothing more may be written.
    #[error("the lease is lost ({})", .0.detail)]
    LeaseLost(Box<ProblemDetails>),
    /// For longer than the lease lasts, the coordinator was unreachable or could not take an append: its store is
    /// unavailable or full, or it is overloaded. None of this is the run's fault.
    #[error("the coordinator could not take an append before the lease's hard deadline")]
    Unreachable(#[source] ClientError),
    /// The coordinator refuses the append for another reason.
    #[error("the coordinator refused an append: {}", .0.detail)]
    Refused(Box<ProblemDetails>),
    /// The stream does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// Others write faster than the run can follow.
    #[error("other writers appended to the stream before each of {CONFLICTS_MAX} attempts")]
    Contended,
}

/// A run's folded state and its append position.
pub struct Journal {
    pub(in crate::run) client: CoordinatorClient,
    pub(in crate::run) run: RunId,
    pub(in crate::run) epoch: Epoch,
    pub(in crate::run) patience: Duration,
    /// Model providers with a rate limit, as of the last append.
    pub(in crate::run) limited_providers: Vec<String>,
    /// Whether any batch has a budget, as of the last append.
    pub(in crate::run) has_batch_budgets: bool,
    failpoints: Failpoints,
    /// The state in the log: acknowledged events only.
    state: RunState,
}

impl Journal {
    /// Creates a journal on the stream that `state` was folded from.
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

    /// The state in the log, without pending results.
    pub const fn state(&self) -> &RunState {
        &self.state
    }

    /// Returns the state as it will be once `results` are in the log.
    ///
    /// # Errors
    /// [`CorruptLog`]: they cannot follow.
    pub fn state_with(&self, results: &PendingAppend) -> Result<RunState, CorruptLog> {
        let mut state = self.state.clone();
        fold_unrecorded(&mut state, self.epoch, &results.events)?;
        Ok(state)
    }

    /// Appends `results` and the events that `decide` derives from the state after them. After a conflict, `decide`
    /// is called again on the state with the other writer's events.
    ///
    /// # Errors
    /// [`JournalError`], or the error of `decide`.
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

    /// Appends the snapshot parts that do not fit in one append, with all their contents. Returns the blobs still to
    /// be sent.
    async fn append_leading_parts<'o>(
        &mut self,
        results: &'o PendingAppend,
    ) -> Result<&'o [(BlobRef, Bytes)], JournalError> {
        if results.leading_parts.is_empty() {
            return Ok(&results.blobs);
        }
        let deadline = Instant::now() + self.patience;
        // Retained because they were just stored: the parts have no room to name them.
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
    /// [`JournalError`]: the append failed.
    pub async fn append_results(&mut self, results: &PendingAppend) -> Result<(), JournalError> {
        self.append(results, async |_| Ok((PendingAppend::default(), ()))).await
    }

    /// Records the run as failed, without a decision of its engine.
    ///
    /// # Errors
    /// [`JournalError`]: the append failed.
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

    /// Delegates a piece of work. The coordinator writes that into the stream and returns the new events. Returns the
    /// reason if the delegation is not possible as requested.
    ///
    /// # Errors
    /// [`JournalError`]: the request failed.
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

    /// Appends, or folds the events of other writers and returns `false`.
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
            // Blobs that are already stored are retained because the append names them; those that do not fit in its
            // list are retained by being stored again.
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

/// Maps a refusal to its meaning for the run. The caller has already waited for temporary ones.
fn from_problem(problem: Box<ProblemDetails>) -> JournalError {
    match problem.code {
        // Not the run's fault: the next worker continues from the end of the log.
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

/// Folds events that are not in the log yet. The coordinator computes their hashes: the head's hash is set from its
/// reply, and no other is ever read.
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

    /// A refusal that has nothing to do with the run releases it; such a refusal must not end it as failed.
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

    /// A server that reports all blobs but one as missing, and counts those that are stored.
    async fn blob_server() -> (CoordinatorClient, Arc<Mutex<Vec<String>>>) {
        let stored = Arc::new(Mutex::new(Vec::new()));
        let missing = async |Json(mut asked): Json<MissingBlobsRequest>| {
            asked.hashes.retain(|hash| *hash != BlobHash::hash_bytes(b"known"));
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
        let all = [&large[..], b"known", b"new"].map(BlobHash::hash_bytes);
        assert_eq!(request.names, all, "a blob that is stored already is kept by its name");
        let mut sent = stored.lock().unwrap().clone();
        sent.sort();
        let mut missing = [all[0].to_string(), all[2].to_string()];
        missing.sort();
        assert_eq!(sent, missing);
    }
}
