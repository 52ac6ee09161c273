//! `show_changes`: what a run has changed in the repository until now, as one diff, for a role that judges the work. The
//! runtime calls it; no model is told of it. The workbench knows both sides and gathers them; here is how they are told.

use crate::edit;

/// The name.
pub const NAME: &str = "show_changes";

/// Bytes of all differences that are shown, and of one file's: what a request can hold beside the rest, and no file
/// that somebody generated is to hide the others.
const BYTES_MAX: usize = 96 * 1024;
const FILE_BYTES_MAX: usize = 24 * 1024;

/// What stands at a path, on one side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Side {
    /// Nothing.
    Nothing,
    /// A file with this text.
    Text(String),
    /// Something that is no text, or too large to be compared.
    Other(&'static str),
}

/// A path that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Where.
    pub path: String,
    /// What stood there when the run began.
    pub before: Side,
    /// What stands there now.
    pub after: Side,
}

/// The changes as one text; `None` where nothing differs.
#[must_use]
pub fn changes(all: &[Change]) -> Option<String> {
    let mut out = String::new();
    let mut left = Vec::new();
    for change in all {
        let told = told(change);
        if out.len() + told.len() > BYTES_MAX {
            left.push(change.path.as_str());
        } else {
            out.push_str(&told);
        }
    }
    if !left.is_empty() {
        out.push_str(&format!("[{} more files differ and are not shown: {}]\n", left.len(), named(&left)));
    }
    (!out.is_empty()).then_some(out)
}

/// Files that are named of those that are not shown.
const NAMED_MAX: usize = 40;

fn named(paths: &[&str]) -> String {
    let more = paths.len().saturating_sub(NAMED_MAX);
    let names = paths[..paths.len() - more].join(", ");
    if more > 0 { format!("{names} and {more} more") } else { names }
}

fn told(change: &Change) -> String {
    let Change { path, before, after } = change;
    let (old, new, head) = match (before, after) {
        (Side::Other(what), _) | (_, Side::Other(what)) => return format!("{path}: {what}\n"),
        (Side::Nothing, Side::Nothing) => return String::new(),
        (Side::Nothing, Side::Text(new)) => ("", new.as_str(), format!("new file {path}\n")),
        (Side::Text(old), Side::Nothing) => (old.as_str(), "", format!("removed file {path}\n")),
        (Side::Text(old), Side::Text(new)) if old == new => {
            return format!("{path}: only its mode differs\n");
        }
        (Side::Text(old), Side::Text(new)) => (old.as_str(), new.as_str(), String::new()),
    };
    let diff = edit::unified_diff(path, old.as_bytes(), new.as_bytes());
    let cut = diff.floor_char_boundary(FILE_BYTES_MAX);
    let rest = diff[cut..].lines().count();
    let note = if rest > 0 {
        format!("\n[… {rest} more lines of this file's difference …]\n")
    } else {
        String::new()
    };
    format!("{head}{}{note}", &diff[..cut])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, before: Side, after: Side) -> Change {
        Change { path: path.to_owned(), before, after }
    }

    fn text(text: &str) -> Side {
        Side::Text(text.to_owned())
    }

    #[test]
    fn every_change_is_shown_or_named() {
        let told = changes(&[
            change("a.py", text("x = 1\n"), text("x = 2\n")),
            change("b.bin", Side::Nothing, Side::Other("not text")),
            change("c.py", Side::Nothing, text("y = 1\n")),
            change("d.py", text("z = 1\n"), Side::Nothing),
            change("e.sh", text("ls\n"), text("ls\n")),
        ]);
        assert_eq!(
            told.expect("something differs"),
            "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\nb.bin: not text\nnew file c.py\n--- a/c.py\n\
             +++ b/c.py\n@@ -0,0 +1 @@\n+y = 1\nremoved file d.py\n--- a/d.py\n+++ b/d.py\n@@ -1 +0,0 @@\n\
             -z = 1\ne.sh: only its mode differs\n"
        );
        assert_eq!(changes(&[]), None);
    }

    #[test]
    fn one_large_file_hides_no_other_and_what_is_left_is_named() {
        let large = text(&"a line of a file that somebody generated\n".repeat(5000));
        let all: Vec<Change> =
            (0..8).map(|nth| change(&format!("g{nth}.txt"), Side::Nothing, large.clone())).collect();
        let small = change("z.py", Side::Nothing, text("z = 1\n"));
        let told = changes(&[all, vec![small]].concat()).expect("something differs");
        assert!(
            told.len() < BYTES_MAX + 1024
                && told.contains("+z = 1")
                && told.contains("more lines of this file's")
        );
        assert!(
            told.ends_with("are not shown: g3.txt, g4.txt, g5.txt, g6.txt, g7.txt]\n"),
            "{}",
            &told[told.len() - 200..]
        );
    }
}
