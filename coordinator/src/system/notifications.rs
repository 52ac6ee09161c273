//! The fold of `system/notifications`, as far as this coordinator has read it, and the one way to write to the stream.

use std::sync::{PoisonError, RwLock};

use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, Timestamp, Turn},
    system::{Notifications, SystemEvent, TopicError},
    wire::PAGE_EVENTS_MAX,
};
use tokio::sync::{Mutex, watch};

use crate::store::{Append, AppendError, Condition, Store, StoreError};

/// The stream.
pub const STREAM: StreamId = StreamId::System(SystemTopic::Notifications);

/// How often what another coordinator was faster with is decided anew. Those of this process wait for each other.
const TRIES: u32 = 16;

/// Notifications could not be read, or written.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What it holds does not fold.
    #[error(
        "the log's notifications cannot be read; `docket verify` says more, a newer docket may know them"
    )]
    Log(#[from] TopicError),
    /// An append was refused.
    #[error(transparent)]
    Append(#[from] AppendError),
    /// Others were faster, again and again.
    #[error("many write notifications at once; try again")]
    Contended,
}

/// See the module.
#[derive(Debug)]
pub struct NotifyTable {
    known: RwLock<Notifications>,
    /// One writer of this process at a time.
    turn: Mutex<()>,
    /// Up to where it was read: who waits for news of the stream waits here.
    grown: watch::Sender<Seq>,
}

impl Default for NotifyTable {
    fn default() -> Self {
        let grown = watch::Sender::new(Seq(0));
        Self { known: RwLock::default(), turn: Mutex::default(), grown }
    }
}

impl NotifyTable {
    /// Looks at what was read.
    pub fn with<T>(&self, look: impl FnOnce(&Notifications) -> T) -> T {
        look(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Whoever waits for news.
    pub(super) fn news(&self) -> watch::Receiver<Seq> {
        self.grown.subscribe()
    }

    /// Reads what the log has that the table lacks. Any number of callers may at once.
    ///
    /// # Errors
    /// [`NotifyError`].
    pub async fn catch_up(&self, store: &dyn Store) -> Result<(), NotifyError> {
        loop {
            let page = store.read(STREAM, self.with(Notifications::head), PAGE_EVENTS_MAX).await?;
            let head = {
                let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
                for event in &page {
                    // Another may have read the same meanwhile.
                    if event.seq > known.head() {
                        known.apply(&event.by_ref())?;
                    }
                }
                known.head()
            };
            self.grown.send_if_modified(|seen| std::mem::replace(seen, head) != head);
            if page.len() < PAGE_EVENTS_MAX as usize {
                return Ok(());
            }
        }
    }

    /// Appends what `decide` makes of the fold; nothing where it makes nothing. Whether there was something.
    ///
    /// # Errors
    /// What `decide` says, or [`NotifyError`].
    pub async fn change<E: From<NotifyError>>(
        &self,
        store: &dyn Store,
        now: Timestamp,
        decide: impl Fn(&Notifications) -> Result<Vec<SystemEvent>, E>,
    ) -> Result<bool, E> {
        let _turn = self.turn.lock().await;
        for _ in 0..TRIES {
            self.catch_up(store).await?;
            let (head, events) = self.with(|known| (known.head(), decide(known)));
            let events = events?;
            if events.is_empty() {
                return Ok(false);
            }
            let append = Append {
                stream: STREAM,
                condition: Condition::Expected(head),
                events: events.iter().map(|event| event.encode(Turn(0))).collect(),
                blobs: Vec::new(),
                names: Vec::new(),
                now,
            };
            match store.append(append).await {
                Ok(_) => {
                    self.catch_up(store).await?;
                    return Ok(true);
                }
                Err(AppendError::WrongSeq { .. }) => {}
                Err(error) => return Err(NotifyError::from(error).into()),
            }
        }
        Err(NotifyError::Contended.into())
    }
}
