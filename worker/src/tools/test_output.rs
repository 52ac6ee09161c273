//! Reads what test runners print: counts and the first failure. Never says whether tests passed:
//! that is the exit status's word.

use docket_schema::tool::TestCounts;

/// What could be read from a runner's output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TestReport {
    /// The runner's counts.
    pub counts: Option<TestCounts>,
    /// The first failure, with its trace.
    pub first_failure: Option<String>,
}

/// Reads the output (both streams, printable) of any runner we know.
#[must_use]
pub fn parse_tests(output: &str) -> TestReport {
    let lines: Vec<&str> = output.lines().collect();
    let readers = [cargo, nextest, pytest, unittest, go, vitest, jest, mocha, node];
    let counts = readers.iter().find_map(|read| read(&lines));
    let finders = [cargo_failure, pytest_failure, unittest_failure, go_failure, js_failure, compile_failure];
    TestReport { counts, first_failure: finders.iter().find_map(|find| find(&lines)) }
}

/// The number directly before `word` in `text`: `2 failed`.
fn before(text: &str, word: &str) -> Option<u32> {
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c == ',' || c == ';' || c == '(' || c == ')')
        .filter(|w| !w.is_empty())
        .collect();
    words.windows(2).find(|two| two[1] == word).and_then(|two| two[0].parse().ok())
}

/// The number after `key` in `text`: `failures=1`.
fn after(text: &str, key: &str) -> Option<u32> {
    let rest = &text[text.find(key)? + key.len()..];
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

fn cargo(lines: &[&str]) -> Option<TestCounts> {
    let mut sum: Option<TestCounts> = None;
    for line in lines.iter().filter(|line| line.trim_start().starts_with("test result: ")) {
        let counts = sum.get_or_insert_default();
        counts.passed += before(line, "passed").unwrap_or(0);
        counts.failed += before(line, "failed").unwrap_or(0);
        counts.skipped += before(line, "ignored").unwrap_or(0);
    }
    let broken = lines.iter().filter(|line| line.starts_with("error: could not compile")).count();
    if broken > 0 {
        sum.get_or_insert_default().errors += u32::try_from(broken).unwrap_or(u32::MAX);
    }
    sum
}

fn nextest(lines: &[&str]) -> Option<TestCounts> {
    let line = lines.iter().rev().find(|line| line.contains("Summary [") && line.contains("tests run:"))?;
    Some(TestCounts {
        passed: before(line, "passed").unwrap_or(0),
        failed: before(line, "failed").unwrap_or(0) + after(line, "timed out ").unwrap_or(0),
        errors: 0,
        skipped: before(line, "skipped").unwrap_or(0),
    })
}

fn pytest(lines: &[&str]) -> Option<TestCounts> {
    let line = lines.iter().rev().map(|line| line.trim_matches(['=', ' '])).find(|line| {
        let timed = line.rsplit_once(" in ").is_some_and(|(_, time)| {
            time.split(' ')
                .next()
                .is_some_and(|t| t.strip_suffix('s').is_some_and(|t| t.parse::<f64>().is_ok()))
        });
        let words = ["passed", "failed", "error", "errors", "skipped", "deselected", "xfailed", "xpassed"];
        timed && (line.starts_with("no tests ran") || words.iter().any(|word| before(line, word).is_some()))
    })?;
    let count = |word| before(line, word).unwrap_or(0);
    Some(TestCounts {
        passed: count("passed") + count("xpassed"),
        failed: count("failed"),
        errors: count("error") + count("errors"),
        skipped: count("skipped") + count("xfailed"),
    })
}

fn unittest(lines: &[&str]) -> Option<TestCounts> {
    let ran = lines.iter().rposition(|line| line.starts_with("Ran ") && line.contains(" test"))?;
    let total = before(&lines[ran].replace("tests", "test"), "test")?;
    let end = lines[ran..]
        .iter()
        .find(|line| ["OK", "FAILED", "NO TESTS RAN"].iter().any(|w| line.starts_with(w)))?;
    let count = |key| after(end, key).unwrap_or(0);
    let expected = count("expected failures=");
    // "expected failures=" and "unexpected successes=" hold other keys' names within theirs.
    let failed = after(&end.replace("expected failures=", ""), "failures=").unwrap_or(0)
        + count("unexpected successes=");
    let (errors, skipped) = (count("errors="), count("skipped=") + expected);
    Some(TestCounts { passed: total.saturating_sub(failed + errors + skipped), failed, errors, skipped })
}

fn go(lines: &[&str]) -> Option<TestCounts> {
    let count = |mark: &str| {
        u32::try_from(lines.iter().filter(|line| line.starts_with(mark)).count()).unwrap_or(u32::MAX)
    };
    let broken = lines
        .iter()
        .filter(|line| {
            line.starts_with("FAIL\t")
                && (line.ends_with("[build failed]") || line.ends_with("[setup failed]"))
        })
        .count();
    let counts = TestCounts {
        passed: count("--- PASS: "),
        failed: count("--- FAIL: "),
        errors: u32::try_from(broken).unwrap_or(u32::MAX),
        skipped: count("--- SKIP: "),
    };
    (counts.total() > 0).then_some(counts)
}

fn vitest(lines: &[&str]) -> Option<TestCounts> {
    let line = lines.iter().rev().map(|line| line.trim()).find(|line| {
        line.strip_prefix("Tests ").is_some_and(|rest| rest.ends_with(')') && rest.contains(" ("))
    })?;
    let suites = lines.iter().rev().map(|line| line.trim()).find(|line| line.starts_with("Test Files "));
    let failed = before(line, "failed").unwrap_or(0);
    // A file that does not load fails without a test of its own.
    let errors = if failed == 0 { suites.and_then(|line| before(line, "failed")).unwrap_or(0) } else { 0 };
    Some(TestCounts {
        passed: before(line, "passed").unwrap_or(0),
        failed,
        errors,
        skipped: before(line, "skipped").unwrap_or(0) + before(line, "todo").unwrap_or(0),
    })
}

fn jest(lines: &[&str]) -> Option<TestCounts> {
    let line = lines.iter().rev().find(|line| line.starts_with("Tests:") && line.contains(" total"))?;
    let suites = lines.iter().rev().find(|line| line.starts_with("Test Suites:"));
    let failed = before(line, "failed").unwrap_or(0);
    let errors = if failed == 0 { suites.and_then(|line| before(line, "failed")).unwrap_or(0) } else { 0 };
    Some(TestCounts {
        passed: before(line, "passed").unwrap_or(0),
        failed,
        errors,
        skipped: before(line, "skipped").unwrap_or(0) + before(line, "todo").unwrap_or(0),
    })
}

fn mocha(lines: &[&str]) -> Option<TestCounts> {
    let count = |word: &str| {
        lines.iter().map(|line| line.trim()).find_map(|line| {
            let (number, rest) = line.split_once(' ')?;
            (rest == word || rest.strip_prefix(word).is_some_and(|rest| rest.starts_with(" (")))
                .then(|| number.parse().ok())?
        })
    };
    let passed = count("passing");
    let failed = count("failing");
    (passed.is_some() || failed.is_some()).then(|| TestCounts {
        passed: passed.unwrap_or(0),
        failed: failed.unwrap_or(0),
        errors: 0,
        skipped: count("pending").unwrap_or(0),
    })
}

fn node(lines: &[&str]) -> Option<TestCounts> {
    let count = |word: &str| {
        lines.iter().rev().find_map(|line| {
            let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
            rest.strip_prefix(word)?.trim().parse::<u32>().ok()
        })
    };
    count("tests ")?;
    Some(TestCounts {
        passed: count("pass ")?,
        failed: count("fail ")?,
        errors: count("cancelled ").unwrap_or(0),
        skipped: count("skipped ").unwrap_or(0) + count("todo ").unwrap_or(0),
    })
}

/// The lines from `first` up to the next line that `ends`.
fn block(lines: &[&str], first: usize, ends: impl Fn(&str) -> bool) -> String {
    let last = lines[first + 1..].iter().position(|line| ends(line)).map_or(lines.len(), |at| first + 1 + at);
    lines[first..last].join("\n").trim_end().to_owned()
}

fn cargo_failure(lines: &[&str]) -> Option<String> {
    let first = lines.iter().position(|line| line.starts_with("---- ") && line.ends_with(" ----"))?;
    Some(block(lines, first, |line| line.starts_with("---- ") || line == "failures:"))
}

fn pytest_failure(lines: &[&str]) -> Option<String> {
    let titled = |line: &str, title: &str| line.starts_with("==") && line.contains(title);
    let section = lines.iter().position(|line| titled(line, " FAILURES ") || titled(line, " ERRORS "))?;
    let first = section + 1 + lines[section + 1..].iter().position(|line| line.starts_with("__"))?;
    Some(block(lines, first, |line| {
        (line.starts_with("__") && line.ends_with("__")) || line.starts_with("==")
    }))
}

fn unittest_failure(lines: &[&str]) -> Option<String> {
    let first = lines.windows(2).position(|two| {
        two[0].starts_with("=====") && (two[1].starts_with("FAIL: ") || two[1].starts_with("ERROR: "))
    })?;
    let text = block(lines, first + 1, |line| line.starts_with("====="));
    // The last failure is followed by the summary.
    Some(
        text.split("\n----------------------------------------------------------------------\nRan ")
            .next()
            .unwrap_or(&text)
            .trim_end()
            .to_owned(),
    )
}

fn go_failure(lines: &[&str]) -> Option<String> {
    let end = lines.iter().position(|line| line.trim_start().starts_with("--- FAIL: "))?;
    let name = lines[end].trim_start().strip_prefix("--- FAIL: ")?.split(' ').next()?;
    let start = lines[..end].iter().rposition(|line| line.trim_end() == format!("=== RUN   {name}"));
    let text = block(lines, end, |line| {
        line.starts_with("=== ") || line.starts_with("--- ") || line.starts_with("FAIL")
    });
    Some(match start {
        Some(start) => {
            format!("{}\n{text}", lines[start + 1..end].join("\n")).trim_start_matches('\n').to_owned()
        }
        None => text,
    })
}

fn js_failure(lines: &[&str]) -> Option<String> {
    let at = |is: fn(&str) -> bool| lines.iter().position(|line| is(line));
    if let Some(first) = at(|line| line.starts_with("  ● ")) {
        return Some(block(lines, first, |line| {
            line.starts_with("  ● ") || line.starts_with("Test Suites:")
        }));
    }
    if let Some(first) = at(|line| line.trim_start().starts_with("FAIL ") && line.contains(" > ")) {
        let ends = |line: &str| line.contains("⎯⎯⎯") || line.trim_start().starts_with("FAIL ");
        return Some(block(lines, first, ends));
    }
    if let Some(first) = at(|line| line.trim_start().starts_with("not ok ")) {
        let ends = |line: &str| {
            line.trim_start().starts_with("ok ")
                || line.trim_start().starts_with("not ok ")
                || line.starts_with("# ")
        };
        return Some(block(lines, first, ends));
    }
    if let Some(first) = at(|line| line == "✖ failing tests:") {
        let ends = |line: &str| line.trim().is_empty();
        let body = (first + 1..lines.len()).find(|at| !lines[*at].trim().is_empty())?;
        return Some(block(lines, body, ends));
    }
    // Mocha numbers its failures again below the summary.
    let summary = lines.iter().position(|line| line.trim().ends_with(" failing"))?;
    let first = (summary..lines.len()).find(|at| lines[*at].starts_with("  1) "))?;
    Some(block(lines, first, |line| line.starts_with("  2) ")))
}

fn compile_failure(lines: &[&str]) -> Option<String> {
    let first = lines.iter().position(|line| line.starts_with("error[E") || line.starts_with("error: "))?;
    Some(block(lines, first, |line| line.trim().is_empty()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(output: &str, passed: u32, failed: u32, errors: u32, skipped: u32, failure: &str, absent: &str) {
        let report = parse_tests(output);
        assert_eq!(report.counts, Some(TestCounts { passed, failed, errors, skipped }), "{output}");
        let text = report.first_failure.unwrap_or_default();
        assert!(text.contains(failure) && (absent.is_empty() || !text.contains(absent)), "{text}");
    }

    #[test]
    fn cargo_test() {
        let output = "running 3 tests\ntest a ... ok\ntest b ... FAILED\ntest c ... FAILED\n\nfailures:\n\n---- b stdout ----\n\n\
            thread 'b' panicked at src/lib.rs:9:5:\nassertion `left == right` failed\n  left: 1\n right: 2\n\n---- c stdout ----\n\
            second\n\n\nfailures:\n    b\n    c\n\ntest result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n\n\
            running 2 tests\ntest result: ok. 1 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n";
        check(output, 2, 2, 0, 1, "left: 1", "second");
        let broken = "error[E0425]: cannot find value `x` in this scope\n --> src/lib.rs:1:1\n\nerror: could not compile `a` (lib test) due to 1 previous error\n";
        check(broken, 0, 0, 1, 0, "cannot find value `x`", "could not compile");
    }

    #[test]
    fn pytest_in_its_forms() {
        let output = "..F.F\n=================================== FAILURES ===================================\n\
            ___________________________________ test_a ___________________________________\n\n    def test_a():\n\
            >       assert 1 == 2\nE       assert 1 == 2\n\ntest_x.py:4: AssertionError\n\
            ___________________________________ test_b ___________________________________\nsecond\n\
            =========================== short test summary info ============================\n\
            FAILED test_x.py::test_a - assert 1 == 2\n2 failed, 3 passed, 1 skipped, 1 xfailed, 1 warning in 0.12s\n";
        check(output, 3, 2, 0, 2, "E       assert 1 == 2", "second");
        let broken = "==================================== ERRORS ====================================\n\
            ________________________ ERROR collecting test_x.py _________________________\nE   ModuleNotFoundError: No module named 'q'\n\
            =========================== short test summary info ============================\nERROR test_x.py\n1 error in 0.05s\n";
        check(broken, 0, 0, 1, 0, "ModuleNotFoundError", "");
        check("================= 12 passed in 61.20s (0:01:01) =================\n", 12, 0, 0, 0, "", "");
        check("no tests ran in 0.01s\n", 0, 0, 0, 0, "", "");
    }

    #[test]
    fn unittest_with_every_kind_of_end() {
        let output = "======================================================================\nFAIL: test_a (t.T.test_a)\n\
            ----------------------------------------------------------------------\nTraceback (most recent call last):\nAssertionError: 1 != 2\n\n\
            ----------------------------------------------------------------------\nRan 6 tests in 0.001s\n\n\
            FAILED (failures=1, errors=1, skipped=1, expected failures=1)\n";
        check(output, 2, 1, 1, 2, "1 != 2", "Ran 6");
        check("Ran 1 test in 0.000s\n\nOK\n", 1, 0, 0, 0, "", "");
    }

    #[test]
    fn go_test() {
        let output = "=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:7: want 1, got 2\n--- FAIL: TestB (0.00s)\n\
            === RUN   TestC\n--- SKIP: TestC (0.00s)\nFAIL\nFAIL\tm\t0.002s\nFAIL\tn [build failed]\n";
        check(output, 1, 1, 1, 1, "want 1, got 2", "TestC");
    }

    #[test]
    fn javascript_runners() {
        let vitest = " FAIL  a.test.ts > adds\nAssertionError: expected 3 to be 4\n ❯ a.test.ts:4:3\n⎯⎯⎯⎯[1/1]⎯\n\n Test Files  1 failed (1)\n      Tests  1 failed | 2 passed | 1 skipped (4)\n";
        check(vitest, 2, 1, 0, 1, "expected 3 to be 4", "Test Files");
        let jest = "FAIL ./a.test.js\n  ● adds\n\n    Expected: 4\n    Received: 3\n\n  ● other\n    second\n\nTest Suites: 1 failed, 1 total\nTests:       2 failed, 1 todo, 3 passed, 6 total\n";
        check(jest, 3, 2, 0, 1, "Received: 3", "second");
        let mocha = "  sum\n    ✔ adds\n    1) subtracts\n\n  1 passing (4ms)\n  1 pending\n  1 failing\n\n  1) sum\n       subtracts:\n     AssertionError: 1 == 2\n";
        check(mocha, 1, 1, 0, 1, "AssertionError: 1 == 2", "");
        let tap = "TAP version 13\nok 1 - a\nnot ok 2 - b\n  ---\n  error: 'boom'\n  ...\n1..2\n# tests 2\n# suites 0\n# pass 1\n# fail 1\n# cancelled 0\n# skipped 0\n# todo 0\n";
        check(tap, 1, 1, 0, 0, "error: 'boom'", "# tests");
        let spec = "✔ a (0.5ms)\n✖ b (0.4ms)\nℹ tests 2\nℹ pass 1\nℹ fail 1\nℹ skipped 0\n\n✖ failing tests:\n\ntest at t.js:3:1\n✖ b (0.4ms)\n  AssertionError: boom\n";
        check(spec, 1, 1, 0, 0, "AssertionError: boom", "");
    }

    #[test]
    fn other_text_has_no_counts() {
        for text in ["", "all good\n", "5 passed the gate\n", "Ran out of memory\n", "Tests are fun\n"] {
            assert_eq!(parse_tests(text).counts, None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_can_be_read(
            parts in prop::collection::vec(
                prop_oneof![
                    Just("test result: "), Just("--- FAIL: "), Just("Ran "), Just(" tests "), Just("==="), Just("\n"),
                    Just("FAILED ("), Just("failures="), Just("9"), Just(" failed"), Just(" in 1s"), Just("  1) "),
                    Just("✖ failing tests:"), Just("é"), Just("99999999999 passed"),
                ],
                0..30,
            )
        ) {
            prop_assert!(parse_tests(&parts.concat()).first_failure.is_none_or(|text| !text.ends_with('\n')));
        }
    }
}
