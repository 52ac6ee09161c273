//! Where a run is between a decision and its effects.

use crate::run::events::{control_events::RunOutcome, turn_events::ModelRequested};

/// Where a run stands between decision and effect.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum RunStage {
    /// No `RunStarted` yet.
    #[default]
    Unstarted,
    /// The engine is to decide.
    Deciding,
    /// A model is being asked.
    Model(Box<ModelRequested>),
    /// Tools run: some intents have no result.
    Tools,
    /// Gates run: some intents have no result.
    Gates,
    /// It rests until somebody unpauses it.
    Paused,
    /// It waits for a person or a child.
    Blocked,
    /// It is over.
    Ended(RunOutcome),
}

impl RunStage {
    /// The name that people and errors see.
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
