//! Authors of a run's events: they determine what a worker may append and what verification recomputes.

use super::{
    control_events::{FailureKind, RunOutcome},
    run_event::RunEvent,
};

/// Author of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventAuthor {
    /// The engine: the event records a decision.
    Engine,
    /// The worker: what it started, and the result.
    Worker,
    /// The coordinator only: messages and requests from people, answers of children, the start of a fork.
    Coordinator,
}

impl RunEvent {
    /// Returns the event's author. An end without a decision was written by a worker that could not continue,
    /// or by the coordinator.
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

/// Whether a run can end this way without its engine: the coordinator took it away, or its worker could not
/// continue.
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
