//! Parses the Test Anything Protocol, which `make test` often prints.

use docket_schema::tool::TestCounts;

/// Counts top-level tests under a plan (`1..4`) only: subtests are indented.
pub(super) fn parse_counts(lines: &[&str]) -> Option<TestCounts> {
    let plan = |line: &&str| line.strip_prefix("1..").is_some_and(|rest| leading_number(rest).is_some());
    lines.iter().find(|line| plan(line))?;
    let mut counts = TestCounts::default();
    for line in lines {
        let (rest, ok) = match (line.strip_prefix("ok"), line.strip_prefix("not ok")) {
            (Some(rest), None) => (rest, true),
            (None, Some(rest)) => (rest, false),
            (Some(_), Some(_)) | (None, None) => continue,
        };
        if !rest.is_empty() && !rest.starts_with(' ') {
            continue;
        }
        let directive = rest.rsplit_once('#').map(|(_, said)| said.trim_start().to_ascii_lowercase());
        let is = |word: &str| directive.as_ref().is_some_and(|said| said.starts_with(word));
        let place = match ok {
            _ if is("skip") || is("todo") => &mut counts.skipped,
            true => &mut counts.passed,
            false => &mut counts.failed,
        };
        *place = place.saturating_add(1);
    }
    Some(counts)
}

fn leading_number(text: &str) -> Option<u32> {
    text.split(' ').next()?.trim().parse().ok()
}
