//! Detects tests that did not run, from the exit status and the runner's output. Pure, except for a look at the
//! project's `node_modules`.
//!
//! A test that ran and failed does not count: only tests that could not be found, loaded or completed.

use cap_std::fs::Dir;
use docket_schema::{
    content::WorkspacePath,
    tool::{NotRun, NotRunCause, TestCounts},
};

use super::{missing_dependency, test_output::TestReport};
use crate::tools::context::runner::CommandEnd;

/// Exit status of a shell whose program cannot be executed.
const NOT_EXECUTABLE: i32 = 126;
/// Most names listed in a reason.
const LISTED_NAMES_MAX: usize = 5;

/// Determines why tests did not run, or not all of them; `None` if all ran.
pub(crate) fn detect_not_run(
    root: &Dir,
    ended: CommandEnd,
    line: &str,
    report: &TestReport,
    said: &str,
) -> Option<NotRun> {
    match ended {
        CommandEnd::Exit(0) => None,
        CommandEnd::Exit(status) => not_run_after_exit(root, status, line, report, said),
        CommandEnd::TimedOut => Some(NotRun::new(NotRunCause::TimedOut, "its time limit ended it")),
        CommandEnd::Signal(signal) => {
            Some(NotRun::new(NotRunCause::Killed, format!("signal {signal} ended it")))
        }
        CommandEnd::Exceeded(what) => Some(NotRun::new(
            NotRunCause::LimitExceeded,
            format!("it used more {} than allowed", what.as_noun()),
        )),
    }
}

fn not_run_after_exit(
    root: &Dir,
    status: i32,
    line: &str,
    report: &TestReport,
    said: &str,
) -> Option<NotRun> {
    let partly = has_run_any(report);
    let uncollected = report.uncollected.clone();
    // A runner that names what it could not load is installed.
    if !partly && uncollected.is_empty() {
        let lacks =
            missing_dependency::find_missing(root, CommandEnd::Exit(status), line, report.counts, said);
        if let Some((cause, name)) = lacks {
            return Some(NotRun::for_missing(cause, &name));
        }
        if status == NOT_EXECUTABLE {
            return Some(NotRun::new(NotRunCause::ProgramMissing, "a program cannot be executed"));
        }
    }
    if !uncollected.is_empty() {
        let (cause, verb) = if report.is_compile_failure {
            (NotRunCause::CompileFailed, "compiled")
        } else {
            (NotRunCause::CollectionFailed, "loaded")
        };
        let reason = format!("{} could not be {verb}", join_names(&uncollected));
        return Some(NotRun { uncollected, partly, ..NotRun::new(cause, reason) });
    }
    if partly {
        return None;
    }
    load_failure_reason(said).map(|reason| NotRun::new(NotRunCause::CollectionFailed, reason))
}

/// Whether any test ran. Some runners count a load failure as an error, others as a failed test.
fn has_run_any(report: &TestReport) -> bool {
    let counts = report.counts.unwrap_or_default();
    let failed = report.failing.iter().any(|name| !report.uncollected.contains(name));
    let errors = counts.failed.saturating_add(counts.errors) as usize;
    counts.passed > 0 || failed || (counts.failed > 0 && errors > report.uncollected.len())
}

/// Runner messages that mean that no test ran but name no file, with the reason for people.
fn load_failure_reason(said: &str) -> Option<&'static str> {
    let says = |words: &[&str]| said.lines().any(|line| words.iter().any(|word| line.contains(word)));
    let known: [(&[&str], &str); 7] = [
        (&["ImportError while loading conftest", "ConftestImportFailure"], "conftest.py could not be loaded"),
        (&["errors during collection", "error during collection"], "the tests could not be collected"),
        (&["INTERNALERROR>"], "pytest failed by itself"),
        (&["ERROR: file or directory not found:"], "the files with tests are not there"),
        (&["Start directory is not importable"], "the folder with tests could not be loaded"),
        (&["Exception during run: "], "a file with tests could not be loaded"),
        (
            &["error: failed to parse manifest", "error: failed to load manifest"],
            "Cargo.toml could not be read",
        ),
    ];
    known.into_iter().find(|(words, _)| says(words)).map(|(_, reason)| reason)
}

/// The record of a runner that ran no test although these files contain some.
pub(crate) fn ran_no_tests(files: &[WorkspacePath], counts: TestCounts) -> Option<NotRun> {
    if counts.total() > 0 || files.is_empty() {
        return None;
    }
    let uncollected: Vec<String> = files.iter().map(ToString::to_string).collect();
    let reason = format!("the runner ran none of the tests in {}", join_names(&uncollected));
    Some(NotRun { uncollected, ..NotRun::new(NotRunCause::NoTests, reason) })
}

fn join_names(names: &[String]) -> String {
    let mut text = names.iter().take(LISTED_NAMES_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    if let Some(more) = names.len().checked_sub(LISTED_NAMES_MAX).filter(|more| *more > 0) {
        text.push_str(&format!(" and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests {
    use NotRunCause::{CollectionFailed, CompileFailed, DependencyMissing, ProgramMissing, RunnerMissing};

    use super::{super::test_output::parse_tests, *};
    use crate::tools::testing::TestWorkspace;

    /// Diagnoses what a runner with this status and output did not run: the cause, the names, and whether the rest
    /// ran.
    fn diagnose_output(status: i32, said: &str) -> Option<(NotRunCause, Vec<String>, bool)> {
        let manifest = r#"{"devDependencies":{"vitest":"3"}}"#;
        let w = TestWorkspace::new(&[("package.json", manifest)]);
        let why = detect_not_run(&w.dir, CommandEnd::Exit(status), "make test", &parse_tests(said), said)?;
        let names = why.missing.into_iter().chain(why.uncollected).collect();
        Some((why.cause, names, why.partly))
    }

    macro_rules! captured {
        ($name:literal) => {
            include_str!(concat!("test_output/captured/", $name, ".txt"))
        };
    }

    #[test]
    fn real_runner_output_of_unrun_tests_is_understood() {
        for (name, status, said, cause, names, partly) in [
            ("pytest", 2, captured!("pytest-imp"), CollectionFailed, &["test_imp.py"][..], false),
            ("pytest without its file", 4, captured!("pytest-path"), CollectionFailed, &[], false),
            (
                "unittest",
                1,
                captured!("unittest-imp"),
                CollectionFailed,
                &["test_imp (unittest.loader._FailedTest.test_imp)"],
                false,
            ),
            ("cargo", 101, captured!("cargo-broken"), CompileFailed, &["calc"], false),
            ("nextest", 101, captured!("nextest-broken"), CompileFailed, &["calc"], false),
            ("go", 1, captured!("go-broken"), CompileFailed, &["example.org/calc"], false),
            (
                "vitest",
                1,
                captured!("vitest-imp"),
                CollectionFailed,
                &["calc.test.mjs [ calc.test.mjs ]"],
                true,
            ),
            (
                "jest",
                1,
                captured!("jest-imp"),
                CollectionFailed,
                &["./calc.test.js › Test suite failed to run"],
                true,
            ),
            ("mocha", 1, captured!("mocha-imp"), CollectionFailed, &[], false),
            (
                "node",
                1,
                captured!("node-imp"),
                CollectionFailed,
                &["/project/calc.test.js > /project/calc.test.js"],
                true,
            ),
            (
                "node spec",
                1,
                captured!("nodespec-imp"),
                CollectionFailed,
                &["calc.test.js > /project/calc.test.js"],
                true,
            ),
            ("python", 1, "/usr/bin/python3: No module named pytest", RunnerMissing, &["pytest"], false),
            ("npm", 127, "sh: 1: vitest: not found", ProgramMissing, &["vitest"], false),
            ("npm", 1, "Error: Cannot find module 'vitest/config'", DependencyMissing, &["vitest"], false),
            (
                "make",
                2,
                "make: *** No rule to make target 'test'.  Stop.",
                RunnerMissing,
                &["the make target test"],
                false,
            ),
            (
                "npm",
                1,
                "npm error Missing script: \"test\"",
                RunnerMissing,
                &["the script test of package.json"],
                false,
            ),
            ("sh", 126, "sh: 1: ./run.sh: Permission denied", ProgramMissing, &[], false),
            (
                "conftest",
                4,
                "ImportError while loading conftest '/project/conftest.py'.\nE   No module named 'nowhere'",
                CollectionFailed,
                &[],
                false,
            ),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            assert_eq!(diagnose_output(status, said), Some((cause, names, partly)), "{name}: {said}");
        }
    }

    #[test]
    fn failed_tests_count_as_run() {
        for said in [
            captured!("pytest-fail"),
            captured!("unittest-fail"),
            captured!("cargo-fail"),
            captured!("nextest-fail"),
            captured!("vitest-fail"),
            captured!("jest-fail"),
            captured!("mocha-fail"),
            captured!("mocha-slow"),
            captured!("node-fail"),
            captured!("nodespec-fail"),
            captured!("go-panic"),
            "anything else",
        ] {
            assert_eq!(diagnose_output(1, said), None, "{said}");
        }
        assert_eq!(diagnose_output(0, captured!("pytest-imp")), None, "the exit status decides");
    }

    #[test]
    fn cause_of_an_early_end_is_named() {
        let w = TestWorkspace::new(&[]);
        for (ended, cause) in [
            (CommandEnd::TimedOut, NotRunCause::TimedOut),
            (CommandEnd::Signal(9), NotRunCause::Killed),
            (CommandEnd::Exceeded(docket_schema::tool::ExceededResource::Memory), NotRunCause::LimitExceeded),
        ] {
            let why = detect_not_run(&w.dir, ended, "", &TestReport::default(), "");
            assert_eq!(why.map(|why| why.cause), Some(cause), "{ended:?}");
        }
    }
}
