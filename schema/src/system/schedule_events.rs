//! Events that set, pause and remove schedules, and record their firings.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{ParseIdError, TaskId, Timestamp, deserialize_from_text},
    task::TaskSpec,
};

/// Maximum length of a schedule's name, in bytes.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 64;

/// Maximum number of schedules. The coordinator examines all of them in each round.
pub const SCHEDULES_MAX: usize = 1000;

/// A schedule's name: letters, digits, `.`, `_`, `-`, starting with a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
pub struct ScheduleName(String);

impl ScheduleName {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ScheduleName {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let legal = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let begins = text.starts_with(|first: char| first.is_ascii_alphanumeric());
        if !begins || text.len() > SCHEDULE_NAME_BYTES_MAX || !text.bytes().all(legal) {
            let what = "schedule name (letters, digits, . _ - after a first letter or digit; at most 64)";
            return Err(ParseIdError::new(what, text));
        }
        Ok(Self(text.to_owned()))
    }
}

deserialize_from_text!(ScheduleName);

/// What to do about firings that were missed while no coordinator ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedFiringPolicy {
    /// Missed firings are collapsed into one.
    #[default]
    Once,
    /// Missed firings are skipped.
    Skip,
}

/// What to do about a firing while the previous task has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// The firing is skipped.
    #[default]
    Skip,
    /// The firing submits a task anyway.
    Allow,
}

/// A schedule's times and its task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSchedule {
    /// Five cron fields (minute, hour, day of the month, month, day of the week), or `@daily` and the like.
    pub cron: String,
    /// The time zone, such as `Europe/Berlin`.
    #[serde(default = "TaskSchedule::default_tz")]
    pub tz: String,
    /// The task. Its base was pinned when the schedule was set.
    pub spec: Box<TaskSpec>,
    /// See [`MissedFiringPolicy`].
    #[serde(default)]
    pub missed: MissedFiringPolicy,
    /// See [`OverlapPolicy`].
    #[serde(default)]
    pub overlap: OverlapPolicy,
}

impl TaskSchedule {
    fn default_tz() -> String {
        "UTC".to_owned()
    }
}

/// A schedule was created or replaced. Recorded in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleSet {
    /// The schedule's name.
    pub name: ScheduleName,
    /// The new definition.
    pub schedule: TaskSchedule,
    /// Who set it.
    pub by: String,
}

/// A schedule was paused or resumed. Recorded in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulePaused {
    /// The schedule's name.
    pub name: ScheduleName,
    /// Whether it is paused.
    pub paused: bool,
    /// Who changed it.
    pub by: String,
}

/// A schedule was removed. Recorded in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRemoved {
    /// The schedule's name.
    pub name: ScheduleName,
    /// Who removed it.
    pub by: String,
}

/// A schedule fired. Recorded in `system/schedules` before its task is submitted: a coordinator that finds
/// the event without the task submits it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleFired {
    /// The schedule's name.
    pub name: ScheduleName,
    /// The scheduled time; for a manual firing, the time of the request.
    pub at: Timestamp,
    /// The result.
    pub gave: FiringResult,
    /// Who fired it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// Result of a firing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiringResult {
    /// It submitted this task.
    Task(TaskId),
    /// It was skipped.
    Skipped(SkipReason),
    /// The task named before for the same time was refused, with this message.
    Refused(String),
}

/// Why a firing was skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// No coordinator ran when it was due, and the schedule has `missed: skip`.
    Missed,
    /// The task of the previous firing had not ended, and the schedule has `overlap: skip`.
    Overlap,
}
