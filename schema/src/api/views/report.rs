//! What runs cost and how well they went: `GET /v1/cost` and `GET /v1/metrics`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{BatchId, ParseIdError, RunId, TaskId, Timestamp},
    report::{RunCost, TaskMetrics, WeekMetrics},
    task::TaskState,
};

/// Tasks of a page of a report, unless a query says otherwise.
pub const REPORT_TASKS_DEFAULT: u32 = 100;
/// Most of them.
pub const REPORT_TASKS_MAX: u32 = 1000;

/// Where a page of a report ended; to be sent back as it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportCursor {
    /// Of tasks that have ended: behind this one, by when they did.
    Ended(Timestamp, TaskId),
    /// Of tasks that have not: behind this one of its state.
    Unfinished(TaskState, TaskId),
    /// Of a batch's tasks: behind this one.
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

/// `GET /v1/cost`: of what. One of `run`, `task`, `batch` and `from` is said.
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
    /// Calls that ended at this instant or later, of whatever run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// With `from`: and before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Each call as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub calls: bool,
    /// The next page: what `next` of the one before says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Tasks of a page; 100 by default, 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// What runs cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CostPage {
    /// Runs with calls, each with its own alone: what a fork shares with its parent stands there. What is archived is
    /// not among them.
    pub runs: Vec<RunCost>,
    /// Where the next page begins; none = this was the last. Pages begin with the newest tasks, those that have not ended
    /// before all others. A task that changes its state meanwhile may come twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: calls later than this are all in this page and those before it. None while that cannot be said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
}

/// `GET /v1/metrics`: of what. One of `task`, `batch` and `from` is said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsQuery {
    /// A task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<TaskId>,
    /// A batch's tasks, ended or not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch: Option<BatchId>,
    /// Tasks that ended at this instant or later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// With `from`: and before this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// Those whose model follows a script as well.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub scripted: bool,
    /// The next page: what `next` of the one before says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
    /// Tasks of a page; 100 by default, 1000 at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

/// How well tasks went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MetricsPage {
    /// Tasks with a run. What is archived is not among them.
    pub tasks: Vec<TaskMetrics>,
    /// The tasks of this page by the week in which they ended: of several pages, add the fractions up.
    pub weeks: Vec<WeekMetrics>,
    /// Tasks that are left out, for their model follows a script.
    #[serde(default)]
    pub scripted_left_out: u64,
    /// Where the next page begins; none = this was the last. Pages begin with the newest tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// With `next`: tasks that ended later than this are all in this page and those before it. None while that cannot be
    /// said.
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
