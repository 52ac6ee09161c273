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
    ids::{BlobHash, Epoch, EventHash, RunId, Seq, Turn},
    run::{CorruptLog, EventMeta, RunEvent, RunState, SnapshotTaken},
    snapshot::{LeftOut, PathChange},
    wire::{AppendRequest, BLOB_HASHES_MAX, BlobUpload, DelegateRequest, Problem, ProblemCode},
};

use super::failpoint::Failpoints;
use crate::{
    bootstrap::FailWhen,
    client::{Client, ClientError, patiently_without_room},
    workspace::{PendingBlobs, SnapshotDelta},
};

/// Blobs of one append above this are uploaded before it: a body stays far under the API's limit.
pub(super) const INLINE_BLOBS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Paths of one `SnapshotTaken`, in bytes of JSON: with what else it holds, well under the limit on payloads.
const SNAPSHOT_PATHS_BYTES_MAX: usize = 192 * 1024;

/// Parts of a snapshot in one append: with its events it stays well under the API's limit on bodies.
const PARTS_PER_APPEND_MAX: usize = 64;

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

/// Events on their way to the log, with the blobs they name.
#[derive(Debug, Clone, Default)]
pub struct Outgoing {
    /// Parts of a snapshot that go in appends of their own before the events; none counts without the last.
    ahead: Vec<(Turn, RunEvent)>,
    events: Vec<(Turn, RunEvent)>,
    /// Cheap to clone: what was refused for its seq alone goes out once more.
    blobs: Vec<(BlobRef, Bytes)>,
}

impl Outgoing {
    /// Adds an event of `turn`.
    pub fn push(&mut self, turn: Turn, event: impl Into<RunEvent>) {
        self.events.push((turn, event.into()));
    }

    /// Adds a blob that an event names.
    pub fn blob(&mut self, blob: BlobRef, bytes: Vec<u8>) {
        self.blobs.push((blob, bytes.into()));
    }

    /// Adds what follows.
    pub(super) fn join(&mut self, more: Self) {
        self.ahead.extend(more.ahead);
        self.events.extend(more.events);
        self.blobs.extend(more.blobs);
    }

    /// The events, each with its turn, in order; without what goes ahead of them.
    pub fn events(&self) -> &[(Turn, RunEvent)] {
        &self.events
    }

    /// The events alone.
    pub fn into_events(self) -> Vec<(Turn, RunEvent)> {
        [self.ahead, self.events].concat()
    }

    /// The bytes of a blob that an event names, where they came with it.
    pub fn bytes_of(&self, blob: &BlobRef) -> Option<&[u8]> {
        self.blobs.iter().find(|(of, _)| of == blob).map(|(_, bytes)| bytes.as_ref())
    }

    /// Adds a snapshot with its contents. One of more paths than an event can hold becomes several
    /// parts, which count as one once the last of them is there; parts beyond what an append can
    /// hold go ahead of it.
    pub fn snapshot(&mut self, turn: Turn, delta: SnapshotDelta) {
        let (mut parts, blobs) = snapshots(delta);
        let last = parts.pop();
        let rest = parts.into_iter().map(|part| (turn, part.into()));
        if rest.len() < PARTS_PER_APPEND_MAX {
            self.events.extend(rest);
        } else {
            self.ahead.extend(rest);
        }
        last.into_iter().for_each(|last| self.push(turn, last));
        self.blobs.extend(blobs.into_vec().into_iter().map(|(blob, bytes)| (blob, bytes.into())));
    }

    /// Whether there is nothing to append.
    pub const fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn bytes(&self) -> usize {
        self.blobs.iter().map(|(_, bytes)| bytes.len()).sum()
    }
}

/// A snapshot as the events that can hold it, at least one, and the contents they name. Each but the last
/// says that more is to come, and none counts without it.
pub(super) fn snapshots(delta: SnapshotDelta) -> (Vec<SnapshotTaken>, PendingBlobs) {
    let SnapshotDelta { changes, git_changes, tree, left_out, blobs, .. } = delta;
    let empty = || SnapshotTaken { changes: vec![], git_changes: vec![], tree, left_out: vec![], more: true };
    let (mut parts, mut part, mut bytes) = (Vec::new(), empty(), 0);
    let paths = changes.into_iter().map(Path::Work);
    let paths = paths.chain(git_changes.into_iter().map(Path::Git));
    for path in paths.chain(left_out.into_iter().map(Path::LeftOut)) {
        let more = path.json_bytes();
        if bytes > 0 && bytes + more > SNAPSHOT_PATHS_BYTES_MAX {
            parts.push(std::mem::replace(&mut part, empty()));
            bytes = 0;
        }
        bytes += more;
        match path {
            Path::Work(change) => part.changes.push(change),
            Path::Git(change) => part.git_changes.push(change),
            Path::LeftOut(left) => part.left_out.push(left),
        }
    }
    parts.push(SnapshotTaken { more: false, ..part });
    (parts, blobs)
}

/// A path of a snapshot.
enum Path {
    Work(PathChange),
    Git(PathChange),
    LeftOut(LeftOut),
}

impl Path {
    fn json_bytes(&self) -> usize {
        let json = match self {
            Self::Work(change) | Self::Git(change) => serde_json::to_vec(change),
            Self::LeftOut(left) => serde_json::to_vec(left),
        };
        json.expect("plain data with string keys").len() + 1
    }
}

/// See the module.
pub struct Journal {
    pub(super) client: Client,
    pub(super) run: RunId,
    pub(super) epoch: Epoch,
    pub(super) patience: Duration,
    /// Model providers that have a limit, as of the last append.
    pub(super) limited: Vec<String>,
    /// Some batch has a budget, as of the last append.
    pub(super) budgets: bool,
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

    /// Gives work away. The coordinator writes that into the stream, and answers what it holds by now. `Some` = it
    /// cannot be done as it is asked, and why.
    ///
    /// # Errors
    /// [`JournalError`].
    pub(super) async fn delegate(
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

pub(super) fn of_client(error: ClientError) -> JournalError {
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

pub(super) fn upload(blob: BlobRef, bytes: &[u8]) -> BlobUpload {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    BlobUpload { blob, b64: STANDARD.encode(bytes) }
}

fn span(first: Seq, count: usize) -> std::ops::Range<u64> {
    first.0..first.0 + count as u64
}

/// Folds events that are not yet in the log. Their hashes are the coordinator's to make: the head's
/// is set from its answer, and none other is ever looked at.
pub(super) fn fold(
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
    use docket_schema::{
        content::WorkPath,
        event::PAYLOAD_BYTES_MAX,
        ids::TreeHash,
        snapshot::{Entry, EntryKind, LeftOutWhy},
        wire::{MissingBlobsRequest, MissingBlobsResponse},
    };

    use std::sync::{Arc, Mutex};

    use axum::{
        Json, Router,
        extract::{DefaultBodyLimit, Path, State},
        http::StatusCode,
        routing::{post, put},
    };

    use super::*;
    use crate::secret::Secret;

    fn change(n: usize) -> PathChange {
        let path = WorkPath::new(format!("build/\u{1}some/rather/deep/folder/object-{n}.o")).unwrap();
        let entry = Entry { kind: EntryKind::File, mode: 0o644, size: 1 << 20, hash: BlobHash([7; 32]) };
        PathChange { path, entry: Some(entry) }
    }

    #[test]
    fn a_snapshot_of_any_size_fits_into_events_and_loses_no_path() {
        let changes: Vec<PathChange> = (0..9000).map(change).collect();
        let git_changes: Vec<PathChange> = (9000..12_000).map(change).collect();
        let left_out: Vec<LeftOut> = (0..1000)
            .map(|n| LeftOut { path: WorkPath::new(vec![0xff; 200 + n]).unwrap(), why: LeftOutWhy::Ignored })
            .collect();
        let tree = TreeHash([3; 32]);
        let mut out = Outgoing::default();
        let delta = SnapshotDelta {
            changes: changes.clone(),
            git_changes: git_changes.clone(),
            tree,
            left_out: left_out.clone(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        out.snapshot(Turn(4), delta);

        assert!(out.events.len() > 1 && out.ahead.is_empty(), "{}", out.events.len());
        let (mut work, mut git, mut left) = (Vec::new(), Vec::new(), Vec::new());
        let last = out.events.len() - 1;
        for (nth, (turn, event)) in out.events.into_iter().enumerate() {
            let size = event.encode(turn).payload.as_str().len();
            assert!(size <= PAYLOAD_BYTES_MAX, "{size}");
            let RunEvent::SnapshotTaken(taken) = event else { panic!("{event:?}") };
            assert_eq!((turn, taken.tree, taken.more), (Turn(4), tree, nth < last));
            work.extend(taken.changes);
            git.extend(taken.git_changes);
            left.extend(taken.left_out);
        }
        assert!(work == changes && git == git_changes && left == left_out);
    }

    #[test]
    fn parts_beyond_what_an_append_holds_go_ahead_of_the_last() {
        let delta = SnapshotDelta {
            changes: (0..70_000).map(change).collect(),
            git_changes: Vec::new(),
            tree: TreeHash([3; 32]),
            left_out: Vec::new(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        let mut out = Outgoing::default();
        out.snapshot(Turn(1), delta);
        let taken = |(_, event): &(Turn, RunEvent)| match event {
            RunEvent::SnapshotTaken(taken) => (taken.changes.len(), taken.more),
            other => panic!("{other:?}"),
        };
        let ahead: Vec<(usize, bool)> = out.ahead.iter().map(taken).collect();
        let last: Vec<(usize, bool)> = out.events.iter().map(taken).collect();
        assert!(ahead.len() >= PARTS_PER_APPEND_MAX && ahead.iter().all(|(_, more)| *more));
        assert!(matches!(last[..], [(1.., false)]), "{last:?}");
        assert_eq!(ahead.iter().chain(&last).map(|(paths, _)| paths).sum::<usize>(), 70_000);
    }

    #[test]
    fn a_snapshot_of_few_paths_is_one_event() {
        let mut out = Outgoing::default();
        let delta = SnapshotDelta {
            changes: vec![change(1), change(2)],
            git_changes: Vec::new(),
            tree: TreeHash([3; 32]),
            left_out: Vec::new(),
            blobs: PendingBlobs::default(),
            files_read: 0,
        };
        out.snapshot(Turn(1), delta);
        assert_eq!(out.events.len(), 1);
    }

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
