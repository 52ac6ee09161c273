//! Request and response bodies for administration: queues, limits, schedules, tokens, notifications, archive.

pub(super) mod archive;
pub(super) mod import;
pub(super) mod limit;
pub(super) mod memory;
pub(super) mod notification;
pub(super) mod queue;
pub(super) mod schedule;
pub(super) mod token;

pub use archive::*;
pub use import::*;
pub use limit::*;
pub use memory::*;
pub use notification::*;
pub use queue::*;
pub use schedule::*;
pub use token::*;
