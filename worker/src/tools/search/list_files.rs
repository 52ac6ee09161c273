//! `list_files`: lists names and sizes below a folder.

use std::collections::BTreeMap;

use cap_std::fs::MetadataExt as _;
use docket_schema::content::WorkspacePath;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::policy::AskVisibility;

use crate::calls::parse_folder_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{format_size, os_path},
        walk::{FileGlob, HiddenEntries, VISITED_MAX, walk_folder},
    },
    text::output::printable_text,
};

pub(crate) const NAME: &str = "list_files";
pub(crate) const DESCRIPTION: &str = "Lists files with their sizes, and folders, below a folder of the workspace. What \
    the ignore files name is left out.";

/// Most entries in one answer: more is noise, and a pattern or folder narrows it down.
const ENTRIES_MAX: usize = 400;

/// Most folders for which omitted entries are counted by name.
const COUNTED_FOLDERS_MAX: usize = 12;

const DEPTH_DEFAULT: u32 = 3;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ListFilesArgs {
    /// Folder, relative to the workspace; the workspace itself where it is left out.
    #[serde(default)]
    path: Option<String>,
    /// Only files that this glob matches: `*.rs` by name, `src/**/*.rs` by path from the workspace.
    #[serde(default)]
    pattern: Option<String>,
    /// How many folders deep, 3 where it is left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 64))]
    max_depth: Option<u32>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &ListFilesArgs) -> ToolOutcome {
    match list_files(context, args) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn list_files(context: ToolContext<'_>, args: &ListFilesArgs) -> Result<String, String> {
    let folder = parse_folder_path(args.path.as_deref()).map_err(|error| error.to_string())?;
    let pattern = args.pattern.as_deref().map(|text| FileGlob::new("pattern", text)).transpose()?;
    let depth = args.max_depth.unwrap_or(DEPTH_DEFAULT) as usize;
    let visited = walk_folder(context.root, folder.as_ref(), Some(depth), HiddenEntries::Include)
        .map_err(|error| error.to_string())?;
    let (mut out, mut shown, mut seen) = (String::new(), 0usize, 0usize);
    let mut more = OmittedEntries::default();
    let (looks, mut unseen) =
        (context.settings.visibility.filter_for(&[NAME], AskVisibility::HiddenByPathRules), 0usize);
    for entry in visited {
        seen += 1;
        if !looks.shows_everything() && !looks.is_visible(&entry.path.to_string()) {
            unseen += 1;
            continue;
        }
        let matches = pattern.as_ref().is_none_or(|pattern| !entry.is_dir && pattern.is_match(&entry.path));
        if !matches {
            continue;
        }
        if shown == ENTRIES_MAX {
            more.add_entry(folder.as_ref(), &entry.path);
            continue;
        }
        // Through the handle: if a folder became a link during the walk, the name may come from elsewhere.
        let Ok(meta) = context.root.symlink_metadata(os_path(&entry.path)) else { continue };
        shown += 1;
        out.push_str(&printable_text(entry.path.as_bytes()).replace('\n', "\\n"));
        if entry.is_dir {
            out.push_str(if entry.depth == depth { "/ …\n" } else { "/\n" });
        } else if entry.is_link {
            out.push_str("  (link)\n");
        } else {
            out.push_str(&format!("  {}\n", format_size(meta.size())));
        }
    }
    more.append_summary(&mut out);
    if is_walk_truncated(seen, folder.as_ref()) {
        out.push_str(&format!(
            "[… more than {VISITED_MAX} names: the rest was not looked at; give a folder …]\n"
        ));
    }
    if unseen > 0 {
        out.push_str(&format!("[… names that policy does not show: {unseen} …]\n"));
    }
    let place = args.path.as_deref().unwrap_or("the workspace");
    if shown == 0 && unseen == 0 {
        return Ok(match &args.pattern {
            Some(pattern) => format!("no file below {place} matches {pattern} within {depth} folders"),
            None => format!("{place} holds no files"),
        });
    }
    Ok(out)
}

/// Whether a walk that returned this many names reached the limit: it also visits the folder and its parents without
/// returning them.
fn is_walk_truncated(seen: usize, folder: Option<&WorkspacePath>) -> bool {
    seen + 1 + folder.map_or(0, |folder| folder.components().count()) >= VISITED_MAX
}

/// Entries beyond those shown, counted by folder.
#[derive(Default)]
struct OmittedEntries {
    total: usize,
    folders: BTreeMap<String, usize>,
}

impl OmittedEntries {
    /// Counts an entry below `folder`.
    fn add_entry(&mut self, folder: Option<&WorkspacePath>, path: &WorkspacePath) {
        self.total += 1;
        let parts: Vec<_> = path.components().map(printable_text).collect();
        let below = folder.map_or(0, |folder| folder.components().count()) + 1;
        let within = parts.len().saturating_sub(1).min(below);
        *self.folders.entry(parts[..within].join("/").replace('\n', "\\n")).or_default() += 1;
    }

    fn append_summary(&self, out: &mut String) {
        if self.total == 0 {
            return;
        }
        let mut folders: Vec<(&str, usize)> = self.folders.iter().map(|(name, n)| (&**name, *n)).collect();
        folders.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let each = folders.iter().take(COUNTED_FOLDERS_MAX).map(|(name, count)| match *name {
            "" => format!("{count} beside these"),
            name => format!("{count} in {name}/"),
        });
        let each: Vec<String> = each.collect();
        let others = folders.len().saturating_sub(COUNTED_FOLDERS_MAX);
        let others = if others > 0 { format!(", and in {others} other folders") } else { String::new() };
        out.push_str(&format!(
            "[… {} more: {}{others}: give a folder or a pattern …]\n",
            self.total,
            each.join(", ")
        ));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    fn sample() -> TestWorkspace {
        let w = TestWorkspace::new(&[
            (".gitignore", "target/\n*.log\n"),
            ("b.rs", "x"),
            ("a/one.rs", "12345"),
            ("a/deep/er/four.rs", ""),
            ("a/deep/er/est/five.rs", ""),
            ("a/noise.log", ""),
            ("target/out", ""),
            (".git/config", ""),
            (".github/ci.yml", ""),
            ("big", &"x".repeat(1536)),
        ]);
        w.create_link("out", "/etc");
        w
    }

    #[test]
    fn names_are_sorted_with_sizes_and_ignored_files_are_omitted() {
        let out = sample().call_tool(NAME, json!({}));
        let want = ".github/\n.github/ci.yml  0 B\n.gitignore  14 B\na/\na/deep/\na/deep/er/ …\na/one.rs  5 B\n\
                    b.rs  1 B\nbig  1.5 KiB\nout  (link)\n";
        assert_eq!(out.text(), want);
    }

    #[test]
    fn omitted_entries_are_counted_by_folder() {
        let mut w = TestWorkspace::new(&[("zz", "")]);
        for n in 0..450 {
            w.write_file(&format!("a/f{n:03}"), "");
        }
        for n in 0..30 {
            w.write_file(&format!("m/n/f{n}"), "");
        }
        let text = w.call_tool(NAME, json!({})).text().into_owned();
        assert_eq!(text.lines().count(), 401);
        // `a/`, its 450 files, `m/`, `m/n/`, its 30 files, `zz`: 484 entries, of which 400 are shown.
        assert!(
            text.ends_with("[… 84 more: 51 in a/, 31 in m/, 2 beside these: give a folder or a pattern …]\n"),
            "{text}"
        );
        let text = w.call_tool(NAME, json!({"path": "m"})).text().into_owned();
        assert!(text.starts_with("m/n/\nm/n/f0  0 B\n") && text.lines().count() == 31, "{text}");
    }

    #[test]
    fn truncated_walk_is_detected() {
        let folder = WorkspacePath::new("a/b").expect("legal");
        assert!(is_walk_truncated(VISITED_MAX - 1, None) && !is_walk_truncated(VISITED_MAX - 2, None));
        assert!(
            is_walk_truncated(VISITED_MAX - 3, Some(&folder))
                && !is_walk_truncated(VISITED_MAX - 4, Some(&folder))
        );
    }

    #[test]
    fn folder_pattern_and_depth_narrow_the_list() {
        let mut w = sample();
        let cases = [
            (json!({"path": "a", "max_depth": 1}), "a/deep/ …\na/one.rs  5 B\n"),
            (json!({"path": "./", "pattern": "*.rs"}), "a/one.rs  5 B\nb.rs  1 B\n"),
            (
                json!({"pattern": "a/**/*.rs", "max_depth": 9}),
                "a/deep/er/est/five.rs  0 B\na/deep/er/four.rs  0 B\na/one.rs  5 B\n",
            ),
            (json!({"path": "a", "pattern": "*.log"}), "no file below a matches *.log within 3 folders"),
        ];
        for (args, want) in cases {
            assert_eq!(w.call_tool(NAME, args).text(), want);
        }
        for (args, want) in [
            (json!({"path": "nope"}), "`nope` does not exist"),
            (json!({"path": "../"}), "not a path in the workspace"),
            (json!({"path": "out"}), "out"),
            (json!({"path": "b.rs"}), "`b.rs` is not a folder: give the folder it lies in"),
            (json!({"pattern": "a{"}), "`pattern` is not a glob"),
        ] {
            let out = w.call_tool(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
        }
    }
}
