//! Tests the parsers with output of real runners: pytest 9, unittest of Python 3.11, cargo and rustc 1.9x, nextest
//! 0.9, go 1.19, vitest 3, jest 29, mocha 11, node 20. `captured/` has the output as `run_tests` joins it (stdout,
//! then stderr), with paths of the original machine replaced.

use docket_schema::tool::TestCounts;
use proptest::prelude::*;

use super::{TestReport, parse_tests};

/// Expectations for one captured output.
struct Case {
    name: &'static str,
    text: &'static str,
    counts: Option<[u32; 4]>,
    /// Must be in the first failure.
    has: &'static [&'static str],
    /// Must not be in it.
    lacks: &'static [&'static str],
}

macro_rules! case {
    ($name:literal, $counts:expr) => {
        case!($name, $counts, [], [])
    };
    ($name:literal, $counts:expr, $has:expr, $lacks:expr) => {
        Case {
            name: $name,
            text: include_str!(concat!("captured/", $name, ".txt")),
            counts: $counts,
            has: &$has,
            lacks: &$lacks,
        }
    };
}

fn assert_cases(cases: &[Case]) {
    for case in cases {
        let report = parse_tests(case.text);
        let counts = report.counts.map(|c| [c.passed, c.failed, c.errors, c.skipped]);
        assert_eq!(counts, case.counts, "{}: passed, failed, errors, skipped", case.name);
        let failure = report.first_failure.unwrap_or_default();
        assert_eq!(failure.is_empty(), case.has.is_empty(), "{}: {failure}", case.name);
        for has in case.has {
            assert!(failure.contains(has), "{}: lacks {has:?}\n{failure}", case.name);
        }
        for lacks in case.lacks {
            assert!(!failure.contains(lacks), "{}: holds {lacks:?}\n{failure}", case.name);
        }
    }
}

#[test]
fn python_runner_output_is_parsed() {
    assert_cases(&[
        case!("pytest-pass", Some([1, 0, 0, 1])),
        case!(
            "pytest-fail",
            Some([5, 8, 1, 3]),
            ["no database", "test_needs_database"],
            ["-1 == 5", "short test"]
        ),
        case!("pytest-loud", Some([3, 3, 1, 2]), ["no database"], ["-1 == 5"]),
        case!(
            "pytest-imp",
            Some([0, 0, 1, 0]),
            ["No module named 'nowhere'", "test_imp.py:1"],
            ["Interrupted"]
        ),
        case!("pytest-none", Some([0, 0, 0, 0])),
        case!("pytest-path", Some([0, 0, 0, 0]), ["file or directory not found: test_gone.py"], []),
        case!("unittest-pass", Some([1, 0, 0, 1])),
        case!(
            "unittest-fail",
            Some([1, 4, 1, 1]),
            ["ERROR: test_divides", "division by zero"],
            ["-1 != 5", "Ran 6"]
        ),
        case!("unittest-imp", Some([0, 0, 1, 0]), ["No module named 'nowhere'"], ["Ran 1"]),
        case!("unittest-none", Some([0, 0, 0, 0])),
        case!("unittest-slow", None),
    ]);
}

#[test]
fn rust_runner_output_is_parsed() {
    assert_cases(&[
        case!(
            "cargo-fail",
            Some([3, 4, 0, 1]),
            ["tests::adds", "left: -1"],
            ["divide by zero", "tests::divides"]
        ),
        case!(
            "cargo-broken",
            Some([0, 0, 1, 0]),
            ["cannot find value `nope`", "src/lib.rs:2:9"],
            ["could not compile"]
        ),
        case!("cargo-none", Some([0, 0, 0, 0])),
        case!("cargo-slow", None),
        case!("nextest-pass", Some([1, 0, 0, 0])),
        case!(
            "nextest-fail",
            Some([2, 4, 0, 1]),
            ["tests::divides", "attempt to divide by zero"],
            ["tests::panics", "PASS"]
        ),
        case!("nextest-broken", Some([0, 0, 1, 0]), ["cannot find value `nope`"], ["could not compile"]),
        case!("nextest-none", Some([0, 0, 0, 0]), ["no tests to run"], []),
        case!("nextest-slow", None),
    ]);
}

#[test]
fn go_output_is_parsed() {
    assert_cases(&[
        case!("go-pass", Some([1, 0, 0, 0])),
        case!(
            "go-fail",
            Some([1, 2, 1, 1]),
            ["Add(2, 3) = -1, want 5", "TestAdds"],
            ["two is wrong", "TestPasses"]
        ),
        case!("go-broken", Some([0, 0, 1, 0]), ["./calc_test.go:9:2: undefined: nope"], ["FAIL"]),
        case!("go-none", Some([0, 0, 0, 0])),
        case!(
            "go-panic",
            Some([0, 1, 0, 0]),
            ["nil pointer dereference", "calc_test.go:7"],
            ["example.org/calc\t0.004s"]
        ),
        case!(
            "go-timeout",
            Some([1, 0, 1, 0]),
            ["=== RUN   TestWaits", "panic: test timed out after 1s"],
            ["FAIL"]
        ),
        case!("go-slow", Some([1, 0, 0, 0])),
    ]);
}

#[test]
fn javascript_runner_output_is_parsed() {
    assert_cases(&[
        case!("vitest-pass", Some([1, 0, 0, 1])),
        case!(
            "vitest-fail",
            Some([1, 2, 0, 2]),
            ["sums > adds two", "expected -1 to be 5", "calc.test.mjs:10:23"],
            ["reading 'x'"]
        ),
        case!("vitest-imp", Some([1, 0, 1, 0]), ["Cannot find module './gone.js'"], ["Test Files"]),
        case!("vitest-none", Some([0, 0, 0, 0])),
        case!("jest-pass", Some([1, 0, 0, 1])),
        case!(
            "jest-fail",
            Some([1, 2, 0, 2]),
            ["sums › adds two", "Received: -1"],
            ["reading 'x'", "Test Suites"]
        ),
        case!("jest-imp", Some([1, 0, 1, 0]), ["Cannot find module './gone.js'"], ["PASS"]),
        case!("jest-none", Some([0, 0, 0, 0])),
        case!("mocha-pass", Some([1, 0, 0, 1])),
        case!("mocha-fail", Some([1, 2, 0, 1]), ["throws", "reading 'x'"], ["-1 == 5"]),
        case!("mocha-imp", Some([0, 0, 1, 0]), ["Cannot find module '../gone.js'"], []),
        case!("mocha-none", Some([0, 0, 0, 0])),
        case!("mocha-slow", Some([1, 1, 0, 0]), ["Timeout of 2000ms exceeded"], []),
        case!("node-pass", Some([1, 0, 0, 1])),
        case!(
            "node-fail",
            Some([1, 2, 0, 1]),
            ["adds two", "'-1 == 5'", "calc.test.js:11:12"],
            ["throws", "# SKIP"]
        ),
        case!(
            "node-imp",
            Some([1, 1, 0, 0]),
            ["Cannot find module './gone.js'", "calc.test.js"],
            ["# tests"]
        ),
        case!("node-none", Some([0, 0, 0, 0])),
        case!("node-slow", None),
        case!("nodespec-fail", Some([1, 2, 0, 1]), ["adds two", "-1 == 5"], ["throws", "ℹ tests"]),
        case!("nodespec-imp", Some([1, 1, 0, 0]), ["Cannot find module './gone.js'"], ["ℹ tests"]),
    ]);
}

/// Formats that other versions or flags print.
#[test]
fn other_output_forms_are_parsed() {
    let counts = |text: &str| parse_tests(text).counts;
    let of = |passed, failed, errors, skipped| Some(TestCounts { passed, failed, errors, skipped });
    assert_eq!(
        counts("================= 12 passed in 61.20s (0:01:01) =================\n"),
        of(12, 0, 0, 0)
    );
    assert_eq!(counts("2 failed, 3 passed, 1 skipped, 1 xfailed, 1 warning in 0.12s\n"), of(3, 2, 0, 2));
    let bare = parse_tests("FAILED test_x.py::test_a - assert 1 == 2\n1 failed in 0.12s\n");
    assert_eq!(bare.first_failure.as_deref(), Some("FAILED test_x.py::test_a - assert 1 == 2"));
    let console = "  ● Console\n\n    console.log\n      adding\n\n  ● adds\n\n    Expected: 4\n\nTests:       1 failed, 1 total\n";
    assert!(
        parse_tests(console)
            .first_failure
            .is_some_and(|text| text.contains("Expected: 4") && !text.contains("adding"))
    );
}

/// unittest in two folders, with a docstring, noise on stderr, failed subtests, and a summary printed by a test.
#[test]
fn unittest_counts_tests_not_lines() {
    let rule = "-".repeat(70);
    let text = format!(
        "Ran 99 tests in 1s\n\nOK\n\ntest_ok (test_a.T.test_ok)\nDoc line. ... ok\ntest_s (test_a.T.test_s) ... \n\
         test_z (test_a.T.test_z) ... noise\nok\n\n{0}\nFAIL: test_s (test_a.T.test_s) (i=1)\n{rule}\nAssertionError\n\n\
         {0}\nFAIL: test_s (test_a.T.test_s) (i=2)\n{rule}\nAssertionError\n\n{rule}\nRan 3 tests in 0.001s\n\n\
         FAILED (failures=2)\n\n{rule}\nRan 1 test in 0.000s\n\nOK\n",
        "=".repeat(70)
    );
    let counts = parse_tests(&text).counts;
    assert_eq!(counts, Some(TestCounts { passed: 3, failed: 2, errors: 0, skipped: 0 }));
}

#[test]
fn running_test_is_named() {
    for (text, want) in [
        (include_str!("captured/unittest-slow.txt"), Some("test_b (test_slow.S.test_b)")),
        ("test adds ... ok\ntest waits has been running for over 60 seconds\n", Some("waits")),
        ("test waits has been running for over 60 seconds\ntest waits ... ok\n", None),
        ("=== RUN   TestA\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n", Some("TestB")),
        ("", None),
    ] {
        assert_eq!(parse_tests(text).running.as_deref(), want, "{text}");
    }
}

#[test]
fn unrelated_text_has_no_counts() {
    for text in ["", "all good\n", "5 passed the gate\n", "Ran out of memory\n", "Tests are fun\n"] {
        assert_eq!(parse_tests(text).counts, None, "{text}");
    }
}

proptest! {
    #[test]
    fn arbitrary_text_is_parsed_without_panic(
        parts in prop::collection::vec(
            prop_oneof![
                Just("test result: "), Just("--- FAIL: "), Just("Ran "), Just(" tests "), Just("==="), Just("\n"),
                Just("FAILED ("), Just("failures="), Just("9"), Just(" failed"), Just(" in 1s"), Just("  1) "),
                Just("✖ failing tests:"), Just("é"), Just("99999999999 passed"), Just("4294967295 passed"),
                Just("not ok "), Just("'test failed'"), Just("# "), Just(" FAIL  "), Just("panic: "), Just("FAIL\t"),
                Just("Nextest run ID"), Just("FAIL ["), Just("Exception during run: "),
            ],
            0..30,
        )
    ) {
        prop_assert!(parse_tests(&parts.concat()).first_failure.is_none_or(|text| !text.ends_with('\n')));
    }
}

#[test]
fn each_failing_test_is_named_once() {
    for (text, count, some) in [
        (include_str!("captured/pytest-fail.txt"), 9, "test_calc.py::test_many[3]"),
        (include_str!("captured/unittest-fail.txt"), 5, "test_divides (test_unit.Calc.test_divides)"),
        (include_str!("captured/cargo-fail.txt"), 4, "tests::adds"),
        (include_str!("captured/go-fail.txt"), 3, "example.org/calc.TestAdds"),
        (include_str!("captured/go-broken.txt"), 1, "example.org/calc"),
        (include_str!("captured/pytest-imp.txt"), 1, "test_imp.py"),
        (include_str!("captured/jest-fail.txt"), 2, "./calc.test.js › sums › adds two"),
        (include_str!("captured/jest-imp.txt"), 1, "./calc.test.js › Test suite failed to run"),
        (include_str!("captured/vitest-fail.txt"), 2, "calc.test.mjs > sums > adds two"),
        (include_str!("captured/vitest-imp.txt"), 1, "calc.test.mjs [ calc.test.mjs ]"),
        (include_str!("captured/mocha-fail.txt"), 2, "sums > adds two"),
        (include_str!("captured/mocha-slow.txt"), 1, "waits"),
        (include_str!("captured/node-fail.txt"), 2, "/project/calc.test.js > sums > adds two"),
        (include_str!("captured/node-imp.txt"), 1, "/project/calc.test.js > /project/calc.test.js"),
        (include_str!("captured/nodespec-fail.txt"), 2, "calc.test.js > adds two"),
        (include_str!("captured/nodespec-imp.txt"), 1, "calc.test.js > /project/calc.test.js"),
    ] {
        let TestReport { failing, counts, .. } = parse_tests(text);
        assert_eq!(failing.len(), count, "{failing:?}");
        // All of them: the number that the runner counted.
        let counts = counts.map_or(0, |counts| counts.failed + counts.errors);
        assert_eq!(counts as usize, count, "{some}");
        assert!(failing.iter().any(|name| name == some), "{some}: {failing:?}");
    }
    for text in [include_str!("captured/pytest-pass.txt"), include_str!("captured/cargo-none.txt")] {
        assert!(parse_tests(text).failing.is_empty());
    }
    let many: String = (0..60).map(|at| format!("test t{at} ... FAILED\n")).collect();
    assert!(parse_tests(&many).failing.is_empty(), "a part of them would be taken for all");
}
