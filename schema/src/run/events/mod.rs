//! The events of a run's stream: the enum, and a file for each kind of payload.

pub(super) mod author;
pub(super) mod compacted;
pub(super) mod conclusion;
pub(super) mod event;
pub(super) mod inbox;
pub(super) mod roles;
pub(super) mod work;

pub use author::*;
pub use compacted::*;
pub use conclusion::*;
pub use event::*;
pub use inbox::*;
pub use roles::*;
pub use work::*;
