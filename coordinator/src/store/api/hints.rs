//! Hints between coordinators of one database: that there is news, never what.

use super::{StoreError, StoreFuture};

/// What there may be news of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WakeupHint {
    /// A task may be leased.
    pub task_available: bool,
    /// A lease may have been lost.
    pub lease_lost: bool,
    /// A task's time may come sooner.
    pub due_sooner: bool,
}

/// What a listener heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HintMessage {
    /// News, perhaps one's own.
    Hint(WakeupHint),
    /// A coordinator that listens, perhaps oneself.
    ListenerPresent,
}

/// Sends hints to the other coordinators of a database and listens for theirs.
///
/// Errors: the database does not answer. A hint that is lost costs the time until the next poll, nothing else.
pub trait CoordinatorHints: Send + Sync {
    /// Tells the others, if there are any.
    fn send(&self, hint: WakeupHint) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Listens, on a connection of its own. `None` where that cannot be: a pooler has no sessions.
    fn open_listener(&self) -> StoreFuture<'_, Result<Option<Box<dyn HintListener>>, StoreError>>;

    /// Learns whether another coordinator listens.
    fn has_other_listener(&self) -> StoreFuture<'_, Result<bool, StoreError>>;
}

/// A connection that hears hints.
pub trait HintListener: Send {
    /// The next hint; `None` when the connection is gone, or its server takes no writes any more.
    fn next_message(&mut self) -> StoreFuture<'_, Option<HintMessage>>;
}
