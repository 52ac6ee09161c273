//! What a run gave away to child tasks, and what came back: part of the fold. Pure.
//!
//! A call that delegates is open twice. Its intent is open until the child is submitted (`Delegated`): then the call
//! waits. Once no child is out (`ChildAnswered`), the calls that waited are open again, and whoever has the run then
//! brings in what the children did; that is their result. So a crash at either half finds an open call.

use crate::run::events::{
    control_events::ChildAnswered,
    turn_events::{ToolFinished, ToolRequested},
};
use crate::{
    message::{CallId, ToolUse},
    tool::ChildFacts,
};

/// What children used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChildSpending {
    /// Tokens.
    pub tokens: u64,
    /// Nano-dollars.
    pub cost_nusd: u64,
    /// Milliseconds.
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

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DelegationState {
    /// Children that the run had in all.
    pub children_created: u32,
    /// Calls that wait, with what was asked, in order.
    pub waiting_calls: Vec<(ToolRequested, ToolUse)>,
    /// Answers whose calls have no result yet.
    pub child_answers: Vec<ChildAnswered>,
}

impl DelegationState {
    /// The answer to a call, where its child has ended and its result is due.
    pub fn child_answer(&self, call: &CallId) -> Option<&ChildAnswered> {
        self.child_answers.iter().find(|answer| answer.call == *call)
    }

    /// Nothing of it is this run's.
    pub(in crate::run) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(in crate::run) fn record_result(&mut self, event: &ToolFinished) {
        self.child_answers.retain(|answer| answer.call != event.call);
    }
}
