//! What the final checks are, and what of them a run answers for.

use docket_schema::{
    content::WorkPath,
    run::{RunSettings, RunStarted},
    tool::{TestCounts, ToolFacts},
};
use serde_json::json;

use super::{
    Act,
    react_tests::{Log, gist},
};

fn log(gates: &[&str]) -> Log {
    let settings = RunSettings { turns_max: 100, corrections_max: 0, ..RunSettings::default() };
    Log::of(settings, gates, "namespaces")
}

/// Tests that ran, of which these failed.
fn tests(failing: &[&str]) -> ToolFacts {
    let failed = u32::try_from(failing.len()).expect("few");
    ToolFacts {
        exit: Some(i32::from(failed > 0)),
        may_have_changed_tree: true,
        tests: Some(TestCounts { passed: 1, failed, ..TestCounts::default() }),
        failing: failing.iter().map(|name| (*name).to_owned()).collect(),
        ..ToolFacts::default()
    }
}

fn ran_tests(log: &mut Log, failing: &[&str]) {
    log.say("", &[("run_tests", json!({}))]);
    log.run_batch_with(&[(docket_schema::run::ToolStatus::Ok, "ran", tests(failing))]);
}

fn changed(log: &mut Log) {
    log.say("", &[("create_file", json!({ "path": "b.txt", "content": "b" }))]);
    let changed = vec![WorkPath::new("b.txt").expect("legal")];
    let facts = ToolFacts { changed, ..ToolFacts::default() };
    log.run_batch_with(&[(docket_schema::run::ToolStatus::Ok, "made", facts)]);
}

/// How a run ends whose tests fail so at the end.
fn ends(log: &mut Log, failing: &[&str]) -> String {
    log.say("Done.", &[]);
    log.gates_said(&[(failing.is_empty(), tests(failing))]);
    gist(&log.decide())
}

#[test]
fn tests_that_failed_before_the_run_changed_anything_do_not_fail_it() {
    let run = |before: &[&str], after: &[&str], pin: fn(&mut RunStarted)| {
        let mut log = log(&["tests"]);
        log.pin(pin);
        ran_tests(&mut log, before);
        changed(&mut log);
        ends(&mut log, after)
    };
    assert_eq!(run(&["old"], &["old"], |_| {}), "end succeeded");
    assert_eq!(run(&["old", "other"], &["old"], |_| {}), "end succeeded");
    let failed = "failed Gates: the final checks still fail after 0 rounds of correction; failing: ";
    assert_eq!(run(&["old"], &["new", "old"], |_| {}), format!("{failed}new, old"));
    assert_eq!(run(&[], &["old"], |_| {}), format!("{failed}old"));
    // Who names the tests wants them to pass.
    assert_eq!(run(&["old"], &["old"], |pins| pins.tests = Some("make test".into())), format!("{failed}old"));
}

#[test]
fn only_what_failed_at_the_very_first_is_known() {
    let mut late = log(&["tests"]);
    changed(&mut late);
    ran_tests(&mut late, &["broken"]);
    assert!(ends(&mut late, &["broken"]).starts_with("failed Gates"));
    // A failure without a name: something else went wrong as well.
    let mut unnamed = log(&["tests"]);
    ran_tests(&mut unnamed, &["old"]);
    unnamed.say("Done.", &[]);
    let mut facts = tests(&["old"]);
    facts.tests = Some(TestCounts { failed: 1, errors: 1, ..TestCounts::default() });
    unnamed.gates_said(&[(false, facts)]);
    assert!(gist(&unnamed.decide()).starts_with("failed Gates"));
}

fn planned(log: &Log) -> Vec<String> {
    match log.decide().act {
        Act::RunGates(gates) => gates.into_iter().map(|planned| planned.gate.name).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn what_a_run_changed_is_parsed_at_the_end_whether_there_is_a_linter_or_not() {
    let mut code = log(&["requires"]);
    code.leave("b.py");
    code.say("Done.", &[]);
    assert_eq!(planned(&code), ["syntax", "requires"]);
    let mut prose = log(&["requires"]);
    prose.leave("notes.md");
    prose.say("Done.", &[]);
    assert_eq!(planned(&prose), ["requires"]);
    let old: RunSettings = serde_json::from_value(json!({})).expect("reads");
    let mut before = Log::of(old, &["requires"], "namespaces");
    before.leave("b.py");
    before.say("Done.", &[]);
    assert_eq!(planned(&before), ["requires"], "logs from before decide as they did");
}
