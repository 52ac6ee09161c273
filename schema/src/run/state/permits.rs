//! What people said of calls that policy asks about.

use std::collections::{BTreeMap, BTreeSet};

use crate::run::events::inbox::AboutCall;
use crate::{content::Content, message::CallId};

/// What was said of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// It may run.
    Yes,
    /// It may not; the words for the model, which may be none.
    No(String),
}

/// A person's answer to the question whether a call may run. Only these three are answers: a text that is read as
/// one of them by default would allow or refuse what the person did not decide.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PermissionAnswer {
    /// The call may run.
    Yes,
    /// The call may run, and all else that its rule asks about in this run.
    Always,
    /// The call may not run; the words for the model, which may be none.
    No(String),
}

impl PermissionAnswer {
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
pub struct Permits {
    calls: BTreeMap<CallId, Permit>,
    rules: BTreeSet<String>,
}

impl Permits {
    /// Records an answer.
    ///
    /// # Errors
    /// It is not one of the three: the coordinator records no other.
    pub(in crate::run) fn record(&mut self, about: AboutCall, answer: &Content) -> Result<(), String> {
        let answer = match answer {
            Content::Text(text) => PermissionAnswer::parse(text),
            Content::Blob(_) | Content::B64(_) => None,
        };
        let permit = match answer {
            Some(PermissionAnswer::Yes) => Permit::Yes,
            Some(PermissionAnswer::Always) => {
                self.rules.insert(about.rule);
                Permit::Yes
            }
            Some(PermissionAnswer::No(words)) => Permit::No(words),
            None => return Err(format!(": the answer about {} is not yes, always or no", about.call)),
        };
        self.calls.insert(about.call, permit);
        Ok(())
    }

    /// Another policy is in force: its rules may bear the same names and ask about something else.
    pub(in crate::run) fn forget_rules(&mut self) {
        self.rules.clear();
    }

    /// What was said of a call.
    pub fn of(&self, call: &CallId) -> Option<&Permit> {
        self.calls.get(call)
    }

    /// Whether what this rule asks about is allowed from now on.
    pub fn always(&self, rule: &str) -> bool {
        self.rules.contains(rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_yes_always_and_no_are_answers() {
        let no = |words: &str| Some(PermissionAnswer::No(words.to_owned()));
        for (text, answer) in [
            ("yes", Some(PermissionAnswer::Yes)),
            (" Yes. ", Some(PermissionAnswer::Yes)),
            ("Y", Some(PermissionAnswer::Yes)),
            ("always!", Some(PermissionAnswer::Always)),
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
            assert_eq!(PermissionAnswer::parse(text), answer, "{text}");
        }
    }

    #[test]
    fn an_answer_is_recorded_for_its_call_and_always_for_its_rule() {
        let call = CallId("t1-0".to_owned());
        let about = || AboutCall { call: call.clone(), rule: "r".to_owned() };
        for (answer, permit, always) in [
            ("yes", Permit::Yes, false),
            ("always", Permit::Yes, true),
            ("no: use the mirror", Permit::No("use the mirror".to_owned()), false),
        ] {
            let mut permits = Permits::default();
            permits.record(about(), &answer.into()).expect("one of the three");
            assert_eq!((permits.of(&call), permits.always("r")), (Some(&permit), always), "{answer}");
        }
        let mut permits = Permits::default();
        assert!(permits.record(about(), &"maybe".into()).is_err_and(|why| why.contains("t1-0")));
        assert_eq!(permits, Permits::default(), "nothing is recorded");
    }
}
