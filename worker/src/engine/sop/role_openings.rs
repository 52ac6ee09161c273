//! Openings of engine `sop`'s role conversations: the task, and earlier results as artifacts. Pure.

use docket_schema::{
    artifact::{DIFF_CARD, DiffCard, PlanCard, ReviewReport, TEST_REPORT, TestReport},
    content::Content,
    run::{RunStarted, RunState},
};

use super::{
    super::roles::role_conversation,
    artifacts::{current_plan, load_artifact},
};

/// The planner's opening: the results of the survey, and the conditions for the change.
pub(super) fn planner_opening(run: &RunState, pins: &RunStarted, survey: &Content) -> Vec<Content> {
    vec![
        role_conversation::task_content(pins),
        "What the runtime found out:".into(),
        survey.clone(),
        describe_environment(run, pins).into(),
    ]
}

/// Describes where commands run and which checks run at the end, as pinned.
fn describe_environment(run: &RunState, pins: &RunStarted) -> String {
    let mut text = String::from("# How the change is made\n");
    text.push_str(&match run.sandbox.backend.as_str() {
        "" | "none" => "Commands run without a sandbox.\n".to_owned(),
        backend => format!("Commands run in a sandbox ({backend}), without a network.\n"),
    });
    match pins.gates.iter().find(|gate| gate.name == "tests") {
        Some(tests) => text.push_str(&format!("At its end the runtime runs `{}`.\n", tests.command)),
        None => text.push_str(
            "No line is known that runs the project's tests: plan tests that its usual runner finds by their names.\n",
        ),
    }
    let linters: Vec<&str> =
        pins.linters.iter().filter(|linter| linter.gates).map(|linter| linter.name.as_str()).collect();
    if !linters.is_empty() {
        text.push_str(&format!("What was changed must leave nothing to find for {}.\n", linters.join(", ")));
    }
    text.push_str(&format!("All of it may take {} turns, yours among them.\n", pins.settings.turns_max));
    text
}

/// The builder's opening: the plan.
pub(super) fn builder_opening(pins: &RunStarted, card: &PlanCard) -> Vec<Content> {
    vec![role_conversation::task_content(pins), format_plan_card(card).into()]
}

/// The builder's opening after a review that requests changes: the plan, the work so far, and the requests.
pub(super) fn rework_opening(run: &RunState, pins: &RunStarted, report: &ReviewReport) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    opening.extend(current_plan(run).map(|card| format_plan_card(&card).into()));
    if let Some(card) = load_artifact::<DiffCard>(run, DIFF_CARD) {
        opening.push(format_diff_card(run, &card).into());
    }
    let wanted = format_list(&report.must_change);
    opening.push(
        format!("The change was reviewed, and must be mended before the task may end:\n{wanted}").into(),
    );
    if !report.recommendations.is_empty() {
        let advice = format_list(&report.recommendations);
        opening.push(format!("Worth doing where it is little:\n{advice}").into());
    }
    opening
}

/// The reviewer's opening: the plan, a list of the changes, the results of the checks, the diff itself.
pub(super) fn reviewer_opening(
    run: &RunState,
    pins: &RunStarted,
    card: &DiffCard,
    diff: &Content,
) -> Vec<Content> {
    let mut opening = vec![role_conversation::task_content(pins)];
    opening.extend(current_plan(run).map(|card| format_plan_card(&card).into()));
    opening.push(format_diff_card(run, card).into());
    if let Some(report) = load_artifact::<TestReport>(run, TEST_REPORT) {
        opening.push(format_test_report(&report).into());
    }
    opening.push("The change itself, against the tree that the task began with:".into());
    opening.push(diff.clone());
    opening
}

fn format_plan_card(card: &PlanCard) -> String {
    let files: Vec<String> = card.files.iter().map(ToString::to_string).collect();
    let files = if files.is_empty() { "none".to_owned() } else { files.join(", ") };
    format!("The plan: {}\n{}Files: {files}", card.summary, format_list(&card.steps))
}

fn format_diff_card(run: &RunState, card: &DiffCard) -> String {
    let mut text = String::from("What was changed:\n");
    for file in &card.files {
        text.push_str(&format!("- {} (+{} -{})\n", file.path, file.added, file.removed));
    }
    if card.files.is_empty() {
        text.push_str("- nothing\n");
    }
    if card.more > 0 {
        text.push_str(&format!("- [and {} more]\n", card.more));
    }
    let plan = current_plan(run);
    let unplanned = card.files.iter().map(|file| &file.path);
    let unplanned = unplanned.filter(|path| plan.as_ref().is_some_and(|plan| !plan.files.contains(path)));
    let unplanned: Vec<String> = unplanned.map(ToString::to_string).collect();
    if !unplanned.is_empty() {
        text.push_str(&format!("The plan does not name {}.\n", unplanned.join(", ")));
    }
    text.push_str(&format!("Why so, in the words of whoever made it: {}", card.rationale));
    text
}

fn format_test_report(report: &TestReport) -> String {
    let mut text = match report.command.as_str() {
        "" => format!("No tests were run: {}", report.reason),
        command => format!("The tests (`{command}`): {}", report.status.as_str()),
    };
    if let Some(counts) = report.tests {
        text.push_str(&format!(
            "; {} passed, {} failed, {} could not be run, {} were skipped",
            counts.passed, counts.failed, counts.errors, counts.skipped
        ));
    }
    if !report.failing.is_empty() {
        text.push_str(&format!("; failing: {}", report.failing.join(", ")));
    }
    text
}

fn format_list(entries: &[String]) -> String {
    entries.iter().map(|entry| format!("- {entry}\n")).collect()
}
