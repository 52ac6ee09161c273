//! Delegating calls and the answers of child tasks.

use crate::{
    message::MessagePart,
    run::{
        events::control_events::{BlockedReason, ChildAnswered, Delegated},
        state::{run_stage::RunStage, run_state::RunState},
    },
};

impl RunState {
    pub(super) fn apply_delegated(&mut self, event: Delegated) {
        self.delegation.children_created += 1;
        if let Some(at) = self.open_tools.iter().position(|(open, _)| open.call == event.call) {
            self.delegation.waiting_calls.push(self.open_tools.remove(at));
            if self.open_tools.is_empty() && self.stage == RunStage::Tools {
                self.stage = RunStage::Deciding;
            }
        }
        self.child_tasks.insert(event.call, event.child);
    }

    pub(super) fn apply_child_answered(&mut self, event: ChildAnswered) -> Result<(), String> {
        if self.child_tasks.remove(&event.call).is_none() {
            return Err(format!(": {} waits for no child", event.call));
        }
        if self.delegation.waiting_calls.iter().any(|(open, _)| open.call == event.call) {
            self.delegation.child_answers.push(event);
        } else {
            // Logs from before delegating calls stayed open: the answer is the result.
            let (content, is_error) = (event.content, event.is_error);
            let part = MessagePart::ToolResult { call: event.call.clone(), content, is_error };
            self.transcript.add_result(&event.call, part);
        }
        let waits = self.blocker.as_ref().is_none_or(|asked| asked.why == BlockedReason::Child);
        if self.stage == RunStage::Blocked && self.child_tasks.is_empty() && waits {
            self.blocker = None;
            self.stage = RunStage::Deciding;
        }
        self.reopen_delegated_calls();
        Ok(())
    }

    /// Reopens calls that waited for children once no child is active.
    pub(super) fn reopen_delegated_calls(&mut self) {
        let moves = matches!(self.stage, RunStage::Deciding | RunStage::Tools);
        if moves && self.child_tasks.is_empty() && !self.delegation.waiting_calls.is_empty() {
            // These come before calls that are still to be delegated, because they were made first.
            self.open_tools.splice(0..0, self.delegation.waiting_calls.drain(..));
            self.stage = RunStage::Tools;
        }
    }
}
