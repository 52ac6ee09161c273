//! What is done with the syntax gate's verdict. The file tools make it a remark in the result, or a refusal where
//! the run's settings want that; at the end of a run it is a check of all that the run changed.

use bytes::Bytes;
use cap_std::fs::Dir;
use docket_schema::{content::WorkPath, run::GateSpec};

use super::{
    context::{ToolOutcome, ToolSettings},
    files::load,
};
use crate::syntax::{Verdict, compare};

/// The remark on what `after` makes of the file at `path`, a line with its break; empty where there is
/// nothing to say.
///
/// # Errors
/// With the refusal, where syntax errors are refused.
pub(super) fn syntax(
    settings: &ToolSettings,
    path: &WorkPath,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<String, String> {
    let (does, would) = match before {
        Some(_) => ("the edit adds", "Nothing was changed: syntax: the edit would add"),
        None => ("the file has", "Nothing was made: syntax: the file would have"),
    };
    match compare(&path.to_string(), before, after) {
        Verdict::NotWorse => Ok(String::new()),
        Verdict::NotParsed(why) => Ok(format!("syntax: not checked: {why}\n")),
        Verdict::Worse(added) if settings.refuse_syntax_errors => {
            Err(format!("{would} {added}. Mend that and send the call again"))
        }
        Verdict::Worse(added) => Ok(format!("syntax: {does} {added}\n")),
    }
}

/// The check of the end, by name, and what stands in place of its shell line: no command is run.
const NAME: &str = "syntax";
const LINE: &str = "files that were changed parse";

/// The check that what a run changed parses.
#[must_use]
pub fn syntax_check() -> GateSpec {
    GateSpec { name: NAME.to_owned(), command: LINE.to_owned(), mend: None }
}

/// Whether it is this check.
#[must_use]
pub fn is_syntax_check(gate: &GateSpec) -> bool {
    gate.name == NAME && gate.command == LINE && gate.mend.is_none()
}

/// Runs it, over files each with its content in the base. What cannot be read or parsed is not judged.
#[must_use]
pub fn check_syntax(root: &Dir, files: &[(WorkPath, Option<Bytes>)]) -> ToolOutcome {
    let mut text = String::new();
    for (path, before) in files {
        let Ok(after) = load(root, path) else { continue };
        match compare(&path.to_string(), before.as_deref(), &after.bytes) {
            Verdict::NotWorse | Verdict::NotParsed(_) => {}
            Verdict::Worse(added) => {
                let verb = if before.is_some() { "gained" } else { "has" };
                text.push_str(&format!("{path} {verb} {added}\n"));
            }
        }
    }
    let failed = !text.is_empty();
    let mut outcome = ToolOutcome::ok(if failed { text } else { "all of them parse\n".to_owned() });
    outcome.facts.exit = Some(i32::from(failed));
    outcome
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Workspace, *};

    #[test]
    fn what_no_longer_parses_is_named_and_old_errors_are_not() {
        let w = Workspace::new(&[
            ("new.py", "def f(:\n    pass\n"),
            ("old.py", "def f(:\n    pass\nx = 1\n"),
            ("good.py", "x = 1\n"),
        ]);
        let file = |path: &str, before: Option<&str>| {
            (WorkPath::new(path).expect("legal"), before.map(|text| Bytes::from(text.to_owned())))
        };
        let old = file("old.py", Some("def f(:\n    pass\n"));
        let passed = check_syntax(&w.dir, &[old.clone(), file("good.py", None), file("gone.py", None)]);
        assert_eq!(passed.facts.exit, Some(0), "{}", passed.text());
        let failed = check_syntax(&w.dir, &[old, file("new.py", None), file("good.py", Some("("))]);
        assert_eq!(failed.facts.exit, Some(1));
        assert!(failed.text().starts_with("new.py has 1 error (Python), at line 1"), "{}", failed.text());
        assert_eq!(failed.text().lines().count(), 1);
    }
}
