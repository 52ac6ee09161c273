//! When a run asks a person by itself, and when not.

use docket_schema::{
    content::{Content, WorkPath},
    run::{BlockedWhy, BlockerAnswered, RunBlocked, RunSettings, Told, ToolStatus},
    tool::{TestCounts, ToolFacts},
};
use serde_json::{Value, json};

use crate::engine::{Act, react_tests::Log};
use crate::tools::error_signature;

/// A call and what it came to: `Err` = the tool refused, with these words.
type Call<'a> = (&'a str, Value, Result<ToolFacts, &'a str>);

fn log() -> Log {
    Log::of(RunSettings { turns_max: 100, ..RunSettings::default() }, &[], "namespaces")
}

fn turn(log: &mut Log, calls: &[Call<'_>]) -> Option<String> {
    let wanted: Vec<(&str, Value)> = calls.iter().map(|(name, args, _)| (*name, args.clone())).collect();
    log.say("", &wanted);
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
    asked(log)
}

/// What it asks, if it asks.
fn asked(log: &Log) -> Option<String> {
    match log.decide().act {
        Act::Block { question: Content::Text(question), why, .. } => {
            assert_eq!(why, BlockedWhy::Escalated);
            Some(question)
        }
        Act::CallModel(_) => None,
        other => panic!("{other:?}"),
    }
}

fn edit<'a>(path: &str, result: Result<ToolFacts, &'a str>) -> Call<'a> {
    ("edit_file", json!({ "path": path, "edits": [] }), result)
}

fn wrote(path: &str) -> Result<ToolFacts, &'static str> {
    Ok(ToolFacts { changed: vec![WorkPath::new(path).expect("legal")], ..ToolFacts::default() })
}

fn ran<'a>(line: &str, exit: i32, said: &str) -> Call<'a> {
    let error_signature = (exit != 0).then(|| error_signature(&format!("exit status {exit} {said}")));
    let facts = ToolFacts { exit: Some(exit), error_signature, ..ToolFacts::default() };
    ("run_command", json!({ "command": line }), Ok(facts))
}

fn tested<'a>(failed: u32, said: &str) -> Call<'a> {
    let (_, _, facts) = ran("", i32::from(failed > 0), said);
    let tests = Some(TestCounts { failed, passed: 1, ..TestCounts::default() });
    ("run_tests", json!({}), facts.map(|facts| ToolFacts { tests, ..facts }))
}

#[test]
fn the_third_failed_attempt_at_a_file_asks_and_says_what_failed_when() {
    let mut log = log();
    assert_eq!(turn(&mut log, &[edit("src/a.rs", Err("edit 1 of 1: no such text; nearest: line 7"))]), None);
    assert_eq!(
        turn(&mut log, &[("read_file", json!({ "path": "src/a.rs" }), Ok(ToolFacts::default()))]),
        None
    );
    assert_eq!(turn(&mut log, &[edit("./src/a.rs", Err("edit 1 of 2: stands twice"))]), None);
    let question = turn(&mut log, &[edit("src/a.rs", Err("the file has changed since it was read"))]);
    insta::assert_snapshot!(question.expect("asks"), @r"
    3 attempts to change `src/a.rs` failed, in turns 1, 3 and 4. The last one said:
    the file has changed since it was read

    What shall the run do? Say another way, or what you mended; it goes on from here with your words, and counts anew.
    ");
}

#[test]
fn a_success_on_the_file_begins_its_count_anew() {
    let mut log = log();
    for _ in 0..4 {
        for text in ["no such text", "it stands twice"] {
            assert_eq!(turn(&mut log, &[edit("a.rs", Err(text))]), None);
        }
        let whole = ("create_file", json!({ "path": "a.rs", "content": "" }), wrote("a.rs"));
        assert_eq!(turn(&mut log, &[whole]), None, "written whole in place of edited");
    }
    assert_eq!(log.state.totals.tool_errors, 8, "what is shown of the run is not taken back");
}

#[test]
fn calls_of_one_answer_are_one_attempt() {
    let mut log = log();
    let three: Vec<Call<'_>> = (0..3).map(|_| edit("a.rs", Err("no such text"))).collect();
    assert_eq!(turn(&mut log, &three), None);
    assert_eq!(turn(&mut log, &three), None);
    assert!(turn(&mut log, &three).is_some());
}

#[test]
fn the_same_error_three_times_asks_whatever_was_called() {
    let mut log = log();
    let error = "ModuleNotFoundError: No module named 'left'";
    for (line, asks) in [("python a.py", false), ("cd b && python c.py", false), ("python3 a.py", true)] {
        let question = turn(&mut log, &[ran(line, 1, error)]);
        assert_eq!(question.is_some(), asks, "{line}");
        if let Some(question) = question {
            assert!(question.starts_with("The same error came 3 times, in turns 1, 2 and 3."), "{question}");
            assert!(question.contains("`run_command python3 a.py` said:\nas it was"), "{question}");
        }
    }
}

#[test]
fn work_that_goes_on_asks_nobody() {
    let mut log = log();
    // Looks that find nothing, each once; commands that say by their status alone what they found.
    for nth in 0..10 {
        let path = format!("{}.py", "x".repeat(nth + 1));
        let missing = format!("{path} does not exist");
        let look = ("read_file", json!({ "path": path }), Err(missing.as_str()));
        assert_eq!(turn(&mut log, &[look, ran(&format!("grep -q {path} a"), 1, "")]), None, "{path}");
    }
    // Red tests that get fewer, red and green in turn, a command that comes to pass.
    for failed in [9, 7, 3, 1, 0, 1, 0, 2, 1, 0] {
        assert_eq!(turn(&mut log, &[tested(failed, "AssertionError: 1 != 2")]), None, "{failed}");
        assert_eq!(turn(&mut log, &[edit("a.py", wrote("a.py"))]), None);
    }
    for _ in 0..3 {
        for exit in [2, 2, 0] {
            assert_eq!(turn(&mut log, &[ran("make", exit, "error: x")]), None);
        }
    }
    // Ten bad edits, each mended in the next turn.
    for nth in 0..10 {
        let path = format!("{}.rs", "y".repeat(nth + 1));
        assert_eq!(turn(&mut log, &[edit(&path, Err("no such text"))]), None);
        assert_eq!(turn(&mut log, &[edit(&path, wrote(&path))]), None, "{path}");
    }
}

#[test]
fn tests_that_fail_alike_three_times_ask() {
    let mut log = log();
    for asks in [false, false, true] {
        let question = turn(&mut log, &[tested(2, "AssertionError: 1 != 2")]);
        assert_eq!(question.is_some(), asks, "{question:?}");
        if !asks {
            assert_eq!(turn(&mut log, &[edit("a.py", wrote("a.py"))]), None);
        }
    }
}

#[test]
fn more_than_five_failures_in_all_ask_and_are_listed() {
    let mut log = log();
    let paths = ["a", "b", "c", "d", "e", "f"];
    for path in paths {
        let text = format!("{path}: no such text");
        let question = turn(&mut log, &[edit(path, Err(&text))]);
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
fn an_answer_clears_the_counts_and_words_of_a_person_are_given_a_turn() {
    let mut log = log();
    let bad = || edit("a.rs", Err("no such text"));
    turn(&mut log, &[bad()]);
    turn(&mut log, &[bad()]);
    let question = turn(&mut log, &[bad()]).expect("asks");
    let before = log.state.clone();
    log.push(Told { text: "take the other file".into(), by: "me".into() });
    assert_eq!(asked(&log), None, "told just now");
    assert!(turn(&mut log, &[bad()]).is_some(), "and it did not help");

    log.state = before;
    let (why, decision) = (BlockedWhy::Escalated, docket_schema::ids::DecisionHash::ZERO);
    log.push(RunBlocked { question: question.into(), why, outages: 0, about: None, decision });
    log.push(BlockerAnswered { text: "write it whole".into(), by: "me".into() });
    assert_eq!(asked(&log), None, "it goes on");
    for asks in [false, false, true] {
        assert_eq!(turn(&mut log, &[bad()]).is_some(), asks);
    }
}

#[test]
fn zero_is_never_and_a_log_without_the_settings_means_zero() {
    let never: RunSettings = serde_json::from_value(json!({ "turns_max": 100 })).expect("reads");
    assert_eq!((never.same_error_max, never.failed_edits_max, never.failures_max), (0, 0, 0));
    assert_eq!(never.empty_answers_max, RunSettings::default().empty_answers_max);
    let written = serde_json::to_value(RunSettings::default()).expect("serializes");
    assert_eq!(serde_json::from_value::<RunSettings>(written).expect("reads"), RunSettings::default());
    let mut log = Log::of(never, &[], "namespaces");
    for nth in 0..20 {
        assert_eq!(turn(&mut log, &[edit("a.rs", Err("no such text"))]), None, "{nth}");
    }
}

#[test]
fn the_last_turn_is_not_spent_on_a_question() {
    let mut log = Log::of(RunSettings { turns_max: 3, ..RunSettings::default() }, &[], "namespaces");
    for _ in 0..3 {
        log.say("", &[("edit_file", json!({ "path": "a" }))]);
        let facts = ToolFacts { error_signature: Some("e".into()), ..ToolFacts::default() };
        log.run_batch_with(&[(ToolStatus::Error, "no", facts)]);
    }
    assert!(matches!(log.decide().act, Act::End { .. }), "nothing could follow an answer");
}

#[test]
fn looks_at_different_missing_things_are_not_the_same_error() {
    let look = |path: &str| -> Call<'static> {
        ("read_file", json!({ "path": path }), Err("`no.txt` is not there"))
    };
    let mut log = log();
    for at in 0..8 {
        assert_eq!(turn(&mut log, &[look(&format!("no{at}.txt"))]), None, "{at}");
    }
    let mut same = self::log();
    for _ in 0..2 {
        assert_eq!(turn(&mut same, &[look("no.txt")]), None);
    }
    assert!(
        turn(&mut same, &[look("no.txt")]).is_some_and(|asked| asked.contains("The same error came 3 times"))
    );
    let settings = RunSettings { turns_max: 100, trouble_rules: 0, ..RunSettings::default() };
    let mut before = Log::of(settings, &[], "namespaces");
    for at in 0..2 {
        assert_eq!(turn(&mut before, &[look(&format!("no{at}.txt"))]), None);
    }
    assert!(turn(&mut before, &[look("no2.txt")]).is_some(), "logs from before decide as they did");
}
