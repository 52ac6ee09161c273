//! What a person's answer does to a run that rests.

use super::is_blank;
use crate::{
    content::Content,
    run::{
        events::inbox::{BlockedWhy, BlockerAnswered, RunBlocked},
        state::{run_state::RunState, stage::Stage},
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
    Words,
}

impl UnverifiedAnswer {
    fn read(answer: &Content) -> Self {
        let Content::Text(text) = answer else { return Self::Words };
        let word = text.trim().trim_end_matches(['.', '!']).to_ascii_lowercase();
        match word.as_str() {
            "accept" => Self::Accept,
            "again" => Self::Again,
            _ => Self::Words,
        }
    }
}

impl RunState {
    pub(super) fn answered(&mut self, event: BlockerAnswered) -> Result<(), String> {
        if self.stage != Stage::Blocked {
            return Err(String::new());
        }
        if self.asked.as_ref().is_some_and(|asked| asked.why == BlockedWhy::Unverified)
            && self.checks_answered(&event.text)
        {
            return Ok(());
        }
        if self.asked.as_ref().is_some_and(|asked| asked.why == BlockedWhy::Budget) {
            // What its batch may use was raised: whoever did that says nothing of the work.
            self.limit = None;
            self.limit_said = None;
        }
        // The same turn is asked again, to the byte: what a person mended is no news for the model.
        let of_provider = self.asked.as_ref().is_some_and(|asked| asked.why == BlockedWhy::Provider);
        if let Some(failure) = self.last_failure.as_mut().filter(|_| of_provider) {
            failure.needs_person = false;
            failure.retry_in_ms = Some(0);
            self.forgiven_attempts = self.failed_attempts;
        }
        self.undecided_due = false;
        let asked = self.asked.take();
        if let Some(about) = asked.as_ref().and_then(|asked| asked.about.clone()) {
            // Of a call that waits; what it comes to is its result.
            self.permits.record(about, &event.text)?;
        } else if !is_blank(&event.text) {
            answer_words(asked, event.text).into_iter().for_each(|text| self.hear(text));
        }
        self.troubles.clear();
        self.answered_without_tools = false;
        self.stage = Stage::Deciding;
        self.take_back();
        Ok(())
    }

    /// Takes an answer about checks that did not run, where it is for the runtime and not for the model: the run
    /// stays where it was, at the end of its work. Whether it was such an answer.
    fn checks_answered(&mut self, answer: &Content) -> bool {
        match UnverifiedAnswer::read(answer) {
            UnverifiedAnswer::Words => return false,
            UnverifiedAnswer::Accept => {
                let names = self.undecided.iter().map(|check| check.gate.name.clone());
                self.waived_checks.extend(names);
                self.gates_passed = true;
                self.work.checked = Some(true);
            }
            UnverifiedAnswer::Again => {
                self.gates_passed = false;
                self.work.checked = None;
            }
        }
        self.undecided_due = false;
        self.asked = None;
        self.stage = Stage::Deciding;
        self.take_back();
        true
    }
}

/// What the model reads of a person's answer. Its own question stands in its last words; what the engine asked
/// in its place, it has not seen.
fn answer_words(asked: Option<RunBlocked>, answer: Content) -> Vec<Content> {
    match asked {
        Some(RunBlocked {
            why: BlockedWhy::Escalated | BlockedWhy::Policy | BlockedWhy::Unverified,
            question,
            ..
        }) => {
            vec!["The run stopped and asked a person:".into(), question, "The person answers:".into(), answer]
        }
        Some(RunBlocked { why: BlockedWhy::Provider | BlockedWhy::Budget, .. }) => {
            vec!["A person says:".into(), answer]
        }
        Some(RunBlocked { why: BlockedWhy::Model | BlockedWhy::Child, .. }) | None => {
            vec!["A person answers your question:".into(), answer]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_decides_and_a_sentence_is_for_the_model() {
        for (text, answer) in [
            ("accept", UnverifiedAnswer::Accept),
            (" Accept.\n", UnverifiedAnswer::Accept),
            ("again", UnverifiedAnswer::Again),
            ("accept no patch that breaks the build", UnverifiedAnswer::Words),
            ("It is installed.", UnverifiedAnswer::Words),
            ("", UnverifiedAnswer::Words),
        ] {
            assert_eq!(UnverifiedAnswer::read(&text.into()), answer, "{text}");
        }
    }
}
