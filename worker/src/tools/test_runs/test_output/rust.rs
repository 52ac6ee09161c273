//! Parses the output of cargo test and cargo nextest.

use std::collections::BTreeSet;

use docket_schema::tool::TestCounts;

use super::text::{join_block, number_after, number_before};

pub(super) fn cargo_counts(lines: &[&str]) -> Option<TestCounts> {
    let mut sum: Option<TestCounts> = None;
    for line in lines.iter().filter(|line| line.trim_start().starts_with("test result: ")) {
        let counts = sum.get_or_insert_default();
        let add =
            |place: &mut u32, word| *place = place.saturating_add(number_before(line, word).unwrap_or(0));
        add(&mut counts.passed, "passed");
        add(&mut counts.failed, "failed");
        add(&mut counts.skipped, "ignored");
    }
    let broken = u32::try_from(uncompiled_crates(lines).len()).unwrap_or(u32::MAX);
    if broken > 0 {
        sum.get_or_insert_default().errors += broken;
    }
    sum
}

/// Crates that do not compile: each is listed once per target.
pub(super) fn uncompiled_crates(lines: &[&str]) -> Vec<String> {
    let name =
        |line: &&str| line.strip_prefix("error: could not compile `")?.split('`').next().map(str::to_owned);
    let crates: BTreeSet<String> = lines.iter().filter_map(name).collect();
    crates.into_iter().collect()
}

pub(super) fn nextest_counts(lines: &[&str]) -> Option<TestCounts> {
    let run = |line: &&&str| {
        line.contains("Summary [") && (line.contains(" tests run:") || line.contains(" test run:"))
    };
    let line = lines.iter().rev().find(run)?;
    let of = |word| number_before(line, word).unwrap_or(0);
    Some(TestCounts {
        passed: of("passed"),
        failed: of("failed").saturating_add(number_after(line, "timed out ").unwrap_or(0)),
        errors: 0,
        skipped: of("skipped"),
    })
}

/// Whether nextest reports a test on this line, by the line's first word.
fn is_status(line: &str, words: &[&str]) -> bool {
    let line = line.trim_start();
    words.iter().any(|word| line.strip_prefix(word).is_some_and(|rest| rest.trim_start().starts_with('[')))
}

pub(super) fn nextest_failure(lines: &[&str]) -> Option<String> {
    lines.iter().find(|line| line.trim_start().starts_with("Nextest run ID"))?;
    let first =
        lines.iter().position(|line| is_status(line, &["FAIL", "TIMEOUT", "SIGSEGV", "SIGABRT", "ABORT"]))?;
    Some(join_block(lines, first, |line| {
        is_status(line, &["FAIL", "TIMEOUT", "SIGSEGV", "SIGABRT", "ABORT", "PASS", "SLOW", "Summary"])
            || line.starts_with("────────")
    }))
}

pub(super) fn cargo_failure(lines: &[&str]) -> Option<String> {
    let first = lines.iter().position(|line| line.starts_with("---- ") && line.ends_with(" ----"))?;
    Some(join_block(lines, first, |line| line.starts_with("---- ") || line == "failures:"))
}

pub(super) fn compile_failure(lines: &[&str]) -> Option<String> {
    let first = lines.iter().position(|line| line.starts_with("error[E") || line.starts_with("error: "))?;
    Some(join_block(lines, first, |line| line.trim().is_empty()))
}

/// Failed tests by name.
pub(super) fn cargo_failing(lines: &[&str]) -> Vec<String> {
    let name = |line: &&str| line.strip_prefix("test ")?.strip_suffix(" ... FAILED").map(str::to_owned);
    lines.iter().filter_map(name).collect()
}

/// A test that libtest reports as slow and not as finished.
pub(super) fn cargo_running(lines: &[&str]) -> Option<String> {
    let slow = lines.iter().filter_map(|line| {
        let name = line.strip_prefix("test ")?.split_once(" has been running for over ")?.0;
        let ended = lines.iter().any(|line| line.starts_with(&format!("test {name} ... ")));
        (!ended).then_some(name)
    });
    let names: Vec<&str> = slow.collect();
    (!names.is_empty()).then(|| names.join("\n"))
}
