//! [`TailedFold`]: the fold of a system stream in memory, tailed, and the only way to append changes decided
//! on the fold.
//!
//! A change is decided on the fold and appended at the fold's head. If another append came first, the store
//! refuses it for its seq; then the log is read on and the change is decided again. [`AppendRetries`]
//! provides this retry without a fold.
//!
//! Invariants: a change is never appended to a state other than the one it was decided on; once acknowledged
//! it is in the log and in this fold. A fold whose log continues with an event that cannot be folded keeps
//! its state and reports this ([`FoldProgress::is_stuck`]).

use std::sync::{PoisonError, RwLock};

use docket_schema::{
    api::PAGE_EVENTS_MAX,
    blob_refs,
    event::{Envelope, TypedEvent as _},
    ids::{BlobHash, Seq, StreamId, SystemTopic, Timestamp, Turn},
    system::{SystemEvent, TopicError, TopicFold},
};
use tokio::sync::{Mutex, watch};

use crate::store::{AppendCondition, AppendError, LogAppend, NewBlob, Store, StoreError};

/// How often a change is decided before its caller is asked to try again later. Changes of one process are
/// serialized, so only other coordinators can come first, each once in a row.
const ATTEMPTS_MAX: u32 = 16;

/// A system stream could not be read or appended to.
#[derive(Debug, thiserror::Error)]
pub enum FoldError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The log continues with an event that does not fold.
    #[error("{message}")]
    Unreadable {
        /// The message [`CachedFold::UNREADABLE`].
        message: &'static str,
        /// The event, and why it does not fold.
        #[source]
        source: TopicError,
    },
    /// The append was refused for another reason than its seq.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Other appends came first too often.
    #[error("{0}")]
    Contended(&'static str),
}

/// A fold cached by a coordinator, with its error messages. Each message names the remedy.
pub trait CachedFold: TopicFold + Send + Sync {
    /// The log continues with an event that does not fold.
    const UNREADABLE: &'static str;

    /// Other appends came first too often.
    const CONTENDED: &'static str = "too many concurrent changes of the log; try again";
}

/// How far a fold was read. Never decreases.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FoldProgress {
    /// The last event that was folded.
    pub head: Seq,
    /// Whether the log continues with an event that this build cannot fold.
    pub is_stuck: bool,
}

/// A cached fold of one store, which each call passes in; see the module.
#[derive(Debug, Default)]
pub struct TailedFold<F> {
    fold: RwLock<F>,
    /// Serializes changes of this process, so that they are not refused for each other's seq.
    change_lock: Mutex<()>,
    progress: watch::Sender<FoldProgress>,
}

impl<F: CachedFold> TailedFold<F> {
    /// Calls `look` with the fold as last read.
    pub fn with_fold<T>(&self, look: impl FnOnce(&F) -> T) -> T {
        look(&self.fold.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns how far the fold was read.
    pub fn progress(&self) -> FoldProgress {
        *self.progress.borrow()
    }

    /// Returns a receiver that changes whenever the log is read further.
    pub fn subscribe(&self) -> watch::Receiver<FoldProgress> {
        self.progress.subscribe()
    }

    /// Reads what the log has beyond the fold. Can be called concurrently.
    pub async fn catch_up(&self, store: &dyn Store) -> Result<(), FoldError> {
        loop {
            let page = store
                .read_events(StreamId::System(F::TOPIC), self.with_fold(F::head), PAGE_EVENTS_MAX)
                .await?;
            self.apply_page(&page)
                .map_err(|source| FoldError::Unreadable { message: F::UNREADABLE, source })?;
            if page.len() < PAGE_EVENTS_MAX as usize {
                return Ok(());
            }
        }
    }

    fn apply_page(&self, page: &[Envelope]) -> Result<(), TopicError> {
        let mut fold = self.fold.write().unwrap_or_else(PoisonError::into_inner);
        let applied = page.iter().try_for_each(|event| {
            // Another caller may have read the same page.
            if event.seq > fold.head() { fold.apply(&event.as_event_ref()) } else { Ok(()) }
        });
        let head = fold.head();
        drop(fold);
        self.progress.send_if_modified(|progress| {
            let is_stuck = progress.is_stuck || applied.is_err();
            let next = FoldProgress { head: progress.head.max(head), is_stuck };
            std::mem::replace(progress, next) != next
        });
        applied
    }

    /// Appends the events that `decide` returns for the fold; it is called again if another append came
    /// first. Returns whether there were any.
    pub async fn change<E: From<FoldError>, I: IntoIterator<Item = SystemEvent>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        decide: impl FnMut(&F) -> Result<I, E>,
    ) -> Result<bool, E> {
        self.change_with_blobs(store, now, &[], decide).await
    }

    /// Like [`Self::change`], with blobs that the events reference.
    pub async fn change_with_blobs<E: From<FoldError>, I: IntoIterator<Item = SystemEvent>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        blobs: &[NewBlob],
        mut decide: impl FnMut(&F) -> Result<I, E>,
    ) -> Result<bool, E> {
        let _turn = self.change_lock.lock().await;
        let mut retries = AppendRetries::new(F::CONTENDED);
        loop {
            self.catch_up(store).await?;
            let (head, events) = self.with_fold(|fold| (fold.head(), decide(fold)));
            let events: Vec<SystemEvent> = events?.into_iter().collect();
            if events.is_empty() {
                return Ok(false);
            }
            let append = system_append(F::TOPIC, AppendCondition::ExpectedSeq(head), &events, blobs, now);
            if retries.append(store, append).await? {
                self.catch_up(store).await?;
                return Ok(true);
            }
        }
    }
}

impl<F: CachedFold + Clone> TailedFold<F> {
    /// Returns a copy of the fold as last read.
    pub fn clone_fold(&self) -> F {
        self.with_fold(F::clone)
    }
}

/// Counts how often other appends came before one decided at an expected head.
#[derive(Debug)]
pub struct AppendRetries {
    tries_left: u32,
    contended: &'static str,
}

impl AppendRetries {
    /// `contended` is the error message after too many retries.
    pub const fn new(contended: &'static str) -> Self {
        Self { tries_left: ATTEMPTS_MAX, contended }
    }

    /// Like [`append_if_first`]. After `false`, read on and decide again.
    pub async fn append(&mut self, store: &dyn Store, append: LogAppend) -> Result<bool, FoldError> {
        if append_if_first(store, append).await? {
            return Ok(true);
        }
        self.tries_left -= 1;
        if self.tries_left == 0 { Err(FoldError::Contended(self.contended)) } else { Ok(false) }
    }
}

/// Appends at the expected head. Returns `false` if another append came first; nothing was written then.
pub async fn append_if_first(store: &dyn Store, append: LogAppend) -> Result<bool, FoldError> {
    match store.append(append).await {
        Ok(_) => Ok(true),
        Err(AppendError::WrongSeq { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Builds an append to a system stream. Each blob that its events reference must be included or already
/// stored.
pub fn system_append(
    topic: SystemTopic,
    condition: AppendCondition,
    events: &[SystemEvent],
    blobs: &[NewBlob],
    now: Timestamp,
) -> LogAppend {
    let mut named = Vec::new();
    events.iter().for_each(|event| blob_refs::collect_system_event_blobs(event, &mut named));
    let mut names: Vec<BlobHash> = named.into_iter().map(|named| named.blob.hash).collect();
    names.retain(|name| blobs.iter().all(|new| new.blob.hash != *name));
    names.sort_unstable();
    names.dedup();
    LogAppend {
        stream: StreamId::System(topic),
        condition,
        events: events.iter().map(|event| event.encode(Turn(0))).collect(),
        blobs: blobs.to_vec(),
        required_blobs: names,
        now,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use docket_schema::{
        content::BlobRef,
        event::{EVENTS_PER_APPEND_MAX, NewEvent, Payload},
        ids::RunId,
        message::CallId,
        system::{
            LimitRemoved, LimitSet, LimitsFold, MemoryCall, MemoryFold, MemorySaved, MemoryScope,
            ProviderLimits,
        },
    };
    use tokio::runtime::Handle;

    use super::*;
    use crate::store::{EventLog as _, StoreAdmin as _};
    use crate::store::{SqlStore, sqlite};

    const LIMITS: StreamId = StreamId::System(SystemTopic::Limits);
    const NOW: Timestamp = Timestamp(1);

    async fn open_store() -> (Arc<SqlStore>, tempfile::TempDir) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = sqlite::open(&folder.path().join("docket.db")).await.expect("opens");
        (Arc::new(store), folder)
    }

    fn limit_set(provider: &str) -> SystemEvent {
        let limits = ProviderLimits { concurrent: Some(1), ..ProviderLimits::default() };
        LimitSet { provider: provider.to_owned(), limits, by: "ann".to_owned() }.into()
    }

    fn providers(fold: &TailedFold<LimitsFold>) -> Vec<String> {
        fold.with_fold(|limits| limits.all().map(|(set, _)| set.provider.clone()).collect())
    }

    async fn stream_seqs(store: &dyn Store) -> Vec<u64> {
        let events = store.read_events(LIMITS, Seq(0), PAGE_EVENTS_MAX).await.expect("reads");
        events.iter().map(|event| event.seq.0).collect()
    }

    /// Appends at the stream's head, as another coordinator would.
    async fn append_elsewhere(store: &dyn Store, event: SystemEvent) {
        let append = system_append(SystemTopic::Limits, AppendCondition::AtHead, &[event], &[], NOW);
        store.append(append).await.expect("appends");
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn concurrent_changes_through_two_folds_all_apply_in_one_order() {
        let (store, _folder) = open_store().await;
        let folds = [(); 2].map(|()| Arc::new(TailedFold::<LimitsFold>::default()));
        let changes: Vec<_> = (0..60)
            .map(|n| {
                let (store, fold) = (Arc::clone(&store), Arc::clone(&folds[n % 2]));
                tokio::spawn(async move {
                    let event = limit_set(&format!("p{n:02}"));
                    loop {
                        let decide = |_: &LimitsFold| Ok::<_, FoldError>([event.clone()]);
                        match fold.change(&*store, NOW, decide).await {
                            Err(FoldError::Contended(_)) => {}
                            other => return other,
                        }
                    }
                })
            })
            .collect();
        for change in changes {
            assert!(change.await.expect("ends").expect("is appended"));
        }
        let all: Vec<String> = (0..60).map(|n| format!("p{n:02}")).collect();
        for fold in &folds {
            fold.catch_up(&*store).await.expect("reads");
            assert_eq!((providers(fold), fold.progress().head), (all.clone(), Seq(60)));
        }
        assert_eq!(stream_seqs(&*store).await, (1..=60).collect::<Vec<u64>>(), "each once");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn change_is_decided_again_after_another_append() {
        let (store, _folder) = open_store().await;
        let fold = TailedFold::<LimitsFold>::default();
        let mut seen = Vec::new();
        let decide = |limits: &LimitsFold| {
            seen.push(limits.all().count());
            if limits.get("openai").is_some() {
                let removed = LimitRemoved { provider: "openai".to_owned(), by: "ann".to_owned() };
                return Ok::<_, FoldError>([SystemEvent::from(removed)]);
            }
            let other = append_elsewhere(&*store, limit_set("openai"));
            tokio::task::block_in_place(|| Handle::current().block_on(other));
            Ok([limit_set("anthropic")])
        };
        let is_changed = fold.change(&*store, NOW, decide).await.expect("changes");
        assert!(
            is_changed && providers(&fold).is_empty(),
            "by the second decision alone: {:?}",
            providers(&fold)
        );
        assert_eq!((seen, stream_seqs(&*store).await), (vec![0, 1], vec![1, 2]));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn change_gives_up_after_a_bounded_number_of_tries() {
        let (store, _folder) = open_store().await;
        let fold = TailedFold::<LimitsFold>::default();
        let tries = AtomicUsize::new(0);
        let decide = |_: &LimitsFold| {
            let nth = tries.fetch_add(1, Ordering::Relaxed);
            let other = append_elsewhere(&*store, limit_set(&format!("p{nth}")));
            tokio::task::block_in_place(|| Handle::current().block_on(other));
            Ok::<_, FoldError>([limit_set("mine")])
        };
        let refused = fold.change(&*store, NOW, decide).await.expect_err("always too late");
        assert!(matches!(refused, FoldError::Contended(_)), "{refused:?}");
        assert_eq!(refused.to_string(), LimitsFold::CONTENDED);
        fold.catch_up(&*store).await.expect("reads");
        assert_eq!(tries.into_inner(), ATTEMPTS_MAX as usize);
        assert_eq!(fold.progress().head, Seq(u64::from(ATTEMPTS_MAX)), "nothing of it was appended");
        assert!(!providers(&fold).contains(&"mine".to_owned()));
    }

    #[tokio::test]
    async fn fold_keeps_its_state_when_an_event_cannot_be_folded() {
        let newer = |kind: &str| NewEvent {
            kind: kind.to_owned(),
            version: 1,
            turn: Turn(0),
            payload: Payload::parse("{}".to_owned()).expect("json"),
        };
        let removed = LimitRemoved { provider: "gone".to_owned(), by: "ann".to_owned() };
        // One of a kind unknown to this build, and one that contradicts earlier events.
        for refused in [newer("LimitsAllDoubled"), SystemEvent::from(removed).encode(Turn(0))] {
            let (store, _folder) = open_store().await;
            let fold = TailedFold::<LimitsFold>::default();
            let mut reads = fold.subscribe();
            append_elsewhere(&*store, limit_set("openai")).await;
            let mut append = system_append(SystemTopic::Limits, AppendCondition::AtHead, &[], &[], NOW);
            append.events = vec![refused];
            store.append(append).await.expect("the store takes it");
            for nth in 0..2 {
                let error = fold.catch_up(&*store).await.expect_err("does not fold");
                assert!(matches!(error, FoldError::Unreadable { .. }), "{error:?}");
                assert_eq!(error.to_string(), LimitsFold::UNREADABLE);
                assert_eq!(fold.progress(), FoldProgress { head: Seq(1), is_stuck: true });
                assert_eq!(reads.has_changed().expect("open"), nth == 0, "told once");
                reads.mark_unchanged();
            }
            assert_eq!(providers(&fold), ["openai"]);
            let decide = |_: &LimitsFold| Ok::<_, FoldError>([limit_set("anthropic")]);
            fold.change(&*store, NOW, decide).await.expect_err("nothing is decided on half a log");
            assert_eq!(stream_seqs(&*store).await, [1, 2]);
        }
    }

    #[tokio::test]
    async fn empty_decision_appends_nothing() {
        let (store, _folder) = open_store().await;
        let fold = TailedFold::<LimitsFold>::default();
        let nothing = |_: &LimitsFold| Ok::<_, FoldError>(None);
        assert!(!fold.change(&*store, NOW, nothing).await.expect("decides"));
        #[derive(Debug)]
        enum Refused {
            ByDecision,
            ByFold,
        }
        impl From<FoldError> for Refused {
            fn from(_: FoldError) -> Self {
                Self::ByFold
            }
        }
        let refuse = |_: &LimitsFold| Err::<Option<SystemEvent>, _>(Refused::ByDecision);
        assert!(matches!(fold.change(&*store, NOW, refuse).await, Err(Refused::ByDecision)));
        assert!(store.stream_head(LIMITS).await.expect("reads").is_none());
        store.close().await;
        assert!(matches!(fold.change(&*store, NOW, refuse).await, Err(Refused::ByFold)));
    }

    #[tokio::test]
    async fn subscribers_see_all_pages_of_a_long_log() {
        let (store, _folder) = open_store().await;
        let fold = TailedFold::<LimitsFold>::default();
        let mut reads = fold.subscribe();
        fold.catch_up(&*store).await.expect("reads");
        assert!(!reads.has_changed().expect("open"), "there is nothing yet");
        let last = u64::from(PAGE_EVENTS_MAX) + 1;
        let events: Vec<SystemEvent> = (0..last).map(|n| limit_set(&format!("p{}", n % 7))).collect();
        for part in events.chunks(EVENTS_PER_APPEND_MAX) {
            let append = system_append(SystemTopic::Limits, AppendCondition::AtHead, part, &[], NOW);
            store.append(append).await.expect("appends");
        }
        tokio::try_join!(fold.catch_up(&*store), fold.catch_up(&*store)).expect("reads, also at once");
        assert_eq!(*reads.borrow_and_update(), FoldProgress { head: Seq(last), is_stuck: false });
        assert_eq!(fold.clone_fold().head(), Seq(last));
        fold.catch_up(&*store).await.expect("reads");
        assert!(!reads.has_changed().expect("open"), "nothing is new");
    }

    #[tokio::test]
    async fn referenced_blob_must_be_sent_or_stored() {
        let (store, _folder) = open_store().await;
        let fold = TailedFold::<MemoryFold>::default();
        let saved = |text: &str, call: &str| {
            SystemEvent::from(MemorySaved {
                scope: MemoryScope::Repository("/shop".to_owned()),
                key: "tests".to_owned(),
                value: BlobRef::for_bytes(text.as_bytes()),
                begins: text.to_owned(),
                by: MemoryCall { run: RunId(uuid::Uuid::nil()), call: CallId(call.to_owned()) },
            })
        };
        let decide = |_: &MemoryFold| Ok::<_, FoldError>([saved("make test", "t1-0")]);
        let refused = fold.change(&*store, NOW, decide).await.expect_err("it is not stored");
        assert!(matches!(refused, FoldError::Append(AppendError::BlobMissing(_))), "{refused:?}");
        let text = b"make test";
        let blob = NewBlob { blob: BlobRef::for_bytes(text), bytes: text.to_vec().into() };
        assert!(fold.change_with_blobs(&*store, NOW, &[blob], decide).await.expect("comes with it"));
        let again = |_: &MemoryFold| Ok::<_, FoldError>([saved("make test", "t2-0")]);
        assert!(fold.change(&*store, NOW, again).await.expect("is there now"));
    }
}
