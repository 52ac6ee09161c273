//! Parses the output of vitest, jest, mocha and `node --test`.

use docket_schema::tool::TestCounts;

use super::text::{count_lines, join_block, number_after, number_before};

/// A runner that found no test file prints a message and no counts.
fn zero_if_no_tests(lines: &[&str], says: &str) -> Option<TestCounts> {
    lines.iter().any(|line| line.trim_start().starts_with(says)).then(TestCounts::default)
}

fn skipped_count(line: &str) -> u32 {
    number_before(line, "skipped").unwrap_or(0).saturating_add(number_before(line, "todo").unwrap_or(0))
}

pub(super) fn vitest_counts(lines: &[&str]) -> Option<TestCounts> {
    let told = lines.iter().rev().map(|line| line.trim()).find(|line| {
        line.strip_prefix("Tests ")
            .is_some_and(|rest| rest.ends_with(')') && rest.contains(" (") || rest.trim() == "no tests")
    });
    let Some(line) = told else { return zero_if_no_tests(lines, "No test files found, exiting") };
    // A file that does not load fails without a test of its own.
    let errors = lines.iter().find_map(|line| number_after(line, " Failed Suites ")).unwrap_or(0);
    Some(TestCounts {
        passed: number_before(line, "passed").unwrap_or(0),
        failed: number_before(line, "failed").unwrap_or(0),
        errors,
        skipped: skipped_count(line),
    })
}

pub(super) fn jest_counts(lines: &[&str]) -> Option<TestCounts> {
    let told = lines.iter().rev().find(|line| line.starts_with("Tests:") && line.contains(" total"));
    let Some(line) = told else { return zero_if_no_tests(lines, "No tests found, exiting") };
    let unloaded = count_lines(lines, |line| line == SUITE_FAILED);
    Some(TestCounts {
        passed: number_before(line, "passed").unwrap_or(0),
        failed: number_before(line, "failed").unwrap_or(0),
        errors: unloaded,
        skipped: skipped_count(line),
    })
}

const SUITE_FAILED: &str = "  ● Test suite failed to run";

pub(super) fn mocha_counts(lines: &[&str]) -> Option<TestCounts> {
    let of = |word: &str| {
        lines.iter().map(|line| line.trim()).find_map(|line| {
            let (number, rest) = line.split_once(' ')?;
            (rest == word || rest.strip_prefix(word).is_some_and(|rest| rest.starts_with(" (")))
                .then(|| number.parse().ok())?
        })
    };
    let (passed, failed) = (of("passing"), of("failing"));
    if passed.is_none() && failed.is_none() {
        if find_load_exception(lines).is_some() {
            return Some(TestCounts { errors: 1, ..TestCounts::default() });
        }
        return zero_if_no_tests(lines, "Error: No test files found");
    }
    Some(TestCounts {
        passed: passed.unwrap_or(0),
        failed: failed.unwrap_or(0),
        errors: 0,
        skipped: of("pending").unwrap_or(0),
    })
}

/// Finds the line where mocha reports that a test file does not load.
fn find_load_exception(lines: &[&str]) -> Option<usize> {
    lines.iter().position(|line| line.trim_start().starts_with("Exception during run: "))
}

pub(super) fn node_counts(lines: &[&str]) -> Option<TestCounts> {
    let of = |word: &str| {
        lines.iter().rev().find_map(|line| {
            let rest = line.strip_prefix("# ").or_else(|| line.strip_prefix("ℹ "))?;
            rest.strip_prefix(word)?.trim().parse::<u32>().ok()
        })
    };
    of("tests ")?;
    Some(TestCounts {
        passed: of("pass ")?,
        failed: of("fail ")?,
        errors: of("cancelled ").unwrap_or(0),
        skipped: of("skipped ").unwrap_or(0).saturating_add(of("todo ").unwrap_or(0)),
    })
}

pub(super) fn jest_failure(lines: &[&str]) -> Option<String> {
    // Tests' own output has a separate bullet before the failures.
    let is_failure = |line: &str| line.starts_with("  ● ") && line != "  ● Console";
    let first = lines.iter().position(|line| is_failure(line))?;
    let ends = |line: &str| {
        line.starts_with("  ● ")
            || ["Test Suites:", "PASS ", "FAIL ", "Summary of all failing tests"]
                .iter()
                .any(|mark| line.starts_with(mark))
    };
    Some(join_block(lines, first, ends))
}

pub(super) fn vitest_failure(lines: &[&str]) -> Option<String> {
    let is_failure = |line: &str| line.starts_with(" FAIL  ");
    let first = lines.iter().position(|line| is_failure(line))?;
    Some(join_block(lines, first, |line| line.contains("⎯⎯⎯") || is_failure(line)))
}

/// Mocha numbers its failures again below the summary.
pub(super) fn mocha_failure(lines: &[&str]) -> Option<String> {
    if let Some(first) = find_load_exception(lines) {
        return Some(join_block(lines, first, |line| line.trim().is_empty()));
    }
    let summary = lines.iter().position(|line| line.trim().ends_with(" failing"))?;
    let first = (summary..lines.len()).find(|at| lines[*at].starts_with("  1) "))?;
    Some(join_block(lines, first, |line| line.starts_with("  2) ")))
}

pub(super) fn node_failure(lines: &[&str]) -> Option<String> {
    let is_not_ok = |line: &str| line.trim_start().starts_with("not ok ");
    if let Some(first) = lines.iter().position(|line| is_not_ok(line)) {
        let ends = |line: &str| {
            let line = line.trim_start();
            line.starts_with("ok ")
                || line.starts_with("not ok ")
                || line.starts_with("# ")
                || line.starts_with("1..")
        };
        return Some(with_load_error(lines, first, join_block(lines, first, ends)));
    }
    let first = lines.iter().position(|line| *line == "✖ failing tests:")?;
    let body = (first + 1..lines.len()).find(|at| !lines[*at].trim().is_empty())?;
    let text = join_block(lines, body, |line| line.trim().is_empty() || line.starts_with("test at "));
    let named = lines.iter().position(|line| line.starts_with("✖ ")).unwrap_or(first);
    Some(with_load_error(lines, named, text))
}

/// A file that does not load is reported as `test failed`; the reason comes before that.
fn with_load_error(lines: &[&str], at: usize, text: String) -> String {
    if !text.contains("'test failed'") {
        return text;
    }
    let said = |line: &&str| {
        let line = line.strip_prefix("# ").unwrap_or(line);
        !line.starts_with("Subtest: ")
            && !line.starts_with("✔ ")
            && line.trim() != "..."
            && !line.starts_with("1..")
    };
    let from = lines[..at]
        .iter()
        .rposition(|line| line.trim() == "..." || line.starts_with("✔ ") || line.starts_with("✖ "));
    let why: Vec<&str> = lines[from.map_or(0, |from| from + 1)..at].iter().copied().filter(said).collect();
    format!("{text}\n{}", why.join("\n").trim()).trim_end().to_owned()
}

/// Per file, because names repeat across files. The summary of all failures repeats those above it.
pub(super) fn jest_failing(lines: &[&str]) -> Vec<String> {
    let (mut file, mut names) = ("", Vec::new());
    for line in lines {
        if let Some(path) = line.strip_prefix("FAIL ") {
            file = path.split(" (").next().unwrap_or(path).trim();
        } else if let Some(name) =
            line.strip_prefix("  ● ").filter(|name| *name != "Console" && !file.is_empty())
        {
            names.push(format!("{file} › {}", name.trim_end()));
        }
    }
    names
}

pub(super) fn vitest_failing(lines: &[&str]) -> Vec<String> {
    lines
        .iter()
        .filter_map(|line| line.strip_prefix(" FAIL  "))
        .map(|name| name.trim_end().to_owned())
        .collect()
}

/// Below the summary: a number, and the suites down to the test, whose name ends in a colon.
pub(super) fn mocha_failing(lines: &[&str]) -> Vec<String> {
    let Some(summary) = lines.iter().position(|line| line.trim().ends_with(" failing")) else {
        return Vec::new();
    };
    let (mut names, mut open) = (Vec::new(), None::<Vec<&str>>);
    for line in &lines[summary..] {
        let number = line.trim_start().split_once(") ").filter(|(number, _)| number.parse::<u32>().is_ok());
        let part = match (number, &open) {
            (Some((_, first)), None) if line.starts_with("  ") => first,
            (None, Some(_)) => line.trim(),
            _ => continue,
        };
        let mut parts = open.take().unwrap_or_default();
        match part.strip_suffix(':') {
            Some(last) => {
                parts.push(last);
                names.push(parts.join(" > "));
            }
            // A name never contains an empty line: this was not a failure.
            None if part.is_empty() => {}
            None => {
                parts.push(part);
                open = Some(parts);
            }
        }
    }
    names
}

/// TAP: a subtest's name comes before its contents. A suite fails because of its tests and is not counted itself.
pub(super) fn node_failing(lines: &[&str]) -> Vec<String> {
    let mut names = Vec::new();
    let mut above: Vec<(usize, &str)> = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let (text, depth) = (line.trim_start(), line.len() - line.trim_start().len());
        if let Some(name) = text.strip_prefix("# Subtest: ") {
            above.retain(|(of, _)| *of < depth);
            above.push((depth, name));
        } else if text.starts_with("not ok ") {
            let own = lines[at + 1..].iter().take_while(|line| line.trim() != "...");
            let is_suite = own.clone().any(|line| line.trim() == "failureType: 'subtestsFailed'");
            let file = own.clone().find_map(|line| line.trim().strip_prefix("location: '"));
            let file = file.map_or("", |place| place.split(':').next().unwrap_or(place));
            let parts = above.iter().filter(|(of, _)| *of <= depth).map(|(_, name)| *name);
            if !is_suite {
                names.push(std::iter::once(file).chain(parts).collect::<Vec<_>>().join(" > "));
            }
        }
    }
    if names.is_empty() { spec_failing(lines) } else { names }
}

/// The list at the end of node's own report: a test's location, and its name on the next line.
fn spec_failing(lines: &[&str]) -> Vec<String> {
    let Some(from) = lines.iter().position(|line| *line == "✖ failing tests:") else { return Vec::new() };
    let pairs = lines[from..].windows(2).filter_map(|pair| match pair {
        [place, name] => Some((place.strip_prefix("test at ")?, name.strip_prefix("✖ ")?)),
        _ => None,
    });
    pairs
        .map(|(place, name)| {
            let file = place.split(':').next().unwrap_or(place);
            let name = name.rsplit_once(" (").map_or(name, |(name, _)| name);
            format!("{file} > {name}")
        })
        .collect()
}

/// Files that vitest could not load: it names each twice, the second time in brackets.
pub(super) fn vitest_uncollected(lines: &[&str]) -> Vec<String> {
    let is_file = |name: &String| name.ends_with(" ]") && name.contains(" [ ");
    vitest_failing(lines).into_iter().filter(is_file).collect()
}

pub(super) fn jest_uncollected(lines: &[&str]) -> Vec<String> {
    let is_file = |name: &String| name.ends_with(" › Test suite failed to run");
    jest_failing(lines).into_iter().filter(is_file).collect()
}

/// Files that node could not load. A file without tests counts as a test that may fail: it did not run only if node
/// reports that it could not load something.
pub(super) fn node_uncollected(lines: &[&str]) -> Vec<String> {
    let marks = ["Cannot find module ", "Cannot find package ", "SyntaxError: ", "ERR_MODULE_NOT_FOUND"];
    if !lines.iter().any(|line| marks.iter().any(|mark| line.contains(mark))) {
        return Vec::new();
    }
    let is_file = |name: &String| {
        let (file, test) = name.split_once(" > ").unwrap_or((name, ""));
        !test.is_empty() && (test == file || test.ends_with(&format!("/{file}")))
    };
    node_failing(lines).into_iter().filter(is_file).collect()
}
