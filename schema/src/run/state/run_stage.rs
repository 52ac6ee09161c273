//! Stages of a run between a decision and its effects.

use crate::run::events::{control_events::RunOutcome, turn_events::ModelRequested};

/// Stage of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum RunStage {
    /// No `RunStarted` yet.
    #[default]
    Unstarted,
    /// The engine decides next.
    Deciding,
    /// A model is being called.
    Model(Box<ModelRequested>),
    /// Tools are running: some intents have no result.
    Tools,
    /// Final checks are running: some intents have no result.
    Gates,
    /// It is paused until it is resumed.
    Paused,
    /// It waits for a person or a child.
    Blocked,
    /// It has ended.
    Ended(RunOutcome),
}

impl RunStage {
    /// Returns the name shown to people and in errors.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Unstarted => "unstarted",
            Self::Deciding => "deciding",
            Self::Model(_) => "asking the model",
            Self::Tools => "running tools",
            Self::Gates => "running gates",
            Self::Paused => "paused",
            Self::Blocked => "blocked",
            Self::Ended(_) => "ended",
        }
    }
}
