//! Splits a tool call into parts, each of which is checked against the rules separately.

use docket_schema::message::ToolUse;
use serde_json::Value;

use super::rule_scope::RuleScope;
use crate::{
    calls::{self, CallLabel, DELEGATE, RUN_COMMAND, VENV_RUN},
    shell::{self, SimpleCommand},
};

/// A part of a call: a command or a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CallPart {
    /// The command's words as written.
    pub(super) words: Option<Vec<String>>,
    /// The words without wrappers (`sudo`, `env A=1`, `timeout 5`) and without the program's folder.
    pub(super) unwrapped_words: Vec<String>,
    /// The same without git's own options, so that `git -C a push` matches a push. Empty if there is no difference.
    pub(super) words_without_git_options: Vec<String>,
    /// For a command whose arguments bash expands: the program and its arguments before the first expansion, as in
    /// `unwrapped_words` and, if git has options in front, as in `words_without_git_options`.
    pub(super) before_expansion: Vec<Vec<String>>,
    /// The file that it names or writes to, relative to the workspace if that is known.
    pub(super) path: Option<String>,
    /// Effects of the part, as far as they can be determined.
    pub(super) labels: Vec<CallLabel>,
    /// Whether the effect is unknown: an allow rule matches only if it allows everything.
    pub(super) is_opaque: bool,
    /// Whether the path may be a folder, which includes everything below it.
    pub(super) may_be_folder: bool,
    /// Whether the call's command only reads the path: deny and ask rules apply, but the path needs no allow rule in
    /// addition to the command's.
    pub(super) is_only_read: bool,
    /// The tool that would run this part on its own, if it is not the call's tool.
    pub(super) tool_name: Option<&'static str>,
}

/// Returns the parts of a call within the scope `reach`.
pub(super) fn call_parts_in_scope(tool: &ToolUse, reach: RuleScope) -> Vec<CallPart> {
    let mut units = call_parts(tool);
    match reach {
        RuleScope::NamedPaths => {
            units.retain(|unit| !unit.is_only_read);
            units.iter_mut().for_each(|unit| unit.may_be_folder = false);
        }
        // Programs are looked up first in a folder that the run can fill, so the written name does not say what runs.
        RuleScope::Descendants if tool.name == VENV_RUN => {
            units.iter_mut().for_each(|unit| unit.is_opaque |= unit.words.is_some());
        }
        RuleScope::Descendants => {}
    }
    units
}

pub(super) fn call_parts(tool: &ToolUse) -> Vec<CallPart> {
    let text = |field: &str| tool.args.get(field).and_then(Value::as_str);
    if tool.name == RUN_COMMAND {
        return shell_line_parts(text("command").unwrap_or_default(), text("cwd"));
    }
    let labels = calls::call_labels(&tool.name, &tool.args);
    let is_folders = calls::affects_whole_folder(&tool.name);
    let files = |named: Vec<String>| {
        let labels = &labels;
        let of = move |path: String| {
            let path = Some(workspace_path(&path, None));
            CallPart { path, labels: labels.clone(), may_be_folder: is_folders, ..CallPart::default() }
        };
        named.into_iter().map(of).collect::<Vec<_>>()
    };
    // A tool implemented by a shell line is evaluated as that line.
    let mut out = match calls::shell_line(&tool.name, &tool.args) {
        Some(line) => {
            let mut out = shell_line_parts(&line.command, line.cwd.as_deref());
            out.extend(files(line.written_paths));
            out.extend(
                files(line.read_paths).into_iter().map(|unit| CallPart { is_only_read: true, ..unit }),
            );
            out
        }
        None => files(calls::named_files(&tool.name, &tool.args)),
    };
    // The test line of a delegated task runs as written, and its side effects belong to that task.
    if tool.name == DELEGATE {
        out.push(CallPart { labels: labels.clone(), ..CallPart::default() });
        for line in text("tests")
            .filter(|line| !line.trim().is_empty())
            .iter()
            .flat_map(|line| calls::expand_test_line(line))
        {
            let line = shell_line_parts(&line, None).into_iter();
            out.extend(line.map(|unit| CallPart { tool_name: Some(RUN_COMMAND), ..unit }));
        }
    }
    if out.is_empty() {
        out.push(CallPart { labels, ..CallPart::default() });
    }
    out
}

/// Returns the parts of a shell line that runs in `cwd`.
pub(super) fn shell_line_parts(line: &str, cwd: Option<&str>) -> Vec<CallPart> {
    let script = shell::parse_line(line);
    let mut out = Vec::new();
    for command in &script.commands {
        let labels = calls::command_labels(command);
        if !command.words.is_empty() {
            let bare = std::iter::once(command.program().to_owned()).chain(command.args().iter().cloned());
            let bare: Vec<String> = bare.collect();
            let plain = shell::strip_git_options(&bare).unwrap_or_default();
            let before_expansion = match command.words_before_expansion() {
                Some(before) => shell::strip_git_options(&before).into_iter().chain([before]).collect(),
                None => Vec::new(),
            };
            let words = Some(command.words.clone());
            let unit = CallPart {
                words,
                unwrapped_words: bare,
                words_without_git_options: plain,
                before_expansion,
                ..CallPart::default()
            };
            out.push(CallPart { labels: labels.clone(), is_opaque: is_opaque(command), ..unit });
        }
        let harmless = |path: &&String| !["/dev/null", "/dev/stdout", "/dev/stderr"].contains(&path.as_str());
        out.extend(command.writes_to.iter().filter(harmless).map(|path| {
            let path = Some(workspace_path(path, cwd));
            CallPart { path, labels: labels.clone(), ..CallPart::default() }
        }));
    }
    if !script.is_fully_parsed {
        let words = vec![line.to_owned()];
        out.push(CallPart {
            unwrapped_words: words.clone(),
            words: Some(words),
            is_opaque: true,
            ..CallPart::default()
        });
    }
    if out.is_empty() {
        // A line with only assignments, or an empty one, is still a call: the policy's default applies to it.
        out.push(CallPart::default());
    }
    out
}

/// Whether the program, possibly behind wrappers, comes from an expansion, or runs code that is written elsewhere.
fn is_opaque(command: &SimpleCommand) -> bool {
    let put_in = |program: &str| program.contains(['$', '`']);
    let aliased = command.program() == "git" && shell::sets_git_alias(command.args());
    command.is_opaque
        || aliased
        || put_in(command.words.first().map_or("", String::as_str))
        || put_in(command.program())
}

/// Normalizes a path relative to the workspace: `./a//b` becomes `a/b`, and `..` removes a folder. A path that leaves
/// the workspace keeps its leading `..`.
fn workspace_path(path: &str, cwd: Option<&str>) -> String {
    let whole = match cwd {
        Some(cwd) if !path.starts_with(['/', '~', '$']) => format!("{cwd}/{path}"),
        Some(_) | None => path.to_owned(),
    };
    let whole = calls::strip_workspace_prefix(&whole);
    let mut parts: Vec<&str> = Vec::new();
    for part in whole.split('/').filter(|part| !part.is_empty() && *part != ".") {
        match (part, parts.last()) {
            ("..", Some(last)) if *last != ".." => drop(parts.pop()),
            (part, _) => parts.push(part),
        }
    }
    let begin = if whole.starts_with('/') { "/" } else { "" };
    format!("{begin}{}", parts.join("/"))
}
