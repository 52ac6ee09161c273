//! Parses the output of `go test -v`.

use docket_schema::tool::TestCounts;

use super::text::{count_lines, join_block};

/// Counts top-level tests only: subtests are indented below them and belong to them.
pub(super) fn parse_counts(lines: &[&str]) -> Option<TestCounts> {
    let of = |mark: &str| count_lines(lines, |line| line.starts_with(mark));
    let package = |line: &str| line.starts_with("FAIL\t");
    let unbuilt =
        |line: &str| package(line) && (line.ends_with("[build failed]") || line.ends_with("[setup failed]"));
    let broken = count_lines(lines, unbuilt);
    let failed = of("--- FAIL: ");
    // A package that failed without a failed test crashed: by its time limit or a panic outside of any test.
    let died = if failed == 0 { count_lines(lines, package).saturating_sub(broken) } else { 0 };
    let counts = TestCounts {
        passed: of("--- PASS: "),
        failed,
        errors: broken.saturating_add(died),
        skipped: of("--- SKIP: "),
    };
    let none = lines.iter().any(|line| line.starts_with("?   \t") && line.ends_with("[no test files]"));
    (counts.total() > 0 || none).then_some(counts)
}

pub(super) fn first_failure(lines: &[&str]) -> Option<String> {
    let Some(end) = lines.iter().position(|line| line.starts_with("--- FAIL: ")) else {
        return panic_output(lines);
    };
    let name = lines[end].strip_prefix("--- FAIL: ")?.split(' ').next()?;
    let start = lines[..end].iter().rposition(|line| line.trim_end() == format!("=== RUN   {name}"));
    let text = join_block(lines, end, |line| {
        line.starts_with("=== ") || line.starts_with("--- ") || line.starts_with("FAIL")
    });
    Some(match start {
        Some(start) => {
            format!("{}\n{text}", lines[start + 1..end].join("\n")).trim_start_matches('\n').to_owned()
        }
        None => text,
    })
}

/// The output of a panic that is not attributed to a failed test, with the test that was running.
fn panic_output(lines: &[&str]) -> Option<String> {
    let first = lines.iter().position(|line| line.starts_with("panic: "))?;
    lines.iter().find(|line| line.starts_with("FAIL\t"))?;
    let running = lines[..first].last().filter(|line| line.starts_with("=== RUN"));
    let text = join_block(lines, first, |line| line.starts_with("FAIL"));
    Some(running.map_or(text.clone(), |running| format!("{running}\n{text}")))
}

pub(super) fn build_failure(lines: &[&str]) -> Option<String> {
    lines.iter().find(|line| line.starts_with("FAIL\t") && line.contains(" failed]"))?;
    let first = lines.iter().position(|line| line.starts_with("# "))?;
    Some(join_block(lines, first, |line| line.starts_with("# ") || line.trim().is_empty()))
}

/// Failed tests by package and name: a package's name follows its tests. A package that crashed or does not build has
/// no test to name.
pub(super) fn failing_tests(lines: &[&str]) -> Vec<String> {
    let (mut names, mut open) = (Vec::new(), Vec::new());
    for line in lines {
        if let Some(rest) = line.strip_prefix("--- FAIL: ") {
            open.extend(rest.split(' ').next());
        } else if let Some(rest) = line.strip_prefix("FAIL\t") {
            let package = rest.split(['\t', ' ']).next().unwrap_or(rest);
            if open.is_empty() {
                names.push(package.to_owned());
            }
            names.extend(open.drain(..).map(|test| format!("{package}.{test}")));
        }
    }
    names
}

/// Tests that started and did not end; paused parallel tests are not running.
pub(super) fn running_tests(lines: &[&str]) -> Option<String> {
    let mut open: Vec<&str> = Vec::new();
    for line in lines {
        let ended = line.trim_start().strip_prefix("--- ").and_then(|rest| rest.split(' ').nth(1));
        if let Some(name) = line.strip_prefix("=== RUN   ").or_else(|| line.strip_prefix("=== CONT  ")) {
            open.push(name.trim_end());
        } else if let Some(name) = line.strip_prefix("=== PAUSE ").or(ended) {
            open.retain(|one| *one != name.trim_end());
        }
    }
    (!open.is_empty()).then(|| open.join("\n"))
}

/// Packages whose tests do not build.
pub(super) fn unbuilt_packages(lines: &[&str]) -> Vec<String> {
    let name = |line: &&str| {
        let rest = line.strip_prefix("FAIL\t")?;
        let package = rest.strip_suffix("[build failed]").or_else(|| rest.strip_suffix("[setup failed]"))?;
        Some(package.trim().to_owned())
    };
    lines.iter().filter_map(name).collect()
}
