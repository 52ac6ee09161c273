//! Parses the output of an unknown runner: a project's own test line may start any of them, so each parser looks for
//! its own marks and the first that finds them wins.

use std::collections::BTreeSet;

use docket_schema::tool::TestCounts;

use super::{go, javascript, python, rust, tap};

/// Parsed output of a test runner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestReport {
    /// The runner's counts; all 0 if it reported that there are no tests.
    pub counts: Option<TestCounts>,
    /// The first failure, with its trace.
    pub first_failure: Option<String>,
    /// What was running at the end of the output; meaningful only if the command was killed.
    pub running: Option<String>,
    /// Names of failed tests, each once, in order; empty if there are too many for a fact.
    pub failing: Vec<String>,
    /// Test files, modules or packages that could not be loaded or compiled, as the runner names them.
    pub uncollected: Vec<String>,
    /// Whether a compiler failed on them.
    pub is_compile_failure: bool,
}

/// Most failed test names recorded, and characters of each: they are stored inline in an event.
const FAILING_NAMES_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 200;
/// Most names recorded of files that could not be loaded.
const UNCOLLECTED_MAX: usize = 200;

type CountParser = fn(&[&str]) -> Option<TestCounts>;
type TextParser = fn(&[&str]) -> Option<String>;

/// Nextest comes before cargo: it shows cargo's summaries of failed tests.
const COUNT_PARSERS: [CountParser; 10] = [
    rust::nextest_counts,
    rust::cargo_counts,
    python::pytest_counts,
    python::unittest_counts,
    go::parse_counts,
    javascript::vitest_counts,
    javascript::jest_counts,
    javascript::mocha_counts,
    javascript::node_counts,
    tap::parse_counts,
];

const FAILURE_PARSERS: [TextParser; 11] = [
    rust::nextest_failure,
    rust::cargo_failure,
    python::pytest_failure,
    python::unittest_failure,
    go::first_failure,
    javascript::jest_failure,
    javascript::vitest_failure,
    javascript::mocha_failure,
    javascript::node_failure,
    go::build_failure,
    rust::compile_failure,
];

/// Parsers for what was running last: a trace takes precedence over a name.
const RUNNING_PARSERS: [TextParser; 4] =
    [python::pytest_running, rust::cargo_running, python::unittest_running, go::running_tests];

type NameParser = fn(&[&str]) -> Vec<String>;

const FAILING_PARSERS: [NameParser; 8] = [
    rust::cargo_failing,
    python::pytest_failing,
    python::unittest_failing,
    go::failing_tests,
    javascript::vitest_failing,
    javascript::jest_failing,
    javascript::mocha_failing,
    javascript::node_failing,
];

/// Parsers for what could not be loaded; compilers first.
const UNCOLLECTED_PARSERS: [NameParser; 7] = [
    rust::uncompiled_crates,
    go::unbuilt_packages,
    python::pytest_uncollected,
    python::unittest_uncollected,
    javascript::vitest_uncollected,
    javascript::jest_uncollected,
    javascript::node_uncollected,
];
/// Number of compiler parsers among them.
const COMPILER_PARSERS_COUNT: usize = 2;

/// Parses the output (both streams, printable) of any known runner.
#[must_use]
pub fn parse_tests(output: &str) -> TestReport {
    let lines: Vec<&str> = output.lines().collect();
    let (reader, uncollected) = parse_uncollected(&lines);
    TestReport {
        uncollected,
        is_compile_failure: reader.is_some_and(|reader| reader < COMPILER_PARSERS_COUNT),
        counts: COUNT_PARSERS.iter().find_map(|read| read(&lines)),
        first_failure: FAILURE_PARSERS.iter().find_map(|find| find(&lines)),
        running: RUNNING_PARSERS.iter().find_map(|find| find(&lines)),
        failing: parse_failing(&lines),
    }
}

/// What could not be loaded, with the index of the parser that found it. If there are too many names, only their
/// number.
fn parse_uncollected(lines: &[&str]) -> (Option<usize>, Vec<String>) {
    let found =
        UNCOLLECTED_PARSERS.iter().map(|read| read(lines)).enumerate().find(|(_, names)| !names.is_empty());
    let Some((reader, names)) = found else { return (None, Vec::new()) };
    let unique: BTreeSet<String> =
        names.into_iter().map(|name| name.chars().take(NAME_CHARS_MAX).collect()).collect();
    let more = unique.len().saturating_sub(UNCOLLECTED_MAX);
    let mut names: Vec<String> = unique.into_iter().take(UNCOLLECTED_MAX).collect();
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    (Some(reader), names)
}

fn parse_failing(lines: &[&str]) -> Vec<String> {
    let mut names: Vec<String> =
        FAILING_PARSERS.iter().map(|read| read(lines)).find(|names| !names.is_empty()).unwrap_or_default();
    let mut seen = BTreeSet::new();
    names.retain(|name| seen.insert(name.clone()));
    let fits =
        names.len() <= FAILING_NAMES_MAX && names.iter().all(|name| name.chars().count() <= NAME_CHARS_MAX);
    if fits { names } else { Vec::new() }
}
