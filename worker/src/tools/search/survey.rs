//! `survey`: describes the workspace at the start of a run: whether it is usable, which programs are available, which
//! files import which, and the latest changes. The runtime calls it before planning; it is not offered to any model.
//!
//! The same tree gives the same text, except for the host's programs: those are looked up here once and are recorded
//! in the log.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Read as _,
};

use schemars::JsonSchema;
use serde::Deserialize;

use super::imports::{ImportGraph, import_graph, is_source_file};
use crate::calls::parse_workspace_path;
use crate::tools::{
    context::{
        runner::{CommandEnd, CommandSpec},
        tool_context::{ToolContext, ToolOutcome},
    },
    file_access::{
        files::open_regular,
        walk::{HiddenEntries, walk_folder},
    },
};

pub const NAME: &str = "survey";
pub(crate) const DESCRIPTION: &str = "Looks at the workspace before anybody plans.";

/// Most files listed; in a larger project plans are made by folder.
const FILES_MAX: usize = 20_000;
/// Most source files whose imports are read, and most bytes of each, since imports come first.
const SOURCES_MAX: usize = 2000;
const SOURCE_BYTES_MAX: u64 = 64 * 1024;
/// Most lines of the graph, and most names per line.
const GRAPH_LINES_MAX: usize = 80;
const LINE_NAMES_MAX: usize = 8;
/// Most bytes about previous commits.
const RECENT_COMMITS_BYTES_MAX: usize = 4 * 1024;
/// Programs that are looked up.
const KNOWN_PROGRAMS: [&str; 12] =
    ["git", "python3", "pytest", "ruff", "node", "npm", "cargo", "go", "java", "make", "cmake", "ruby"];
/// Time limit of the lookup, in milliseconds.
const PROGRAMS_TIMEOUT_MS: u64 = 10_000;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SurveyArgs {
    /// Paths that the task wants to be there at its end.
    #[serde(default)]
    requires: Vec<String>,
}

pub(crate) async fn run(context: ToolContext<'_>, args: SurveyArgs) -> ToolOutcome {
    let entries = match walk_folder(context.root, None, None, HiddenEntries::Skip) {
        Ok(entries) => entries,
        Err(error) => return ToolOutcome::error(NAME, format!("the workspace cannot be read: {error}")),
    };
    let files: BTreeSet<String> = entries
        .filter(|entry| !entry.is_dir && !entry.is_link)
        .take(FILES_MAX)
        .map(|entry| entry.path.to_string())
        .collect();
    let mut text = String::from("# Preflight\n");
    text.push_str(&describe_files(&files));
    match describe_required_paths(context, &args.requires) {
        Ok(words) => text.push_str(&words),
        Err(text) => return ToolOutcome::error(NAME, text),
    }
    text.push_str(&describe_programs(context).await);
    let sources = read_sources(context, &files);
    text.push_str("\n# Which files use which\n");
    text.push_str(&format_import_graph(&import_graph(&files, &sources)));
    text.push_str("\n# What was changed last\n");
    text.push_str(&describe_recent_commits(context));
    ToolOutcome::ok(text)
}

fn describe_files(files: &BTreeSet<String>) -> String {
    let folders: BTreeSet<&str> =
        files.iter().filter_map(|path| path.rsplit_once('/')).map(|(folder, _)| folder).collect();
    let most = if files.len() == FILES_MAX { " or more" } else { "" };
    format!("The workspace can be read: {} files{most} in {} folders.\n", files.len(), folders.len() + 1)
}

/// Describes the state of the paths that the task requires.
///
/// # Errors
/// A path is not a valid workspace path.
fn describe_required_paths(context: ToolContext<'_>, requires: &[String]) -> Result<String, String> {
    let (mut there, mut absent) = (Vec::new(), Vec::new());
    for path in requires {
        let path = parse_workspace_path(path)
            .map_err(|error| format!("the task requires a path that is none: {error}"))?;
        let is_there = context.root.metadata(path.to_string()).is_ok();
        if is_there { &mut there } else { &mut absent }.push(path.to_string());
    }
    let mut text = String::new();
    for (words, paths) in [("already there", there), ("not there yet", absent)] {
        if !paths.is_empty() {
            text.push_str(&format!("Of what the task requires, {words}: {}\n", paths.join(", ")));
        }
    }
    Ok(text)
}

async fn describe_programs(context: ToolContext<'_>) -> String {
    let shell = format!(
        "for p in {}; do command -v \"$p\" >/dev/null && echo \"$p\"; done; true",
        KNOWN_PROGRAMS.join(" ")
    );
    let limit = context.settings.time_limit(PROGRAMS_TIMEOUT_MS);
    let spec = CommandSpec { shell, cwd: None, timeout_ms: limit.ms };
    match context.runner.run(spec).await {
        Ok(output) if output.ended == CommandEnd::Exit(0) => {
            let said = String::from_utf8_lossy(&output.stdout.to_bytes()).into_owned();
            let there: Vec<&str> =
                KNOWN_PROGRAMS.into_iter().filter(|name| said.lines().any(|line| line == *name)).collect();
            if there.is_empty() {
                return "Commands run; none of the usual programs is there.\n".to_owned();
            }
            format!("Commands run; of the usual programs there are {}.\n", there.join(", "))
        }
        Ok(_) => "Commands do not run to their end here.\n".to_owned(),
        Err(error) => format!("Commands cannot be run here: {error}\n"),
    }
}

fn read_sources(context: ToolContext<'_>, files: &BTreeSet<String>) -> BTreeMap<String, String> {
    let named = files.iter().filter(|path| is_source_file(path)).take(SOURCES_MAX);
    let read = named.filter_map(|path| {
        let (file, _) = open_regular(context.root, &parse_workspace_path(path).ok()?).ok()?;
        let mut bytes = Vec::new();
        file.take(SOURCE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some((path.clone(), String::from_utf8_lossy(&bytes).into_owned()))
    });
    read.collect()
}

/// Formats the graph, one line per file in path order; if there are too many, the files with the most edges.
fn format_import_graph(uses: &ImportGraph) -> String {
    let mut users: BTreeMap<&str, usize> = BTreeMap::new();
    for used in uses.values().flatten() {
        *users.entry(used).or_default() += 1;
    }
    let mut ranked: Vec<(usize, &String)> = uses
        .iter()
        .map(|(path, used)| (used.len() + users.get(path.as_str()).copied().unwrap_or(0), path))
        .collect();
    ranked.sort_by(|(one, a), (other, b)| other.cmp(one).then(a.cmp(b)));
    let left_out = ranked.len().saturating_sub(GRAPH_LINES_MAX);
    let shown: BTreeSet<&String> = ranked.into_iter().take(GRAPH_LINES_MAX).map(|(_, path)| path).collect();
    let mut text = String::new();
    for path in shown {
        let used = &uses[path];
        let names: Vec<&str> = used.iter().take(LINE_NAMES_MAX).map(String::as_str).collect();
        let more = if used.len() > LINE_NAMES_MAX {
            format!(" and {} more", used.len() - LINE_NAMES_MAX)
        } else {
            String::new()
        };
        text.push_str(&format!("{path} uses {}{more}\n", names.join(", ")));
    }
    if left_out > 0 {
        text.push_str(&format!("[{left_out} more files use others]\n"));
    }
    if text.is_empty() { "No file is seen to use another.\n".to_owned() } else { text }
}

fn describe_recent_commits(context: ToolContext<'_>) -> String {
    match &context.base.recent_commits {
        None => "The history before the task's own commit is not here.\n".to_owned(),
        Some(text) if text.len() > RECENT_COMMITS_BYTES_MAX => {
            format!(
                "{}\n[older ones are left out]\n",
                &text[..text.floor_char_boundary(RECENT_COMMITS_BYTES_MAX)]
            )
        }
        Some(text) => format!("{}\n", text.trim_end()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn same_tree_gives_the_same_survey() {
        let mut w = TestWorkspace::new(&[
            ("a.py", "def f():\n    return 1\n"),
            ("b.py", "import a\n"),
            ("tests/test_a.py", "from a import f\nfrom b import a\n"),
        ]);
        w.base.recent_commits = Some("abc 2026-01-02 Make it\nM\ta.py\n".to_owned());
        let out = w.call_tool(NAME, json!({ "requires": ["a.py", "c.py"] }));
        for words in [
            "3 files in 2 folders",
            "already there: a.py",
            "not there yet: c.py",
            "b.py uses a.py\ntests/test_a.py uses a.py, b.py\n",
            "abc 2026-01-02 Make it",
        ] {
            assert!(out.text().contains(words), "{words}: {}", out.text());
        }
        assert_eq!(w.call_tool(NAME, json!({ "requires": ["a.py", "c.py"] })).text(), out.text());
        let bad = w.call_tool(NAME, json!({ "requires": ["../x"] }));
        assert!(bad.is_error && bad.text().contains("a path that is none"), "{}", bad.text());
    }

    #[test]
    fn large_graph_shows_the_most_connected_files() {
        let mut all = ImportGraph::new();
        for n in 0..100 {
            all.insert(format!("f{n:03}.py"), BTreeSet::from(["hub.py".to_owned()]));
        }
        all.insert("hub.py".to_owned(), (0..20).map(|n| format!("g{n:02}.py")).collect());
        let text = format_import_graph(&all);
        assert!(text.contains("hub.py uses g00.py") && text.contains("and 12 more"), "{text}");
        assert!(text.ends_with("[21 more files use others]\n"), "{text}");
        assert_eq!(format_import_graph(&ImportGraph::new()), "No file is seen to use another.\n");
    }
}
