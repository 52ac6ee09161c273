//! The linters of a batch of edits (A11): run on the files it changed, and said in the result of its last
//! call.
//!
//! Called by the driver's workbench after a batch. A linter that does not end in time or is not there is
//! told, never an error of the edit.

use std::collections::BTreeSet;

use docket_schema::{
    content::WorkPath,
    redact::Redactor,
    run::LinterSpec,
    tool::{LintSeen, LintStatus},
};

use super::{
    context::ToolContext,
    files::os,
    output::{cut, printable},
    run_command::as_text,
    runner::{CommandOutput, CommandSpec, Ended},
};
use crate::lint::{findings, is_for, line};

/// Characters of all findings that the model is shown: more than a screenful is one cause, or no lint at all.
const FINDINGS_CHARS_MAX: usize = 2000;

/// Exit status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

/// A batch of edits to be linted.
pub struct Edited<'a> {
    /// Linters as pinned.
    pub linters: &'a [LinterSpec],
    /// Files that the batch changed, in any order; those that are gone are left out.
    pub files: &'a [WorkPath],
    /// Linters that are known not to be installed, or never to end in time: they are neither run nor told
    /// again.
    pub missing: &'a BTreeSet<String>,
    /// Time limit of each.
    pub timeout_ms: u64,
    /// Whether findings are listed; else only counted.
    pub listed: bool,
}

/// What linters said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Linted {
    /// For the model, to follow the result's own text; empty where there is nothing to say.
    pub text: String,
    /// All that they printed, where `text` holds a part.
    pub full: Option<String>,
    /// One for each linter that has files here.
    pub seen: Vec<LintSeen>,
}

/// Runs the linters of these files, one after the other.
pub async fn lint(context: ToolContext<'_>, edited: &Edited<'_>) -> Linted {
    let mut linted = Linted::default();
    let there = |path: &&WorkPath| context.root.symlink_metadata(os(path)).is_ok_and(|meta| meta.is_file());
    let mut files: Vec<&WorkPath> = edited.files.iter().filter(there).collect();
    files.sort_unstable();
    files.dedup();
    for linter in edited.linters {
        let own: Vec<WorkPath> =
            files.iter().filter(|path| is_for(linter, path)).map(|path| (*path).clone()).collect();
        if own.is_empty() || edited.missing.contains(&linter.name) {
            continue;
        }
        let timeout_ms = context.settings.time_limit(edited.timeout_ms).ms;
        let spec = CommandSpec { shell: line(&linter.check, &own), cwd: None, timeout_ms };
        let (status, said) = match context.runner.run(spec).await {
            Ok(output) => status_of(&output),
            Err(error) => (LintStatus::Missing, error.to_string()),
        };
        linted.take(linter, edited, status, &said);
    }
    linted
}

fn status_of(output: &CommandOutput) -> (LintStatus, String) {
    let status = match output.ended {
        Ended::Exit(0) => LintStatus::Clean,
        Ended::Exit(NOT_FOUND) => LintStatus::Missing,
        Ended::TimedOut => LintStatus::TimedOut,
        Ended::Exit(_) | Ended::Signal(_) | Ended::OutOfMemory => LintStatus::Findings,
    };
    let (out, err) = (printable(&output.stdout.joined()), printable(&output.stderr.joined()));
    let said = match (out.trim().is_empty(), err.trim().is_empty()) {
        (false, true) => out,
        (true, false) => err,
        (true, true) => String::new(),
        (false, false) => as_text(output, &Redactor::default()),
    };
    (status, said)
}

impl Linted {
    fn take(&mut self, linter: &LinterSpec, edited: &Edited<'_>, status: LintStatus, said: &str) {
        let name = &linter.name;
        let found = u32::try_from(findings(said).len()).unwrap_or(u32::MAX).max(1);
        let told = match status {
            LintStatus::Clean => None,
            LintStatus::Findings if !edited.listed => Some(format!(
                "{name} still finds something ({found}): the last corrections left as much as they mended. Read the \
                 file again as a whole before you change it; the project's checks run at the end."
            )),
            LintStatus::Findings => {
                let (shown, was_cut) = cut(said.trim_end(), FINDINGS_CHARS_MAX);
                if was_cut {
                    self.full.get_or_insert_default().push_str(said);
                }
                Some(format!("{name} finds:\n{shown}"))
            }
            LintStatus::TimedOut => Some(format!(
                "{name} did not end within {} s: what was changed is not linted",
                std::time::Duration::from_millis(edited.timeout_ms).as_secs_f64()
            )),
            LintStatus::Missing => Some(format!(
                "{name} is not installed or cannot run here: files of .{} are not linted by it in this run",
                linter.extensions.join(", .")
            )),
        };
        if let Some(told) = told {
            self.text.push_str(&format!("\n{told}\n"));
        }
        let findings = if status == LintStatus::Findings { found } else { 0 };
        self.seen.push(LintSeen { linter: name.clone(), status, findings });
    }
}

#[cfg(test)]
mod tests {
    use super::{super::testing::Workspace, *};

    fn linter(name: &str, check: &str) -> LinterSpec {
        let (project, fix, gates) = (None, None, true);
        LinterSpec {
            name: name.into(),
            extensions: vec!["py".into()],
            check: check.into(),
            project,
            fix,
            gates,
        }
    }

    fn run(linters: &[LinterSpec], missing: &[&str], listed: bool) -> Linted {
        let w = Workspace::new(&[("a.py", "x"), ("it's.py", ""), ("b.txt", "")]);
        let files =
            ["a.py", "it's.py", "a.py", "b.txt", "gone.py"].map(|path| WorkPath::new(path).expect("legal"));
        let missing = missing.iter().map(|name| (*name).to_owned()).collect();
        let edited = Edited { linters, files: &files, missing: &missing, timeout_ms: 1000, listed };
        w.with(|context| Box::pin(async move { lint(context, &edited).await }))
    }

    #[test]
    fn findings_are_listed_for_the_files_of_the_language() {
        let linted =
            run(&[linter("lint", "for f in {files}; do echo \"$f:1:1: E1 bad\"; done; exit 1")], &[], true);
        assert_eq!(linted.text, "\nlint finds:\na.py:1:1: E1 bad\nit's.py:1:1: E1 bad\n");
        assert_eq!(
            linted.seen,
            [LintSeen { linter: "lint".into(), status: LintStatus::Findings, findings: 2 }]
        );
    }

    #[test]
    fn what_is_clean_is_silent_and_what_is_missing_is_told_once() {
        let linters = [linter("good", "true"), linter("none", "no-such-linter {files}")];
        let linted = run(&linters, &[], true);
        assert_eq!(
            linted.text,
            "\nnone is not installed or cannot run here: files of .py are not linted by it in this run\n"
        );
        let status: Vec<LintStatus> = linted.seen.iter().map(|seen| seen.status).collect();
        assert_eq!(status, [LintStatus::Clean, LintStatus::Missing]);
        let again = run(&linters, &["none"], true);
        assert_eq!((again.text.as_str(), again.seen.len()), ("", 1));
    }

    #[test]
    fn a_linter_that_hangs_is_ended_and_told() {
        let linted = run(&[linter("slow", "sleep 60")], &[], true);
        assert_eq!(linted.text, "\nslow did not end within 1 s: what was changed is not linted\n");
        assert_eq!(linted.seen[0].status, LintStatus::TimedOut);
    }

    #[test]
    fn findings_are_capped_and_after_too_many_corrections_only_counted() {
        let many =
            [linter("lint", "seq 1 3000 | sed 's/$/:1:1: E1 bad/; s/^/a.py:/' | cut -d: -f1,2,3,5; exit 1")];
        let linted = run(&many, &[], true);
        assert!(
            linted.text.chars().count() < 2200
                && linted.full.is_some_and(|full| full.lines().count() == 3000)
        );
        let counted = run(&[linter("lint", "echo 'a.py:1:1: E1 bad'; exit 1")], &[], false);
        assert!(counted.text.contains("lint still finds something (1)") && !counted.text.contains("E1 bad"));
    }
}
