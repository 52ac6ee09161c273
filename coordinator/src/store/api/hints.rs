//! Hints between coordinators of one database: that there is news, never what.

use super::{StoreError, StoreFuture};

/// What there may be news of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Hint {
    /// A task may be leased.
    pub work: bool,
    /// A lease may have been lost.
    pub leases: bool,
    /// A task's time may come sooner.
    pub due: bool,
}

/// What a listener heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// News, perhaps one's own.
    Hint(Hint),
    /// A coordinator that listens, perhaps oneself.
    Coordinator,
}

/// Sends hints to the other coordinators of a database and listens for theirs.
///
/// Errors: the database does not answer. A hint that is lost costs the time until the next poll, nothing else.
pub trait CoordinatorHints: Send + Sync {
    /// Tells the others, if there are any.
    fn send(&self, hint: Hint) -> StoreFuture<'_, Result<(), StoreError>>;

    /// Listens, on a connection of its own. `None` where that cannot be: a pooler has no sessions.
    fn listen(&self) -> StoreFuture<'_, Result<Option<Box<dyn HintListener>>, StoreError>>;

    /// Learns whether another coordinator listens.
    fn count(&self) -> StoreFuture<'_, Result<bool, StoreError>>;
}

/// A connection that hears hints.
pub trait HintListener: Send {
    /// The next hint; `None` when the connection is gone, or its server takes no writes any more.
    fn next(&mut self) -> StoreFuture<'_, Option<Heard>>;
}
