//! Roles: taken up one after the other, each with a conversation of its own; and what was concluded of them.

use std::sync::Arc;

use crate::{
    content::Content,
    message::Part,
    run::{
        events::{
            conclusion::{Concluded, Fact},
            event::RunStarted,
            roles::{RoleBegan, RolesPinned},
        },
        state::{
            compaction::Summary, permits::Permits, reads::Reads, run_state::RunState, stage::Stage,
            transcript::Transcript, work::Work,
        },
    },
};

impl RunState {
    pub(super) fn roles_pinned(&mut self, event: RolesPinned) -> Result<(), String> {
        let Some(pins) = &self.pins else { return Err(String::new()) };
        let mut pins = RunStarted::clone(pins);
        pins.roles = event.roles;
        pins.models.roles = event.models;
        pins.settings.tool_set = event.tool_set.unwrap_or(pins.settings.tool_set);
        self.pins = Some(Arc::new(pins));
        self.roles_due = false;
        Ok(())
    }

    /// The engine that goes on knows nothing of the other's roles, and has to be told what it is about.
    pub(super) fn another_engine(&mut self, pins: &mut RunStarted) {
        // Prompts of no role are of the tools that it began with.
        pins.settings.tool_set = self.tool_set;
        let had_roles = self.work.role.is_some();
        // What a person allowed was for the other's calls, whose numbers are not used again.
        self.permits = Permits::default();
        let heard = std::mem::take(&mut self.work.heard);
        self.work = Work { own_calls: self.work.own_calls, ..Work::default() };
        self.roles_due = true;
        if had_roles {
            self.begin_anew();
            self.transcript.note(Part::Text { text: Content::Blob(pins.prompts.task) });
            heard.into_iter().for_each(|text| self.tell(text));
        } else {
            // They stand in the conversation that goes on.
            self.work.heard = heard;
        }
    }

    pub(super) fn role_began(&mut self, event: RoleBegan) -> Result<(), String> {
        if self.stage != Stage::Deciding || !self.wanted.is_empty() {
            return Err(": calls wait for their results".to_owned());
        }
        let known =
            self.pins.as_ref().is_some_and(|pins| pins.roles.iter().any(|role| role.name == event.role));
        if !known {
            return Err(format!(": no role `{}` was pinned", event.role));
        }
        // What people said meanwhile is for whoever speaks next.
        let waiting = std::mem::take(&mut self.work.heard);
        self.begin_anew();
        for text in event.opening {
            self.transcript.note(Part::Text { text });
        }
        waiting.into_iter().for_each(|text| self.tell(text));
        // Of a log in which nothing was pinned, whatever is pinned is what it is played by.
        self.roles_due = false;
        *self.work.roles_begun.entry(event.role.clone()).or_default() += 1;
        self.work.role = Some(event.role);
        self.work.about = event.about;
        self.work.said = None;
        self.work.problem = None;
        self.work.done.clear();
        self.work.commands_ended = 0;
        self.work.tests_passed = false;
        self.work.tries += 1;
        Ok(())
    }

    pub(super) fn concluded(&mut self, event: Concluded) -> Result<(), String> {
        if self.stage != Stage::Deciding {
            return Err(String::new());
        }
        // Whatever was said is heard.
        self.work.said = None;
        self.answered_without_tools = false;
        for fact in event.facts {
            if let Fact::Calls { calls } = &fact {
                if !self.wanted.is_empty() {
                    return Err(": calls wait for their results".to_owned());
                }
                self.work.own_calls += u32::try_from(calls.len()).unwrap_or(u32::MAX);
                self.wanted.extend(calls.iter().cloned());
            }
            self.work.take(fact);
        }
        Ok(())
    }

    /// Words of a person's, for the model that is asked next. What failed before them was without them.
    pub(super) fn hear(&mut self, text: Content) {
        self.forgiven_corrections = self.corrections;
        self.work.quality.values_mut().for_each(|gate| gate.forgiven = gate.failed);
        self.tell(text);
    }

    /// What a run that goes on from another does not take from it: its limits are its own.
    pub(super) fn counts_anew(&mut self) {
        self.forgiven_corrections = self.corrections;
        self.before = (self.turn, self.corrections);
        self.forgiven_answers = (self.empty_answers, self.idle_answers);
        self.exceeded.clear();
        self.work.counts_anew();
    }

    /// An answer counts, or ends the count, among those that said nothing and those that called no tool.
    pub(super) fn answered_so(&mut self, empty: bool) {
        self.empty_answers = if empty { self.empty_answers + 1 } else { 0 };
        self.answered_without_tools = self.wanted.is_empty() && !empty;
        self.idle_answers = if self.answered_without_tools { self.idle_answers + 1 } else { 0 };
        let (empty, idle) = self.forgiven_answers;
        self.forgiven_answers = (empty.min(self.empty_answers), idle.min(self.idle_answers));
    }

    fn tell(&mut self, text: Content) {
        self.work.heard.push(text.clone());
        self.transcript.note(Part::Text { text });
    }

    fn begin_anew(&mut self) {
        self.transcript = Transcript::default();
        self.reads = Reads::default();
        self.measured = None;
        self.summary = Summary::NotWanted;
        self.answered_without_tools = false;
        self.idle_answers = 0;
        self.empty_answers = 0;
        self.forgiven_answers = (0, 0);
        self.failed_attempts = 0;
        self.forgiven_attempts = 0;
        self.last_failure = None;
        self.asking.stop = None;
        self.asking.cuts = 0;
    }
}
