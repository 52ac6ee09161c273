//! What a run gave away to child tasks, and what came back: part of the fold. Pure.
//!
//! A call that delegates is open twice. Its intent is open until the child is submitted (`Delegated`): then the call
//! waits. Once no child is out (`ChildAnswered`), the calls that waited are open again, and whoever has the run then
//! brings in what the children did; that is their result. So a crash at either half finds an open call.

use super::{
    event_inbox::{BlockedWhy, ChildAnswered, Delegated},
    event_work::{ToolFinished, ToolRequested},
    state::{RunState, Stage},
};
use crate::{
    message::{CallId, Part, ToolUse},
    tool::ChildFacts,
};

/// What children used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChildrenSpent {
    /// Tokens.
    pub tokens: u64,
    /// Nano-dollars.
    pub cost_nusd: u64,
    /// Milliseconds.
    pub worked_ms: u64,
}

impl ChildrenSpent {
    pub(super) fn add(&mut self, child: Option<&ChildFacts>) {
        let Some(child) = child else { return };
        self.tokens = self.tokens.saturating_add(child.tokens);
        self.cost_nusd = self.cost_nusd.saturating_add(child.cost_nusd);
        self.worked_ms = self.worked_ms.saturating_add(child.worked_ms);
    }
}

/// See the module.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Delegation {
    /// Children that the run had in all.
    pub made: u32,
    /// Calls that wait, with what was asked, in order.
    pub out: Vec<(ToolRequested, ToolUse)>,
    /// Answers whose calls have no result yet.
    pub answers: Vec<ChildAnswered>,
}

impl Delegation {
    /// The answer to a call, where its child has ended and its result is due.
    pub fn answer(&self, call: &CallId) -> Option<&ChildAnswered> {
        self.answers.iter().find(|answer| answer.call == *call)
    }

    /// Nothing of it is this run's.
    pub(super) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(super) fn finished(&mut self, event: &ToolFinished) {
        self.answers.retain(|answer| answer.call != event.call);
    }
}

impl RunState {
    pub(super) fn gave_away(&mut self, event: Delegated) {
        self.delegation.made += 1;
        if let Some(at) = self.open_tools.iter().position(|(open, _)| open.call == event.call) {
            self.delegation.out.push(self.open_tools.remove(at));
            if self.open_tools.is_empty() && self.stage == Stage::Tools {
                self.stage = Stage::Deciding;
            }
        }
        self.children.insert(event.call, event.child);
    }

    pub(super) fn child_answered(&mut self, event: ChildAnswered) -> Result<(), String> {
        if self.children.remove(&event.call).is_none() {
            return Err(format!(": {} waits for no child", event.call));
        }
        if self.delegation.out.iter().any(|(open, _)| open.call == event.call) {
            self.delegation.answers.push(event);
        } else {
            // Logs from before a call was open meanwhile: the answer is the result.
            let (content, is_error) = (event.content, event.is_error);
            let part = Part::ToolResult { call: event.call.clone(), content, is_error };
            self.transcript.result(&event.call, part);
        }
        let waits = self.asked.as_ref().is_none_or(|asked| asked.why == BlockedWhy::Child);
        if self.stage == Stage::Blocked && self.children.is_empty() && waits {
            self.asked = None;
            self.stage = Stage::Deciding;
        }
        self.take_back();
        Ok(())
    }

    /// Calls that waited for children are open again once none is out.
    pub(super) fn take_back(&mut self) {
        let moves = matches!(self.stage, Stage::Deciding | Stage::Tools);
        if moves && self.children.is_empty() && !self.delegation.out.is_empty() {
            // Before those that are still to be given away: they were asked for before them.
            self.open_tools.splice(0..0, self.delegation.out.drain(..));
            self.stage = Stage::Tools;
        }
    }
}
