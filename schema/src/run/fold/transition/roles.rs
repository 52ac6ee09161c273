//! Roles: started one after the other, each with its own conversation, and the facts recorded about them.

use std::sync::Arc;

use crate::{
    content::Content,
    message::MessagePart,
    run::{
        events::{
            conclusion::{Concluded, EngineFact},
            role_events::{RoleBegan, RolesPinned},
            run_event::RunStarted,
        },
        state::{
            approvals::Approvals, compaction::SummaryState, engine_state::RoleEngineState,
            read_index::ReadIndex, run_stage::RunStage, run_state::RunState, transcript::Transcript,
        },
    },
};

impl RunState {
    pub(super) fn apply_roles_pinned(&mut self, event: RolesPinned) -> Result<(), String> {
        let Some(pins) = &self.pins else { return Err(String::new()) };
        let mut pins = RunStarted::clone(pins);
        pins.roles = event.roles;
        pins.models.roles = event.models;
        pins.settings.tool_set = event.tool_set.unwrap_or(pins.settings.tool_set);
        self.pins = Some(Arc::new(pins));
        self.roles_due = false;
        Ok(())
    }

    /// Switches to another engine, which knows nothing about the previous engine's roles and needs the
    /// context.
    pub(super) fn switch_engine(&mut self, pins: &mut RunStarted) {
        // Prompts without a role refer to the original tool set.
        pins.settings.tool_set = self.tool_set;
        let had_roles = self.engine_state.role.is_some();
        // A person's approvals were for the other engine's calls, whose numbers are not reused.
        self.approvals = Approvals::default();
        let heard = std::mem::take(&mut self.engine_state.unread_messages);
        self.engine_state =
            RoleEngineState { own_calls: self.engine_state.own_calls, ..RoleEngineState::default() };
        self.roles_due = true;
        if had_roles {
            self.reset_conversation();
            self.transcript.add_note(MessagePart::Text { text: Content::Blob(pins.prompts.task) });
            heard.into_iter().for_each(|text| self.queue_message(text));
        } else {
            // They are part of the conversation that continues.
            self.engine_state.unread_messages = heard;
        }
    }

    pub(super) fn apply_role_began(&mut self, event: RoleBegan) -> Result<(), String> {
        if self.stage != RunStage::Deciding || !self.pending_calls.is_empty() {
            return Err(": calls wait for their results".to_owned());
        }
        let known =
            self.pins.as_ref().is_some_and(|pins| pins.roles.iter().any(|role| role.name == event.role));
        if !known {
            return Err(format!(": no role `{}` was pinned", event.role));
        }
        // Messages from people in the meantime are for the next role.
        let waiting = std::mem::take(&mut self.engine_state.unread_messages);
        self.reset_conversation();
        for text in event.opening {
            self.transcript.add_note(MessagePart::Text { text });
        }
        waiting.into_iter().for_each(|text| self.queue_message(text));
        // In a log without pinned roles, whatever is pinned now applies.
        self.roles_due = false;
        *self.engine_state.role_starts.entry(event.role.clone()).or_default() += 1;
        self.engine_state.role = Some(event.role);
        self.engine_state.about = event.about;
        self.engine_state.last_text = None;
        self.engine_state.problem = None;
        self.engine_state.finished_calls.clear();
        self.engine_state.commands_ended = 0;
        self.engine_state.tests_passed = false;
        self.engine_state.tries += 1;
        Ok(())
    }

    pub(super) fn apply_concluded(&mut self, event: Concluded) -> Result<(), String> {
        if self.stage != RunStage::Deciding {
            return Err(String::new());
        }
        // All messages have been read.
        self.engine_state.last_text = None;
        self.answered_without_tools = false;
        for fact in event.facts {
            if let EngineFact::Calls { calls } = &fact {
                if !self.pending_calls.is_empty() {
                    return Err(": calls wait for their results".to_owned());
                }
                self.engine_state.own_calls += u32::try_from(calls.len()).unwrap_or(u32::MAX);
                self.pending_calls.extend(calls.iter().cloned());
            }
            self.engine_state.apply_fact(fact);
        }
        Ok(())
    }

    /// Adds a person's message for the model that is called next. Earlier failures happened without it.
    pub(super) fn add_user_message(&mut self, text: Content) {
        self.forgiven_corrections = self.corrections;
        self.engine_state.quality_gates.values_mut().for_each(|gate| gate.forgiven = gate.failed);
        self.queue_message(text);
    }

    /// Resets the limits of a run that continues another one, because its limits are its own.
    pub(super) fn reset_limit_counts(&mut self) {
        self.forgiven_corrections = self.corrections;
        self.before_fork = (self.turn, self.corrections);
        self.forgiven_answers = (self.empty_answers, self.idle_answers);
        self.exceeded.clear();
        self.engine_state.reset_limit_counts();
    }

    /// Updates the counts of consecutive empty answers and of consecutive answers without tool calls.
    pub(super) fn count_answer(&mut self, empty: bool) {
        self.empty_answers = if empty { self.empty_answers + 1 } else { 0 };
        self.answered_without_tools = self.pending_calls.is_empty() && !empty;
        self.idle_answers = if self.answered_without_tools { self.idle_answers + 1 } else { 0 };
        let (empty, idle) = self.forgiven_answers;
        self.forgiven_answers = (empty.min(self.empty_answers), idle.min(self.idle_answers));
    }

    fn queue_message(&mut self, text: Content) {
        self.engine_state.unread_messages.push(text.clone());
        self.transcript.add_note(MessagePart::Text { text });
    }

    fn reset_conversation(&mut self) {
        self.transcript = Transcript::default();
        self.read_index = ReadIndex::default();
        self.measured_tokens = None;
        self.summary = SummaryState::NotNeeded;
        self.answered_without_tools = false;
        self.idle_answers = 0;
        self.empty_answers = 0;
        self.forgiven_answers = (0, 0);
        self.failed_attempts = 0;
        self.forgiven_attempts = 0;
        self.last_failure = None;
        self.model_attempts.stop_reason = None;
        self.model_attempts.truncated_answers = 0;
    }
}
