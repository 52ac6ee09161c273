//! Events of a run's stream: the enum, and one file per group of payloads.

pub(super) mod compaction;
pub(super) mod conclusion;
pub(super) mod control_events;
pub(super) mod event_author;
pub(super) mod role_events;
pub(super) mod run_event;
pub(super) mod turn_events;

pub use compaction::*;
pub use conclusion::*;
pub use control_events::*;
pub use event_author::*;
pub use role_events::*;
pub use run_event::*;
pub use turn_events::*;
