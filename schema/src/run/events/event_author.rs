//! Who writes an event of a run: what a worker may append, and what verification derives again, follow from it.

use super::{
    control_events::{FailureKind, RunOutcome},
    run_event::RunEvent,
};

/// Who writes an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAuthor {
    /// The engine: the event announces a decision.
    Engine,
    /// The worker: what it began, and what came of it.
    Worker,
    /// The coordinator, alone: a person's words and wishes, what children answered, where a fork began.
    Coordinator,
}

impl RunEvent {
    /// Who writes it. An end without a decision is a worker's that could not continue, or the coordinator's.
    pub const fn author(&self) -> EventAuthor {
        match self {
            Self::PhaseChanged(_)
            | Self::ModelRequested(_)
            | Self::ToolRequested(_)
            | Self::GateRequested(_)
            | Self::RunPaused(_)
            | Self::RoleBegan(_)
            | Self::Concluded(_)
            | Self::RunBlocked(_) => EventAuthor::Engine,
            Self::Compacted(e) if e.decision.is_some() => EventAuthor::Engine,
            Self::RunEnded(e) if e.decision.is_some() || !can_end_without_decision(&e.result) => {
                EventAuthor::Engine
            }
            Self::RunStarted(_)
            | Self::RolesPinned(_)
            | Self::RunRecovered(_)
            | Self::SetupFinished(_)
            | Self::BaseChecked(_)
            | Self::ModelAnswered(_)
            | Self::ModelFailed(_)
            | Self::ToolFinished(_)
            | Self::SnapshotTaken(_)
            | Self::GateFinished(_)
            | Self::LimitReached(_)
            | Self::Compacted(_)
            | Self::RunEnded(_) => EventAuthor::Worker,
            Self::Forked(_)
            | Self::Told(_)
            | Self::CancelRequested(_)
            | Self::PauseRequested(_)
            | Self::Unpaused(_)
            | Self::PolicyChanged(_)
            | Self::BlockerAnswered(_)
            | Self::Delegated(_)
            | Self::ChildAnswered(_)
            | Self::WorkspaceEdited(_) => EventAuthor::Coordinator,
        }
    }
}

/// How a run can end without its engine: the coordinator took it away, or its worker could not continue.
const fn can_end_without_decision(result: &RunOutcome) -> bool {
    match result {
        RunOutcome::Cancelled
        | RunOutcome::Superseded
        | RunOutcome::Failed { why: FailureKind::Environment | FailureKind::Configuration, .. } => true,
        RunOutcome::Succeeded
        | RunOutcome::Failed {
            why:
                FailureKind::TurnLimit
                | FailureKind::Limit
                | FailureKind::Gates
                | FailureKind::Plan
                | FailureKind::Model
                | FailureKind::EmptyAnswers,
            ..
        } => false,
    }
}
