//! Tests of when a run asks a person by itself, and when not.

use docket_schema::{
    content::{Content, WorkspacePath},
    run::{BlockedReason, BlockerAnswered, RunBlocked, RunSettings, Told, ToolStatus},
    tool::{TestCounts, ToolFacts},
};
use serde_json::{Value, json};

use crate::engine::{Action, react_tests::TestLog};
use crate::tools::error_signature;

/// A call and its result: `Err` = the tool refused, with this message.
type ScriptedResult<'a> = (&'a str, Value, Result<ToolFacts, &'a str>);

fn escalation_log() -> TestLog {
    TestLog::with_settings(RunSettings { turns_max: 100, ..RunSettings::default() }, &[], "namespaces")
}

fn play_turn(log: &mut TestLog, calls: &[ScriptedResult<'_>]) -> Option<String> {
    let wanted: Vec<(&str, Value)> = calls.iter().map(|(name, args, _)| (*name, args.clone())).collect();
    log.answer_with("", &wanted);
    let results: Vec<(ToolStatus, &str, ToolFacts)> = calls
        .iter()
        .map(|(name, _, result)| match result {
            Ok(facts) => (ToolStatus::Ok, "as it was", facts.clone()),
            Err(text) => {
                let error_signature = Some(error_signature(&format!("{name}: {text}")));
                (ToolStatus::Error, *text, ToolFacts { error_signature, ..ToolFacts::default() })
            }
        })
        .collect();
    log.run_batch_with(&results);
    question_text(log)
}

/// The question, if there is one.
fn question_text(log: &TestLog) -> Option<String> {
    match log.decide().act {
        Action::Block { question: Content::Text(question), why, .. } => {
            assert_eq!(why, BlockedReason::Escalated);
            Some(question)
        }
        Action::CallModel(_) => None,
        other => panic!("{other:?}"),
    }
}

fn edit_call<'a>(path: &str, result: Result<ToolFacts, &'a str>) -> ScriptedResult<'a> {
    ("edit_file", json!({ "path": path, "edits": [] }), result)
}

fn write_facts(path: &str) -> Result<ToolFacts, &'static str> {
    Ok(ToolFacts { changed: vec![WorkspacePath::new(path).expect("legal")], ..ToolFacts::default() })
}

fn command_call<'a>(line: &str, exit: i32, said: &str) -> ScriptedResult<'a> {
    let error_signature = (exit != 0).then(|| error_signature(&format!("exit status {exit} {said}")));
    let facts = ToolFacts { exit: Some(exit), error_signature, ..ToolFacts::default() };
    ("run_command", json!({ "command": line }), Ok(facts))
}

fn test_call<'a>(failed: u32, said: &str) -> ScriptedResult<'a> {
    let (_, _, facts) = command_call("", i32::from(failed > 0), said);
    let tests = Some(TestCounts { failed, passed: 1, ..TestCounts::default() });
    ("run_tests", json!({}), facts.map(|facts| ToolFacts { tests, ..facts }))
}

#[test]
fn third_failed_edit_of_a_file_asks_and_lists_the_failures() {
    let mut log = escalation_log();
    assert_eq!(
        play_turn(&mut log, &[edit_call("src/a.rs", Err("edit 1 of 1: no such text; nearest: line 7"))]),
        None
    );
    assert_eq!(
        play_turn(&mut log, &[("read_file", json!({ "path": "src/a.rs" }), Ok(ToolFacts::default()))]),
        None
    );
    assert_eq!(play_turn(&mut log, &[edit_call("./src/a.rs", Err("edit 1 of 2: stands twice"))]), None);
    let question =
        play_turn(&mut log, &[edit_call("src/a.rs", Err("the file has changed since it was read"))]);
    insta::assert_snapshot!(question.expect("asks"), @r"
    3 attempts to change `src/a.rs` failed, in turns 1, 3 and 4. The last one said:
    the file has changed since it was read

    What shall the run do? Say another way, or what you mended; it goes on from here with your words, and counts anew.
    ");
}

#[test]
fn successful_edit_resets_the_count() {
    let mut log = escalation_log();
    for _ in 0..4 {
        for text in ["no such text", "it stands twice"] {
            assert_eq!(play_turn(&mut log, &[edit_call("a.rs", Err(text))]), None);
        }
        let whole = ("create_file", json!({ "path": "a.rs", "content": "" }), write_facts("a.rs"));
        assert_eq!(play_turn(&mut log, &[whole]), None, "written whole in place of edited");
    }
    assert_eq!(log.state.totals.tool_errors, 8, "what is shown of the run is not taken back");
}

#[test]
fn calls_of_one_answer_count_as_one_attempt() {
    let mut log = escalation_log();
    let three: Vec<ScriptedResult<'_>> = (0..3).map(|_| edit_call("a.rs", Err("no such text"))).collect();
    assert_eq!(play_turn(&mut log, &three), None);
    assert_eq!(play_turn(&mut log, &three), None);
    assert!(play_turn(&mut log, &three).is_some());
}

#[test]
fn same_error_three_times_asks_regardless_of_the_call() {
    let mut log = escalation_log();
    let error = "ModuleNotFoundError: No module named 'left'";
    for (line, asks) in [("python a.py", false), ("cd b && python c.py", false), ("python3 a.py", true)] {
        let question = play_turn(&mut log, &[command_call(line, 1, error)]);
        assert_eq!(question.is_some(), asks, "{line}");
        if let Some(question) = question {
            assert!(question.starts_with("The same error came 3 times, in turns 1, 2 and 3."), "{question}");
            assert!(question.contains("`run_command python3 a.py` said:\nas it was"), "{question}");
        }
    }
}

#[test]
fn progress_does_not_ask_a_person() {
    let mut log = escalation_log();
    // Searches that find nothing, each once; commands that report their result only by exit status.
    for nth in 0..10 {
        let path = format!("{}.py", "x".repeat(nth + 1));
        let missing = format!("{path} does not exist");
        let look = ("read_file", json!({ "path": path }), Err(missing.as_str()));
        assert_eq!(
            play_turn(&mut log, &[look, command_call(&format!("grep -q {path} a"), 1, "")]),
            None,
            "{path}"
        );
    }
    // Failing tests that get fewer, alternating results, a command that passes in the end.
    for failed in [9, 7, 3, 1, 0, 1, 0, 2, 1, 0] {
        assert_eq!(play_turn(&mut log, &[test_call(failed, "AssertionError: 1 != 2")]), None, "{failed}");
        assert_eq!(play_turn(&mut log, &[edit_call("a.py", write_facts("a.py"))]), None);
    }
    for _ in 0..3 {
        for exit in [2, 2, 0] {
            assert_eq!(play_turn(&mut log, &[command_call("make", exit, "error: x")]), None);
        }
    }
    // Ten bad edits, each fixed in the next turn.
    for nth in 0..10 {
        let path = format!("{}.rs", "y".repeat(nth + 1));
        assert_eq!(play_turn(&mut log, &[edit_call(&path, Err("no such text"))]), None);
        assert_eq!(play_turn(&mut log, &[edit_call(&path, write_facts(&path))]), None, "{path}");
    }
}

#[test]
fn identical_test_failures_three_times_ask() {
    let mut log = escalation_log();
    for asks in [false, false, true] {
        let question = play_turn(&mut log, &[test_call(2, "AssertionError: 1 != 2")]);
        assert_eq!(question.is_some(), asks, "{question:?}");
        if !asks {
            assert_eq!(play_turn(&mut log, &[edit_call("a.py", write_facts("a.py"))]), None);
        }
    }
}

#[test]
fn more_than_five_failures_ask_and_are_listed() {
    let mut log = escalation_log();
    let paths = ["a", "b", "c", "d", "e", "f"];
    for path in paths {
        let text = format!("{path}: no such text");
        let question = play_turn(&mut log, &[edit_call(path, Err(&text))]);
        assert_eq!(question.is_some(), path == "f", "{path}");
        if let Some(question) = question {
            assert!(
                question.starts_with(
                    "6 calls failed and were not made good since:\n- 1 times `edit_file a`: a: no"
                )
            );
            assert!(question.contains("`edit_file f`"), "{question}");
        }
    }
}

#[test]
fn answer_resets_the_counts_and_user_messages_get_a_turn() {
    let mut log = escalation_log();
    let bad = || edit_call("a.rs", Err("no such text"));
    play_turn(&mut log, &[bad()]);
    play_turn(&mut log, &[bad()]);
    let question = play_turn(&mut log, &[bad()]).expect("asks");
    let before = log.state.clone();
    log.push(Told { text: "take the other file".into(), by: "me".into() });
    assert_eq!(question_text(&log), None, "told just now");
    assert!(play_turn(&mut log, &[bad()]).is_some(), "and it did not help");

    log.state = before;
    let (why, decision) = (BlockedReason::Escalated, docket_schema::ids::DecisionHash::ZERO);
    log.push(RunBlocked { question: question.into(), why, outages: 0, about: None, decision });
    log.push(BlockerAnswered { text: "write it whole".into(), by: "me".into() });
    assert_eq!(question_text(&log), None, "it goes on");
    for asks in [false, false, true] {
        assert_eq!(play_turn(&mut log, &[bad()]).is_some(), asks);
    }
}

#[test]
fn zero_or_missing_setting_disables_escalation() {
    let never: RunSettings = serde_json::from_value(json!({ "turns_max": 100 })).expect("reads");
    assert_eq!((never.same_error_max, never.failed_edits_max, never.failures_max), (0, 0, 0));
    assert_eq!(never.empty_answers_max, RunSettings::default().empty_answers_max);
    let written = serde_json::to_value(RunSettings::default()).expect("serializes");
    assert_eq!(serde_json::from_value::<RunSettings>(written).expect("reads"), RunSettings::default());
    let mut log = TestLog::with_settings(never, &[], "namespaces");
    for nth in 0..20 {
        assert_eq!(play_turn(&mut log, &[edit_call("a.rs", Err("no such text"))]), None, "{nth}");
    }
}

#[test]
fn last_turn_is_not_spent_on_a_question() {
    let mut log =
        TestLog::with_settings(RunSettings { turns_max: 3, ..RunSettings::default() }, &[], "namespaces");
    for _ in 0..3 {
        log.answer_with("", &[("edit_file", json!({ "path": "a" }))]);
        let facts = ToolFacts { error_signature: Some("e".into()), ..ToolFacts::default() };
        log.run_batch_with(&[(ToolStatus::Error, "no", facts)]);
    }
    assert!(matches!(log.decide().act, Action::End { .. }), "nothing could follow an answer");
}

#[test]
fn lookups_of_different_missing_files_are_different_errors() {
    let look = |path: &str| -> ScriptedResult<'static> {
        ("read_file", json!({ "path": path }), Err("`no.txt` is not there"))
    };
    let mut log = escalation_log();
    for at in 0..8 {
        assert_eq!(play_turn(&mut log, &[look(&format!("no{at}.txt"))]), None, "{at}");
    }
    let mut same = self::escalation_log();
    for _ in 0..2 {
        assert_eq!(play_turn(&mut same, &[look("no.txt")]), None);
    }
    assert!(
        play_turn(&mut same, &[look("no.txt")])
            .is_some_and(|asked| asked.contains("The same error came 3 times"))
    );
    let settings = RunSettings { turns_max: 100, trouble_rules: 0, ..RunSettings::default() };
    let mut before = TestLog::with_settings(settings, &[], "namespaces");
    for at in 0..2 {
        assert_eq!(play_turn(&mut before, &[look(&format!("no{at}.txt"))]), None);
    }
    assert!(play_turn(&mut before, &[look("no2.txt")]).is_some(), "logs from before decide as they did");
}
