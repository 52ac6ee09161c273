//! Wake-up hints between coordinators of one database. A hint only says that something changed, not what.

use super::{StoreError, StoreFuture};

/// Contents of a hint.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WakeupHint {
    /// A task may be available.
    pub task_available: bool,
    /// A lease may have been lost.
    pub lease_lost: bool,
    /// A task may become due sooner.
    pub due_sooner: bool,
}

/// A message received by a listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintMessage {
    /// A hint, possibly from this coordinator itself.
    Hint(WakeupHint),
    /// A coordinator is listening, possibly this one.
    ListenerPresent,
}

/// Sends hints to the other coordinators of a database and receives theirs.
///
/// Errors: the database does not reply. A lost hint only delays the news until the next poll.
pub trait CoordinatorHints: Send + Sync {
    /// Sends a hint to the other coordinators, if there are any.
    fn send(&self, hint: WakeupHint) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Starts listening on a separate connection. Returns `None` where that is impossible: a pooler has no
    /// sessions.
    fn open_listener(&self) -> StoreFuture<'_, Result<Option<Box<dyn HintListener>>, StoreError>>;

    /// Returns whether another coordinator listens.
    fn has_other_listener(&self) -> StoreFuture<'_, Result<bool, StoreError>>;
}

/// A connection that receives hints.
pub trait HintListener: Send {
    /// Returns the next message; `None` when the connection is lost or its server accepts no more writes.
    fn next_message(&mut self) -> StoreFuture<'_, Option<HintMessage>>;
}
