//! Holds a call against policies.

use docket_schema::{
    message::ToolUse,
    policy::{Policy, Rule, Ruling},
};
use globset::{GlobBuilder, GlobMatcher};

use super::{
    pattern::{is_like, may_speak_of, speaks_of},
    reach::Reach,
    unit::{Unit, units_by},
};
use crate::calls::{Label, RUN_COMMAND};

/// What policies say of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Judgement {
    /// The strictest of what they say.
    pub ruling: Ruling,
    /// The rule that says so; `default` where none speaks.
    pub rule: String,
    /// Why, in the rule's words; may be empty.
    pub reason: String,
    /// The piece of the call that it is about, as people read it.
    pub about: String,
}

/// The rule of a policy without one that speaks.
pub const DEFAULT: &str = "default";

/// Holds `tool` against all of `policies`. Without any it is allowed.
#[must_use]
pub fn judge(policies: &[Policy], tool: &ToolUse, reach: Reach) -> Judgement {
    let mut found = Judgement {
        ruling: Ruling::Allow,
        rule: DEFAULT.to_owned(),
        reason: String::new(),
        about: String::new(),
    };
    let mut units = units_by(tool, reach);
    for unit in &mut units {
        unit.is_dark |= policies.iter().flat_map(|policy| &policy.rules).any(|rule| may_restrict(rule, unit));
    }
    for policy in policies {
        for unit in &units {
            let (ruling, rule) = ruled(policy, unit, &tool.name);
            let speaks = rule.is_some() && found.rule == DEFAULT;
            if ruling > found.ruling || (ruling == found.ruling && speaks) {
                found = Judgement {
                    ruling,
                    rule: rule.map_or(DEFAULT, |rule| rule.id.as_str()).to_owned(),
                    reason: rule.map_or("", |rule| rule.reason.as_str()).to_owned(),
                    about: told(unit, tool),
                };
            }
        }
    }
    found
}

/// What one policy says of one piece: the strictest of its rules that speak, else its default.
fn ruled<'a>(policy: &'a Policy, unit: &Unit, tool: &str) -> (Ruling, Option<&'a Rule>) {
    let tool = unit.tool.unwrap_or(tool);
    let refuses = |rule: &&Rule| !unit.is_read || rule.verdict != Ruling::Allow;
    let speaking = policy.rules.iter().filter(refuses).filter(|rule| speaks(rule, unit, tool));
    // Of equals the first: it is the one that is told.
    let strictest = speaking.fold(None::<&Rule>, |best, rule| match best {
        Some(best) if best.verdict >= rule.verdict => Some(best),
        Some(_) | None => Some(rule),
    });
    let default = if unit.is_read { Ruling::Allow } else { policy.default };
    strictest.map_or((default, None), |rule| (rule.verdict, Some(rule)))
}

/// Whether a rule speaks of a piece of a call.
pub(super) fn speaks(rule: &Rule, unit: &Unit, tool: &str) -> bool {
    (rule.tools.is_empty() || rule.tools.iter().any(|name| is_like(name, tool)))
        && by_command(rule, unit)
        && by_path(rule, unit)
        && (rule.labels.is_empty() || unit.labels.iter().any(|label| rule.labels.contains(&name_of(*label))))
}

/// Whether a rule that refuses or asks may speak of what bash makes of a command's arguments: `git {push,origin}`. Then no
/// rule that allows the command as it is written can be relied on.
fn may_restrict(rule: &Rule, unit: &Unit) -> bool {
    let may_speak = |before: &Vec<String>| rule.commands.iter().any(|pattern| may_speak_of(pattern, before));
    rule.verdict != Ruling::Allow && unit.before_expansion.iter().any(may_speak)
}

fn by_command(rule: &Rule, unit: &Unit) -> bool {
    if rule.commands.is_empty() {
        // Of what is not known only a rule allows that allows anything: `*`.
        return !(unit.is_dark && rule.verdict == Ruling::Allow);
    }
    let Some(words) = &unit.words else { return false };
    rule.commands.iter().any(|pattern| match rule.verdict {
        // What is wrapped, or comes from another folder, is something else than what was allowed.
        Ruling::Allow if unit.is_dark => pattern.trim() == "*",
        Ruling::Allow => speaks_of(pattern, words),
        Ruling::Ask | Ruling::Deny => {
            let plain = !unit.plain.is_empty() && speaks_of(pattern, &unit.plain);
            plain || speaks_of(pattern, words) || speaks_of(pattern, &unit.bare)
        }
    })
}

fn by_path(rule: &Rule, unit: &Unit) -> bool {
    let is_match = |glob: &String, path: &String| {
        let below = unit.is_folders && rule.verdict != Ruling::Allow && is_within(glob, path);
        below || is_meant(rule, glob_of(glob).as_ref().ok(), path)
    };
    rule.paths.is_empty()
        || unit.path.as_ref().is_some_and(|path| rule.paths.iter().any(|glob| is_match(glob, path)))
}

/// Whether a rule's glob means a path; none = one that does not parse. It was checked where the policy was read: one that
/// is so all the same must not let through what it refuses.
pub(super) fn is_meant(rule: &Rule, glob: Option<&GlobMatcher>, path: &str) -> bool {
    glob.map_or(rule.verdict != Ruling::Allow, |glob| glob.is_match(path))
}

/// Whether a glob means all below a folder, and that folder is `path` or lies in it.
fn is_within(glob: &str, path: &str) -> bool {
    let glob = glob.trim_start_matches("./");
    let Some(folder) = glob.strip_suffix("/**").or_else(|| glob.strip_suffix('/')) else { return false };
    let rest = if path.is_empty() { Some(folder) } else { folder.strip_prefix(path) };
    !folder.contains(['*', '?', '[', '{', '\\'])
        && rest.is_some_and(|rest| path.is_empty() || rest.is_empty() || rest.starts_with('/'))
}

/// `*` stays within a folder and `**` goes on below; a glob without a slash is about the name in any folder.
pub(super) fn glob_of(glob: &str) -> Result<GlobMatcher, globset::Error> {
    let glob = glob.trim_start_matches("./");
    let whole = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let whole = if whole.ends_with('/') { format!("{whole}**") } else { whole };
    Ok(GlobBuilder::new(&whole).literal_separator(true).build()?.compile_matcher())
}

/// A label's name, as rules and the log have it.
pub(super) fn name_of(label: Label) -> String {
    let json = serde_json::to_value(label);
    json.ok().and_then(|json| json.as_str().map(str::to_owned)).unwrap_or_default()
}

fn told(unit: &Unit, tool: &ToolUse) -> String {
    let text = match (&unit.words, &unit.path) {
        (Some(words), _) => words.join(" "),
        (None, Some(path)) if unit.tool.unwrap_or(&tool.name) == RUN_COMMAND => {
            format!("writing to {path}")
        }
        (None, Some(path)) => format!("{} {path}", tool.name),
        (None, None) => tool.name.clone(),
    };
    text.chars().take(300).collect()
}
