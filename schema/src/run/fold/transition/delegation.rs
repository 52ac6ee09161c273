//! Calls that give work away to child tasks, and the answers of these.

use crate::{
    message::Part,
    run::{
        events::inbox::{BlockedWhy, ChildAnswered, Delegated},
        state::{run_state::RunState, stage::Stage},
    },
};

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
