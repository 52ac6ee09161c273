//! pytest and unittest.

use docket_schema::tool::TestCounts;

use super::text::{after, before, block, count};

/// Words of pytest's last line.
const WORDS: [&str; 8] =
    ["passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed"];

pub(super) fn pytest(lines: &[&str]) -> Option<TestCounts> {
    let timed = |line: &str| {
        let time = line.rsplit_once(" in ").and_then(|(_, time)| time.split(' ').next()?.strip_suffix('s'));
        time.is_some_and(|time| time.parse::<f64>().is_ok())
    };
    let line = lines.iter().rev().map(|line| line.trim_matches(['=', ' '])).find(|line| {
        timed(line)
            && (line.starts_with("no tests ran") || WORDS.iter().any(|word| before(line, word).is_some()))
    })?;
    let of = |word| before(line, word).unwrap_or(0);
    Some(TestCounts {
        passed: of("passed") + of("xpassed"),
        failed: of("failed"),
        errors: of("error") + of("errors"),
        skipped: of("skipped") + of("xfailed"),
    })
}

pub(super) fn unittest(lines: &[&str]) -> Option<TestCounts> {
    let ran = lines.iter().rposition(|line| line.starts_with("Ran ") && line.contains(" test"))?;
    let total = before(&lines[ran].replace("tests", "test"), "test")?;
    let ends = ["OK", "FAILED", "NO TESTS RAN"];
    let end = lines[ran..].iter().find(|line| ends.iter().any(|word| line.starts_with(word)))?;
    let of = |key| after(end, key).unwrap_or(0);
    let expected = of("expected failures=");
    // "expected failures=" and "unexpected successes=" hold other keys' names within theirs.
    let failed =
        after(&end.replace("expected failures=", ""), "failures=").unwrap_or(0) + of("unexpected successes=");
    let (errors, skipped) = (of("errors="), of("skipped=") + expected);
    // Each failed part of a test (`subTest`) counts as a failure, and the test as one that ran: so
    // the difference may be too small, and the tests that were told as passed are counted too.
    let told = count(lines, |line| line.ends_with(" ... ok"));
    Some(TestCounts {
        passed: total
            .saturating_sub(failed.saturating_add(errors).saturating_add(skipped))
            .max(told.min(total)),
        failed,
        errors,
        skipped,
    })
}

pub(super) fn pytest_failure(lines: &[&str]) -> Option<String> {
    let titled = |line: &str, title: &str| line.starts_with("==") && line.contains(title);
    let section = lines.iter().position(|line| titled(line, " FAILURES ") || titled(line, " ERRORS "));
    let first = section.and_then(|section| {
        lines[section + 1..].iter().position(|line| line.starts_with("__")).map(|at| section + 1 + at)
    });
    if let Some(first) = first {
        return Some(block(lines, first, |line| {
            (line.starts_with("__") && line.ends_with("__")) || line.starts_with("==")
        }));
    }
    // Without traces (`--tb=no`), and where pytest does not come to run any test.
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
    let text = block(lines, first + 1, |line| line.starts_with("====="));
    // The last failure is followed by the summary.
    let summary = "\n----------------------------------------------------------------------\nRan ";
    Some(text.split(summary).next().unwrap_or(&text).trim_end().to_owned())
}

/// Tests that failed, by name, as pytest sums them up.
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

/// The same of unittest.
pub(super) fn unittest_failing(lines: &[&str]) -> Vec<String> {
    let marks = ["FAIL: ", "ERROR: ", "UNEXPECTED SUCCESS: "];
    let name = |two: &[&str]| {
        let is_head = two[0].starts_with("=====");
        is_head.then(|| marks.iter().find_map(|mark| two[1].strip_prefix(mark))).flatten().map(str::to_owned)
    };
    lines.windows(2).filter_map(name).collect()
}
