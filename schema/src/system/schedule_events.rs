//! Schedules: the events that set, pause and remove them, and what each firing gave.

use std::{fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{ParseIdError, TaskId, Timestamp, deserialize_from_text},
    task::TaskSpec,
};

/// Longest name of a schedule, in bytes.
pub const SCHEDULE_NAME_BYTES_MAX: usize = 64;

/// Most schedules at once: each round of a coordinator looks at all of them.
pub const SCHEDULES_MAX: usize = 1000;

/// A schedule's name: letters, digits, `.`, `_`, `-`, the first a letter or digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
#[schemars(extend("pattern" = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"))]
pub struct ScheduleName(String);

impl ScheduleName {
    /// The name as text.
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

/// What becomes of firings that were due while no coordinator ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MissedFiringPolicy {
    /// However many there were, the last of them is made up for.
    #[default]
    Once,
    /// None is; the next one comes at its time.
    Skip,
}

/// What becomes of a firing while the task of the last one has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// It gives no task.
    #[default]
    Skip,
    /// It gives one all the same.
    Allow,
}

/// When a schedule gives tasks, and which.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TaskSchedule {
    /// Five fields as of cron (minute, hour, day of the month, month, day of the week), or `@daily` and the like.
    pub cron: String,
    /// The zone its times are of, as `Europe/Berlin`.
    #[serde(default = "TaskSchedule::default_tz")]
    pub tz: String,
    /// The task. Its base was pinned when the schedule was set.
    pub spec: Box<TaskSpec>,
    /// See [`Missed`].
    #[serde(default)]
    pub missed: MissedFiringPolicy,
    /// See [`Overlap`].
    #[serde(default)]
    pub overlap: OverlapPolicy,
}

impl TaskSchedule {
    fn default_tz() -> String {
        "UTC".to_owned()
    }
}

/// A schedule was made, or takes the place of the one of its name. Stands in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleSet {
    /// Its name.
    pub name: ScheduleName,
    /// From here on.
    pub schedule: TaskSchedule,
    /// Who.
    pub by: String,
}

/// A schedule rests, or goes on. Stands in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SchedulePaused {
    /// Its name.
    pub name: ScheduleName,
    /// It rests.
    pub paused: bool,
    /// Who.
    pub by: String,
}

/// A schedule is no more. Stands in `system/schedules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleRemoved {
    /// Its name.
    pub name: ScheduleName,
    /// Who.
    pub by: String,
}

/// The time of a schedule came. Stands in `system/schedules`, before the task that it gives is submitted: whoever finds
/// it without its task submits that one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ScheduleFired {
    /// Its name.
    pub name: ScheduleName,
    /// The time that came; for one fired by hand, when that was.
    pub at: Timestamp,
    /// What it gave.
    pub gave: FiringResult,
    /// Who fired it by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What a firing gave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FiringResult {
    /// This task.
    Task(TaskId),
    /// None.
    Skipped(SkipReason),
    /// None: the task named before for the same time was refused, in these words.
    Refused(String),
}

/// Why a firing gives no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// No coordinator ran when it was due, and the schedule says `missed: skip`.
    Missed,
    /// The task of the firing before had not ended, and the schedule says `overlap: skip`.
    Overlap,
}
