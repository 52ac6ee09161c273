//! What people said of calls that policy asks about.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::events::control_events::BlockedCall;
use crate::{content::Content, message::CallId};

/// What was said of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallApproval {
    /// It may run.
    Approved,
    /// It may not; the words for the model, which may be none.
    Denied(String),
}

/// A person's answer to the question whether a call may run. Only these three are answers: a text that is read as
/// one of them by default would allow or refuse what the person did not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The call may run.
    Yes,
    /// The call may run, and all else that its rule asks about in this run.
    Always,
    /// The call may not run; the words for the model, which may be none.
    No(String),
}

impl ApprovalAnswer {
    /// The accepted words, for people.
    pub const ACCEPTED: &str = "`yes` for this call, `always` for all that the rule asks about in this run, or `no` with words for the model";

    /// Reads an answer by its first word, in any case. `yes` and `always` take no further words, for the model
    /// would not read a condition that stands behind them. `None` = it is none of the three.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (first, rest) = text.split_at(end);
        let rest = rest.trim_matches(|c: char| c.is_whitespace() || ",.:;!".contains(c));
        match first.to_ascii_lowercase().as_str() {
            "yes" | "y" if rest.is_empty() => Some(Self::Yes),
            "always" if rest.is_empty() => Some(Self::Always),
            // The word that refuses is no reason.
            "no" | "n" => {
                Some(Self::No(text[end..].trim_start_matches([',', '.', ':', ';', ' ']).to_owned()))
            }
            _ => None,
        }
    }
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals {
    calls: BTreeMap<CallId, CallApproval>,
    rules: BTreeSet<String>,
}

impl Approvals {
    /// Records an answer.
    ///
    /// # Errors
    /// It is not one of the three: the coordinator records no other.
    pub(in crate::run) fn record(&mut self, about: BlockedCall, answer: &Content) -> Result<(), String> {
        let answer = match answer {
            Content::Text(text) => ApprovalAnswer::parse(text),
            Content::Blob(_) | Content::B64(_) => None,
        };
        let permit = match answer {
            Some(ApprovalAnswer::Yes) => CallApproval::Approved,
            Some(ApprovalAnswer::Always) => {
                self.rules.insert(about.rule);
                CallApproval::Approved
            }
            Some(ApprovalAnswer::No(words)) => CallApproval::Denied(words),
            None => return Err(format!(": the answer about {} is not yes, always or no", about.call)),
        };
        self.calls.insert(about.call, permit);
        Ok(())
    }

    /// Another policy is in force: its rules may bear the same names and ask about something else.
    pub(in crate::run) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// What was said of a call.
    pub fn for_call(&self, call: &CallId) -> Option<&CallApproval> {
        self.calls.get(call)
    }

    /// Whether what this rule asks about is allowed from now on.
    pub fn is_rule_approved(&self, rule: &str) -> bool {
        self.rules.contains(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_always_and_no_are_accepted() {
        let no = |words: &str| Some(ApprovalAnswer::No(words.to_owned()));
        for (text, answer) in [
            ("yes", Some(ApprovalAnswer::Yes)),
            (" Yes. ", Some(ApprovalAnswer::Yes)),
            ("Y", Some(ApprovalAnswer::Yes)),
            ("always!", Some(ApprovalAnswer::Always)),
            ("no", no("")),
            ("No: use the mirror", no("use the mirror")),
            ("n, use the mirror", no("use the mirror")),
            // Conditions that the model would not read.
            ("yes, but only in src", None),
            ("always, until noon", None),
            ("maybe", None),
            ("use the mirror", None),
            ("yesterday it broke", None),
            ("nobody knows", None),
            ("ja", None),
            ("", None),
        ] {
            assert_eq!(ApprovalAnswer::parse(text), answer, "{text}");
        }
    }

    #[test]
    fn an_answer_is_recorded_for_its_call_and_always_for_its_rule() {
        let call = CallId("t1-0".to_owned());
        let about = || BlockedCall { call: call.clone(), rule: "r".to_owned() };
        for (answer, permit, always) in [
            ("yes", CallApproval::Approved, false),
            ("always", CallApproval::Approved, true),
            ("no: use the mirror", CallApproval::Denied("use the mirror".to_owned()), false),
        ] {
            let mut permits = Approvals::default();
            permits.record(about(), &answer.into()).expect("one of the three");
            assert_eq!(
                (permits.for_call(&call), permits.is_rule_approved("r")),
                (Some(&permit), always),
                "{answer}"
            );
        }
        let mut permits = Approvals::default();
        assert!(permits.record(about(), &"maybe".into()).is_err_and(|why| why.contains("t1-0")));
        assert_eq!(permits, Approvals::default(), "nothing is recorded");
    }
}
