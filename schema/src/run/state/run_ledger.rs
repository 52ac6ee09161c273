//! The runtime's ledger of a run: its changes, commands, messages from people, errors, and its plan.
//!
//! Maintained by the fold and not by the model, because a model would forget its own edits when old messages
//! are compacted. [`RunLedger::render`] is inserted into the conversation after each compaction. Pure; every
//! list is bounded and says what it omits.

use std::collections::{BTreeMap, VecDeque};

use serde_json::Value;

use crate::run::events::{
    run_event::RunEvent,
    turn_events::{GateFinished, GateRequested, ModelAnswered, ToolFinished, ToolRequested, ToolStatus},
};
use crate::{
    content::{Content, WorkspacePath},
    message::{MessagePart, ToolUse},
    tool::{LintStatus, ToolFacts},
};

/// Maximum number of commands; the latest are kept.
const COMMANDS_MAX: usize = 30;
/// Maximum number of errors; the latest are kept.
const ERRORS_MAX: usize = 12;
/// Maximum number of messages from people; the latest are kept.
const USER_MESSAGES_MAX: usize = 20;
/// Maximum size of one entry, in bytes.
const ENTRY_BYTES_MAX: usize = 1000;
/// Maximum size of a plan, in bytes.
const PLAN_BYTES_MAX: usize = 4000;
/// The line that starts a plan, in any case, plain or as a heading.
const PLAN_MARK: &str = "plan:";

/// A run's changes to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileChange {
    /// Whether the run created it.
    pub created: bool,
    /// Number of calls that changed it.
    pub change_count: u32,
    /// Number of lines these calls added.
    pub added: u32,
    /// Number of lines these calls removed.
    pub removed: u32,
}

/// Ledger of a run. See the module documentation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RunLedger {
    /// Files changed by tools of the run.
    pub files: BTreeMap<WorkspacePath, FileChange>,
    /// Commands and their results, each in the place of its latest run.
    pub commands: VecDeque<(String, String)>,
    /// Failures that have not been resolved since, by what was attempted.
    pub errors: VecDeque<(String, String)>,
    /// Messages from people.
    pub user_messages: VecDeque<String>,
    /// The model's latest plan.
    pub plan: Option<String>,
}

impl RunLedger {
    /// Applies the next event, given the state before it.
    pub(in crate::run) fn apply_event(
        &mut self,
        event: &RunEvent,
        tools: &[(ToolRequested, ToolUse)],
        gates: &[GateRequested],
    ) {
        if let RunEvent::ModelAnswered(e) = event {
            self.record_answer(e);
        } else if let RunEvent::ToolFinished(e) = event {
            if let Some((_, tool)) = tools.iter().find(|(open, _)| open.call == e.call) {
                self.record_tool_result(tool, e);
            }
        } else if let RunEvent::GateFinished(e) = event {
            if let Some(open) = gates.iter().find(|open| open.call == e.call) {
                self.record_gate_result(open, e);
            }
        } else if let RunEvent::Told(e) = event {
            self.record_user_message(&e.by, &e.text);
        } else if let RunEvent::BlockerAnswered(e) = event {
            self.record_user_message(&format!("{}, asked by you", e.by), &e.text);
        } else if let RunEvent::Forked(e) = event
            && let Some(hint) = &e.hint
        {
            self.record_user_message("a person", hint);
        }
    }

    fn record_answer(&mut self, event: &ModelAnswered) {
        if event.call.is_summary() {
            return;
        }
        for part in &event.parts {
            if let MessagePart::Text { text: Content::Text(text) } = part
                && let Some(plan) = extract_plan(text)
            {
                self.plan = Some(plan);
            }
        }
    }

    fn record_tool_result(&mut self, tool: &ToolUse, event: &ToolFinished) {
        let word = |name: &str| tool.args.get(name).and_then(Value::as_str);
        let main = ["command", "path", "test_path", "regex"].iter().find_map(|name| word(name));
        let tried = truncate_text(&format!("{} {}", tool.name, main.unwrap_or("")).replace('\n', " "), 300);
        let facts = &event.facts;
        for path in &facts.changed {
            let change = self.files.entry(path.clone()).or_default();
            change.created |= tool.name == "create_file";
            change.change_count += 1;
            // Line counts are for the whole call; if it changed several files, they cannot be attributed.
            if let (Some(lines), 1) = (facts.lines, facts.changed.len()) {
                change.added = change.added.saturating_add(lines.added);
                change.removed = change.removed.saturating_add(lines.removed);
            }
        }
        if matches!(tool.name.as_str(), "run_command" | "run_tests") {
            upsert_bounded(&mut self.commands, (tried.clone(), describe_outcome(event)), COMMANDS_MAX);
        }
        let findings = facts.lint.iter().filter(|seen| seen.status == LintStatus::Findings);
        let findings: Vec<String> =
            findings.map(|seen| format!("{} finds {}", seen.linter, seen.findings)).collect();
        if has_failed(event.status, facts) {
            let error = format!("{}: {}", describe_outcome(event), first_lines(&event.content));
            upsert_bounded(&mut self.errors, (tried, error), ERRORS_MAX);
        } else if !findings.is_empty() {
            upsert_bounded(&mut self.errors, (tried, findings.join(", ")), ERRORS_MAX);
        } else {
            self.errors.retain(|(of, _)| *of != tried && !is_settled_by(of, tool, facts));
        }
    }

    fn record_gate_result(&mut self, open: &GateRequested, event: &GateFinished) {
        if !open.step.is_check() {
            return;
        }
        let tried = truncate_text(&format!("final check {}", open.gate.name), 300);
        if event.passed {
            self.errors.retain(|(of, _)| *of != tried);
        } else {
            upsert_bounded(
                &mut self.errors,
                (tried, format!("{}: {}", event.outcome_label(), first_lines(&event.content))),
                ERRORS_MAX,
            );
        }
    }

    fn record_user_message(&mut self, by: &str, text: &Content) {
        if let Content::Text(text) = text
            && !text.trim().is_empty()
        {
            self.user_messages.push_back(truncate_text(&format!("{by}: {}", text.trim()), ENTRY_BYTES_MAX));
            if self.user_messages.len() > USER_MESSAGES_MAX {
                self.user_messages.pop_front();
            }
        }
    }

    /// Whether the model's latest plan has an unticked step.
    pub fn has_open_steps(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.lines().any(|line| line.contains("[ ]")))
    }

    /// Renders the ledger for the model in about `bytes_max` bytes: the plan first, then changes, errors,
    /// messages from people, commands.
    pub fn render(&self, bytes_max: usize) -> String {
        let mut out = String::new();
        match &self.plan {
            Some(plan) => out.push_str(&format!("Your plan, as you gave it last:\n{plan}\n")),
            None => out.push_str("You gave no plan. Begin your next answer with `PLAN:` and its steps.\n"),
        }
        let room = |out: &String| bytes_max.saturating_sub(out.len());
        let pair = |(tried, what): &(String, String)| format!("- {tried}: {what}\n");
        push_section(
            &mut out,
            "Files you changed",
            self.files.iter().map(|(path, how)| format_file_change(path, *how)),
            room,
        );
        push_section(&mut out, "Errors that are still open", self.errors.iter().rev().map(pair), room);
        push_section(
            &mut out,
            "What people told you",
            self.user_messages.iter().rev().map(|said| format!("- {said}\n")),
            room,
        );
        push_section(
            &mut out,
            "Commands you ran, the last first",
            self.commands.iter().rev().map(pair),
            room,
        );
        out
    }
}

fn push_section(
    out: &mut String,
    title: &str,
    entries: impl Iterator<Item = String>,
    room: impl Fn(&String) -> usize,
) {
    let mut entries = entries.peekable();
    if entries.peek().is_none() {
        return;
    }
    out.push_str(&format!("{title}:\n"));
    let mut left_out = 0;
    for entry in entries {
        if left_out == 0 && entry.len() <= room(out) {
            out.push_str(&entry);
        } else {
            left_out += 1;
        }
    }
    if left_out > 0 {
        out.push_str(&format!("- [… and {left_out} more]\n"));
    }
}

fn format_file_change(path: &WorkspacePath, how: FileChange) -> String {
    let FileChange { created, change_count: times, added, removed } = how;
    let word = if created { "made" } else { "edited" };
    let again = if times > 1 { format!(", changed {times} times") } else { String::new() };
    format!("- {path}: {word}{again}, +{added} -{removed} lines\n")
}

/// Appends an entry, replacing an older one of the same name.
fn upsert_bounded(entries: &mut VecDeque<(String, String)>, entry: (String, String), most: usize) {
    entries.retain(|(of, _)| *of != entry.0);
    entries.push_back(entry);
    if entries.len() > most {
        entries.pop_front();
    }
}

fn has_failed(status: ToolStatus, facts: &ToolFacts) -> bool {
    let tests = facts.tests.is_some_and(|tests| tests.failed + tests.errors > 0);
    status != ToolStatus::Ok || facts.timed_out || tests || facts.exit.is_some_and(|exit| exit != 0)
}

/// Whether a successful call resolves the error of `tried`, which was another call: a full test run resolves
/// partial ones; a change of a file resolves the failed change before it.
fn is_settled_by(tried: &str, tool: &ToolUse, facts: &ToolFacts) -> bool {
    let whole_tests = tool.name == "run_tests" && tool.args.get("test_path").is_none_or(Value::is_null);
    (whole_tests && tried.starts_with("run_tests"))
        || facts
            .changed
            .iter()
            .any(|path| ["edit_file", "create_file"].iter().any(|name| *tried == format!("{name} {path}")))
}

fn describe_outcome(event: &ToolFinished) -> String {
    let facts = &event.facts;
    let mut words = match (event.status, facts.exit) {
        (ToolStatus::Ok, _) if facts.timed_out => "its time limit ended it".to_owned(),
        (ToolStatus::Ok, Some(exit)) => format!("exit {exit}"),
        (ToolStatus::Ok, None) => "done".to_owned(),
        (ToolStatus::Error, _) => "failed".to_owned(),
        (ToolStatus::Refused, _) => "refused".to_owned(),
        (ToolStatus::Unknown, _) => "its outcome is unknown".to_owned(),
    };
    if let Some(tests) = facts.tests {
        let bad = tests.failed.saturating_add(tests.errors);
        words.push_str(&format!(", {} tests passed, {bad} failed", tests.passed));
    }
    words
}

/// Returns the first lines of an inline text.
fn first_lines(content: &Content) -> String {
    match content {
        Content::Text(text) => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            truncate_text(&lines.take(4).collect::<Vec<_>>().join(" / "), 300)
        }
        Content::B64(_) | Content::Blob(_) => "see its result".to_owned(),
    }
}

/// Whether a plan follows this line.
pub fn is_plan_heading(line: &str) -> bool {
    let line = line.trim().trim_matches(['#', '*', ' ']);
    line.eq_ignore_ascii_case(PLAN_MARK) || line.eq_ignore_ascii_case("plan")
}

/// Extracts the plan from an answer: the list after its last `PLAN:` line.
pub fn extract_plan(text: &str) -> Option<String> {
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.iter().rposition(|line| is_plan_heading(line))? + 1;
    let is_item = |line: &&&str| {
        let line = line.trim_start();
        line.is_empty()
            || line.starts_with(['-', '*', '+', '['])
            || line.starts_with(|c: char| c.is_ascii_digit())
    };
    let items: Vec<&str> = lines[from..].iter().take_while(is_item).copied().collect();
    let plan = items.iter().filter(|line| !line.trim().is_empty()).copied().collect::<Vec<_>>().join("\n");
    (!plan.is_empty()).then(|| truncate_text(&plan, PLAN_BYTES_MAX))
}

fn truncate_text(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_the_list_after_the_last_plan_heading() {
        let text = "I begin.\n\nPLAN:\n- [x] read\n- [ ] mend\n  - tests too\n\nThen I go on.\n- no step";
        assert_eq!(extract_plan(text).as_deref(), Some("- [x] read\n- [ ] mend\n  - tests too"));
        assert_eq!(extract_plan("## Plan\n1. a\n2. b").as_deref(), Some("1. a\n2. b"));
        for none in ["I plan: to read", "PLAN:\nwords", "", "PLAN:"] {
            assert_eq!(extract_plan(none), None, "{none}");
        }
    }

    #[test]
    fn truncated_list_says_how_much_it_omits() {
        let mut ledger = RunLedger::default();
        for n in 0..100 {
            ledger
                .files
                .insert(WorkspacePath::new(format!("src/f{n:03}.rs")).unwrap(), FileChange::default());
        }
        let text = ledger.render(1000);
        assert!(text.contains("src/f000.rs") && !text.contains("src/f099.rs") && text.len() < 1100, "{text}");
        assert!(text.ends_with("more]\n"), "{text}");
    }
}
