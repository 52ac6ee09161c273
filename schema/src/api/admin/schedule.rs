//! Bodies about schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{TaskId, Timestamp},
    system::{ScheduleFired, ScheduleName, TaskSchedule},
};

/// `POST /v1/schedules/{name}`: makes a schedule. Blobs that its task names must be stored before.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetScheduleRequest {
    /// The schedule. Its task has no `run_at`, no `dedup_key` and waits for no other.
    pub schedule: TaskSchedule,
    /// It takes the place of the one of its name; without, that is refused.
    #[serde(default)]
    pub replace: bool,
}

/// `POST /v1/schedules/{name}/pause`, `…/unpause`, `…/remove`: an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleActRequest {}

/// `POST /v1/schedules/{name}/run`: gives its task now, whatever its times, pauses and overlaps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunScheduleRequest {
    /// The task's id, made by the caller so that the same request sent again gives one task.
    pub task: TaskId,
}

/// `GET /v1/schedules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleList {
    /// By name.
    pub schedules: Vec<ScheduleView>,
}

/// A schedule as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleView {
    /// Its name.
    pub name: ScheduleName,
    /// As it was set.
    pub schedule: TaskSchedule,
    /// By whom.
    pub by: String,
    /// When.
    pub set_at: Timestamp,
    /// It rests.
    pub paused: bool,
    /// When it fires next; none while it rests, or where its time never comes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The last firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<ScheduleFired>,
    /// The task of the last one that gave one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}
