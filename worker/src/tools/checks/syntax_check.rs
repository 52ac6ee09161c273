//! Applies the syntax check. File tools add its verdict to the result as a remark, or refuse the edit if the run's
//! settings ask for that. At the end of a run it checks all files that the run changed.
//!
//! A grammar may be older than its language. Before a verdict decides anything, the language's own parser is asked,
//! if installed; at the end of a run, checks that really executed the file take precedence.

use bytes::Bytes;
use docket_schema::{content::WorkspacePath, run::GateSpec};

use super::native_parser::{ParserInput, ParserVerdict, run_native_parsers};
use crate::syntax::{SyntaxVerdict, compare_syntax};
use crate::tools::{
    context::tool_context::{ToolContext, ToolOutcome},
    file_access::files::load_file,
};

/// Returns the remark about the new content `after` of the file at `path`: one line with its newline, or nothing.
///
/// # Errors
/// Returns the refusal, if syntax errors are refused.
pub(crate) async fn check_edit_syntax(
    context: ToolContext<'_>,
    path: &WorkspacePath,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<String, String> {
    let (does, would) = match before {
        Some(_) => (EDIT_ADDS, "Nothing was changed: syntax: the edit would add"),
        None => (FILE_HAS, "Nothing was made: syntax: the file would have"),
    };
    match compare_syntax(&path.to_string(), before, after) {
        SyntaxVerdict::NotWorse => Ok(String::new()),
        SyntaxVerdict::NotParsed(why) => Ok(format!("syntax: not checked: {why}\n")),
        SyntaxVerdict::Worse(added) if context.settings.refuse_syntax_errors => {
            match run_native_parsers(context, path, ParserInput::Text(after)).await {
                ParserVerdict::Accepts(name) => {
                    Ok(format!("syntax: by the grammar here {does} {added}; but {name} takes it\n"))
                }
                ParserVerdict::Rejects(_) => {
                    Err(format!("{would} {added}. Mend that and send the call again"))
                }
                ParserVerdict::Unavailable => Err(format!(
                    "{would} {added}. Mend that and send the call again; what is right, and only newer than the \
                     grammar here, can be written with run_command"
                )),
            }
        }
        SyntaxVerdict::Worse(added) => Ok(format!("syntax: {does} {added}\n")),
    }
}

/// Beginnings of a remark about worse syntax, for an edit and for a new file.
const EDIT_ADDS: &str = "the edit adds";
const FILE_HAS: &str = "the file has";

/// Whether the remark in an edit's result says that the file parses worse than before.
#[must_use]
pub fn reports_worse_syntax(result: &str) -> bool {
    // The remark is the second line; the file's content follows it.
    let remark = result.lines().nth(1).and_then(|line| line.strip_prefix("syntax: "));
    remark.is_some_and(|remark| remark.starts_with(EDIT_ADDS) || remark.starts_with(FILE_HAS))
}

/// Name of the final check, which also replaces its shell line: it runs no command.
const GATE_NAME: &str = "syntax";
const GATE_LINE: &str = "files that were changed parse";

/// The check that all files changed by a run parse.
#[must_use]
pub fn syntax_gate() -> GateSpec {
    GateSpec { name: GATE_NAME.to_owned(), command: GATE_LINE.to_owned(), mend: None }
}

#[must_use]
pub fn is_syntax_gate(gate: &GateSpec) -> bool {
    gate.name == GATE_NAME && gate.command == GATE_LINE && gate.mend.is_none()
}

/// Results of the other checks in the same round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OtherChecks {
    /// Whether one of them failed.
    pub failed: bool,
    /// Whether tests ran and passed.
    pub tests_passed: bool,
    /// Files that a linter checked without findings.
    pub linted_files: Vec<WorkspacePath>,
}

impl OtherChecks {
    /// Whether these results outweigh a grammar's objection to a file.
    fn vouch_for(&self, path: &WorkspacePath) -> bool {
        !self.failed && (self.tests_passed || self.linted_files.contains(path))
    }
}

/// Runs the check over files, each with its content in the base. Files that cannot be read or parsed are skipped. If
/// a grammar objects, the language's own parser decides; if none is installed, the other checks do.
pub async fn run_syntax_gate(
    context: ToolContext<'_>,
    files: &[(WorkspacePath, Option<Bytes>)],
    others: &OtherChecks,
) -> ToolOutcome {
    let (mut text, mut remarks) = (String::new(), String::new());
    for (path, before) in files {
        let Ok(after) = load_file(context.root, path) else { continue };
        match compare_syntax(&path.to_string(), before.as_deref(), &after.bytes) {
            SyntaxVerdict::NotWorse | SyntaxVerdict::NotParsed(_) => {}
            SyntaxVerdict::Worse(added) => {
                let verb = if before.is_some() { "gained" } else { "has" };
                match run_native_parsers(context, path, ParserInput::File).await {
                    ParserVerdict::Accepts(name) => remarks.push_str(&format!(
                        "by the grammar here {path} {verb} {added}; but {name} takes it: the grammar may be too old\n"
                    )),
                    ParserVerdict::Unavailable if others.vouch_for(path) => remarks.push_str(&format!(
                        "by the grammar here {path} {verb} {added}; but the other checks passed: the grammar may be \
                         too old\n"
                    )),
                    ParserVerdict::Rejects(_) | ParserVerdict::Unavailable => {
                        text.push_str(&format!("{path} {verb} {added}\n"));
                    }
                }
            }
        }
    }
    let failed = !text.is_empty();
    let mut outcome = ToolOutcome::ok(match (failed, remarks.is_empty()) {
        (true, _) => text + &remarks,
        (false, true) => "all of them parse\n".to_owned(),
        (false, false) => remarks,
    });
    outcome.facts.exit = Some(i32::from(failed));
    outcome
}

/// Valid for Rust's own parser, but unknown to the grammar.
#[cfg(test)]
pub(crate) const NEWER_RUST: &str = "trait C = D;\n";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::{TestWorkspace, has_program};

    #[test]
    fn new_syntax_errors_are_reported_and_old_ones_are_not() {
        let w = TestWorkspace::new(&[
            ("new.py", "def f(:\n    pass\n"),
            ("old.py", "def f(:\n    pass\nx = 1\n"),
            ("good.py", "x = 1\n"),
        ]);
        let file = |path: &str, before: Option<&str>| {
            (WorkspacePath::new(path).expect("legal"), before.map(|text| Bytes::from(text.to_owned())))
        };
        let old = file("old.py", Some("def f(:\n    pass\n"));
        let check = |files: Vec<_>, others: OtherChecks| {
            w.with_context(|context| Box::pin(async move { run_syntax_gate(context, &files, &others).await }))
        };
        let none = OtherChecks::default;
        let passed = check(vec![old.clone(), file("good.py", None), file("gone.py", None)], none());
        assert_eq!(passed.facts.exit, Some(0), "{}", passed.text());
        let failed = check(vec![old, file("new.py", None), file("good.py", Some("("))], none());
        assert_eq!(failed.facts.exit, Some(1));
        assert!(failed.text().starts_with("new.py has 1 error (Python), at line 1"), "{}", failed.text());
        assert_eq!(failed.text().lines().count(), 1);
    }

    #[test]
    fn native_parser_decides_or_other_checks_when_none_is_installed() {
        let w = TestWorkspace::new(&[("a.rs", NEWER_RUST), ("A.java", "class A { int 9; }\n")]);
        let path = |path: &str| WorkspacePath::new(path).expect("legal");
        let check = |file: &str, others: OtherChecks| {
            let files = [(path(file), None)];
            w.with_context(|context| Box::pin(async move { run_syntax_gate(context, &files, &others).await }))
        };
        if has_program("rustfmt") {
            let passed = check("a.rs", OtherChecks::default());
            assert_eq!(passed.facts.exit, Some(0), "{}", passed.text());
            assert!(passed.text().contains("but rustfmt takes it"), "{}", passed.text());
        }
        assert_eq!(check("A.java", OtherChecks::default()).facts.exit, Some(1), "nobody else knows it");
        let tested = OtherChecks { tests_passed: true, ..OtherChecks::default() };
        let passed = check("A.java", tested.clone());
        assert_eq!(passed.facts.exit, Some(0));
        assert!(passed.text().contains("A.java has 1 error (Java)"), "{}", passed.text());
        assert_eq!(check("A.java", OtherChecks { failed: true, ..tested }).facts.exit, Some(1));
        let linted = |name: &str| OtherChecks { linted_files: vec![path(name)], ..OtherChecks::default() };
        assert_eq!(check("A.java", linted("A.java")).facts.exit, Some(0));
        assert_eq!(check("A.java", linted("B.java")).facts.exit, Some(1));
    }
}
