//! What a person's answer does to a run that rests.

use super::is_blank;
use crate::{
    content::Content,
    run::{
        events::control_events::{BlockedReason, BlockerAnswered, RunBlocked},
        state::{run_stage::RunStage, run_state::RunState},
    },
};

/// What a person says of final checks that did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UnverifiedAnswer {
    /// `accept`: the work is taken as it is, unverified.
    Accept,
    /// `again`: the checks run again.
    Again,
    /// Words for the model, which continues.
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
            // What its batch may use was raised: whoever did that says nothing of the work.
            self.limit = None;
            self.limit_message = None;
        }
        // The same turn is asked again, to the byte: what a person mended is no news for the model.
        let of_provider = self.blocker.as_ref().is_some_and(|asked| asked.why == BlockedReason::Provider);
        if let Some(failure) = self.last_failure.as_mut().filter(|_| of_provider) {
            failure.needs_person = false;
            failure.retry_in_ms = Some(0);
            self.forgiven_attempts = self.failed_attempts;
        }
        self.undecided_due = false;
        let asked = self.blocker.take();
        if let Some(about) = asked.as_ref().and_then(|asked| asked.about.clone()) {
            // Of a call that waits; what it comes to is its result.
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

    /// Takes an answer about checks that did not run, where it is for the runtime and not for the model: the run
    /// stays where it was, at the end of its work. Whether it was such an answer.
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

/// What the model reads of a person's answer. Its own question stands in its last words; what the engine asked
/// in its place, it has not seen.
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
