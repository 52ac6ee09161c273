//! Decides whether a call may run: by the model that makes it, by its role, by policy, and by a person's answer if
//! policy asks (E12). Pure: policies are pinned, answers are recorded.

use docket_schema::{
    message::ToolUse,
    policy::RuleVerdict,
    run::{CallApproval, PolicyVerdict, RoleSpec, RunStarted, RunState, WriteScope},
};

use super::delegation;
use crate::engine::core::{call_options::current_role, model_choice::only_explore_model_answered};
use crate::{
    policy::{self, AskVisibility, PathVisibility, RuleScope},
    tools::{self, CallLabel},
};

/// The refusal for an explore model that wants to write.
const EXPLORE_ONLY_REASON: &str = "changes are not this model's to make; the main model is asked next. If this change is \
                             right, it makes it.";

/// Returns the verdict on a call that is about to run.
pub(in crate::engine) fn call_verdict(run: &RunState, pins: &RunStarted, tool: &ToolUse) -> PolicyVerdict {
    let writes = |label: &CallLabel| match label {
        CallLabel::Writes
        | CallLabel::Deletes
        | CallLabel::Config
        | CallLabel::GitDiscards
        | CallLabel::Installs
        | CallLabel::Privilege
        | CallLabel::Background => true,
        CallLabel::Reads
        | CallLabel::Command
        | CallLabel::Tests
        | CallLabel::Git
        | CallLabel::Network
        | CallLabel::Memory
        | CallLabel::External => false,
    };
    let writes = match pins.external_tool(&tool.name) {
        // Whatever it does.
        Some(external) => !external.read_only,
        None => tools::call_labels_in_set(pins.settings.tool_set, &tool.name, &tool.args).iter().any(writes),
    };
    if writes && only_explore_model_answered(run, pins) {
        return PolicyVerdict::Deny { rule: "explore".to_owned(), reason: EXPLORE_ONLY_REASON.to_owned() };
    }
    if let Some(role) = current_role(run, pins).filter(|_| !tool.call.is_runtime()) {
        if !role.has_tool(&tool.name) {
            return PolicyVerdict::Deny {
                rule: "role".to_owned(),
                reason: missing_tool_reason(role, &tool.name),
            };
        }
        let reason = write_scope_denied_reason(role, tool)
            .or_else(|| delegation::delegation_denied_reason(role, pins, tool));
        if let Some(reason) = reason {
            return PolicyVerdict::Deny { rule: "role".to_owned(), reason };
        }
    }
    policy_verdict(run, tool)
}

/// Returns the message for a model that calls a tool its role does not have.
fn missing_tool_reason(role: &RoleSpec, tool: &str) -> String {
    let tool: String = tool.chars().take(80).collect();
    match role.may.as_slice() {
        [] => format!("the role `{}` has no tools: answer in words", role.name),
        may => format!("the role `{}` has no tool `{tool}`; it has {}", role.name, may.join(", ")),
    }
}

/// Returns the message for a model that writes a file outside its role's scope.
fn write_scope_denied_reason(role: &RoleSpec, tool: &ToolUse) -> Option<String> {
    match role.writes {
        WriteScope::Any => None,
        WriteScope::Tests => {
            let files = tools::written_files(&tool.name, &tool.args);
            let of_tests =
                |file: &String| tools::work_path_of(file).is_some_and(|path| tools::is_test_path(&path));
            let other = files.iter().find(|file| !of_tests(file))?;
            let file: String = other.chars().take(200).collect();
            Some(format!(
                "the role `{}` writes tests only, and `{file}` is none: neither called as tests are nor in a folder of tests",
                role.name
            ))
        }
    }
}

/// Returns the changed files whose text is hidden from all roles by policy.
pub(in crate::engine) fn hidden_changed_files(run: &RunState) -> Vec<String> {
    let looks = PathVisibility::new(&run.policies).filter_for(&[tools::READ_FILE], AskVisibility::Hidden);
    // No person is asked about one file of many.
    let changed = run.overlay.keys().map(ToString::to_string).filter(|_| !looks.shows_everything());
    changed.filter(|path| !looks.is_visible(path)).collect()
}

/// Returns the policies' verdict, combined with a person's answer if they ask.
fn policy_verdict(run: &RunState, tool: &ToolUse) -> PolicyVerdict {
    // Artifact tools only submit text.
    if run.policies.is_empty() || tools::is_artifact_tool(&tool.name) {
        return PolicyVerdict::Allow { rule: "builtin".to_owned() };
    }
    // Files that the runtime shows are read all the same, so read rules apply.
    let read = (tool.call.is_runtime()
        && matches!(tool.name.as_str(), tools::SHOW_FILE | tools::SHOW_CHANGES | tools::SURVEY))
    .then(|| ToolUse { name: tools::READ_FILE.to_owned(), ..tool.clone() });
    let said =
        policy::evaluate_policies(&run.policies, read.as_ref().unwrap_or(tool), RuleScope::for_run(run));
    let rule = said.rule_id.clone();
    match (said.ruling, run.approvals.for_call(&tool.call)) {
        (RuleVerdict::Allow, _) | (RuleVerdict::Ask, Some(CallApproval::Approved)) => {
            PolicyVerdict::Allow { rule }
        }
        (RuleVerdict::Ask, None) if run.approvals.is_rule_approved(&rule) => PolicyVerdict::Allow { rule },
        (RuleVerdict::Ask, Some(CallApproval::Denied(words))) if words.is_empty() => {
            PolicyVerdict::Deny { rule, reason: "a person was asked, and said no".to_owned() }
        }
        (RuleVerdict::Ask, Some(CallApproval::Denied(words))) => {
            PolicyVerdict::Deny { rule, reason: format!("a person was asked, and says: {words}") }
        }
        (RuleVerdict::Ask, None) => {
            let why = if said.reason.is_empty() { String::new() } else { format!(" ({})", said.reason) };
            let question = format!(
                "May the model do this, which rule `{rule}` asks about{why}?\n  {}\nIt is part of: {}\nAnswer `yes` for this \
                 call, `always` for all that this rule asks about in this run, or `no` with words for the model.",
                said.subject,
                format_call(tool)
            );
            PolicyVerdict::Ask { rule, question }
        }
        (RuleVerdict::Deny, _) => {
            let why = if said.reason.is_empty() { "it is not allowed here".to_owned() } else { said.reason };
            PolicyVerdict::Deny { rule, reason: format!("{why}: {}", said.subject) }
        }
    }
}

/// Formats a call for people.
fn format_call(tool: &ToolUse) -> String {
    let line = tool.args.get("command").and_then(|line| line.as_str());
    let text = line.map_or_else(|| format!("{} {}", tool.name, tool.args), str::to_owned);
    let mut short: String = text.chars().take(QUESTION_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

/// Characters of a call shown in a question.
const QUESTION_CHARS_MAX: usize = 1000;
