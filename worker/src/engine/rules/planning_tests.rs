//! The reminder of the plan, the phase of planning, and the end that no model has to say.

use docket_schema::{
    content::WorkPath,
    ids::DecisionHash,
    run::{BlockedWhy, BlockerAnswered, Complexity, RunBlocked, RunSettings, Told, ToolStatus},
    tool::{FileSeen, TestCounts, ToolFacts},
};
use serde_json::{Value, json};

use crate::engine::{
    Act,
    react_tests::{Log, gist},
};

fn log(settings: RunSettings) -> Log {
    Log::of(RunSettings { turns_max: 100, ..settings }, &["requires", "tests"], "namespaces")
}

fn reminder(log: &Log) -> Option<String> {
    match log.decide().act {
        Act::CallModel(call) => call.nudge,
        other => panic!("{other:?}"),
    }
}

fn look(log: &mut Log, text: &str) {
    log.say(text, &[("read_file", json!({ "path": "a" }))]);
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts::default())]);
}

#[test]
fn a_model_that_gave_no_plan_is_reminded_and_not_for_ever() {
    let mut of = log(RunSettings { plan_asks_max: 2, ..RunSettings::default() });
    assert_eq!(reminder(&of), None, "it was asked in its prompt");
    for _ in 0..2 {
        look(&mut of, "I look.");
        assert!(reminder(&of).expect("a reminder").contains("`PLAN:`"));
    }
    look(&mut of, "I look.");
    assert_eq!(reminder(&of), None);
    let mut of = log(RunSettings::default());
    look(&mut of, "PLAN:\n- [ ] mend it");
    assert_eq!(reminder(&of), None);
    let mut of = log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    look(&mut of, "I look.");
    assert_eq!(reminder(&of), None, "as logs that lack the setting have it");
}

#[test]
fn to_look_around_with_a_plan_is_planning() {
    let plan = "PLAN:\n- [ ] mend it";
    let read: (&str, Value) = ("read_file", json!({ "path": "a" }));
    let edit: (&str, Value) = ("edit_file", json!({ "path": "a", "edits": [] }));
    for (complexity, text, call, phase) in [
        (Some(Complexity::Low), plan, &read, "planning"),
        (Some(Complexity::Low), "I look.", &read, "exploring"),
        (Some(Complexity::Low), plan, &edit, "editing"),
        (None, plan, &read, "exploring"),
    ] {
        let mut of = log(RunSettings { complexity, ..RunSettings::default() });
        of.say(text, std::slice::from_ref(call));
        assert_eq!(of.decide().phase.as_str(), phase, "{text}");
    }
}

fn path(path: &str) -> WorkPath {
    WorkPath::new(path).expect("legal")
}

/// A run whose task requires two paths, one of which it has read.
fn requiring(early_end: bool) -> Log {
    let settings = RunSettings { early_end, plan_asks_max: 0, turns_max: 100, ..RunSettings::default() };
    let mut log = Log::of(settings, &["requires", "tests"], "namespaces");
    log.pin(|pins| pins.requires = vec![path("old.py"), path("new.py")]);
    let read = vec![FileSeen { path: path("old.py"), hash: docket_schema::ids::BlobHash::ZERO }];
    log.say("", &[("read_file", json!({ "path": "old.py" }))]);
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts { read, ..ToolFacts::default() })]);
    log
}

fn make(log: &mut Log, name: &str) {
    log.say("", &[("create_file", json!({ "path": name, "content": "" }))]);
    log.run_batch_with(&[(
        ToolStatus::Ok,
        "ok",
        ToolFacts { changed: vec![path(name)], ..ToolFacts::default() },
    )]);
    log.leave(name);
}

fn test(log: &mut Log, args: Value, failed: u32) {
    log.say("", &[("run_tests", args)]);
    let tests = Some(TestCounts { passed: 3, failed, ..TestCounts::default() });
    log.run_batch_with(&[(ToolStatus::Ok, "ok", ToolFacts { tests, ..ToolFacts::default() })]);
}

#[test]
fn what_is_required_and_tested_ends_the_run_without_another_question() {
    let mut of = requiring(true);
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("ask"), "new.py is not there");
    make(&mut of, "new.py");
    assert!(gist(&of.decide()).starts_with("ask"), "nothing was tested since");
    test(&mut of, json!({ "test_path": "test_new.py" }), 0);
    assert!(gist(&of.decide()).starts_with("ask"), "a part of the tests");
    test(&mut of, json!({}), 1);
    assert!(gist(&of.decide()).starts_with("ask"), "one failed");
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("gates"), "{}", gist(&of.decide()));
    of.gates(true);
    assert_eq!(gist(&of.decide()), "end succeeded");
}

#[test]
fn what_was_there_before_the_run_says_nothing_of_the_work() {
    let mut of = requiring(true);
    of.pin(|pins| pins.requires = vec![path("old.py")]);
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("ask"), "nothing was done yet");
    make(&mut of, "old.py");
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("gates"), "{}", gist(&of.decide()));
}

#[test]
fn a_check_that_fails_then_goes_to_the_model_once() {
    let mut of = requiring(true);
    make(&mut of, "new.py");
    test(&mut of, json!({}), 0);
    of.gates(false);
    assert!(gist(&of.decide()).starts_with("ask"), "it is told what failed");
    look(&mut of, "");
    assert!(gist(&of.decide()).starts_with("ask"), "the same checks would fail again");
}

#[test]
fn a_plan_with_open_steps_or_words_of_a_person_keep_it_going() {
    let mut of = requiring(true);
    make(&mut of, "new.py");
    look(&mut of, "PLAN:\n- [x] make it\n- [ ] document it");
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("ask"));
    look(&mut of, "PLAN:\n- [x] make it\n- [x] document it");
    assert!(gist(&of.decide()).starts_with("gates"), "to read changes nothing");
    of.push(Told { by: "ann".to_owned(), text: "And a changelog.".into() });
    assert!(gist(&of.decide()).starts_with("ask"));
    let mut of = requiring(false);
    make(&mut of, "new.py");
    test(&mut of, json!({}), 0);
    assert!(gist(&of.decide()).starts_with("ask"), "as logs that lack the setting have it");
}

#[test]
fn who_ends_before_the_plan_does_is_asked_once_whether_that_is_meant() {
    let mut of = log(RunSettings::default());
    of.say("PLAN:\n- [ ] read\n- [ ] mend", &[]);
    assert!(reminder(&of).expect("words").contains("not ticked"));
    look(&mut of, "I read it.");
    of.say("It is done.", &[]);
    assert!(reminder(&of).expect("words").contains("not ticked"), "work lies between");
    of.say("It is done.", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "said twice");
    let old = RunSettings { plan_asks_max: 0, heed_stops: false, ..RunSettings::default() };
    let mut of = log(old);
    of.say("PLAN:\n- [ ] read", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "as logs that lack the setting have it");
}

#[test]
fn who_ends_before_anything_was_done_is_asked_once_whether_that_is_meant() {
    let mut of = log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    of.say("I will now read app.py.", &[]);
    assert!(reminder(&of).expect("words").contains("nothing was looked at or changed yet"));
    of.say("It adds two numbers.", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "said twice");
    let mut of = log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    look(&mut of, "I look.");
    of.say("It adds two numbers.", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "something was looked at");
    let mut of = log(RunSettings { plan_asks_max: 0, ..RunSettings::default() });
    of.say("", &[("edit_file", json!({ "path": "a.py" }))]);
    let signature = Some("edit_file: not in the file".to_owned());
    let facts = ToolFacts { error_signature: signature, ..ToolFacts::default() };
    of.run_batch_with(&[(ToolStatus::Error, "not in the file", facts)]);
    of.say("I changed f to return 2.", &[]);
    assert!(reminder(&of).expect("words").contains("nothing in the repository is changed"));
    of.say("It returns 2 already.", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "said twice");
}

#[test]
fn a_provider_that_stays_away_is_waited_for_and_asked_again_once_a_person_says_so() {
    let mut of = log(RunSettings { model_attempts_max: 2, rest_at_outage: true, ..RunSettings::default() });
    of.fail(Some(1));
    of.fail(Some(1));
    let Act::Block { question, why, .. } = of.decide().act else { panic!("{:?}", of.decide()) };
    assert_eq!(why, BlockedWhy::Provider);
    of.push(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO });
    of.push(BlockerAnswered { text: "".into(), by: "ann".to_owned() });
    assert_eq!(gist(&of.decide()), "ask turn 1 attempt 3 wait 0", "the same turn, and with attempts left");
    of.fail(None);
    assert!(matches!(of.decide().act, Act::Block { .. }), "a wait too long to hold a worker for");
    let mut of = log(RunSettings { rest_at_outage: true, ..RunSettings::default() });
    of.fail_with(|failed| failed.error = "invalid_request".to_owned());
    assert!(gist(&of.decide()).starts_with("failed"), "to ask that again is of no use");
}

#[test]
fn a_blocker_is_one_wherever_its_line_stands() {
    for (text, question) in [
        ("BLOCKED: which port?", "which port?"),
        ("I looked.\n\n**BLOCKED:** which port?", "which port?"),
        ("## BLOCKED: which port?\n", "which port?"),
        ("PLAN:\n- [ ] ask\n\nBLOCKED: which port?\nOr which host?", "which port?\nOr which host?"),
        ("BLOCKED: which port?\n\nPLAN:\n- [x] look\n- [ ] é", "which port?"),
    ] {
        let mut of = log(RunSettings { heed_stops: true, ..RunSettings::default() });
        of.say(text, &[]);
        match of.decide().act {
            Act::Block { question: docket_schema::content::Content::Text(asked), .. } => {
                assert_eq!(asked, question)
            }
            other => panic!("{text}: {other:?}"),
        }
    }
    let mut of = log(RunSettings { heed_stops: false, ..RunSettings::default() });
    of.say("I looked.\n\nBLOCKED: which port?", &[]);
    assert!(gist(&of.decide()).starts_with("gates"), "as logs that lack the setting have it");
}
