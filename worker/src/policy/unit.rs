//! What a call comes to, piece by piece: each is held against the rules by itself.

use docket_schema::message::ToolUse;
use serde_json::Value;

use super::reach::Reach;
use crate::{
    calls::{self, DELEGATE, Label, RUN_COMMAND, VENV_RUN},
    shell::{self, Simple},
};

/// A piece of a call.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Unit {
    /// A command's words, as they stand there.
    pub(super) words: Option<Vec<String>>,
    /// The same without what only wraps it (`sudo`, `env A=1`, `timeout 5`), and without its program's folder.
    pub(super) bare: Vec<String>,
    /// Once more without git's own options: `git -C a push` pushes. Empty where that is the same.
    pub(super) plain: Vec<String>,
    /// Of a command with arguments that bash expands: the program and its arguments in front of them, as in `bare` and,
    /// where git has options before, as in `plain`.
    pub(super) before_expansion: Vec<Vec<String>>,
    /// The file it names or writes to, from the workspace where that is known.
    pub(super) path: Option<String>,
    /// What it does, as far as can be told.
    pub(super) labels: Vec<Label>,
    /// It is not known what it does: no rule that allows speaks of it, unless it allows anything.
    pub(super) is_dark: bool,
    /// Its path may be a folder, and then all below it is meant.
    pub(super) is_folders: bool,
    /// Its path is only read by what the call runs: rules that refuse or ask speak of it, and none has to allow it beside
    /// the command.
    pub(super) is_read: bool,
    /// The tool that would run it by itself, where that is another than the call's.
    pub(super) tool: Option<&'static str>,
}

/// The pieces of a call, as far as `reach` goes.
pub(super) fn units_by(tool: &ToolUse, reach: Reach) -> Vec<Unit> {
    let mut units = units(tool);
    match reach {
        Reach::Name => {
            units.retain(|unit| !unit.is_read);
            units.iter_mut().for_each(|unit| unit.is_folders = false);
        }
        // Its programs are looked for in a folder that the run fills first: what is run is not what stands there.
        Reach::Below if tool.name == VENV_RUN => {
            units.iter_mut().for_each(|unit| unit.is_dark |= unit.words.is_some());
        }
        Reach::Below => {}
    }
    units
}

/// The pieces of a call.
pub(super) fn units(tool: &ToolUse) -> Vec<Unit> {
    let text = |field: &str| tool.args.get(field).and_then(Value::as_str);
    if tool.name == RUN_COMMAND {
        return of_line(text("command").unwrap_or_default(), text("cwd"));
    }
    let labels = calls::labels(&tool.name, &tool.args);
    let is_folders = calls::acts_on_folders(&tool.name);
    let files = |named: Vec<String>| {
        let labels = &labels;
        let of = move |path: String| {
            let path = Some(from_workspace(&path, None));
            Unit { path, labels: labels.clone(), is_folders, ..Unit::default() }
        };
        named.into_iter().map(of).collect::<Vec<_>>()
    };
    // A tool that is a shell line is what that line is, however it is called.
    let mut out = match calls::shell_line(&tool.name, &tool.args) {
        Some(line) => {
            let mut out = of_line(&line.shell, line.cwd.as_deref());
            out.extend(files(line.paths));
            out.extend(files(line.reads).into_iter().map(|unit| Unit { is_read: true, ..unit }));
            out
        }
        None => files(calls::named_files(&tool.name, &tool.args)),
    };
    // The line that tests a piece of work is run as it stands, and what it leaves behind is the piece's.
    if tool.name == DELEGATE {
        out.push(Unit { labels: labels.clone(), ..Unit::default() });
        for line in
            text("tests").filter(|line| !line.trim().is_empty()).iter().flat_map(|line| calls::as_run(line))
        {
            let line = of_line(&line, None).into_iter();
            out.extend(line.map(|unit| Unit { tool: Some(RUN_COMMAND), ..unit }));
        }
    }
    if out.is_empty() {
        out.push(Unit { labels, ..Unit::default() });
    }
    out
}

/// The pieces of a shell line that is run in `cwd`.
pub(super) fn of_line(line: &str, cwd: Option<&str>) -> Vec<Unit> {
    let script = shell::script(line);
    let mut out = Vec::new();
    for command in &script.commands {
        let labels = calls::labels_of(command);
        if !command.words.is_empty() {
            let bare = std::iter::once(command.program().to_owned()).chain(command.args().iter().cloned());
            let bare: Vec<String> = bare.collect();
            let plain = shell::without_git_options(&bare).unwrap_or_default();
            let before_expansion = match command.words_before_expansion() {
                Some(before) => shell::without_git_options(&before).into_iter().chain([before]).collect(),
                None => Vec::new(),
            };
            let words = Some(command.words.clone());
            let unit = Unit { words, bare, plain, before_expansion, ..Unit::default() };
            out.push(Unit { labels: labels.clone(), is_dark: is_dark(command), ..unit });
        }
        let harmless = |path: &&String| !["/dev/null", "/dev/stdout", "/dev/stderr"].contains(&path.as_str());
        out.extend(command.writes_to.iter().filter(harmless).map(|path| {
            let path = Some(from_workspace(path, cwd));
            Unit { path, labels: labels.clone(), ..Unit::default() }
        }));
    }
    if !script.is_whole {
        let words = vec![line.to_owned()];
        out.push(Unit { bare: words.clone(), words: Some(words), is_dark: true, ..Unit::default() });
    }
    if out.is_empty() {
        // A line that only sets, or says nothing, is still a call: what holds where no rule speaks holds for it.
        out.push(Unit::default());
    }
    out
}

/// The program is put in by the shell, also behind what wraps it; or it does what is written elsewhere.
fn is_dark(command: &Simple) -> bool {
    let put_in = |program: &str| program.contains(['$', '`']);
    let aliased = command.program() == "git" && shell::sets_git_alias(command.args());
    command.is_dark
        || aliased
        || put_in(command.words.first().map_or("", String::as_str))
        || put_in(command.program())
}

/// A path from the workspace: `./a//b` is `a/b`, and `..` takes a folder away. What leads out keeps its beginning.
fn from_workspace(path: &str, cwd: Option<&str>) -> String {
    let whole = match cwd {
        Some(cwd) if !path.starts_with(['/', '~', '$']) => format!("{cwd}/{path}"),
        Some(_) | None => path.to_owned(),
    };
    let whole = calls::within(&whole);
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
