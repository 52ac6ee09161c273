//! What could be read of a runner's output, whichever runner it was: a project's own line may start
//! any of them, so each reader looks for its own marks and the first that finds them is believed.

use std::collections::BTreeSet;

use docket_schema::tool::TestCounts;

use super::{go, javascript, python, rust, tap};

/// What could be read from a runner's output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestReport {
    /// The runner's counts; all 0 where it said that there are no tests.
    pub counts: Option<TestCounts>,
    /// The first failure, with its trace.
    pub first_failure: Option<String>,
    /// What was running where the output ends; it means something only of a run that was ended.
    pub running: Option<String>,
    /// Names of the tests that failed, each once, in their order; none where there are more than a fact may hold.
    pub failing: Vec<String>,
    /// Files, modules or packages with tests that could not be loaded or compiled, as the runner names them.
    pub uncollected: Vec<String>,
    /// It is a compiler that failed on them.
    pub is_compile_failure: bool,
}

/// Names of failing tests that are noted, and characters of each: they stand inline in an event.
const FAILING_NAMES_MAX: usize = 50;
const NAME_CHARS_MAX: usize = 200;
/// Names of what could not be loaded that are noted.
const UNCOLLECTED_MAX: usize = 200;

type CountParser = fn(&[&str]) -> Option<TestCounts>;
type TextParser = fn(&[&str]) -> Option<String>;

/// Nextest goes before cargo: it shows cargo's summaries of the tests that failed.
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

/// What was running last: a trace goes before a name.
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

/// Readers of what could not be loaded; those of compilers first.
const UNCOLLECTED_PARSERS: [NameParser; 7] = [
    rust::uncompiled_crates,
    go::unbuilt_packages,
    python::pytest_uncollected,
    python::unittest_uncollected,
    javascript::vitest_uncollected,
    javascript::jest_uncollected,
    javascript::node_uncollected,
];
/// How many of them are of compilers.
const COMPILER_PARSERS_COUNT: usize = 2;

/// Reads the output (both streams, printable) of any runner we know.
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

/// What could not be loaded, and which reader found it. Where there is more than is noted, its number is.
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
