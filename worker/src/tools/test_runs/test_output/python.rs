//! Parses the output of pytest and unittest.

use std::collections::BTreeSet;

use docket_schema::tool::TestCounts;

use super::text::{count_lines, join_block, number_after, number_before};

/// Words in pytest's last line.
const SUMMARY_WORDS: [&str; 8] =
    ["passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed"];

pub(super) fn pytest_counts(lines: &[&str]) -> Option<TestCounts> {
    let timed = |line: &str| {
        let time = line.rsplit_once(" in ").and_then(|(_, time)| time.split(' ').next()?.strip_suffix('s'));
        time.is_some_and(|time| time.parse::<f64>().is_ok())
    };
    let line = lines.iter().rev().map(|line| line.trim_matches(['=', ' '])).find(|line| {
        timed(line)
            && (line.starts_with("no tests ran")
                || SUMMARY_WORDS.iter().any(|word| number_before(line, word).is_some()))
    })?;
    let of = |word| number_before(line, word).unwrap_or(0);
    Some(TestCounts {
        passed: of("passed") + of("xpassed"),
        failed: of("failed"),
        errors: of("error") + of("errors"),
        skipped: of("skipped") + of("xfailed"),
    })
}

/// Sums all summaries: unittest may have run in several folders in turn.
pub(super) fn unittest_counts(lines: &[&str]) -> Option<TestCounts> {
    let ran = |at: &usize| {
        lines[*at].starts_with("Ran ") && lines[*at].contains(" test") && is_below_rule(lines, *at)
    };
    let ends: Vec<usize> = (0..lines.len()).filter(ran).collect();
    let mut begin = 0;
    let mut sum: Option<TestCounts> = None;
    for at in ends {
        let one = unittest_run_counts(&lines[begin..], at - begin)?;
        let sum = sum.get_or_insert_default();
        sum.passed = sum.passed.saturating_add(one.passed);
        sum.failed = sum.failed.saturating_add(one.failed);
        sum.errors = sum.errors.saturating_add(one.errors);
        sum.skipped = sum.skipped.saturating_add(one.skipped);
        begin = at + 1;
    }
    sum
}

/// Whether a rule line precedes the summary, unlike similar lines printed by tests.
fn is_below_rule(lines: &[&str], at: usize) -> bool {
    at > 0 && lines[at - 1].len() >= 70 && lines[at - 1].bytes().all(|byte| byte == b'-')
}

fn unittest_run_counts(lines: &[&str], ran: usize) -> Option<TestCounts> {
    let total = number_before(&lines[ran].replace("tests", "test"), "test")?;
    let ends = ["OK", "FAILED", "NO TESTS RAN"];
    let end = lines[ran..].iter().find(|line| ends.iter().any(|word| line.starts_with(word)))?;
    let of = |key| number_after(end, key).unwrap_or(0);
    let (expected, unexpected) = (of("expected failures="), of("unexpected successes="));
    // "expected failures=" and "unexpected successes=" contain the names of other keys.
    let failed = number_after(&end.replace("expected failures=", ""), "failures=").unwrap_or(0) + unexpected;
    let (errors, skipped) = (of("errors="), of("skipped=") + expected);
    // Each failed `subTest` counts as a failure although its test counts once, so tests are distinguished by name.
    // Some versions do not count a skipped test as run, so tests reported as passed are counted instead.
    let told = count_lines(&lines[..ran], |line| line.ends_with(" ... ok"));
    let failing = count_failing_tests(&lines[..ran]).saturating_add(unexpected);
    let passed = total.saturating_sub(failing.saturating_add(skipped)).max(told.min(total));
    Some(TestCounts { passed, failed, errors, skipped })
}

/// Counts tests that failed or errored, each once regardless of its subtests; fixtures do not count.
fn count_failing_tests(lines: &[&str]) -> u32 {
    let around = ["setUpClass", "tearDownClass", "setUpModule", "tearDownModule"];
    let heads = unittest_failing(lines);
    let tests: BTreeSet<&str> = heads
        .iter()
        .filter(|head| !around.iter().any(|name| head.starts_with(name)))
        .map(|head| head.split_inclusive(')').next().unwrap_or(head))
        .collect();
    let unexpected = count_lines(lines, |line| line.starts_with("UNEXPECTED SUCCESS: "));
    u32::try_from(tests.len()).unwrap_or(u32::MAX).saturating_sub(unexpected)
}

/// With `faulthandler_timeout` pytest shows what hangs: returns the last test's own lines.
pub(super) fn pytest_running(lines: &[&str]) -> Option<String> {
    let at = lines.iter().rposition(|line| line.starts_with("Timeout (") && line.ends_with(")!"))?;
    let own = |line: &str| {
        line.trim_start().starts_with("File \"")
            && !["/_pytest/", "/pluggy/", "<frozen "].iter().any(|of| line.contains(of))
    };
    // Threads started by the test come first; the one that runs pytest is last.
    let thread = lines[at..].iter().rposition(|line| line.contains("(most recent call first)"))? + at;
    let frames: Vec<&str> = lines[thread + 1..].iter().take_while(|line| own(line)).copied().collect();
    (!frames.is_empty()).then(|| format!("Most recent call first:\n{}", frames.join("\n")))
}

/// The test whose name ends the output.
pub(super) fn unittest_running(lines: &[&str]) -> Option<String> {
    let last = lines.iter().rfind(|line| !line.trim().is_empty())?;
    let name = last.trim_end().strip_suffix(" ...")?;
    name.ends_with(')').then(|| name.to_owned())
}

pub(super) fn pytest_failure(lines: &[&str]) -> Option<String> {
    let titled = |line: &str, title: &str| line.starts_with("==") && line.contains(title);
    let section = lines.iter().position(|line| titled(line, " FAILURES ") || titled(line, " ERRORS "));
    let first = section.and_then(|section| {
        lines[section + 1..].iter().position(|line| line.starts_with("__")).map(|at| section + 1 + at)
    });
    if let Some(first) = first {
        return Some(join_block(lines, first, |line| {
            (line.starts_with("__") && line.ends_with("__")) || line.starts_with("==")
        }));
    }
    // Without traces (`--tb=no`), or if pytest did not run any test.
    let told = |line: &&&str| {
        line.starts_with("FAILED ") && line.contains("::")
            || line.starts_with("ERROR: ") && !line.contains(" (")
    };
    lines.iter().find(told).map(|line| (*line).to_owned())
}

pub(super) fn unittest_failure(lines: &[&str]) -> Option<String> {
    let first = lines.windows(2).position(|two| {
        two[0].starts_with("=====")
            && ["FAIL: ", "ERROR: ", "UNEXPECTED SUCCESS: "].iter().any(|mark| two[1].starts_with(mark))
    })?;
    let text = join_block(lines, first + 1, |line| line.starts_with("====="));
    // The summary follows the last failure.
    let summary = "\n----------------------------------------------------------------------\nRan ";
    Some(text.split(summary).next().unwrap_or(&text).trim_end().to_owned())
}

/// Failed tests by name, from pytest's summary.
pub(super) fn pytest_failing(lines: &[&str]) -> Vec<String> {
    let summary = |line: &&str| line.starts_with("==") && line.contains(" short test summary info ");
    let Some(from) = lines.iter().rposition(summary) else { return Vec::new() };
    let name = |line: &&str| {
        let whole = line.starts_with("SUBFAILED").then_some(*line);
        let rest = line.strip_prefix("FAILED ").or_else(|| line.strip_prefix("ERROR ")).or(whole)?;
        Some(rest.split(" - ").next().unwrap_or(rest).trim().to_owned())
    };
    lines[from..].iter().filter_map(name).collect()
}

/// Failed tests by name, from unittest's output.
pub(super) fn unittest_failing(lines: &[&str]) -> Vec<String> {
    let marks = ["FAIL: ", "ERROR: ", "UNEXPECTED SUCCESS: "];
    let name = |two: &[&str]| {
        let is_head = two[0].starts_with("=====");
        is_head.then(|| marks.iter().find_map(|mark| two[1].strip_prefix(mark))).flatten().map(str::to_owned)
    };
    lines.windows(2).filter_map(name).collect()
}

/// Test files that pytest could not collect: from its headings, and from its summary, where a name without `::` is a
/// file.
pub(super) fn pytest_uncollected(lines: &[&str]) -> Vec<String> {
    let heading = |line: &&str| {
        let text = line.trim_matches(['_', ' ']);
        let name = text.strip_prefix("ERROR collecting ")?;
        line.starts_with('_').then(|| name.to_owned())
    };
    let summary = |line: &&str| line.starts_with("==") && line.contains(" short test summary info ");
    let from = lines.iter().rposition(summary).unwrap_or(lines.len());
    let summed = |line: &&str| {
        let rest = line.strip_prefix("ERROR ")?;
        let name = rest.split(" - ").next().unwrap_or(rest).trim();
        (!name.contains("::")).then(|| name.to_owned())
    };
    lines.iter().filter_map(heading).chain(lines[from..].iter().filter_map(summed)).collect()
}

/// Modules that unittest could not import: it reports each as a failed test.
pub(super) fn unittest_uncollected(lines: &[&str]) -> Vec<String> {
    let is_module = |name: &String| name.contains("unittest.loader._FailedTest");
    unittest_failing(lines).into_iter().filter(is_module).collect()
}
