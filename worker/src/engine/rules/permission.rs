//! Whether a call may run: by the model that makes it, by its role, by policy, and by what a person said where policy asks
//! (E12). Pure: policies are pinned, answers are recorded.

use docket_schema::{
    message::ToolUse,
    policy::Ruling,
    run::{Permit, RoleSpec, RunStarted, RunState, Verdict, WriteScope},
};

use super::delegation;
use crate::engine::core::{call_options::role_of, models::only_explored};
use crate::{
    policy::{self, Asking, Reach, Sight},
    tools::{self, Label},
};

/// What an explore model reads where it wants to write.
const ONLY_EXPLORES: &str = "changes are not this model's to make; the main model is asked next. If this change is \
                             right, it makes it.";

/// Whether a call that is about to run may.
pub(in crate::engine) fn verdict(run: &RunState, pins: &RunStarted, tool: &ToolUse) -> Verdict {
    let writes = |label: &Label| match label {
        Label::Writes
        | Label::Deletes
        | Label::Config
        | Label::GitDiscards
        | Label::Installs
        | Label::Privilege
        | Label::Background => true,
        Label::Reads
        | Label::Command
        | Label::Tests
        | Label::Git
        | Label::Network
        | Label::Memory
        | Label::External => false,
    };
    let writes = match pins.external(&tool.name) {
        // Whatever it does.
        Some(external) => !external.read_only,
        None => tools::labels_in(pins.settings.tool_set, &tool.name, &tool.args).iter().any(writes),
    };
    if writes && only_explored(run, pins) {
        return Verdict::Deny { rule: "explore".to_owned(), reason: ONLY_EXPLORES.to_owned() };
    }
    if let Some(role) = role_of(run, pins).filter(|_| !tool.call.is_own()) {
        if !role.may(&tool.name) {
            return Verdict::Deny { rule: "role".to_owned(), reason: not_of(role, &tool.name) };
        }
        let reason = not_written_by(role, tool).or_else(|| delegation::not_given_by(role, pins, tool));
        if let Some(reason) = reason {
            return Verdict::Deny { rule: "role".to_owned(), reason };
        }
    }
    says(run, tool)
}

/// What a model reads that calls a tool which its role does not have.
fn not_of(role: &RoleSpec, tool: &str) -> String {
    let tool: String = tool.chars().take(80).collect();
    match role.may.as_slice() {
        [] => format!("the role `{}` has no tools: answer in words", role.name),
        may => format!("the role `{}` has no tool `{tool}`; it has {}", role.name, may.join(", ")),
    }
}

/// What a model reads that writes a file which its role does not write.
fn not_written_by(role: &RoleSpec, tool: &ToolUse) -> Option<String> {
    match role.writes {
        WriteScope::Any => None,
        WriteScope::Tests => {
            let files = tools::written_files(&tool.name, &tool.args);
            let of_tests =
                |file: &String| tools::work_path_of(file).is_some_and(|path| tools::is_of_tests(&path));
            let other = files.iter().find(|file| !of_tests(file))?;
            let file: String = other.chars().take(200).collect();
            Some(format!(
                "the role `{}` writes tests only, and `{file}` is none: neither called as tests are nor in a folder of tests",
                role.name
            ))
        }
    }
}

/// Files that the run changed and whose text no role is shown, for a policy speaks against it.
pub(in crate::engine) fn unseen(run: &RunState) -> Vec<String> {
    let looks = Sight::of(&run.policies).through(&[tools::READ_FILE], Asking::Hides);
    // Nobody is asked for one file of many.
    let changed = run.overlay.keys().map(ToString::to_string).filter(|_| !looks.is_all());
    changed.filter(|path| !looks.sees(path)).collect()
}

/// The policies' verdict, and what a person said where they ask.
fn says(run: &RunState, tool: &ToolUse) -> Verdict {
    // What is handed in by a card is words.
    if run.policies.is_empty() || tools::is_card(&tool.name) {
        return Verdict::Allow { rule: "builtin".to_owned() };
    }
    // What the runtime shows of files is read all the same: rules for reading speak of it.
    let read = (tool.call.is_own()
        && matches!(tool.name.as_str(), tools::SHOW_FILE | tools::SHOW_CHANGES | tools::SURVEY))
    .then(|| ToolUse { name: tools::READ_FILE.to_owned(), ..tool.clone() });
    let said = policy::judge(&run.policies, read.as_ref().unwrap_or(tool), Reach::of(run));
    let rule = said.rule.clone();
    match (said.ruling, run.permits.of(&tool.call)) {
        (Ruling::Allow, _) | (Ruling::Ask, Some(Permit::Yes)) => Verdict::Allow { rule },
        (Ruling::Ask, None) if run.permits.always(&rule) => Verdict::Allow { rule },
        (Ruling::Ask, Some(Permit::No(words))) if words.is_empty() => {
            Verdict::Deny { rule, reason: "a person was asked, and said no".to_owned() }
        }
        (Ruling::Ask, Some(Permit::No(words))) => {
            Verdict::Deny { rule, reason: format!("a person was asked, and says: {words}") }
        }
        (Ruling::Ask, None) => {
            let why = if said.reason.is_empty() { String::new() } else { format!(" ({})", said.reason) };
            let question = format!(
                "May the model do this, which rule `{rule}` asks about{why}?\n  {}\nIt is part of: {}\nAnswer `yes` for this \
                 call, `always` for all that this rule asks about in this run, or `no` with words for the model.",
                said.about,
                whole(tool)
            );
            Verdict::Ask { rule, question }
        }
        (Ruling::Deny, _) => {
            let why = if said.reason.is_empty() { "it is not allowed here".to_owned() } else { said.reason };
            Verdict::Deny { rule, reason: format!("{why}: {}", said.about) }
        }
    }
}

/// A call as people read it.
fn whole(tool: &ToolUse) -> String {
    let line = tool.args.get("command").and_then(|line| line.as_str());
    let text = line.map_or_else(|| format!("{} {}", tool.name, tool.args), str::to_owned);
    let mut short: String = text.chars().take(QUESTION_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Characters of a call that a question shows.
const QUESTION_CHARS_MAX: usize = 1000;
