//! Approvals: people's answers about calls for which policy requires one.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::events::control_events::BlockedCall;
use crate::{content::Content, message::CallId};

/// The decision about one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallApproval {
    /// It may run.
    Approved,
    /// The call may not run; contains the message to the model, which may be empty.
    Denied(String),
}

/// A person's answer to whether a call may run. Only these three forms are accepted: interpreting any other
/// text would allow or refuse something the person did not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The call may run.
    Yes,
    /// The call may run, and so may every call that its rule asks about in this run.
    Always,
    /// The call may not run; contains the message to the model, which may be empty.
    No(String),
}

impl ApprovalAnswer {
    /// Description of the accepted answers.
    pub const ACCEPTED: &str = "`yes` for this call, `always` for all that the rule asks about in this run, or `no` with words for the model";

    /// Parses an answer by its first word, in any case. `yes` and `always` accept no further words, because
    /// the model would not read a condition after them. `None` if it is none of the three.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text.find(|c: char| !c.is_alphanumeric()).unwrap_or(text.len());
        let (first, rest) = text.split_at(end);
        let rest = rest.trim_matches(|c: char| c.is_whitespace() || ",.:;!".contains(c));
        match first.to_ascii_lowercase().as_str() {
            "yes" | "y" if rest.is_empty() => Some(Self::Yes),
            "always" if rest.is_empty() => Some(Self::Always),
            // The refusing word is not part of the reason.
            "no" | "n" => {
                Some(Self::No(text[end..].trim_start_matches([',', '.', ':', ';', ' ']).to_owned()))
            }
            _ => None,
        }
    }
}

/// Approvals of a run. See the module documentation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Approvals {
    calls: BTreeMap<CallId, CallApproval>,
    rules: BTreeSet<String>,
}

impl Approvals {
    /// Records an answer.
    ///
    /// # Errors
    ///
    /// Fails if it is not one of the three forms; the coordinator records no other.
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

    /// Clears the approved rules when the policy changes: its rules may have the same names and ask about
    /// something else.
    pub(in crate::run) fn clear_rules(&mut self) {
        self.rules.clear();
    }

    /// Returns the decision about a call.
    pub fn for_call(&self, call: &CallId) -> Option<&CallApproval> {
        self.calls.get(call)
    }

    /// Whether the rule's calls are approved from now on.
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
