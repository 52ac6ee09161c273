//! What a call comes to, piece by piece: each is held against the rules by itself.

use docket_schema::message::ToolUse;
use serde_json::Value;

use super::rule_scope::RuleScope;
use crate::{
    calls::{self, CallLabel, DELEGATE, RUN_COMMAND, VENV_RUN},
    shell::{self, SimpleCommand},
};

/// A piece of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct CallPart {
    /// A command's words, as they stand there.
    pub(super) words: Option<Vec<String>>,
    /// The same without what only wraps it (`sudo`, `env A=1`, `timeout 5`), and without its program's folder.
    pub(super) unwrapped_words: Vec<String>,
    /// Once more without git's own options: `git -C a push` pushes. Empty where that is the same.
    pub(super) words_without_git_options: Vec<String>,
    /// Of a command with arguments that bash expands: the program and its arguments in front of them, as in `bare` and,
    /// where git has options before, as in `plain`.
    pub(super) before_expansion: Vec<Vec<String>>,
    /// The file it names or writes to, from the workspace where that is known.
    pub(super) path: Option<String>,
    /// What it does, as far as can be told.
    pub(super) labels: Vec<CallLabel>,
    /// It is not known what it does: no rule that allows speaks of it, unless it allows anything.
    pub(super) is_opaque: bool,
    /// Its path may be a folder, and then all below it is meant.
    pub(super) may_be_folder: bool,
    /// Its path is only read by what the call runs: rules that refuse or ask speak of it, and none has to allow it beside
    /// the command.
    pub(super) is_only_read: bool,
    /// The tool that would run it by itself, where that is another than the call's.
    pub(super) tool_name: Option<&'static str>,
}

/// The pieces of a call, as far as `reach` goes.
pub(super) fn call_parts_in_scope(tool: &ToolUse, reach: RuleScope) -> Vec<CallPart> {
    let mut units = call_parts(tool);
    match reach {
        RuleScope::NamedPaths => {
            units.retain(|unit| !unit.is_only_read);
            units.iter_mut().for_each(|unit| unit.may_be_folder = false);
        }
        // Its programs are looked for in a folder that the run fills first: what is run is not what stands there.
        RuleScope::Descendants if tool.name == VENV_RUN => {
            units.iter_mut().for_each(|unit| unit.is_opaque |= unit.words.is_some());
        }
        RuleScope::Descendants => {}
    }
    units
}

/// The pieces of a call.
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
    // A tool that is a shell line is what that line is, however it is called.
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
    // The line that tests a piece of work is run as it stands, and what it leaves behind is the piece's.
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

/// The pieces of a shell line that is run in `cwd`.
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
        // A line that only sets, or says nothing, is still a call: what holds where no rule speaks holds for it.
        out.push(CallPart::default());
    }
    out
}

/// The program is put in by the shell, also behind what wraps it; or it does what is written elsewhere.
fn is_opaque(command: &SimpleCommand) -> bool {
    let put_in = |program: &str| program.contains(['$', '`']);
    let aliased = command.program() == "git" && shell::sets_git_alias(command.args());
    command.is_opaque
        || aliased
        || put_in(command.words.first().map_or("", String::as_str))
        || put_in(command.program())
}

/// A path from the workspace: `./a//b` is `a/b`, and `..` takes a folder away. What leads out keeps its beginning.
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
