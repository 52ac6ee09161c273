//! Request and response bodies for schedules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{TaskId, Timestamp},
    system::{ScheduleFired, ScheduleName, TaskSchedule},
};

/// `POST /v1/schedules/{name}`: creates a schedule. Blobs that its task refers to must be stored first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetScheduleRequest {
    /// The schedule. Its task must not have `run_at`, `dedup_key` or dependencies.
    pub schedule: TaskSchedule,
    /// Replaces the existing schedule of this name; if false, an existing name is an error.
    #[serde(default)]
    pub replace: bool,
}

/// `POST /v1/schedules/{name}/pause`, `…/unpause`, `…/remove`: the body is an empty object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ScheduleActRequest {}

/// `POST /v1/schedules/{name}/run`: submits the schedule's task now, regardless of its times, pauses and
/// overlap rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunScheduleRequest {
    /// The task's id, chosen by the caller so that repeating the request submits only one task.
    pub task: TaskId,
}

/// `GET /v1/schedules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleList {
    /// The schedules, by name.
    pub schedules: Vec<ScheduleView>,
}

/// A schedule and its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleView {
    /// The schedule's name.
    pub name: ScheduleName,
    /// The schedule's definition.
    pub schedule: TaskSchedule,
    /// Who set it.
    pub by: String,
    /// When it was set.
    pub set_at: Timestamp,
    /// Whether the schedule is paused.
    pub paused: bool,
    /// When it fires next; none if it is paused or will never fire again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// The last firing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fired: Option<ScheduleFired>,
    /// The task of the last firing that submitted one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
}
