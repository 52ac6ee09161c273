//! Evaluates a call against policies.

use docket_schema::{
    message::ToolUse,
    policy::{Policy, PolicyRule, RuleVerdict},
};
use globset::{GlobBuilder, GlobMatcher};

use super::{
    call_parts::{CallPart, call_parts_in_scope},
    command_pattern::{matches_wildcard, matches_words, may_match_prefix},
    rule_scope::RuleScope,
};
use crate::calls::{CallLabel, RUN_COMMAND};

/// Result of evaluating a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    /// The strictest verdict.
    pub ruling: RuleVerdict,
    /// The rule with that verdict; `default` if no rule matches.
    pub rule_id: String,
    /// The rule's reason; may be empty.
    pub reason: String,
    /// The part of the call that the decision is about, formatted for people.
    pub subject: String,
}

/// Rule name used when no rule of a policy matches.
pub const DEFAULT_RULE: &str = "default";

/// Evaluates `tool` against all `policies`. Without any policy the call is allowed.
#[must_use]
pub fn evaluate_policies(policies: &[Policy], tool: &ToolUse, reach: RuleScope) -> PolicyDecision {
    let mut found = PolicyDecision {
        ruling: RuleVerdict::Allow,
        rule_id: DEFAULT_RULE.to_owned(),
        reason: String::new(),
        subject: String::new(),
    };
    let mut units = call_parts_in_scope(tool, reach);
    for unit in &mut units {
        unit.is_opaque |=
            policies.iter().flat_map(|policy| &policy.rules).any(|rule| may_restrict(rule, unit));
    }
    for policy in policies {
        for unit in &units {
            let (ruling, rule) = policy_ruling(policy, unit, &tool.name);
            let speaks = rule.is_some() && found.rule_id == DEFAULT_RULE;
            if ruling > found.ruling || (ruling == found.ruling && speaks) {
                found = PolicyDecision {
                    ruling,
                    rule_id: rule.map_or(DEFAULT_RULE, |rule| rule.id.as_str()).to_owned(),
                    reason: rule.map_or("", |rule| rule.reason.as_str()).to_owned(),
                    subject: describe_part(unit, tool),
                };
            }
        }
    }
    found
}

/// Evaluates one part against one policy: the strictest matching rule, else the policy's default.
fn policy_ruling<'a>(
    policy: &'a Policy,
    unit: &CallPart,
    tool: &str,
) -> (RuleVerdict, Option<&'a PolicyRule>) {
    let tool = unit.tool_name.unwrap_or(tool);
    let refuses = |rule: &&PolicyRule| !unit.is_only_read || rule.verdict != RuleVerdict::Allow;
    let speaking = policy.rules.iter().filter(refuses).filter(|rule| rule_matches(rule, unit, tool));
    // Of equally strict rules the first one is reported.
    let strictest = speaking.fold(None::<&PolicyRule>, |best, rule| match best {
        Some(best) if best.verdict >= rule.verdict => Some(best),
        Some(_) | None => Some(rule),
    });
    let default = if unit.is_only_read { RuleVerdict::Allow } else { policy.default };
    strictest.map_or((default, None), |rule| (rule.verdict, Some(rule)))
}

/// Whether a rule matches a part of a call.
pub(super) fn rule_matches(rule: &PolicyRule, unit: &CallPart, tool: &str) -> bool {
    (rule.tools.is_empty() || rule.tools.iter().any(|name| matches_wildcard(name, tool)))
        && matches_command(rule, unit)
        && matches_path(rule, unit)
        && (rule.labels.is_empty()
            || unit.labels.iter().any(|label| rule.labels.contains(&label_name(*label))))
}

/// Whether a deny or ask rule could match what bash expands the arguments to: `git {push,origin}`. If so, an allow
/// rule that matches the command as written cannot be relied on.
fn may_restrict(rule: &PolicyRule, unit: &CallPart) -> bool {
    let may_speak =
        |before: &Vec<String>| rule.commands.iter().any(|pattern| may_match_prefix(pattern, before));
    rule.verdict != RuleVerdict::Allow && unit.before_expansion.iter().any(may_speak)
}

fn matches_command(rule: &PolicyRule, unit: &CallPart) -> bool {
    if rule.commands.is_empty() {
        // An unknown effect is allowed only by a rule that allows everything: `*`.
        return !(unit.is_opaque && rule.verdict == RuleVerdict::Allow);
    }
    let Some(words) = &unit.words else { return false };
    rule.commands.iter().any(|pattern| match rule.verdict {
        // A wrapped command, or one from another folder, is not the command that was allowed.
        RuleVerdict::Allow if unit.is_opaque => pattern.trim() == "*",
        RuleVerdict::Allow => matches_words(pattern, words),
        RuleVerdict::Ask | RuleVerdict::Deny => {
            let plain = !unit.words_without_git_options.is_empty()
                && matches_words(pattern, &unit.words_without_git_options);
            plain || matches_words(pattern, words) || matches_words(pattern, &unit.unwrapped_words)
        }
    })
}

fn matches_path(rule: &PolicyRule, unit: &CallPart) -> bool {
    let is_match = |glob: &String, path: &String| {
        let below =
            unit.may_be_folder && rule.verdict != RuleVerdict::Allow && is_folder_glob_below(glob, path);
        below || glob_matches(rule, compile_glob(glob).as_ref().ok(), path)
    };
    rule.paths.is_empty()
        || unit.path.as_ref().is_some_and(|path| rule.paths.iter().any(|glob| is_match(glob, path)))
}

/// Whether a rule's glob matches a path. `None` is a glob that does not parse: policies are checked when they are
/// loaded, but if one got through, it must not disable a deny rule.
pub(super) fn glob_matches(rule: &PolicyRule, glob: Option<&GlobMatcher>, path: &str) -> bool {
    glob.map_or(rule.verdict != RuleVerdict::Allow, |glob| glob.is_match(path))
}

/// Whether a glob covers everything below a folder, and that folder is `path` or inside it.
fn is_folder_glob_below(glob: &str, path: &str) -> bool {
    let glob = glob.trim_start_matches("./");
    let Some(folder) = glob.strip_suffix("/**").or_else(|| glob.strip_suffix('/')) else { return false };
    let rest = if path.is_empty() { Some(folder) } else { folder.strip_prefix(path) };
    !folder.contains(['*', '?', '[', '{', '\\'])
        && rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// Compiles a glob: `*` stays within a folder, `**` crosses folders, and a glob without a slash matches the name in
/// any folder.
pub(super) fn compile_glob(glob: &str) -> Result<GlobMatcher, globset::Error> {
    let glob = glob.trim_start_matches("./");
    let whole = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let whole = if whole.ends_with('/') { format!("{whole}**") } else { whole };
    Ok(GlobBuilder::new(&whole).literal_separator(true).build()?.compile_matcher())
}

/// A label's name in rules and in the log.
pub(super) fn label_name(label: CallLabel) -> String {
    let json = serde_json::to_value(label);
    json.ok().and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
}

fn describe_part(unit: &CallPart, tool: &ToolUse) -> String {
    let text = match (&unit.words, &unit.path) {
        (Some(words), _) => words.join(" "),
        (None, Some(path)) if unit.tool_name.unwrap_or(&tool.name) == RUN_COMMAND => {
            format!("writing to {path}")
        }
        (None, Some(path)) => format!("{} {path}", tool.name),
        (None, None) => tool.name.clone(),
    };
    text.chars().take(300).collect()
}
