//! Tests of the plan reminder, the planning phase, and the end without a model's claim.

use docket_schema::{
    content::WorkspacePath,
    ids::DecisionHash,
    run::{BlockedReason, BlockerAnswered, RunBlocked, RunSettings, TaskComplexity, Told, ToolStatus},
    tool::{FileVersion, TestCounts, ToolFacts},
};
use serde_json::{Value, json};

use crate::engine::{
    Action,
    react_tests::{TestLog, describe_decision},
};

fn planning_log(settings: RunSettings) -> TestLog {
    TestLog::with_settings(RunSettings { turns_max: 100, ..settings }, &["requires", "tests"], "namespaces")
}

fn next_nudge(log: &TestLog) -> Option<String> {
    match log.decide().act {
        Action::CallModel(call) => call.nudge,
        other => panic!("{other:?}"),
    }
}

fn read_file(log: &mut TestLog, text: &str) {
    log.answer_with(text, &[("read_file", json!({ "path": "a" }))]);
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts::default())]);
}

#[test]
fn missing_plan_is_reminded_a_limited_number_of_times() {
    let mut of = planning_log(RunSettings { plan_asks_max: 2, ..RunSettings::default() });
    assert_eq!(next_nudge(&of), None, "it was asked in its prompt");
    for _ in 0..2 {
        read_file(&mut of, "I look.");
        assert!(next_nudge(&of).expect("a reminder").contains("`PLAN:`"));
    }
    read_file(&mut of, "I look.");
    assert_eq!(next_nudge(&of), None);
    let mut of = planning_log(RunSettings::default());
    read_file(&mut of, "PLAN:\n- [ ] mend it");
    assert_eq!(next_nudge(&of), None);
    let mut of = planning_log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    read_file(&mut of, "I look.");
    assert_eq!(next_nudge(&of), None, "as logs that lack the setting have it");
}

#[test]
fn reading_with_a_plan_is_the_planning_phase() {
    let plan = "PLAN:\n- [ ] mend it";
    let read: (&str, Value) = ("read_file", json!({ "path": "a" }));
    let edit: (&str, Value) = ("edit_file", json!({ "path": "a", "edits": [] }));
    for (complexity, text, call, phase) in [
        (Some(TaskComplexity::Low), plan, &read, "planning"),
        (Some(TaskComplexity::Low), "I look.", &read, "exploring"),
        (Some(TaskComplexity::Low), plan, &edit, "editing"),
        (None, plan, &read, "exploring"),
    ] {
        let mut of = planning_log(RunSettings { complexity, ..RunSettings::default() });
        of.answer_with(text, std::slice::from_ref(call));
        assert_eq!(of.decide().phase.as_str(), phase, "{text}");
    }
}

fn work_path(path: &str) -> WorkspacePath {
    WorkspacePath::new(path).expect("legal")
}

/// A run whose task requires two paths, one of which it has read.
fn log_requiring_path(early_end: bool) -> TestLog {
    let settings = RunSettings { early_end, plan_asks_max: 0, turns_max: 100, ..RunSettings::default() };
    let mut log = TestLog::with_settings(settings, &["requires", "tests"], "namespaces");
    log.edit_pins(|pins| pins.requires = vec![work_path("old.py"), work_path("new.py")]);
    let read = vec![FileVersion { path: work_path("old.py"), hash: docket_schema::ids::BlobHash::ZERO }];
    log.answer_with("", &[("read_file", json!({ "path": "old.py" }))]);
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts { read, ..ToolFacts::default() })]);
    log
}

fn create_file(log: &mut TestLog, name: &str) {
    log.answer_with("", &[("create_file", json!({ "path": name, "content": "" }))]);
    log.run_batch_with(&[(
        ToolStatus::Ok,
        "ok",
        ToolFacts { changed: vec![work_path(name)], ..ToolFacts::default() },
    )]);
    log.add_file(name);
}

fn end_tests(log: &mut TestLog, args: Value, failed: u32) {
    log.answer_with("", &[("run_tests", args)]);
    let tests = Some(TestCounts { passed: 3, failed, ..TestCounts::default() });
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts { tests, ..ToolFacts::default() })]);
}

#[test]
fn required_paths_and_passing_tests_end_the_run_early() {
    let mut of = log_requiring_path(true);
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "new.py is not there");
    create_file(&mut of, "new.py");
    assert!(describe_decision(&of.decide()).starts_with("ask"), "nothing was tested since");
    end_tests(&mut of, json!({ "test_path": "test_new.py" }), 0);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "a part of the tests");
    end_tests(&mut of, json!({}), 1);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "one failed");
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "{}", describe_decision(&of.decide()));
    of.end_gates(true);
    assert_eq!(describe_decision(&of.decide()), "end succeeded");
}

#[test]
fn preexisting_required_paths_do_not_end_the_run_early() {
    let mut of = log_requiring_path(true);
    of.edit_pins(|pins| pins.requires = vec![work_path("old.py")]);
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "nothing was done yet");
    create_file(&mut of, "old.py");
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "{}", describe_decision(&of.decide()));
}

#[test]
fn failed_check_after_early_end_goes_to_the_model_once() {
    let mut of = log_requiring_path(true);
    create_file(&mut of, "new.py");
    end_tests(&mut of, json!({}), 0);
    of.end_gates(false);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "it is told what failed");
    read_file(&mut of, "");
    assert!(describe_decision(&of.decide()).starts_with("ask"), "the same checks would fail again");
}

#[test]
fn open_plan_steps_or_user_messages_prevent_early_end() {
    let mut of = log_requiring_path(true);
    create_file(&mut of, "new.py");
    read_file(&mut of, "PLAN:\n- [x] make it\n- [ ] document it");
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("ask"));
    read_file(&mut of, "PLAN:\n- [x] make it\n- [x] document it");
    assert!(describe_decision(&of.decide()).starts_with("gates"), "to read changes nothing");
    of.push(Told { by: "ann".to_owned(), text: "And a changelog.".into() });
    assert!(describe_decision(&of.decide()).starts_with("ask"));
    let mut of = log_requiring_path(false);
    create_file(&mut of, "new.py");
    end_tests(&mut of, json!({}), 0);
    assert!(describe_decision(&of.decide()).starts_with("ask"), "as logs that lack the setting have it");
}

#[test]
fn ending_with_open_plan_steps_is_questioned_once() {
    let mut of = planning_log(RunSettings::default());
    of.answer_with("PLAN:\n- [ ] read\n- [ ] mend", &[]);
    assert!(next_nudge(&of).expect("words").contains("not ticked"));
    read_file(&mut of, "I read it.");
    of.answer_with("It is done.", &[]);
    assert!(next_nudge(&of).expect("words").contains("not ticked"), "work lies between");
    of.answer_with("It is done.", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "said twice");
    let old = RunSettings { plan_asks_max: 0, heed_stops: false, ..RunSettings::default() };
    let mut of = planning_log(old);
    of.answer_with("PLAN:\n- [ ] read", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "as logs that lack the setting have it");
}

#[test]
fn ending_before_any_work_is_questioned_once() {
    let mut of = planning_log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    of.answer_with("I will now read app.py.", &[]);
    assert!(next_nudge(&of).expect("words").contains("nothing was looked at or changed yet"));
    of.answer_with("It adds two numbers.", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "said twice");
    let mut of = planning_log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    read_file(&mut of, "I look.");
    of.answer_with("It adds two numbers.", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "something was looked at");
    let mut of = planning_log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    of.answer_with("", &[("edit_file", json!({ "path": "a.py" }))]);
    let signature = Some("edit_file: not in the file".to_owned());
    let facts = ToolFacts { error_signature: signature, ..ToolFacts::default() };
    of.run_batch_with(&[(ToolStatus::Error, "not in the file", facts)]);
    of.answer_with("I changed f to return 2.", &[]);
    assert!(next_nudge(&of).expect("words").contains("nothing in the repository is changed"));
    of.answer_with("It returns 2 already.", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "said twice");
}

#[test]
fn provider_outage_waits_and_retries_on_a_persons_word() {
    let mut of =
        planning_log(RunSettings { model_attempts_max: 2, rest_at_outage: true, ..RunSettings::default() });
    of.fail_call(Some(1));
    of.fail_call(Some(1));
    let Action::Block { question, why, .. } = of.decide().act else { panic!("{:?}", of.decide()) };
    assert_eq!(why, BlockedReason::Provider);
    of.push(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO });
    of.push(BlockerAnswered { text: "".into(), by: "ann".to_owned() });
    assert_eq!(
        describe_decision(&of.decide()),
        "ask turn 1 attempt 3 wait 0",
        "the same turn, and with attempts left"
    );
    of.fail_call(None);
    assert!(matches!(of.decide().act, Action::Block { .. }), "a wait too long to hold a worker for");
    let mut of = planning_log(RunSettings { rest_at_outage: true, ..RunSettings::default() });
    of.fail_with(|failed| failed.error = "invalid_request".to_owned());
    assert!(describe_decision(&of.decide()).starts_with("failed"), "to ask that again is of no use");
}

#[test]
fn blocker_line_is_found_anywhere_in_the_answer() {
    for (text, question) in [
        ("BLOCKED: which port?", "which port?"),
        ("I looked.\n\n**BLOCKED:** which port?", "which port?"),
        ("## BLOCKED: which port?\n", "which port?"),
        ("PLAN:\n- [ ] ask\n\nBLOCKED: which port?\nOr which host?", "which port?\nOr which host?"),
        ("BLOCKED: which port?\n\nPLAN:\n- [x] look\n- [ ] é", "which port?"),
    ] {
        let mut of = planning_log(RunSettings { heed_stops: true, ..RunSettings::default() });
        of.answer_with(text, &[]);
        match of.decide().act {
            Action::Block { question: docket_schema::content::Content::Text(asked), .. } => {
                assert_eq!(asked, question)
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let mut of = planning_log(RunSettings { heed_stops: false, ..RunSettings::default() });
    of.answer_with("I looked.\n\nBLOCKED: which port?", &[]);
    assert!(describe_decision(&of.decide()).starts_with("gates"), "as logs that lack the setting have it");
}
