//! Bodies of `GET /v1/cost` and `GET /v1/metrics`: what runs cost and how well they went.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{BatchId, ParseIdError, RunId, TaskId, Timestamp},
    report::{RunCost, TaskMetrics, WeekMetrics},
    task::TaskState,
};

/// Default number of tasks in a report page.
pub const REPORT_TASKS_DEFAULT: u32 = 100;
/// Maximum number of tasks in a report page.
pub const REPORT_TASKS_MAX: u32 = 1000;

/// Position at which a report page ended; an opaque value for clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportCursor {
    /// Among ended tasks, ordered by end time: after this one.
    Ended(Timestamp, TaskId),
    /// Among unfinished tasks, within a state: after this one.
    Unfinished(TaskState, TaskId),
    /// Among a batch's tasks: after this one.
    Batch(TaskId),
}

impl std::fmt::Display for ReportCursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended(at, task) => write!(f, "ended.{}.{task}", at.0),
            Self::Unfinished(state, task) => write!(f, "{state}.{task}"),
            Self::Batch(task) => write!(f, "batch.{task}"),
        }
    }
}

impl std::str::FromStr for ReportCursor {
    type Err = ParseIdError;

    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let wrong = || ParseIdError { expected: "place in a report", text: text.chars().take(80).collect() };
        let (kind, rest) = text.split_once('.').ok_or_else(wrong)?;
        match (kind, rest.split_once('.')) {
            ("ended", Some((at, task))) => {
                let at = at.parse().map(Timestamp).map_err(|_| wrong())?;
                Ok(Self::Ended(at, task.parse().map_err(|_| wrong())?))
            }
            ("batch", None) => Ok(Self::Batch(rest.parse().map_err(|_| wrong())?)),
            (state, None) => {
                let state = state.parse().map_err(|_| wrong())?;
                Ok(Self::Unfinished(state, rest.parse().map_err(|_| wrong())?))
            }
            (_, Some(_)) => Err(wrong()),
        }
    }
}

/// `GET /v1/cost`: selects what to report. Exactly one of `run`, `task`, `batch` and `from` is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CostQuery {
    /// A run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    /// All runs of a task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// All runs of a batch's tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Calls of any run that ended at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// With `from`: calls that ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Includes every single call.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub calls: bool,
    /// The next page: the `next` of the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of tasks per page; 100 by default, at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Cost of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostPage {
    /// Runs with calls, each with its own calls only: what a fork shares with its parent is counted for the
    /// parent. Archived runs are not included.
    pub runs: Vec<RunCost>,
    /// Where the next page starts; none on the last page. Pages start with the newest tasks, unfinished ones
    /// before all others. A task that changes its state in between may appear twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: all calls later than this are in this page or an earlier one. None if that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}

/// `GET /v1/metrics`: selects what to report. Exactly one of `task`, `batch` and `from` is given.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsQuery {
    /// A task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// A batch's tasks, ended or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Tasks that ended at or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// With `from`: tasks that ended before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Includes tasks whose model is scripted.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scripted: bool,
    /// The next page: the `next` of the previous one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Number of tasks per page; 100 by default, at most 1000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// Metrics of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsPage {
    /// Tasks with a run. Archived tasks are not included.
    pub tasks: Vec<TaskMetrics>,
    /// The tasks of this page by the week in which they ended. To combine several pages, add the fractions.
    pub weeks: Vec<WeekMetrics>,
    /// Number of tasks left out because their model is scripted.
    #[serde(default)]
    pub scripted_left_out: u64,
    /// Where the next page starts; none on the last page. Pages start with the newest tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: all tasks that ended later than this are in this page or an earlier one. None if that is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_cursor_round_trips_as_text() {
        let task = TaskId(uuid::Uuid::from_u128(7));
        for place in [
            ReportCursor::Ended(Timestamp(-3), task),
            ReportCursor::Unfinished(TaskState::Running, task),
            ReportCursor::Batch(task),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
        for wrong in ["", "ended", "ended.x.y", "batch.1", "asleep.00000000-0000-0000-0000-000000000007"] {
            wrong.parse::<ReportCursor>().expect_err(wrong);
        }
    }
}
