//! Policies and their rules.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    bounds::{PolicyError, TEXT_CHARS_MAX, check_texts, some_or_left_out},
    network::NetworkPolicy,
};

/// Maximum number of rules in one policy.
pub const RULES_MAX: usize = 200;

/// Verdict of a rule. Ordered, because the strictest wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema, Default)]
#[serde(rename_all = "snake_case")]
pub enum RuleVerdict {
    /// The call runs.
    #[default]
    Allow,
    /// A person must approve the call.
    Ask,
    /// The call is refused.
    Deny,
}

/// A rule. It applies to a call that meets each of its conditions; of several commands, paths or labels, one
/// must match.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PolicyRule {
    /// The rule's name, in the log and for the model.
    pub id: String,
    /// The verdict.
    pub verdict: RuleVerdict,
    /// Names of tools, those of MCP servers as `mcp__SERVER__TOOL`, with `*` for any characters; empty means
    /// any tool.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<String>,
    /// Patterns of commands, word by word: `git push *`. Within a word, `*` matches any characters; alone at
    /// the end, it matches any number of words.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Globs of workspace-relative paths: the path of a file tool, or the target of a command's redirection.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// Labels of calls, such as `network` or `deletes`.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The reason, shown to the model on a refusal and to the person who approves.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// Shell lines or paths that the rule must match; checked when the policy is loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<String>,
    /// Shell lines or paths that the rule must not match.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub misses: Vec<String>,
}

/// A policy. Each command of a shell line is evaluated, and the strictest verdict wins; the same holds for
/// several policies.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// The verdict if no rule applies. With `deny` or `ask`, the allowing rules form an allow list.
    #[serde(default)]
    pub default: RuleVerdict,
    /// The rules.
    #[serde(default)]
    pub rules: Vec<PolicyRule>,
    /// Network access of commands; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkPolicy>,
}

impl Policy {
    /// Checks limits and names. Patterns are checked where they are matched.
    ///
    /// # Errors
    ///
    /// [`PolicyError`] for the first invalid field.
    pub fn check(&self) -> Result<(), PolicyError> {
        if self.rules.len() > RULES_MAX {
            return Err(PolicyError::new("rules", format!("may have at most {RULES_MAX} entries")));
        }
        for (nth, rule) in self.rules.iter().enumerate() {
            rule.check(&format!("rules[{nth}]"))?;
            if let Some(first) = self.rules[..nth].iter().position(|other| other.id == rule.id) {
                let must = format!("must be unique: rules[{first}] already has `{}`", rule.id);
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
