//! Settings of a queue: the events of its stream `queue/NAME` and their fold.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::event::typed_events;

typed_events! {
    /// An event of a queue's stream.
    pub enum QueueEvent {
        QueueSet 1,
    }
}

/// A queue's settings were changed. Contains all of them, so the last event is the fold. Recorded in
/// `queue/NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct QueueSet {
    /// Who changed them.
    pub by: String,
    /// The new settings.
    pub settings: QueueSettings,
}

/// Settings of a queue; the defaults apply if none were set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct QueueSettings {
    /// None of its tasks is leased. Running tasks continue.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// Maximum number of tasks that run at a time; none means no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running_max: Option<u32>,
}
