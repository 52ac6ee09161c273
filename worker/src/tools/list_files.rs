//! `list_files`: names and sizes below a folder.

use cap_std::fs::MetadataExt as _;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    context::{ToolContext, ToolOutcome},
    files::{folder_path, os},
    output::printable,
    walk::{Hidden, PathGlob, walk},
};

pub(super) const NAME: &str = "list_files";
pub(super) const DESCRIPTION: &str = "Lists files with their sizes, and folders, below a folder of the workspace. What \
    the ignore files name is left out.";

/// Entries of one answer: more is noise, and a pattern or a folder narrows it.
const ENTRIES_MAX: usize = 400;

const DEPTH_DEFAULT: u32 = 3;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
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

pub(super) fn run(context: ToolContext<'_>, args: &Args) -> ToolOutcome {
    match list(context, args) {
        Ok(text) => ToolOutcome::ok(text),
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

fn list(context: ToolContext<'_>, args: &Args) -> Result<String, String> {
    let folder = folder_path(args.path.as_deref()).map_err(|error| error.to_string())?;
    let pattern = args.pattern.as_deref().map(|text| PathGlob::new("pattern", text)).transpose()?;
    let depth = args.max_depth.unwrap_or(DEPTH_DEFAULT) as usize;
    let visited =
        walk(context.root, folder.as_ref(), Some(depth), Hidden::Show).map_err(|error| error.to_string())?;
    let (mut out, mut shown, mut more) = (String::new(), 0usize, 0usize);
    for entry in visited {
        let matches = pattern.as_ref().is_none_or(|pattern| !entry.is_dir && pattern.is_match(&entry.path));
        if !matches {
            continue;
        }
        if shown == ENTRIES_MAX {
            more += 1;
            continue;
        }
        shown += 1;
        out.push_str(&printable(entry.path.as_bytes()).replace('\n', "\\n"));
        if entry.is_dir {
            out.push_str(if entry.depth == depth { "/ …\n" } else { "/\n" });
        } else if entry.is_link {
            out.push_str("  (link)\n");
        } else {
            let size = context.root.symlink_metadata(os(&entry.path)).map_or(0, |meta| meta.size());
            out.push_str(&format!("  {}\n", size_text(size)));
        }
    }
    if more > 0 {
        out.push_str(&format!("[… {more} more: give a folder or a pattern …]\n"));
    }
    let place = args.path.as_deref().unwrap_or("the workspace");
    if shown == 0 {
        return Ok(match &args.pattern {
            Some(pattern) => format!("no file below {place} matches {pattern} within {depth} folders"),
            None => format!("{place} holds no files"),
        });
    }
    Ok(out)
}

fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::testing::Workspace, *};

    fn sample() -> Workspace {
        let w = Workspace::new(&[
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
        w.link("out", "/etc");
        w
    }

    #[test]
    fn names_are_sorted_with_sizes_and_without_what_is_ignored() {
        let out = sample().call(NAME, json!({}));
        let want = ".github/\n.github/ci.yml  0 B\n.gitignore  14 B\na/\na/deep/\na/deep/er/ …\na/one.rs  5 B\n\
                    b.rs  1 B\nbig  1.5 KiB\nout  (link)\n";
        assert_eq!(out.text(), want);
    }

    #[test]
    fn a_folder_a_pattern_and_a_depth_narrow_it() {
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
            assert_eq!(w.call(NAME, args).text(), want);
        }
        for (args, want) in [
            (json!({"path": "nope"}), "`nope` does not exist"),
            (json!({"path": "../"}), "not a path in the workspace"),
            (json!({"path": "out"}), "out"),
            (json!({"pattern": "a{"}), "`pattern` is not a glob"),
        ] {
            let out = w.call(NAME, args);
            assert!(out.is_error && out.text().contains(want), "{}", out.text());
        }
    }
}
