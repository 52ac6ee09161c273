//! `show_file`: shows a file to a role that changes it. Called by the runtime and not offered to any model.
//!
//! Of a file that exceeds the role's limit, the parts relevant to the change are shown: full lines, unchanged, with a
//! mark for each omission. A patch that quotes lines needs no others.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::ids::BlobHash;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::calls::parse_workspace_path;
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::{
        files::{FileError, load_file},
        path_suggestions,
    },
    text::encoding::{FileContent, classify_content},
};

pub const NAME: &str = "show_file";
pub(crate) const DESCRIPTION: &str = "Shows a file as it is.";
/// Answer if the file does not exist, which is not an error: it is to be created.
pub const NO_SUCH_FILE: &str = "(there is no such file yet)";

/// Most bytes shown of a file: what fits into a request.
const SHOWN_BYTES_MAX: usize = 400 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShowFileArgs {
    /// Path of the file, relative to the workspace.
    path: String,
    /// Most bytes to show.
    bytes_max: Option<usize>,
    /// What is to be changed: of a larger file the parts are shown that hold these words.
    about: Option<String>,
}

pub(crate) fn run(context: ToolContext<'_>, args: &ShowFileArgs) -> ToolOutcome {
    show_file(context, args).unwrap_or_else(|text| ToolOutcome::error(NAME, text))
}

fn show_file(context: ToolContext<'_>, args: &ShowFileArgs) -> Result<ToolOutcome, String> {
    let path = parse_workspace_path(&args.path).map_err(|error| error.to_string())?;
    let loaded = match load_file(context.root, &path) {
        Ok(loaded) => loaded,
        Err(FileError::Missing(_)) => return Ok(ToolOutcome::ok(NO_SUCH_FILE)),
        Err(error) => return Err(path_suggestions::format_file_error(context.root, &error)),
    };
    let text = match classify_content(&loaded.bytes) {
        FileContent::Text(text, _) => text.into_owned(),
        FileContent::Binary(kind) => {
            return Err(format!("`{path}` is {kind}: it is no text that a patch could change"));
        }
    };
    let most = args.bytes_max.unwrap_or(SHOWN_BYTES_MAX).min(SHOWN_BYTES_MAX);
    if text.len() > most {
        let parts = args.about.as_ref().and_then(|about| relevant_excerpt(&text, about, most));
        if let Some(parts) = parts {
            return Ok(ToolOutcome::ok(parts).with_seen_file(path, BlobHash::hash_bytes(&loaded.bytes)));
        }
        return Err(format!(
            "`{path}` has {} bytes, more than the {most} that can be shown whole",
            text.len()
        ));
    }
    Ok(ToolOutcome::ok(text).with_seen_file(path, BlobHash::hash_bytes(&loaded.bytes)))
}

/// Lines shown around a match, and at the beginning of a file, where its imports are.
const CONTEXT_LINES: usize = 12;
const HEAD_LINES: usize = 20;
/// Bytes reserved for the marks between parts.
const MARK_BYTES: usize = 64;

/// Returns the lines of `text` relevant to `about` with their context, up to `most` bytes; `None` if not even the
/// first part fits.
fn relevant_excerpt(text: &str, about: &str, most: usize) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let wanted: BTreeSet<&str> = identifiers_in(about).collect();
    // A word that occurs everywhere does not distinguish places.
    let mut times: BTreeMap<&str, usize> = BTreeMap::new();
    for word in lines.iter().flat_map(|line| identifiers_in(line)).filter(|word| wanted.contains(word)) {
        *times.entry(word).or_default() += 1;
    }
    let worth = |line: &str| -> usize {
        identifiers_in(line).filter_map(|word| times.get(word)).map(|n| 1000 / n).sum()
    };
    let mut places: Vec<(usize, usize)> = lines.iter().map(|line| worth(line)).enumerate().collect();
    places.sort_by_key(|(at, worth)| (std::cmp::Reverse(*worth), *at));
    let around = places.iter().filter(|(_, worth)| *worth > 0);
    let mut around =
        around.map(|(at, _)| at.saturating_sub(CONTEXT_LINES)..(at + CONTEXT_LINES + 1).min(lines.len()));
    // The best match comes first; the file's beginning gets the remaining space.
    let parts =
        around.next().into_iter().chain(std::iter::once(0..HEAD_LINES.min(lines.len()))).chain(around);
    let mut shown = BTreeSet::new();
    let mut left = most;
    for part in parts {
        let new: Vec<usize> = part.filter(|at| !shown.contains(at)).collect();
        let bytes = new.iter().map(|at| lines[*at].len()).sum::<usize>() + MARK_BYTES;
        if !new.is_empty() && bytes <= left {
            left -= bytes;
            shown.extend(new);
        }
    }
    (!shown.is_empty()).then(|| format_excerpt(&lines, &shown))
}

/// Formats the shown lines, with a mark for each omitted part.
fn format_excerpt(lines: &[&str], shown: &BTreeSet<usize>) -> String {
    let mut out = String::new();
    let mut next = 0;
    for at in shown.iter().copied().chain(std::iter::once(lines.len())) {
        match at - next {
            0 => {}
            1 => out.push_str("[… 1 line is not shown …]\n"),
            many => out.push_str(&format!("[… {many} lines are not shown …]\n")),
        }
        out.push_str(lines.get(at).copied().unwrap_or_default());
        next = at + 1;
    }
    out
}

/// Identifiers in a text, by which a place is recognized.
fn identifiers_in(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| word.len() >= WORD_BYTES_MIN)
}

/// Shorter words occur everywhere.
const WORD_BYTES_MIN: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn file_is_shown_unchanged_and_counts_as_read() {
        let mut w = TestWorkspace::new(&[("a.py", "x = 1\n"), ("b.bin", "\0\u{1}\u{2}")]);
        assert_eq!(w.call_tool(NAME, json!({"path": "a.py"})).text(), "x = 1\n");
        let edit = json!({"path": "a.py", "edits": [{"search": "x = 1", "replace": "x = 2"}]});
        assert!(!w.call_tool("edit_file", edit).is_error);
        let none = w.call_tool(NAME, json!({"path": "none.py"}));
        assert_eq!((none.text().as_ref(), none.is_error), (NO_SUCH_FILE, false));
        for (args, why) in [
            (json!({"path": "a.py", "bytes_max": 3}), "more than the 3"),
            (json!({"path": "b.bin"}), "no text"),
            (json!({"path": "../a"}), ""),
        ] {
            let out = w.call_tool(NAME, args);
            assert!(out.is_error && out.text().contains(why), "{}", out.text());
        }
    }
    #[test]
    fn large_file_shows_only_the_relevant_parts() {
        let line = |nth: usize| format!("def filler_{nth}(): return {nth}\n");
        let text: String = (0..400)
            .map(|nth| if nth == 300 { "def total(rows): return 0\n".to_owned() } else { line(nth) })
            .collect();
        let mut w = TestWorkspace::new(&[("big.py", &text)]);
        let args =
            |most: usize| json!({"path": "big.py", "bytes_max": most, "about": "mend total of the rows"});
        let out = w.call_tool(NAME, args(3000));
        let shown = out.text().into_owned();
        assert!(!out.is_error && shown.len() <= 3000, "{} bytes", shown.len());
        for holds in
            ["def total(rows)", "filler_299", "filler_0()", "[… 268 lines are not shown …]", "[… 87 lines"]
        {
            assert!(shown.contains(holds), "{holds}: {shown}");
        }
        assert!(!shown.contains("filler_100()") && !shown.contains("filler_399()"));
        // A file that is shown in part can be changed.
        let patch = json!({"path": "big.py", "patch": "*** Begin Patch\n*** Update File: big.py\n@@\n-def total(rows): return 0\n+def total(rows): return sum(rows)\n*** End Patch"});
        let out = w.call_tool("edit_file", patch);
        assert!(!out.is_error, "{}", out.text());
        let out = w.call_tool(NAME, args(40));
        assert!(out.is_error && out.text().contains("more than the 40"), "{}", out.text());
    }
}
