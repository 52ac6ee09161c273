//! Patterns for imports: removes unused ones and adds missing ones that have a single likely source.

use docket_schema::content::WorkspacePath;

use super::{
    file_lines::{FileLines, split_line_ending},
    finding::LintFinding,
    python_imports::{self, NameUsage},
};
use crate::syntax::StringLiterals;

fn file_extension(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, end)| end)
}

const JAVASCRIPT_EXTENSIONS: [&str; 8] = ["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"];

/// The texts between pairs of backticks or quotes.
fn quoted_names(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(['`', '\'', '"']) {
        let mark = &rest[start..=start];
        let Some(length) = rest[start + 1..].find(mark) else { break };
        found.push(&rest[start + 1..start + 1 + length]);
        rest = &rest[start + length + 2..];
    }
    found
}

/// Removes an import that nothing uses.
pub(super) fn remove_unused_import(name: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    match file_extension(name) {
        "py" | "pyi" if finding.code == "F401" => remove_unused_python_import(name, finding, lines),
        "rs" if finding.message.starts_with("unused import") => remove_unused_rust_import(finding, lines),
        "go" if finding.message.contains("imported and not used") => remove_unused_go_import(finding, lines),
        end if JAVASCRIPT_EXTENSIONS.contains(&end) && finding.code == "no-unused-vars" => {
            remove_unused_javascript_import(finding, lines)
        }
        _ => false,
    }
}

/// Replaces a line, or removes it if nothing is left.
fn replace_or_remove_line(lines: &mut FileLines, at: usize, text: Option<String>) -> bool {
    match text {
        Some(text) => {
            let end = split_line_ending(&lines.0[at]).1.to_owned();
            lines.0[at] = text + &end;
        }
        None => drop(lines.0.remove(at)),
    }
    true
}

fn remove_unused_python_import(name: &str, finding: &LintFinding, lines: &mut FileLines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(unused) = quoted_names(&finding.message).first().map(|name| (*name).to_owned()) else {
        return false;
    };
    let text = split_line_ending(&lines.0[at]).0.trim_end().to_owned();
    // A package's `__init__.py` re-exports names; other forms are not understood.
    if name.rsplit('/').next() == Some("__init__.py") || text.contains(['#', ';', '\\']) {
        return false;
    }
    // ruff states for each import whether removing it is safe; flake8, which quotes differently, never does.
    if finding.message.starts_with('`') && !finding.has_safe_fix {
        return false;
    }
    // An import is reported as `module.name`, or `module.name as other` if it is renamed.
    let unused = unused.split(" as ").next().unwrap_or(&unused).to_owned();
    let called = |item: &str| item.trim().split(" as ").next().unwrap_or_default().trim().to_owned();
    if let Some(items) = text.strip_prefix("import ") {
        let kept: Vec<&str> = items.split(',').map(str::trim).filter(|item| called(item) != unused).collect();
        return rewrite_import_items(lines, at, items, &kept, "import ");
    }
    if let Some((module, items)) = text.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
        if items.contains(['(', ')', '*']) {
            return false;
        }
        let whole = |item: &str| format!("{}.{}", module.trim(), called(item));
        let is = |item: &str| whole(item) == unused || called(item) == unused;
        let kept: Vec<&str> = items.split(',').map(str::trim).filter(|item| !is(item)).collect();
        return rewrite_import_items(lines, at, items, &kept, &format!("from {module} import "));
    }
    remove_item_of_multiline_import(lines, at, &text, &unused)
}

fn rewrite_import_items(lines: &mut FileLines, at: usize, items: &str, kept: &[&str], head: &str) -> bool {
    if kept.len() == items.split(',').count() {
        return false;
    }
    let text = (!kept.is_empty()).then(|| format!("{head}{}", kept.join(", ")));
    replace_or_remove_line(lines, at, text)
}

/// Removes a name on its own line between `from a import (` and `)` if there are other names.
fn remove_item_of_multiline_import(lines: &mut FileLines, at: usize, text: &str, unused: &str) -> bool {
    let item = text.trim().trim_end_matches(',');
    let last = unused.rsplit('.').next().unwrap_or(unused);
    if item.split(" as ").next() != Some(last) || !text.trim_end().ends_with(',') {
        return false;
    }
    let is_item = |line: &String| {
        let line = line.trim();
        line.strip_suffix(',')
            .is_some_and(|item| item.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | ' ')))
    };
    let before = lines.0[..at].iter().rev().take_while(|line| is_item(line)).count();
    let after = lines.0[at + 1..].iter().take_while(|line| is_item(line)).count();
    let opens = lines.0[..at - before.min(at)]
        .last()
        .is_some_and(|line| line.starts_with("from ") && line.trim_end().ends_with("import ("));
    let closes = lines.0.get(at + 1 + after).is_some_and(|line| line.trim() == ")");
    opens && closes && before + after > 0 && replace_or_remove_line(lines, at, None)
}

fn remove_unused_rust_import(finding: &LintFinding, lines: &mut FileLines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let unused = quoted_names(&finding.message);
    let attributed = at > 0 && lines.0[at - 1].trim_start().starts_with("#[");
    let text = split_line_ending(&lines.0[at]).0.to_owned();
    let Some(path) = text.trim().strip_prefix("use ").and_then(|rest| rest.strip_suffix(';')) else {
        return false;
    };
    if attributed || unused.is_empty() {
        return false;
    }
    let Some((module, items)) =
        path.split_once("::{").and_then(|(m, rest)| Some((m, rest.strip_suffix('}')?)))
    else {
        return unused == [path] && replace_or_remove_line(lines, at, None);
    };
    if items.contains(['{', '}']) {
        return false;
    }
    let kept: Vec<&str> =
        items.split(',').map(str::trim).filter(|item| !item.is_empty() && !unused.contains(item)).collect();
    let indent = &text[..text.len() - text.trim_start().len()];
    let left = (!kept.is_empty()).then(|| format!("{indent}use {module}::{{{}}};", kept.join(", ")));
    let count = items.split(',').filter(|item| !item.trim().is_empty()).count();
    kept.len() < count && replace_or_remove_line(lines, at, left)
}

fn remove_unused_go_import(finding: &LintFinding, lines: &mut FileLines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(path) = quoted_names(&finding.message).first().map(|path| format!("\"{path}\"")) else {
        return false;
    };
    let text = lines.0[at].trim();
    let text = text.strip_prefix("import ").unwrap_or(text).trim();
    let alone = text == path
        || text.strip_suffix(path.as_str()).is_some_and(|alias| {
            let alias = alias.trim();
            !alias.is_empty() && alias.chars().all(|c| c.is_alphanumeric() || c == '_')
        });
    alone && replace_or_remove_line(lines, at, None)
}

/// Keeps loading the module: importing it may have side effects.
fn remove_unused_javascript_import(finding: &LintFinding, lines: &mut FileLines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(unused) = quoted_names(&finding.message).first().map(|name| (*name).to_owned()) else {
        return false;
    };
    let text = split_line_ending(&lines.0[at]).0.to_owned();
    let Some((names, from)) = text.strip_prefix("import ").and_then(|rest| rest.split_once(" from ")) else {
        return false;
    };
    let names = names.trim();
    if names == unused {
        return replace_or_remove_line(lines, at, Some(format!("import {from}")));
    }
    let Some(items) = names.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) else { return false };
    let local = |item: &str| item.rsplit(" as ").next().unwrap_or(item).trim().to_owned();
    let all: Vec<&str> = items.split(',').map(str::trim).filter(|item| !item.is_empty()).collect();
    let kept: Vec<&str> = all.iter().copied().filter(|item| local(item) != unused).collect();
    if kept.len() == all.len() {
        return false;
    }
    let text = if kept.is_empty() {
        format!("import {from}")
    } else {
        format!("import {{ {} }} from {from}", kept.join(", "))
    };
    replace_or_remove_line(lines, at, Some(text))
}

/// Names of Rust's standard library that have a single source.
const RUST_STD_PATHS: [(&str, &str); 18] = [
    ("Arc", "std::sync::Arc"),
    ("BTreeMap", "std::collections::BTreeMap"),
    ("BTreeSet", "std::collections::BTreeSet"),
    ("BinaryHeap", "std::collections::BinaryHeap"),
    ("Cow", "std::borrow::Cow"),
    ("Duration", "std::time::Duration"),
    ("HashMap", "std::collections::HashMap"),
    ("HashSet", "std::collections::HashSet"),
    ("Instant", "std::time::Instant"),
    ("Mutex", "std::sync::Mutex"),
    ("OnceLock", "std::sync::OnceLock"),
    ("Path", "std::path::Path"),
    ("PathBuf", "std::path::PathBuf"),
    ("Rc", "std::rc::Rc"),
    ("RefCell", "std::cell::RefCell"),
    ("RwLock", "std::sync::RwLock"),
    ("SystemTime", "std::time::SystemTime"),
    ("VecDeque", "std::collections::VecDeque"),
];

/// Packages of Go's standard library, by the name they are used under.
const GO_STD_PACKAGES: [(&str, &str); 22] = [
    ("bufio", "bufio"),
    ("bytes", "bytes"),
    ("context", "context"),
    ("errors", "errors"),
    ("exec", "os/exec"),
    ("filepath", "path/filepath"),
    ("fmt", "fmt"),
    ("http", "net/http"),
    ("io", "io"),
    ("json", "encoding/json"),
    ("log", "log"),
    ("math", "math"),
    ("os", "os"),
    ("reflect", "reflect"),
    ("regexp", "regexp"),
    ("sort", "sort"),
    ("strconv", "strconv"),
    ("strings", "strings"),
    ("sync", "sync"),
    ("testing", "testing"),
    ("time", "time"),
    ("unicode", "unicode"),
];

/// Whether missing imports can be added to files of this name.
#[must_use]
pub fn can_add_imports(path: &WorkspacePath) -> bool {
    ["py", "rs", "go"].contains(&file_extension(&path.to_string()))
}

/// Adds a missing import and returns its line if it did.
///
/// `used`: the finding's line from the missing name on, and the character before it. A name that merely resembles a
/// library's is probably a typo, which an import would hide.
pub(super) fn add_missing_import(
    name: &str,
    finding: &LintFinding,
    used: &NameUsage<'_>,
    lines: &mut FileLines,
) -> Option<String> {
    match file_extension(name) {
        "py" if finding.code == "F821" => {
            let missing = *quoted_names(&finding.message).first()?;
            insert_import(
                lines,
                python_imports::stdlib_import_line(missing, used)?,
                &lines.current_literals(name),
                python_import_position,
            )
        }
        "rs" if matches!(finding.code.as_str(), "E0412" | "E0425" | "E0433") => {
            let missing = *quoted_names(&finding.message).first()?;
            let path = RUST_STD_PATHS.iter().find(|(name, _)| *name == missing).map(|(_, path)| *path)?;
            // An import at the top of the file is not visible inside a module of the file.
            if is_in_inline_module(lines, finding.line) {
                return None;
            }
            insert_import(lines, format!("use {path};"), &lines.current_literals(name), rust_import_position)
        }
        "go" => {
            let missing = ["undefined: ", "undeclared name: "]
                .iter()
                .find_map(|mark| finding.message.strip_prefix(mark))?;
            let path =
                GO_STD_PACKAGES.iter().find(|(name, _)| *name == missing.trim()).map(|(_, path)| *path)?;
            // Exported names of a Go package begin with a capital letter.
            used.accessed_member().filter(|member| member.starts_with(|c: char| c.is_ascii_uppercase()))?;
            let block = lines.0.iter().position(|line| line.trim_end() == "import (");
            match block {
                Some(_) => insert_import(
                    lines,
                    format!("\t\"{path}\""),
                    &StringLiterals::default(),
                    go_import_position,
                ),
                None => insert_import(
                    lines,
                    format!("import \"{path}\""),
                    &StringLiterals::default(),
                    go_import_position,
                ),
            }
        }
        _ => None,
    }
}

/// Where an import is inserted, and which blank lines it needs.
struct ImportPosition {
    row: usize,
    /// Whether a blank line goes after the import.
    blank_line_after: bool,
    /// Whether a blank line goes before the import.
    blank_line_before: bool,
}

fn insert_import(
    lines: &mut FileLines,
    line: String,
    literals: &StringLiterals,
    place: fn(&FileLines, &StringLiterals) -> Option<ImportPosition>,
) -> Option<String> {
    if lines.0.iter().any(|there| split_line_ending(there).0 == line) {
        return None;
    }
    let end = lines.line_ending();
    let ImportPosition { row: at, blank_line_after: apart, blank_line_before: below } =
        place(lines, literals)?;
    let mut text = vec![format!("{line}{end}")];
    if below {
        text.insert(0, end.to_owned());
    }
    if apart {
        text.push(end.to_owned());
    }
    lines.0.splice(at..at, text);
    Some(line.trim().to_owned())
}

/// Before the first import other than `__future__`; otherwise after comments and the module docstring.
fn python_import_position(lines: &FileLines, literals: &StringLiterals) -> Option<ImportPosition> {
    let is_import = |line: &String| {
        (line.starts_with("import ") || line.starts_with("from ")) && !line.starts_with("from __future__")
    };
    // A line inside a docstring may look like an import.
    let head = python_header_end(lines, literals);
    let mut rows = lines.0.iter().enumerate().skip(head).filter(|(row, _)| !literals.contain_start_of(*row));
    let at = rows.find(|(_, line)| is_import(line)).map(|(at, _)| at);
    if let Some(at) = at {
        return Some(ImportPosition { row: at, blank_line_after: false, blank_line_before: false });
    }
    let future = lines.0.iter().rposition(|line| line.starts_with("from __future__"));
    match future {
        Some(future) => {
            Some(ImportPosition { row: future + 1, blank_line_after: false, blank_line_before: true })
        }
        None => Some(ImportPosition {
            row: head,
            blank_line_after: lines.0.get(head).is_some_and(|line| !line.trim().is_empty()),
            blank_line_before: false,
        }),
    }
}

/// Returns the number of leading lines with comments and the docstring.
fn python_header_end(lines: &FileLines, literals: &StringLiterals) -> usize {
    let comment = |line: &&String| line.starts_with('#');
    let at = lines.0.iter().take_while(comment).count();
    let first = at + lines.0[at..].iter().take_while(|line| line.trim().is_empty()).count();
    if let Some(last) = literals.last_row_of_literal_at(first) {
        return last + 1;
    }
    let Some(first) = lines.0.get(at) else { return at };
    let Some(mark) = ["\"\"\"", "'''"].into_iter().find(|mark| first.starts_with(mark)) else { return at };
    if first[3..].contains(mark) {
        return at + 1;
    }
    let closes = lines.0[at + 1..].iter().position(|line| line.contains(mark));
    closes.map_or(at, |more| at + 2 + more)
}

fn rust_import_position(lines: &FileLines, literals: &StringLiterals) -> Option<ImportPosition> {
    let mut rows = lines.0.iter().enumerate().filter(|(row, _)| !literals.contain_start_of(*row));
    if let Some((at, _)) = rows.find(|(_, line)| line.starts_with("use ")) {
        return Some(ImportPosition { row: at, blank_line_after: false, blank_line_before: false });
    }
    let head = |line: &&String| line.starts_with("//!") || line.starts_with("#![") || line.trim().is_empty();
    let at = lines.0.iter().take_while(head).count();
    Some(ImportPosition { row: at, blank_line_after: true, blank_line_before: false })
}

fn go_import_position(lines: &FileLines, _: &StringLiterals) -> Option<ImportPosition> {
    if let Some(block) = lines.0.iter().position(|line| line.trim_end() == "import (") {
        return Some(ImportPosition { row: block + 1, blank_line_after: false, blank_line_before: false });
    }
    if let Some(at) = lines.0.iter().position(|line| line.starts_with("import ")) {
        return Some(ImportPosition { row: at, blank_line_after: false, blank_line_before: false });
    }
    let package = lines.0.iter().position(|line| line.starts_with("package "))?;
    Some(ImportPosition { row: package + 1, blank_line_after: false, blank_line_before: true })
}

/// Whether this line is inside an inline module.
fn is_in_inline_module(lines: &FileLines, line: usize) -> bool {
    let before = &lines.0[..line.saturating_sub(1).min(lines.0.len())];
    let opens = |line: &String| {
        let line = line.trim_end();
        (line.starts_with("mod ") || line.starts_with("pub mod ")) && line.ends_with('{')
    };
    let opened = before.iter().rposition(opens);
    opened.is_some_and(|at| !before[at..].iter().any(|line| line.trim_end() == "}"))
}
