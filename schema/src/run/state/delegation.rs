//! Delegation to child tasks, part of the fold. Pure.
//!
//! A delegating call is open twice. Its intent is open until the child is submitted (`Delegated`): then the
//! call waits. Once no child is active (`ChildAnswered`), the waiting calls are open again, and the worker
//! that has the run merges the children's work; that is their result. So after a crash in either half, the
//! call is open.

use crate::run::events::{
    control_events::ChildAnswered,
    turn_events::{ToolFinished, ToolRequested},
};
use crate::{
    message::{CallId, ToolUse},
    tool::ChildFacts,
};

/// Resources used by children.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChildSpending {
    /// Tokens.
    pub tokens: u64,
    /// Cost in nano-dollars.
    pub cost_nusd: u64,
    /// Working time in milliseconds.
    pub worked_ms: u64,
}

impl ChildSpending {
    pub(in crate::run) fn add_child(&mut self, child: Option<&ChildFacts>) {
        let Some(child) = child else { return };
        self.tokens = self.tokens.saturating_add(child.tokens);
        self.cost_nusd = self.cost_nusd.saturating_add(child.cost_nusd);
        self.worked_ms = self.worked_ms.saturating_add(child.worked_ms);
    }
}

/// Delegation state of a run. See the module documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelegationState {
    /// Total number of children.
    pub children_created: u32,
    /// Waiting calls with their intents, in order.
    pub waiting_calls: Vec<(ToolRequested, ToolUse)>,
    /// Answers whose calls have no result yet.
    pub child_answers: Vec<ChildAnswered>,
}

impl DelegationState {
    /// Returns the answer to a call whose child has ended and whose result is due.
    pub fn child_answer(&self, call: &CallId) -> Option<&ChildAnswered> {
        self.child_answers.iter().find(|answer| answer.call == *call)
    }

    /// Resets the state for a fork, because the parent's children are not this run's.
    pub(in crate::run) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(in crate::run) fn record_result(&mut self, event: &ToolFinished) {
        self.child_answers.retain(|answer| answer.call != event.call);
    }
}
