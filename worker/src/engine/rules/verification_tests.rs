//! Tests of what the final checks are, and which of their failures a run is responsible for.

use docket_schema::{
    content::{Content, WorkspacePath},
    ids::DecisionHash,
    run::{
        BaseChecked, BlockedReason, BlockerAnswered, GateSpec, GateStep, LinterSpec, RunBlocked, RunSettings,
        RunStarted, UnverifiedPolicy,
    },
    tool::{LintResult, LintStatus, NotRun, NotRunCause, TestCounts, ToolFacts},
};
use serde_json::json;

use crate::engine::{
    Action,
    react_tests::{TestLog, describe_decision},
};

fn verification_log(gates: &[&str]) -> TestLog {
    let settings = RunSettings { turns_max: 100, corrections_max: 0, ..RunSettings::default() };
    TestLog::with_settings(settings, gates, "namespaces")
}

/// Tests that ran, with these failures.
fn test_facts(failing: &[&str]) -> ToolFacts {
    let failed = u32::try_from(failing.len()).expect("few");
    ToolFacts {
        exit: Some(i32::from(failed > 0)),
        may_have_changed_tree: true,
        tests: Some(TestCounts { passed: 1, failed, ..TestCounts::default() }),
        failing: failing.iter().map(|name| (*name).to_owned()).collect(),
        ..ToolFacts::default()
    }
}

fn run_tests(log: &mut TestLog, failing: &[&str]) {
    log.answer_with("", &[("run_tests", json!({}))]);
    log.run_batch_with(&[(docket_schema::run::ToolStatus::Ok, "ran", test_facts(failing))]);
}

fn edit_file(log: &mut TestLog) {
    log.answer_with("", &[("create_file", json!({ "path": "b.txt", "content": "b" }))]);
    let changed = vec![WorkspacePath::new("b.txt").expect("legal")];
    let facts = ToolFacts { changed, ..ToolFacts::default() };
    log.run_batch_with(&[(docket_schema::run::ToolStatus::Ok, "made", facts)]);
}

/// How a run ends whose tests fail like this at the end.
fn end_and_describe(log: &mut TestLog, failing: &[&str]) -> String {
    log.answer_with("Done.", &[]);
    log.end_gates_with_facts(&[(failing.is_empty(), test_facts(failing))]);
    describe_decision(&log.decide())
}

#[test]
fn preexisting_test_failures_do_not_fail_the_run() {
    let run = |before: &[&str], after: &[&str], pin: fn(&mut RunStarted)| {
        let mut log = verification_log(&["tests"]);
        log.edit_pins(pin);
        run_tests(&mut log, before);
        edit_file(&mut log);
        end_and_describe(&mut log, after)
    };
    assert_eq!(run(&["old"], &["old"], |_| {}), "end succeeded");
    assert_eq!(run(&["old", "other"], &["old"], |_| {}), "end succeeded");
    let failed = |tests: &str| format!("failed Gates: the final checks fail: tests ({tests})");
    assert_eq!(run(&["old"], &["new", "old"], |_| {}), failed("new, old"));
    assert_eq!(run(&[], &["old"], |_| {}), failed("old"));
    // A task that names the tests wants them to pass.
    assert_eq!(run(&["old"], &["old"], |pins| pins.tests = Some("make test".into())), failed("old"));
}

#[test]
fn only_failures_of_the_first_test_run_are_known() {
    let mut late = verification_log(&["tests"]);
    edit_file(&mut late);
    run_tests(&mut late, &["broken"]);
    assert!(end_and_describe(&mut late, &["broken"]).starts_with("failed Gates"));
    // A failure without a name: something else went wrong as well.
    let mut unnamed = verification_log(&["tests"]);
    run_tests(&mut unnamed, &["old"]);
    unnamed.answer_with("Done.", &[]);
    let mut facts = test_facts(&["old"]);
    facts.tests = Some(TestCounts { failed: 1, errors: 1, ..TestCounts::default() });
    unnamed.end_gates_with_facts(&[(false, facts)]);
    assert!(describe_decision(&unnamed.decide()).starts_with("failed Gates"));
}

/// Linters for Python; one of them also gates and fixes by itself.
fn sample_linter(name: &str, gates: bool) -> LinterSpec {
    LinterSpec {
        name: name.to_owned(),
        extensions: vec!["py".to_owned()],
        check: format!("{name} {{files}}"),
        project: None,
        fix: None,
        gates,
    }
}

/// A run at its end that left a Python file, under these rules.
fn log_at_end(mend_rules: u32, linters: &[LinterSpec]) -> TestLog {
    log_at_end_after(mend_rules, linters, &mut |_| {})
}

/// The same, after `begin`.
fn log_at_end_after(mend_rules: u32, linters: &[LinterSpec], begin: &mut dyn FnMut(&mut TestLog)) -> TestLog {
    let settings = RunSettings {
        turns_max: 100,
        corrections_max: 1,
        syntax_check: false,
        mend_rules,
        ..RunSettings::default()
    };
    let mut log = TestLog::with_settings(settings, &["tests"], "namespaces");
    log.edit_pins(|pins| pins.linters = linters.to_vec());
    begin(&mut log);
    log.add_file("b.py");
    log.answer_with("Done.", &[]);
    log
}

/// The planned checks by name; fixes are marked.
fn gate_steps(log: &TestLog) -> Vec<String> {
    match log.decide().act {
        Action::RunGates(gates) => gates
            .into_iter()
            .map(|planned| match planned.step {
                GateStep::Check => planned.gate.name,
                GateStep::Mend => format!("mend {}", planned.gate.name),
            })
            .collect(),
        _ => Vec::new(),
    }
}

#[test]
fn failed_tests_get_import_fixes_from_non_gating_linters() {
    let mut run = log_at_end(1, &[sample_linter("quiet", false)]);
    let Action::RunGates(gates) = run.decide().act else { panic!("checks") };
    let mend = gates[0].gate.mend.clone().expect("tests can be mended");
    assert_eq!((mend.imports.as_deref(), mend.command), (Some("(quiet b.py)"), None));
    run.end_gates_with_facts(&[(false, test_facts(&["a"]))]);
    assert_eq!(gate_steps(&run), ["mend tests"]);
    let changed = ToolFacts { changed: mend.files, ..ToolFacts::default() };
    run.end_gates_with_facts(&[(true, changed)]);
    assert_eq!(gate_steps(&run), ["tests"], "they run again");
    run.end_gates_with_facts(&[(false, test_facts(&["a"]))]);
    assert!(
        gate_steps(&run).is_empty() && describe_decision(&run.decide()).starts_with("ask"),
        "once: {}",
        describe_decision(&run.decide())
    );
    // As older logs were decided, and without a useful linter.
    for (rules, linters) in
        [(0, vec![sample_linter("quiet", false)]), (1, vec![]), (1, vec![sample_linter("loud", true)])]
    {
        let run = log_at_end(rules, &linters);
        let Action::RunGates(gates) = run.decide().act else { panic!("checks") };
        let tests = gates.iter().find(|planned| planned.gate.name == "tests").expect("planned");
        assert_eq!(tests.gate.mend, None, "{rules}");
    }
    let mut slow = log_at_end(1, &[sample_linter("quiet", false)]);
    slow.state.lint_timeouts.insert("quiet".to_owned(), 1);
    let Action::RunGates(gates) = slow.decide().act else { panic!("checks") };
    assert_eq!(gates[0].gate.mend, None, "it would not end at the end either");
}

#[test]
fn fix_without_effect_goes_to_the_model_at_once() {
    let mut run = log_at_end(1, &[sample_linter("loud", true)]);
    run.end_gates_with_facts(&[(false, ToolFacts::default()), (true, test_facts(&[]))]);
    assert_eq!(gate_steps(&run), ["mend loud"]);
    run.end_gates_with_facts(&[(false, ToolFacts::default())]);
    assert_eq!((gate_steps(&run).len(), run.state.corrections), (0, 1));
    let Action::CallModel(call) = run.decide().act else { panic!("the model is asked") };
    let last = format!("{:?}", call.messages.iter().last());
    assert!(last.contains("The final check `loud`") && last.contains("1 failed"), "{last}");
    let mut old = log_at_end(0, &[sample_linter("loud", true)]);
    old.end_gates_with_facts(&[(false, ToolFacts::default()), (true, test_facts(&[]))]);
    old.end_gates_with_facts(&[(true, ToolFacts::default())]);
    assert_eq!(gate_steps(&old), ["loud", "tests"], "logs from before check again");
}

#[test]
fn timed_out_check_is_not_fixed_and_missing_one_is_not_rerun() {
    let hangs = || ToolFacts { timed_out: true, ..ToolFacts::default() };
    for (rules, then) in [(0, vec!["mend loud"]), (1, vec![])] {
        let mut run = log_at_end(rules, &[sample_linter("loud", true)]);
        run.end_gates_with_facts(&[(false, hangs()), (true, test_facts(&[]))]);
        assert_eq!(gate_steps(&run), then, "rules {rules}");
    }
    let mut run = log_at_end(1, &[sample_linter("loud", true)]);
    let absent = ToolFacts {
        lint: vec![LintResult::without_findings("loud", LintStatus::Missing)],
        ..ToolFacts::default()
    };
    run.end_gates_with_facts(&[(true, absent), (false, test_facts(&["a"]))]);
    run.answer_with("Done.", &[]);
    assert_eq!(gate_steps(&run), ["tests"]);
}

#[test]
fn linter_that_ran_at_the_base_must_run_at_the_end() {
    let mend = || Some(docket_schema::run::CheckFix { command: None, files: Vec::new(), imports: None });
    let absent = || ToolFacts {
        lint: vec![LintResult::without_findings("loud", LintStatus::Missing)],
        not_run: Some(NotRun::for_missing(NotRunCause::ProgramMissing, "loud")),
        ..exit_facts(127)
    };
    for (base, passed, fails) in
        [(exit_facts(0), true, true), (exit_facts(1), false, true), (absent(), false, false)]
    {
        let gate = GateSpec { name: "loud".to_owned(), command: "loud".to_owned(), mend: mend() };
        let checked = BaseChecked { gate, passed, facts: base.clone(), duration_ms: 1, shared: false };
        let mut begin = |log: &mut TestLog| {
            log.push(checked.clone());
        };
        let mut run = log_at_end_after(1, &[sample_linter("loud", true)], &mut begin);
        run.end_gates_with_facts(&[(false, absent()), (true, test_facts(&[]))]);
        assert_eq!(run.state.corrections > 0, fails, "{base:?}");
        assert_eq!(run.state.linters_missing.contains("loud"), !fails, "{base:?}");
        assert!(run.state.undecided.is_empty(), "{base:?}");
    }
}

#[test]
fn model_test_runs_do_not_replace_the_recorded_base() {
    let mut log = TestLog::with_settings(
        RunSettings { turns_max: 100, ..RunSettings::default() },
        &["tests"],
        "namespaces",
    );
    record_base_check(&mut log, true, exit_facts(0));
    run_tests(&mut log, &["broken"]);
    let base = log.state.known_failures.base_check_result("tests").expect("recorded");
    assert_eq!(base.outcome, docket_schema::run::CheckOutcome::Passed);
}

fn planned_gates(log: &TestLog) -> Vec<String> {
    match log.decide().act {
        Action::RunGates(gates) => gates.into_iter().map(|planned| planned.gate.name).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn changed_files_are_parsed_at_the_end_even_without_a_linter() {
    let mut code = verification_log(&["requires"]);
    code.add_file("b.py");
    code.answer_with("Done.", &[]);
    assert_eq!(planned_gates(&code), ["syntax", "requires"]);
    let mut prose = verification_log(&["requires"]);
    prose.add_file("notes.md");
    prose.answer_with("Done.", &[]);
    assert_eq!(planned_gates(&prose), ["requires"]);
    let old: RunSettings = serde_json::from_value(json!({})).expect("reads");
    let mut before = TestLog::with_settings(old, &["requires"], "namespaces");
    before.add_file("b.py");
    before.answer_with("Done.", &[]);
    assert_eq!(planned_gates(&before), ["requires"], "logs from before decide as they did");
}

fn exit_facts(exit: i32) -> ToolFacts {
    ToolFacts { exit: Some(exit), ..ToolFacts::default() }
}

#[test]
fn failure_message_names_the_failed_checks() {
    let settings = RunSettings { turns_max: 100, corrections_max: 1, ..RunSettings::default() };
    let play = |settings: RunSettings| {
        let mut log = TestLog::with_settings(settings, &["requires", "lint", "tests"], "namespaces");
        edit_file(&mut log);
        for _ in 0..2 {
            log.answer_with("Done.", &[]);
            let requires = ToolFacts { failing: vec!["zzz.txt".to_owned()], ..exit_facts(1) };
            log.end_gates_with_facts(&[(false, requires), (false, exit_facts(1)), (false, exit_facts(2))]);
        }
        describe_decision(&log.decide())
    };
    assert_eq!(
        play(settings.clone()),
        "failed Gates: the final checks still fail after 1 round of correction: requires (zzz.txt); lint; tests (exit status 2)"
    );
    // Older logs end with their own message.
    assert_eq!(
        play(RunSettings { check_rules: 0, ..settings }),
        "failed Gates: the final checks still fail after 1 rounds of correction; failing: zzz.txt"
    );
}

/// Tests whose runner is not installed.
fn missing_program_facts() -> ToolFacts {
    ToolFacts { not_run: Some(NotRun::for_missing(NotRunCause::ProgramMissing, "vitest")), ..exit_facts(127) }
}

/// Tests of which these could not be loaded.
fn uncollected_facts(names: &[&str]) -> ToolFacts {
    let uncollected = names.iter().map(|name| (*name).to_owned()).collect();
    let why = NotRun { uncollected, ..NotRun::new(NotRunCause::CollectionFailed, "it cannot be loaded") };
    ToolFacts { not_run: Some(why), ..exit_facts(2) }
}

/// The result of the tests check before the run.
fn record_base_check(log: &mut TestLog, passed: bool, facts: ToolFacts) {
    let gate = GateSpec { name: "tests".to_owned(), command: "tests".to_owned(), mend: None };
    log.push(BaseChecked { gate, passed, facts, duration_ms: 1, shared: false });
}

/// The run asks, and a person answers.
fn answer_question(log: &mut TestLog, text: &str) {
    let Action::Block { question, why, .. } = log.decide().act else {
        panic!("it asks: {}", describe_decision(&log.decide()))
    };
    assert_eq!(why, BlockedReason::Unverified);
    log.push(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO });
    log.push(BlockerAnswered { by: "ann".to_owned(), text: text.into() });
}

#[test]
fn check_that_ran_before_but_not_now_goes_to_the_model() {
    for (passed, base, end) in [
        (true, exit_facts(0), uncollected_facts(&["a"])),
        (false, test_facts(&["old"]), uncollected_facts(&["a"])),
        (false, uncollected_facts(&["a"]), uncollected_facts(&["a", "b"])),
        (true, exit_facts(0), missing_program_facts()),
    ] {
        let mut log = TestLog::with_settings(
            RunSettings { turns_max: 100, ..RunSettings::default() },
            &["tests"],
            "namespaces",
        );
        record_base_check(&mut log, passed, base.clone());
        edit_file(&mut log);
        log.answer_with("Done.", &[]);
        log.end_gates_with_facts(&[(false, end.clone())]);
        assert_eq!(log.state.corrections, 1, "{base:?}, {end:?}");
        let Action::CallModel(call) = log.decide().act else {
            panic!("the model is asked: {base:?}, {end:?}")
        };
        let last = format!("{:?}", call.messages.iter().last());
        let before = if base.not_run.is_some() { "came further before" } else { "ran before" };
        assert!(last.contains(&format!("{before} your work")), "{last}");
    }
}

#[test]
fn check_that_never_ran_decides_nothing() {
    for (base, end) in [
        (missing_program_facts(), missing_program_facts()),
        (uncollected_facts(&["a", "b"]), uncollected_facts(&["a"])),
        (missing_program_facts(), uncollected_facts(&["a"])),
    ] {
        let mut log = verification_log(&["tests"]);
        record_base_check(&mut log, false, base.clone());
        edit_file(&mut log);
        log.answer_with("Done.", &[]);
        log.end_gates_with_facts(&[(false, end.clone())]);
        assert_eq!(log.state.corrections, 0, "{base:?}, {end:?}");
        answer_question(&mut log, "accept");
        assert_eq!(describe_decision(&log.decide()), "end succeeded", "{base:?}, {end:?}");
        let why = crate::engine::unverified_reason(&log.state, log.state.pins.as_ref().expect("started"));
        assert!(
            why.is_some_and(|why| why.reason.ends_with("nor did it before the work")),
            "{base:?}, {end:?}"
        );
    }
}

#[test]
fn answering_again_reruns_the_checks_once() {
    let mut log = verification_log(&["tests"]);
    edit_file(&mut log);
    log.answer_with("Done.", &[]);
    log.end_gates_with_facts(&[(false, missing_program_facts())]);
    answer_question(&mut log, "again");
    assert_eq!(planned_gates(&log), ["tests"]);
    log.end_gates_with_facts(&[(true, test_facts(&[]))]);
    assert_eq!(describe_decision(&log.decide()), "end succeeded");
    let pins = log.state.pins.clone().expect("started");
    assert_eq!(crate::engine::unverified_reason(&log.state, &pins), None, "it ran, and passed");
}

#[test]
fn unverified_setting_decides_the_outcome() {
    for (policy, ends) in [
        (UnverifiedPolicy::Complete, "end succeeded"),
        (UnverifiedPolicy::Fail, "failed Configuration: the result is unverified"),
    ] {
        let settings = RunSettings { turns_max: 100, unverified: policy, ..RunSettings::default() };
        let mut log = TestLog::with_settings(settings, &["tests"], "namespaces");
        edit_file(&mut log);
        log.answer_with("Done.", &[]);
        log.end_gates_with_facts(&[(false, missing_program_facts())]);
        assert!(
            describe_decision(&log.decide()).starts_with(ends),
            "{policy:?}: {}",
            describe_decision(&log.decide())
        );
        assert!(
            crate::engine::unverified_reason(&log.state, log.state.pins.as_ref().expect("started")).is_some()
        );
    }
}

#[test]
fn check_that_cannot_run_asks_a_person_and_costs_no_round() {
    let mut log = verification_log(&["lint", "tests"]);
    edit_file(&mut log);
    log.answer_with("Done.", &[]);
    log.end_gates_with_facts(&[(true, exit_facts(0)), (false, missing_program_facts())]);
    let Action::Block { question: Content::Text(asked), why: BlockedReason::Unverified, .. } =
        log.decide().act
    else {
        panic!("it asks a person: {}", describe_decision(&log.decide()))
    };
    let reason = "The result is unverified: the final check `tests` did not run: vitest is not there.";
    assert!(asked.starts_with(reason), "{asked}");
    assert_eq!(log.state.corrections, 0);
    // Failures that the model can fix come first.
    let settings = RunSettings { turns_max: 100, ..RunSettings::default() };
    let mut both = TestLog::with_settings(settings, &["lint", "tests"], "namespaces");
    edit_file(&mut both);
    both.answer_with("Done.", &[]);
    both.end_gates_with_facts(&[(false, exit_facts(1)), (false, missing_program_facts())]);
    assert_eq!(both.state.corrections, 1);
    assert!(describe_decision(&both.decide()).starts_with("ask"), "{}", describe_decision(&both.decide()));
}

#[test]
fn a_persons_answer_reaches_the_model_and_the_checks_rerun() {
    let mut log = verification_log(&["tests"]);
    edit_file(&mut log);
    log.answer_with("Done.", &[]);
    log.end_gates_with_facts(&[(false, missing_program_facts())]);
    answer_question(&mut log, "It is installed.");
    assert!(describe_decision(&log.decide()).starts_with("ask"), "{}", describe_decision(&log.decide()));
    log.answer_with("Done.", &[]);
    assert_eq!(planned_gates(&log), ["tests"]);
}
