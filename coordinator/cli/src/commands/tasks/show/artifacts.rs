//! Artifacts and quality gates of a run, for `docket show`: one line each; `--json` has the full
//! content.

use std::collections::BTreeMap;

use docket_schema::{
    artifact::{
        DIFF_CARD, DiffCard, PLAN_CARD, PlanCard, REVIEW_REPORT, ReviewReport, SOP_ARTIFACTS, TEST_REPORT,
        TestReport,
    },
    run::RunState,
    tool::NotRun,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    context::CliContext,
    output::display::{self, TextStyle, format_duration},
};

/// Maximum number of files named in a line.
const FILES_MAX: usize = 6;

/// The `--json` form.
#[derive(Debug, Default, Serialize)]
pub(super) struct ArtifactRows {
    /// The latest version of each artifact, by name.
    artifacts: BTreeMap<String, Value>,
    /// Quality gates, by name.
    quality_gates: BTreeMap<String, GateRow>,
    /// The final checks of the last round, by name.
    checks: BTreeMap<String, CheckRow>,
    /// The phase of the run's procedure.
    procedure_phase: Option<String>,
}

/// The state of a quality gate.
#[derive(Debug, Serialize)]
struct GateRow {
    verdict: &'static str,
    reason: String,
    failed: u32,
}

/// The result of a final check.
#[derive(Debug, Serialize)]
struct CheckRow {
    /// `passed`, `excused`, `failed` or `unverified`.
    verdict: &'static str,
    command: String,
    /// Why the check did not run.
    not_run: Option<NotRun>,
}

/// Collects the artifacts and gates of a run.
pub(super) fn artifact_rows(state: &RunState) -> ArtifactRows {
    let gates = state.engine_state.quality_gates.iter().map(|(name, gate)| {
        let (verdict, reason, failed) = (gate.verdict.as_str(), gate.reason.clone(), gate.failed);
        (name.clone(), GateRow { verdict, reason, failed })
    });
    let checks = state.engine_state.finished_checks.iter().map(|check| {
        let (verdict, command) = (check.verdict.as_str(), check.command.clone());
        (check.name.clone(), CheckRow { verdict, command, not_run: check.not_run.clone() })
    });
    ArtifactRows {
        checks: checks.collect(),
        artifacts: state.engine_state.artifacts.clone(),
        quality_gates: gates.collect(),
        procedure_phase: state.engine_state.phase.clone(),
    }
}

/// Prints the artifacts and gates, if there are any.
pub(super) fn print_artifacts(cx: &CliContext, rows: &ArtifactRows) {
    print_checks(cx, rows);
    if rows.artifacts.is_empty() && rows.quality_gates.is_empty() {
        return;
    }
    let phase = rows.procedure_phase.as_deref().unwrap_or("(none)");
    let head = format!("artifacts, in phase {}", display::sanitize_line(phase));
    display::print_line(&format!("\n{}", cx.screen.paint(TextStyle::Bold, &head)));
    let known = SOP_ARTIFACTS.iter().filter_map(|name| rows.artifacts.get_key_value(*name));
    let others = rows.artifacts.iter().filter(|(name, _)| !SOP_ARTIFACTS.contains(&name.as_str()));
    for (name, content) in known.chain(others) {
        print_entry(cx, name, &describe_artifact(name, content));
    }
    for (name, gate) in &rows.quality_gates {
        let times = if gate.failed > 0 { format!(", failed {} times", gate.failed) } else { String::new() };
        print_entry(cx, name, &format!("{}{times}: {}", gate.verdict, gate.reason));
    }
}

/// Prints the results of the final checks, if any ran.
fn print_checks(cx: &CliContext, rows: &ArtifactRows) {
    if rows.checks.is_empty() {
        return;
    }
    display::print_line(&format!("\n{}", cx.screen.paint(TextStyle::Bold, "final checks")));
    for (name, check) in &rows.checks {
        let why = match &check.not_run {
            Some(why) if why.partly => format!(", part of it did not run ({})", why.reason),
            Some(why) => format!(", did not run ({})", why.reason),
            None => String::new(),
        };
        print_entry(cx, name, &format!("{}{why}: {}", check.verdict, check.command));
    }
}

fn print_entry(cx: &CliContext, name: &str, words: &str) {
    let name = cx.screen.paint(TextStyle::Dim, &format!("{:>14}", display::sanitize_line(name)));
    let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
    let room = cx.screen.columns().saturating_sub(16);
    display::print_line(&format!(
        "{name}  {}",
        display::truncate_to_width(&display::sanitize_line(&words), room)
    ));
}

/// Describes an artifact in one line; one of unknown form is printed as JSON.
fn describe_artifact(name: &str, content: &Value) -> String {
    let known = match name {
        PLAN_CARD => parse_artifact(content).map(|card: PlanCard| {
            format!("{} steps, {} files: {}", card.steps.len(), card.files.len(), card.summary)
        }),
        DIFF_CARD => parse_artifact(content).map(|card: DiffCard| describe_diff(&card)),
        TEST_REPORT => parse_artifact(content).map(|report: TestReport| tests(&report)),
        REVIEW_REPORT => parse_artifact(content).map(|report: ReviewReport| {
            let first = report.must_change.first().or(report.risks.first()).cloned().unwrap_or_default();
            let (risks, advice) = (report.risks.len(), report.recommendations.len());
            format!(
                "{risks} risks, {advice} recommendations, {} to change: {first}",
                report.must_change.len()
            )
        }),
        _ => None,
    };
    known.unwrap_or_else(|| content.to_string())
}

fn parse_artifact<T: DeserializeOwned>(content: &Value) -> Option<T> {
    serde_json::from_value(content.clone()).ok()
}

fn describe_diff(card: &DiffCard) -> String {
    let named = card.files.iter().take(FILES_MAX);
    let named: Vec<String> =
        named.map(|file| format!("{} +{} -{}", file.path, file.added, file.removed)).collect();
    let more = card.files.len().saturating_sub(FILES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let named = if named.is_empty() { "nothing was changed".to_owned() } else { named.join(", ") };
    format!("{named}{more}: {}", card.rationale)
}

fn tests(report: &TestReport) -> String {
    if report.command.is_empty() {
        return format!("{}: {}", report.status.as_str(), report.reason);
    }
    let why = if report.reason.is_empty() { String::new() } else { format!(" ({})", report.reason) };
    format!("{}{why} in {}: {}", report.status.as_str(), format_duration(report.duration_ms), report.command)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::describe_artifact;

    #[test]
    fn artifact_is_described_on_one_line() {
        for (name, content, line) in [
            (
                "PlanCard",
                json!({ "summary": "f is wrong", "steps": ["a", "b"], "files": ["a.py"] }),
                "2 steps, 1 files: f is wrong",
            ),
            (
                "DiffCard",
                json!({ "files": [{ "path": "a.py", "change": "modified", "added": 2, "removed": 1 }],
                        "hunks": [], "rationale": "because" }),
                "a.py +2 -1: because",
            ),
            (
                "TestReport",
                json!({ "command": "make test", "status": "failed", "duration_ms": 1500 }),
                "failed in 1.5s: make test",
            ),
            (
                "TestReport",
                json!({ "command": "", "status": "not_run", "duration_ms": 0, "reason": "words only" }),
                "not run: words only",
            ),
            (
                "ReviewReport",
                json!({ "risks": ["r"], "recommendations": [], "must_change": ["m"] }),
                "1 risks, 0 recommendations, 1 to change: m",
            ),
            ("Other", json!({ "a": 1 }), "{\"a\":1}"),
            ("PlanCard", json!({ "a": 1 }), "{\"a\":1}"),
        ] {
            assert_eq!(describe_artifact(name, &content), line);
        }
    }
}
