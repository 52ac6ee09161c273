//! Patterns for imports: the unused go, the missing that have but one likely home come.

use docket_schema::content::WorkPath;

use super::{
    finding::Finding,
    lines::{Lines, parted},
    python::{self, Used},
};
use crate::syntax::Literals;

fn end_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(_, end)| end)
}

const JAVASCRIPT: [&str; 8] = ["js", "jsx", "ts", "tsx", "mjs", "cjs", "mts", "cts"];

/// What stands between the first pair of backticks or quotes, and after it.
fn quoted(text: &str) -> Vec<&str> {
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
pub(super) fn unused(name: &str, finding: &Finding, lines: &mut Lines) -> bool {
    match end_of(name) {
        "py" | "pyi" if finding.code == "F401" => unused_python(name, finding, lines),
        "rs" if finding.message.starts_with("unused import") => unused_rust(finding, lines),
        "go" if finding.message.contains("imported and not used") => unused_go(finding, lines),
        end if JAVASCRIPT.contains(&end) && finding.code == "no-unused-vars" => {
            unused_javascript(finding, lines)
        }
        _ => false,
    }
}

/// Puts what is left of a line, or takes the line away.
fn put(lines: &mut Lines, at: usize, text: Option<String>) -> bool {
    match text {
        Some(text) => {
            let end = parted(&lines.0[at]).1.to_owned();
            lines.0[at] = text + &end;
        }
        None => drop(lines.0.remove(at)),
    }
    true
}

fn unused_python(name: &str, finding: &Finding, lines: &mut Lines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(unused) = quoted(&finding.message).first().map(|name| (*name).to_owned()) else { return false };
    let text = parted(&lines.0[at]).0.trim_end().to_owned();
    // A package's own file gives names on; other forms are not understood.
    if name.rsplit('/').next() == Some("__init__.py") || text.contains(['#', ';', '\\']) {
        return false;
    }
    // ruff says of each import whether it may go; flake8, which quotes otherwise, of none.
    if finding.message.starts_with('`') && !finding.is_safe {
        return false;
    }
    // What is imported is told as `module.name`, and `module.name as other` where it is renamed.
    let unused = unused.split(" as ").next().unwrap_or(&unused).to_owned();
    let called = |item: &str| item.trim().split(" as ").next().unwrap_or_default().trim().to_owned();
    if let Some(items) = text.strip_prefix("import ") {
        let kept: Vec<&str> = items.split(',').map(str::trim).filter(|item| called(item) != unused).collect();
        return shortened(lines, at, items, &kept, "import ");
    }
    if let Some((module, items)) = text.strip_prefix("from ").and_then(|rest| rest.split_once(" import ")) {
        if items.contains(['(', ')', '*']) {
            return false;
        }
        let whole = |item: &str| format!("{}.{}", module.trim(), called(item));
        let is = |item: &str| whole(item) == unused || called(item) == unused;
        let kept: Vec<&str> = items.split(',').map(str::trim).filter(|item| !is(item)).collect();
        return shortened(lines, at, items, &kept, &format!("from {module} import "));
    }
    one_of_many(lines, at, &text, &unused)
}

fn shortened(lines: &mut Lines, at: usize, items: &str, kept: &[&str], head: &str) -> bool {
    if kept.len() == items.split(',').count() {
        return false;
    }
    let text = (!kept.is_empty()).then(|| format!("{head}{}", kept.join(", ")));
    put(lines, at, text)
}

/// A name on a line of its own between `from a import (` and `)`, with others beside it.
fn one_of_many(lines: &mut Lines, at: usize, text: &str, unused: &str) -> bool {
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
    opens && closes && before + after > 0 && put(lines, at, None)
}

fn unused_rust(finding: &Finding, lines: &mut Lines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let unused = quoted(&finding.message);
    let attributed = at > 0 && lines.0[at - 1].trim_start().starts_with("#[");
    let text = parted(&lines.0[at]).0.to_owned();
    let Some(path) = text.trim().strip_prefix("use ").and_then(|rest| rest.strip_suffix(';')) else {
        return false;
    };
    if attributed || unused.is_empty() {
        return false;
    }
    let Some((module, items)) =
        path.split_once("::{").and_then(|(m, rest)| Some((m, rest.strip_suffix('}')?)))
    else {
        return unused == [path] && put(lines, at, None);
    };
    if items.contains(['{', '}']) {
        return false;
    }
    let kept: Vec<&str> =
        items.split(',').map(str::trim).filter(|item| !item.is_empty() && !unused.contains(item)).collect();
    let indent = &text[..text.len() - text.trim_start().len()];
    let left = (!kept.is_empty()).then(|| format!("{indent}use {module}::{{{}}};", kept.join(", ")));
    let count = items.split(',').filter(|item| !item.trim().is_empty()).count();
    kept.len() < count && put(lines, at, left)
}

fn unused_go(finding: &Finding, lines: &mut Lines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(path) = quoted(&finding.message).first().map(|path| format!("\"{path}\"")) else { return false };
    let text = lines.0[at].trim();
    let text = text.strip_prefix("import ").unwrap_or(text).trim();
    let alone = text == path
        || text.strip_suffix(path.as_str()).is_some_and(|alias| {
            let alias = alias.trim();
            !alias.is_empty() && alias.chars().all(|c| c.is_alphanumeric() || c == '_')
        });
    alone && put(lines, at, None)
}

/// A module is still loaded: it may do more than give names.
fn unused_javascript(finding: &Finding, lines: &mut Lines) -> bool {
    let Some(at) = finding.line.checked_sub(1).filter(|at| *at < lines.0.len()) else { return false };
    let Some(unused) = quoted(&finding.message).first().map(|name| (*name).to_owned()) else { return false };
    let text = parted(&lines.0[at]).0.to_owned();
    let Some((names, from)) = text.strip_prefix("import ").and_then(|rest| rest.split_once(" from ")) else {
        return false;
    };
    let names = names.trim();
    if names == unused {
        return put(lines, at, Some(format!("import {from}")));
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
    put(lines, at, Some(text))
}

/// Names of Rust's own library that come from one place only.
const RUST: [(&str, &str); 18] = [
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

/// Packages of Go's own library, by the name they are used under.
const GO: [(&str, &str); 22] = [
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

/// Whether a missing import can be mended in files of this name.
#[must_use]
pub fn may_lack_imports(path: &WorkPath) -> bool {
    ["py", "rs", "go"].contains(&end_of(&path.to_string()))
}

/// Adds an import that is missing; answers its line where it did.
///
/// `used`: the finding's line from the missing name on, with what stands directly before it. A name that is but
/// like a library's is a slip of the pen: to import it would hide that.
pub(super) fn import(name: &str, finding: &Finding, used: &Used<'_>, lines: &mut Lines) -> Option<String> {
    match end_of(name) {
        "py" if finding.code == "F821" => {
            let missing = *quoted(&finding.message).first()?;
            insert(lines, python::import_of(missing, used)?, &lines.literals(name), python_place)
        }
        "rs" if matches!(finding.code.as_str(), "E0412" | "E0425" | "E0433") => {
            let missing = *quoted(&finding.message).first()?;
            let path = RUST.iter().find(|(name, _)| *name == missing).map(|(_, path)| *path)?;
            // Within a module of the file, an import at the top is not seen.
            if within_module(lines, finding.line) {
                return None;
            }
            insert(lines, format!("use {path};"), &lines.literals(name), rust_place)
        }
        "go" => {
            let missing = ["undefined: ", "undeclared name: "]
                .iter()
                .find_map(|mark| finding.message.strip_prefix(mark))?;
            let path = GO.iter().find(|(name, _)| *name == missing.trim()).map(|(_, path)| *path)?;
            // What a package gives begins with a capital.
            used.member().filter(|member| member.starts_with(|c: char| c.is_ascii_uppercase()))?;
            let block = lines.0.iter().position(|line| line.trim_end() == "import (");
            match block {
                Some(_) => insert(lines, format!("\t\"{path}\""), &Literals::default(), go_place),
                None => insert(lines, format!("import \"{path}\""), &Literals::default(), go_place),
            }
        }
        _ => None,
    }
}

/// Where an import goes, and what kind of line follows there.
struct Place {
    at: usize,
    /// A blank line parts it from what follows.
    apart: bool,
    /// And from what precedes.
    below: bool,
}

fn insert(
    lines: &mut Lines,
    line: String,
    literals: &Literals,
    place: fn(&Lines, &Literals) -> Option<Place>,
) -> Option<String> {
    if lines.0.iter().any(|there| parted(there).0 == line) {
        return None;
    }
    let end = lines.end();
    let Place { at, apart, below } = place(lines, literals)?;
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

/// Before the first import but `__future__`; else after comments and the module's text.
fn python_place(lines: &Lines, literals: &Literals) -> Option<Place> {
    let is_import = |line: &String| {
        (line.starts_with("import ") || line.starts_with("from ")) && !line.starts_with("from __future__")
    };
    // A line within a longer text may look like an import.
    let head = head_of_python(lines, literals);
    let mut rows = lines.0.iter().enumerate().skip(head).filter(|(row, _)| !literals.hold_start_of(*row));
    let at = rows.find(|(_, line)| is_import(line)).map(|(at, _)| at);
    if let Some(at) = at {
        return Some(Place { at, apart: false, below: false });
    }
    let future = lines.0.iter().rposition(|line| line.starts_with("from __future__"));
    match future {
        Some(future) => Some(Place { at: future + 1, apart: false, below: true }),
        None => Some(Place {
            at: head,
            apart: lines.0.get(head).is_some_and(|line| !line.trim().is_empty()),
            below: false,
        }),
    }
}

/// Lines of comments and text at the top.
fn head_of_python(lines: &Lines, literals: &Literals) -> usize {
    let comment = |line: &&String| line.starts_with('#');
    let at = lines.0.iter().take_while(comment).count();
    let first = at + lines.0[at..].iter().take_while(|line| line.trim().is_empty()).count();
    if let Some(last) = literals.last_row_of_one_at(first) {
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

fn rust_place(lines: &Lines, literals: &Literals) -> Option<Place> {
    let mut rows = lines.0.iter().enumerate().filter(|(row, _)| !literals.hold_start_of(*row));
    if let Some((at, _)) = rows.find(|(_, line)| line.starts_with("use ")) {
        return Some(Place { at, apart: false, below: false });
    }
    let head = |line: &&String| line.starts_with("//!") || line.starts_with("#![") || line.trim().is_empty();
    let at = lines.0.iter().take_while(head).count();
    Some(Place { at, apart: true, below: false })
}

fn go_place(lines: &Lines, _: &Literals) -> Option<Place> {
    if let Some(block) = lines.0.iter().position(|line| line.trim_end() == "import (") {
        return Some(Place { at: block + 1, apart: false, below: false });
    }
    if let Some(at) = lines.0.iter().position(|line| line.starts_with("import ")) {
        return Some(Place { at, apart: false, below: false });
    }
    let package = lines.0.iter().position(|line| line.starts_with("package "))?;
    Some(Place { at: package + 1, apart: false, below: true })
}

/// Whether this line lies in a module written in the file.
fn within_module(lines: &Lines, line: usize) -> bool {
    let before = &lines.0[..line.saturating_sub(1).min(lines.0.len())];
    let opens = |line: &String| {
        let line = line.trim_end();
        (line.starts_with("mod ") || line.starts_with("pub mod ")) && line.ends_with('{')
    };
    let opened = before.iter().rposition(opens);
    opened.is_some_and(|at| !before[at..].iter().any(|line| line.trim_end() == "}"))
}
