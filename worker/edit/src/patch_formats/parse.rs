//! Detects the format of a patch and checks that it concerns only the edited file.

use super::{
    super::edit::{EDITS_MAX, Edit, SEARCH_BYTES_MAX},
    apply_patch,
    error::PatchParseError,
    search_replace_blocks, unified,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PatchFormat {
    ApplyPatch,
    SearchReplaceBlocks,
    UnifiedDiff,
}

/// Returns the format of the first distinctive line.
fn detect_format(text: &str) -> Option<PatchFormat> {
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        if apply_patch::is_opening_line(line) {
            return Some(PatchFormat::ApplyPatch);
        }
        if search_replace_blocks::is_opening_line(line) {
            return Some(PatchFormat::SearchReplaceBlocks);
        }
        let header = line.starts_with("--- ") && lines.peek().is_some_and(|next| next.starts_with("+++ "));
        if header || line.starts_with("@@") || line.starts_with("diff --git ") {
            return Some(PatchFormat::UnifiedDiff);
        }
    }
    None
}

/// Returns whether `text` is a patch in one of the formats from its first line on. A fence around
/// it is ignored.
pub(crate) fn is_patch(text: &str) -> bool {
    let first = text.trim_start_matches('\n');
    let first = match first.split_once('\n') {
        Some((fence, rest)) if fence.starts_with("```") => rest,
        Some(_) | None => first,
    };
    let head: String = first.lines().take(2).flat_map(|line| [line, "\n"]).collect();
    let opens = head.lines().next().is_some_and(|line| {
        apply_patch::is_opening_line(line)
            || search_replace_blocks::is_opening_line(line)
            || line.starts_with("@@ -")
            || line.starts_with("diff --git ")
    });
    opens || (head.starts_with("--- ") && head.contains("\n+++ "))
}

/// Returns whether a line is patch syntax that does not belong in a file.
pub(crate) fn is_patch_marker(line: &str) -> bool {
    let number = search_replace_blocks::parse_line_directive(line).is_some();
    number
        || apply_patch::is_opening_line(line)
        || apply_patch::is_closing_line(line)
        || search_replace_blocks::is_opening_line(line)
        || search_replace_blocks::is_closing_line(line)
}

/// Parses a patch in any format as edits of the file at `path`. Without a path, the patch may name any
/// single file.
///
/// # Errors
/// Returns [`PatchParseError`] if the text is not a patch, is truncated, concerns other files, or
/// requests an operation that an edit cannot do.
pub fn parse_patch(path: Option<&str>, patch: &str) -> Result<Vec<Edit>, PatchParseError> {
    let (files, edits) = parse_any_format(patch)?;
    let first = files.first().map(String::as_str);
    let wanted = path.or(first);
    if let Some((wanted, other)) = wanted
        .and_then(|wanted| files.iter().find(|file| !is_same_file(wanted, file)).map(|file| (wanted, file)))
    {
        return Err(PatchParseError::new(format!(
            "the patch changes `{other}`, and this call is for `{wanted}`: make one call for each file"
        )));
    }
    if edits.is_empty() {
        return Err(PatchParseError::new("the patch changes no line"));
    }
    if edits.len() > EDITS_MAX {
        return Err(PatchParseError::new(format!(
            "the patch has more than {EDITS_MAX} hunks: make several calls"
        )));
    }
    Ok(edits)
}

/// Returns the files that a patch names, as written. Empty if it cannot be parsed or names none.
pub fn patch_files(patch: &str) -> Vec<String> {
    parse_any_format(patch).map(|(files, _)| files).unwrap_or_default()
}

/// Parses a patch of any format into the files it names and its edits.
fn parse_any_format(patch: &str) -> Result<(Vec<String>, Vec<Edit>), PatchParseError> {
    if patch.len() > 2 * SEARCH_BYTES_MAX {
        return Err(PatchParseError::new(format!(
            "the patch exceeds {} bytes: send only the hunks that change something",
            2 * SEARCH_BYTES_MAX
        )));
    }
    let patch = patch.replace("\r\n", "\n");
    match detect_format(&patch) {
        Some(PatchFormat::ApplyPatch) => apply_patch::parse_apply_patch(&patch),
        Some(PatchFormat::SearchReplaceBlocks) => {
            Ok((Vec::new(), search_replace_blocks::parse_blocks(&patch)?))
        }
        Some(PatchFormat::UnifiedDiff) => unified::parse_unified_diff(&patch),
        None => Err(PatchParseError::new(
            "patch holds no change: write a unified diff (`@@` and lines that begin with ` `, `-`, `+`), \
             `*** Begin Patch` … `*** End Patch`, or `<<<<<<< SEARCH` / `=======` / `>>>>>>> REPLACE` \
             blocks; or use edits",
        )),
    }
}

/// Returns whether `named`, a file name in a patch, can mean `path`. It may have git's `a/` or `b/`
/// prefix, or folders above the workspace.
pub fn is_same_file(path: &str, named: &str) -> bool {
    let parts = |text: &str| -> Vec<String> {
        text.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).collect()
    };
    let (path, named) = (parts(path), parts(named));
    let stripped = named.strip_prefix(["a".to_owned()].as_slice());
    let stripped = stripped.or_else(|| named.strip_prefix(["b".to_owned()].as_slice()));
    named.ends_with(&path) || path.ends_with(&named) || stripped.is_some_and(|named| path.ends_with(named))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patch_path_may_have_git_prefix_or_parent_folders() {
        for (path, named, same) in [
            ("src/a.rs", "src/a.rs", true),
            ("src/a.rs", "a/src/a.rs", true),
            ("src/a.rs", "./src/a.rs", true),
            ("src/a.rs", "/home/x/project/src/a.rs", true),
            ("crate/src/a.rs", "src/a.rs", true),
            ("src/a.rs", "src/b.rs", false),
            ("src/a.rs", "src/aa.rs", false),
        ] {
            assert_eq!(is_same_file(path, named), same, "{path} {named}");
        }
    }

    #[test]
    fn patch_format_is_detected_from_first_line() {
        for text in [
            "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE",
            "```\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```",
            "*** Begin Patch\n*** Update File: a\n-a\n+b\n*** End Patch",
            "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
            "@@ -1 +1 @@\n-a\n+b\n",
        ] {
            assert!(is_patch(text), "{text}");
        }
        for text in ["a\n<<<<<<< SEARCH\n", "--- a\ntext\n", "@@decorator\n", "=======\n"] {
            assert!(!is_patch(text), "{text}");
        }
    }
}
