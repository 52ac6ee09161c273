//! Effects of a person's answer on a blocked run.

use super::is_blank;
use crate::{
    content::Content,
    run::{
        events::control_events::{BlockedReason, BlockerAnswered, RunBlocked},
        state::{run_stage::RunStage, run_state::RunState},
    },
};

/// A person's answer about final checks that did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnverifiedAnswer {
    /// `accept`: the work is accepted unverified.
    Accept,
    /// `again`: the checks run again.
    Again,
    /// A message to the model, which continues.
    Message,
}

impl UnverifiedAnswer {
    fn parse(answer: &Content) -> Self {
        let Content::Text(text) = answer else { return Self::Message };
        let word = text.trim().trim_end_matches(['.', '!']).to_ascii_lowercase();
        match word.as_str() {
            "accept" => Self::Accept,
            "again" => Self::Again,
            _ => Self::Message,
        }
    }
}

impl RunState {
    pub(super) fn apply_blocker_answered(&mut self, event: BlockerAnswered) -> Result<(), String> {
        if self.stage != RunStage::Blocked {
            return Err(String::new());
        }
        if self.blocker.as_ref().is_some_and(|asked| asked.why == BlockedReason::Unverified)
            && self.apply_unverified_answer(&event.text)
        {
            return Ok(());
        }
        if self.blocker.as_ref().is_some_and(|asked| asked.why == BlockedReason::Budget) {
            // The batch budget was raised; that says nothing about the work.
            self.limit = None;
            self.limit_message = None;
        }
        // The same request is sent again, byte for byte: a fix by a person is not news for the model.
        let of_provider = self.blocker.as_ref().is_some_and(|asked| asked.why == BlockedReason::Provider);
        if let Some(failure) = self.last_failure.as_mut().filter(|_| of_provider) {
            failure.needs_person = false;
            failure.retry_in_ms = Some(0);
            self.forgiven_attempts = self.failed_attempts;
        }
        self.undecided_due = false;
        let asked = self.blocker.take();
        if let Some(about) = asked.as_ref().and_then(|asked| asked.about.clone()) {
            // The answer is about a pending call, and the call's result will show it.
            self.approvals.record(about, &event.text)?;
        } else if !is_blank(&event.text) {
            answer_messages(asked, event.text).into_iter().for_each(|text| self.add_user_message(text));
        }
        self.unresolved_failures.clear();
        self.answered_without_tools = false;
        self.stage = RunStage::Deciding;
        self.reopen_delegated_calls();
        Ok(())
    }

    /// Applies an answer about checks that did not run, if it is for the runtime and not for the model: the
    /// run remains at the end of its work. Returns whether it was such an answer.
    fn apply_unverified_answer(&mut self, answer: &Content) -> bool {
        match UnverifiedAnswer::parse(answer) {
            UnverifiedAnswer::Message => return false,
            UnverifiedAnswer::Accept => {
                let names = self.undecided.iter().map(|check| check.gate.name.clone());
                self.waived_checks.extend(names);
                self.gates_passed = true;
                self.engine_state.checks_passed = Some(true);
            }
            UnverifiedAnswer::Again => {
                self.gates_passed = false;
                self.engine_state.checks_passed = None;
            }
        }
        self.undecided_due = false;
        self.blocker = None;
        self.stage = RunStage::Deciding;
        self.reopen_delegated_calls();
        true
    }
}

/// Returns the messages with which the model reads a person's answer. The model's own question is in its last
/// message, but it has not seen a question asked by the engine.
fn answer_messages(asked: Option<RunBlocked>, answer: Content) -> Vec<Content> {
    match asked {
        Some(RunBlocked {
            why: BlockedReason::Escalated | BlockedReason::Policy | BlockedReason::Unverified,
            question,
            ..
        }) => {
            vec!["The run stopped and asked a person:".into(), question, "The person answers:".into(), answer]
        }
        Some(RunBlocked { why: BlockedReason::Provider | BlockedReason::Budget, .. }) => {
            vec!["A person says:".into(), answer]
        }
        Some(RunBlocked { why: BlockedReason::Model | BlockedReason::Child, .. }) | None => {
            vec!["A person answers your question:".into(), answer]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_word_decides_and_a_sentence_goes_to_the_model() {
        for (text, answer) in [
            ("accept", UnverifiedAnswer::Accept),
            (" Accept.\n", UnverifiedAnswer::Accept),
            ("again", UnverifiedAnswer::Again),
            ("accept no patch that breaks the build", UnverifiedAnswer::Message),
            ("It is installed.", UnverifiedAnswer::Message),
            ("", UnverifiedAnswer::Message),
        ] {
            assert_eq!(UnverifiedAnswer::parse(&text.into()), answer, "{text}");
        }
    }
}
