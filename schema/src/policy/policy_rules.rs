//! A policy and its rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bounds::{PolicyError, TEXT_CHARS_MAX, check_texts, some_or_left_out},
    network::NetworkPolicy,
};

/// Rules of one policy at most.
pub const RULES_MAX: usize = 200;

/// What a rule says. In this order, for the strictest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    /// It is run.
    #[default]
    Allow,
    /// A person is asked.
    Ask,
    /// It is refused.
    Deny,
}

/// A rule. It speaks of a call where each of its conditions holds that it has; where it has several commands, paths
/// or labels, one of them is enough.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// Its name, in the log and for the model.
    pub id: String,
    /// What it says.
    pub verdict: RuleVerdict,
    /// Names of tools, those of servers as `mcp__SERVER__TOOL`, with `*` for any characters; empty = any.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of commands, word by word: `git push *`. In a word `*` stands for any characters; alone at the end for
    /// any words, or none.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Globs of paths from the workspace: what a file tool names, and what a command writes to by a redirection.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Labels of calls, such as `network` or `deletes`.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// Why, for the model that is refused and the person who is asked.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Shell lines, or paths, of which it must speak: looked at when the policy is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Others of which it must not speak.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<String>,
}

/// A policy. Of a shell line each command is held against it, and the strictest verdict wins; so of several policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// What holds where no rule speaks. With `deny` or `ask` the rules that allow are a list of what may be done.
    #[serde(default)]
    pub default: RuleVerdict,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<PolicyRule>,
    /// What of the network commands may reach; none = nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
}

impl Policy {
    /// Checks bounds and names. Patterns are looked at where they are matched.
    ///
    /// # Errors
    /// [`PolicyError`]: the first field that is wrong.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.rules.len() > RULES_MAX {
            return Err(PolicyError::new("rules", format!("may have at most {RULES_MAX} entries")));
        }
        for (nth, rule) in self.rules.iter().enumerate() {
            rule.check(&format!("rules[{nth}]"))?;
            if let Some(first) = self.rules[..nth].iter().position(|other| other.id == rule.id) {
                let must = format!("must be a name of its own: rules[{first}] has `{}`", rule.id);
                return Err(PolicyError::new(format!("rules[{nth}].id"), must));
            }
        }
        self.network.as_ref().map_or(Ok(()), NetworkPolicy::check)
    }
}

impl PolicyRule {
    fn check(&self, at: &str) -> Result<(), PolicyError> {
        let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if self.id.is_empty() || !self.id.chars().all(legal) || self.id.len() > 64 {
            let must = "must be 1 to 64 letters, digits, dots, dashes or underscores";
            return Err(PolicyError::new(format!("{at}.id"), must));
        }
        let lists = [
            ("tools", &self.tools),
            ("commands", &self.commands),
            ("paths", &self.paths),
            ("labels", &self.labels),
            ("matches", &self.matches),
            ("misses", &self.misses),
        ];
        for (name, list) in lists {
            check_texts(&format!("{at}.{name}"), list)?;
        }
        if self.reason.chars().count() > TEXT_CHARS_MAX {
            return Err(PolicyError::new(
                format!("{at}.reason"),
                format!("may have at most {TEXT_CHARS_MAX} characters"),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_policy_is_reported_with_its_field() {
        let rule = |id: &str| PolicyRule {
            id: id.to_owned(),
            verdict: RuleVerdict::Deny,
            tools: Vec::new(),
            commands: Vec::new(),
            paths: Vec::new(),
            labels: Vec::new(),
            reason: String::new(),
            matches: Vec::new(),
            misses: Vec::new(),
        };
        let policy = |rules: Vec<PolicyRule>| Policy { rules, ..Policy::default() };
        assert_eq!(policy(vec![rule("a"), rule("b")]).check(), Ok(()));
        let long = PolicyRule { reason: "x".repeat(401), ..rule("a") };
        for (policy, field) in [
            (policy(vec![rule("a"), rule("a")]), "rules[1].id"),
            (policy(vec![rule("a b")]), "rules[0].id"),
            (policy(vec![PolicyRule { paths: vec![" ".to_owned()], ..rule("a") }]), "rules[0].paths[0]"),
            (policy(vec![long]), "rules[0].reason"),
            (policy((0..201).map(|n| rule(&n.to_string())).collect()), "rules"),
        ] {
            assert_eq!(policy.check().expect_err(field).field, field);
        }
        assert!(RuleVerdict::Deny > RuleVerdict::Ask && RuleVerdict::Ask > RuleVerdict::Allow);
    }
}
