//! Task states, with the same names everywhere. Defined outside of `task/` because facts of tools refer to
//! them, and a task's events refer to facts of its runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// State of a task. The names are the same in SQL, JSON, CLI and documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for other tasks.
    Pending,
    /// Waits for its time.
    Scheduled,
    /// Can be leased.
    Available,
    /// Leased by a worker.
    Running,
    /// A run failed; waits for the retry backoff.
    Retryable,
    /// Waits for a person, a child, or the end of a pause.
    Blocked,
    /// The work is done.
    Completed,
    /// Cancelled.
    Cancelled,
    /// Given up after the last attempt.
    Discarded,
}

impl TaskState {
    /// All states, in declaration order.
    pub const ALL: [Self; 9] = [
        Self::Pending,
        Self::Scheduled,
        Self::Available,
        Self::Running,
        Self::Retryable,
        Self::Blocked,
        Self::Completed,
        Self::Cancelled,
        Self::Discarded,
    ];

    /// Returns the state's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Running => "running",
            Self::Retryable => "retryable",
            Self::Blocked => "blocked",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Discarded => "discarded",
        }
    }

    /// Whether the state is final without further requests.
    pub const fn is_ended(self) -> bool {
        match self {
            Self::Completed | Self::Cancelled | Self::Discarded => true,
            Self::Pending
            | Self::Scheduled
            | Self::Available
            | Self::Running
            | Self::Retryable
            | Self::Blocked => false,
        }
    }
}

impl std::fmt::Display for TaskState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

impl std::str::FromStr for TaskState {
    type Err = crate::ids::ParseIdError;
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.as_str() == text).ok_or_else(|| Self::Err {
            expected: "task state (pending, scheduled, available, running, retryable, blocked, completed, cancelled, discarded)",
            text: text.chars().take(80).collect(),
        })
    }
}
