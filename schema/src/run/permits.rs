//! What people said of calls that policy asks about.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{content::Content, message::CallId};

/// The call that a blocker is about, and the rule that asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AboutCall {
    /// The call: the next one that waits.
    pub call: CallId,
    /// The rule.
    pub rule: String,
}

/// What was said of one call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Permit {
    /// It may run.
    Yes,
    /// It may not; the words for the model, which may be none.
    No(String),
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Permits {
    calls: BTreeMap<CallId, Permit>,
    rules: BTreeSet<String>,
}

impl Permits {
    /// Takes an answer. `yes` allows the call and `always` whatever its rule asks about; all else refuses it.
    pub(super) fn said(&mut self, about: AboutCall, answer: &Content) {
        let text = match answer {
            Content::Text(text) => text.trim(),
            Content::Blob(_) | Content::B64(_) => "",
        };
        let first =
            text.split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_ascii_lowercase();
        let permit = match first.as_str() {
            "yes" | "y" | "ok" | "allow" => Permit::Yes,
            "always" => {
                self.rules.insert(about.rule);
                Permit::Yes
            }
            // The word that refuses is no reason.
            "no" | "n" | "deny" => {
                Permit::No(text[first.len()..].trim_start_matches([',', '.', ':', ';', ' ']).to_owned())
            }
            _ => Permit::No(text.to_owned()),
        };
        self.calls.insert(about.call, permit);
    }

    /// Another policy is in force: its rules may bear the same names and ask about something else.
    pub(super) fn forget_rules(&mut self) {
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
    fn only_a_clear_yes_allows() {
        for (answer, permit, always) in [
            ("yes", Permit::Yes, false),
            (" Yes, once.", Permit::Yes, false),
            ("always", Permit::Yes, true),
            ("no", Permit::No(String::new()), false),
            ("No: use the mirror", Permit::No("use the mirror".to_owned()), false),
            ("use the mirror", Permit::No("use the mirror".to_owned()), false),
            ("yesterday it broke", Permit::No("yesterday it broke".to_owned()), false),
            ("", Permit::No(String::new()), false),
        ] {
            let mut permits = Permits::default();
            let call = CallId("t1-0".to_owned());
            permits.said(AboutCall { call: call.clone(), rule: "r".to_owned() }, &answer.into());
            assert_eq!((permits.of(&call), permits.always("r")), (Some(&permit), always), "{answer}");
        }
    }
}
