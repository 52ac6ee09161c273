//! A queue's own settings: its stream `queue/NAME` and what that folds to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::typed_events;

typed_events! {
    /// An event of a queue's stream.
    pub enum QueueEvent {
        QueueSet 1,
    }
}

/// Somebody set what holds for a queue: all of it, so that the last event is the fold. Stands in `queue/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueSet {
    /// Who.
    pub by: String,
    /// From here on.
    pub settings: QueueSettings,
}

/// What holds for a queue. A queue that nobody set anything for has the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// None of its tasks is leased. Those that run go on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// At most so many of its tasks run at a time; none = as many as there are workers for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}
