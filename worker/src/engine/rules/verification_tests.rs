//! What the final checks are, and what of them a run answers for.

use docket_schema::{
    content::{Content, WorkPath},
    ids::DecisionHash,
    run::{
        BaseChecked, BlockedWhy, BlockerAnswered, GateSpec, GateStep, LinterSpec, RunBlocked, RunSettings,
        RunStarted, UnverifiedPolicy,
    },
    tool::{LintSeen, LintStatus, NotRun, NotRunCause, TestCounts, ToolFacts},
};
use serde_json::json;

use crate::engine::{
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
    let failed = |tests: &str| format!("failed Gates: the final checks fail: tests ({tests})");
    assert_eq!(run(&["old"], &["new", "old"], |_| {}), failed("new, old"));
    assert_eq!(run(&[], &["old"], |_| {}), failed("old"));
    // Who names the tests wants them to pass.
    assert_eq!(run(&["old"], &["old"], |pins| pins.tests = Some("make test".into())), failed("old"));
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

/// Linters for Python; one that gates fixes by itself as well.
fn linter(name: &str, gates: bool) -> LinterSpec {
    LinterSpec {
        name: name.to_owned(),
        extensions: vec!["py".to_owned()],
        check: format!("{name} {{files}}"),
        project: None,
        fix: None,
        gates,
    }
}

/// A run at its end that left a file of Python, under these rules.
fn at_its_end(mend_rules: u32, linters: &[LinterSpec]) -> Log {
    at_its_end_after(mend_rules, linters, &mut |_| {})
}

/// The same, after `begin`.
fn at_its_end_after(mend_rules: u32, linters: &[LinterSpec], begin: &mut dyn FnMut(&mut Log)) -> Log {
    let settings = RunSettings {
        turns_max: 100,
        corrections_max: 1,
        syntax_check: false,
        mend_rules,
        ..RunSettings::default()
    };
    let mut log = Log::of(settings, &["tests"], "namespaces");
    log.pin(|pins| pins.linters = linters.to_vec());
    begin(&mut log);
    log.leave("b.py");
    log.say("Done.", &[]);
    log
}

/// What is planned: each check by its name, a mending with a mark.
fn steps(log: &Log) -> Vec<String> {
    match log.decide().act {
        Act::RunGates(gates) => gates
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
fn tests_that_fail_have_imports_mended_by_linters_that_do_not_gate() {
    let mut run = at_its_end(1, &[linter("quiet", false)]);
    let Act::RunGates(gates) = run.decide().act else { panic!("checks") };
    let mend = gates[0].gate.mend.clone().expect("tests can be mended");
    assert_eq!((mend.imports.as_deref(), mend.command), (Some("(quiet b.py)"), None));
    run.gates_said(&[(false, tests(&["a"]))]);
    assert_eq!(steps(&run), ["mend tests"]);
    let changed = ToolFacts { changed: mend.files, ..ToolFacts::default() };
    run.gates_said(&[(true, changed)]);
    assert_eq!(steps(&run), ["tests"], "they run again");
    run.gates_said(&[(false, tests(&["a"]))]);
    assert!(
        steps(&run).is_empty() && gist(&run.decide()).starts_with("ask"),
        "once: {}",
        gist(&run.decide())
    );
    // As logs from before were decided, and where no linter is of use.
    for (rules, linters) in [(0, vec![linter("quiet", false)]), (1, vec![]), (1, vec![linter("loud", true)])]
    {
        let run = at_its_end(rules, &linters);
        let Act::RunGates(gates) = run.decide().act else { panic!("checks") };
        let tests = gates.iter().find(|planned| planned.gate.name == "tests").expect("planned");
        assert_eq!(tests.gate.mend, None, "{rules}");
    }
    let mut slow = at_its_end(1, &[linter("quiet", false)]);
    slow.state.lint_timeouts.insert("quiet".to_owned(), 1);
    let Act::RunGates(gates) = slow.decide().act else { panic!("checks") };
    assert_eq!(gates[0].gate.mend, None, "it would not end at the end either");
}

#[test]
fn a_mending_that_mended_nothing_goes_to_the_model_at_once() {
    let mut run = at_its_end(1, &[linter("loud", true)]);
    run.gates_said(&[(false, ToolFacts::default()), (true, tests(&[]))]);
    assert_eq!(steps(&run), ["mend loud"]);
    run.gates_said(&[(false, ToolFacts::default())]);
    assert_eq!((steps(&run).len(), run.state.corrections), (0, 1));
    let Act::CallModel(call) = run.decide().act else { panic!("the model is asked") };
    let last = format!("{:?}", call.messages.iter().last());
    assert!(last.contains("The final check `loud`") && last.contains("1 failed"), "{last}");
    let mut old = at_its_end(0, &[linter("loud", true)]);
    old.gates_said(&[(false, ToolFacts::default()), (true, tests(&[]))]);
    old.gates_said(&[(true, ToolFacts::default())]);
    assert_eq!(steps(&old), ["loud", "tests"], "logs from before check again");
}

#[test]
fn a_check_that_does_not_end_is_not_mended_and_one_that_is_missing_is_not_run_again() {
    let hangs = || ToolFacts { timed_out: true, ..ToolFacts::default() };
    for (rules, then) in [(0, vec!["mend loud"]), (1, vec![])] {
        let mut run = at_its_end(rules, &[linter("loud", true)]);
        run.gates_said(&[(false, hangs()), (true, tests(&[]))]);
        assert_eq!(steps(&run), then, "rules {rules}");
    }
    let mut run = at_its_end(1, &[linter("loud", true)]);
    let absent =
        ToolFacts { lint: vec![LintSeen::plain("loud", LintStatus::Missing)], ..ToolFacts::default() };
    run.gates_said(&[(true, absent), (false, tests(&["a"]))]);
    run.say("Done.", &[]);
    assert_eq!(steps(&run), ["tests"]);
}

#[test]
fn a_linter_that_ran_before_the_run_must_run_at_its_end() {
    let mend = || Some(docket_schema::run::Mend { command: None, files: Vec::new(), imports: None });
    let absent = || ToolFacts {
        lint: vec![LintSeen::plain("loud", LintStatus::Missing)],
        not_run: Some(NotRun::lacking(NotRunCause::ProgramMissing, "loud")),
        ..told(127)
    };
    for (base, passed, fails) in [(told(0), true, true), (told(1), false, true), (absent(), false, false)] {
        let gate = GateSpec { name: "loud".to_owned(), command: "loud".to_owned(), mend: mend() };
        let checked = BaseChecked { gate, passed, facts: base.clone(), duration_ms: 1, shared: false };
        let mut begin = |log: &mut Log| {
            log.push(checked.clone());
        };
        let mut run = at_its_end_after(1, &[linter("loud", true)], &mut begin);
        run.gates_said(&[(false, absent()), (true, tests(&[]))]);
        assert_eq!(run.state.corrections > 0, fails, "{base:?}");
        assert_eq!(run.state.linters_missing.contains("loud"), !fails, "{base:?}");
        assert!(run.state.undecided.is_empty(), "{base:?}");
    }
}

#[test]
fn the_models_own_tests_do_not_replace_the_recorded_base() {
    let mut log = Log::of(RunSettings { turns_max: 100, ..RunSettings::default() }, &["tests"], "namespaces");
    at_base(&mut log, true, told(0));
    ran_tests(&mut log, &["broken"]);
    let base = log.state.known_failures.at_start("tests").expect("recorded");
    assert_eq!(base.outcome, docket_schema::run::CheckOutcome::Passed);
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

fn told(exit: i32) -> ToolFacts {
    ToolFacts { exit: Some(exit), ..ToolFacts::default() }
}

#[test]
fn the_checks_that_failed_are_named() {
    let settings = RunSettings { turns_max: 100, corrections_max: 1, ..RunSettings::default() };
    let play = |settings: RunSettings| {
        let mut log = Log::of(settings, &["requires", "lint", "tests"], "namespaces");
        changed(&mut log);
        for _ in 0..2 {
            log.say("Done.", &[]);
            let requires = ToolFacts { failing: vec!["zzz.txt".to_owned()], ..told(1) };
            log.gates_said(&[(false, requires), (false, told(1)), (false, told(2))]);
        }
        gist(&log.decide())
    };
    assert_eq!(
        play(settings.clone()),
        "failed Gates: the final checks still fail after 1 round of correction: requires (zzz.txt); lint; tests (exit status 2)"
    );
    // Logs from before end with their own words.
    assert_eq!(
        play(RunSettings { check_rules: 0, ..settings }),
        "failed Gates: the final checks still fail after 1 rounds of correction; failing: zzz.txt"
    );
}

/// Tests whose runner is not installed.
fn lacks() -> ToolFacts {
    ToolFacts { not_run: Some(NotRun::lacking(NotRunCause::ProgramMissing, "vitest")), ..told(127) }
}

/// Tests of which these could not be loaded.
fn unloaded(names: &[&str]) -> ToolFacts {
    let uncollected = names.iter().map(|name| (*name).to_owned()).collect();
    let why = NotRun { uncollected, ..NotRun::because(NotRunCause::CollectionFailed, "it cannot be loaded") };
    ToolFacts { not_run: Some(why), ..told(2) }
}

/// What the check of tests came to before the run.
fn at_base(log: &mut Log, passed: bool, facts: ToolFacts) {
    let gate = GateSpec { name: "tests".to_owned(), command: "tests".to_owned(), mend: None };
    log.push(BaseChecked { gate, passed, facts, duration_ms: 1, shared: false });
}

/// The run asks, and a person answers.
fn answered(log: &mut Log, text: &str) {
    let Act::Block { question, why, .. } = log.decide().act else {
        panic!("it asks: {}", gist(&log.decide()))
    };
    assert_eq!(why, BlockedWhy::Unverified);
    log.push(RunBlocked { question, why, outages: 0, about: None, decision: DecisionHash::ZERO });
    log.push(BlockerAnswered { by: "ann".to_owned(), text: text.into() });
}

#[test]
fn a_check_that_ran_before_and_does_not_run_now_goes_back_to_the_model() {
    for (passed, base, end) in [
        (true, told(0), unloaded(&["a"])),
        (false, tests(&["old"]), unloaded(&["a"])),
        (false, unloaded(&["a"]), unloaded(&["a", "b"])),
        (true, told(0), lacks()),
    ] {
        let mut log =
            Log::of(RunSettings { turns_max: 100, ..RunSettings::default() }, &["tests"], "namespaces");
        at_base(&mut log, passed, base.clone());
        changed(&mut log);
        log.say("Done.", &[]);
        log.gates_said(&[(false, end.clone())]);
        assert_eq!(log.state.corrections, 1, "{base:?}, {end:?}");
        let Act::CallModel(call) = log.decide().act else { panic!("the model is asked: {base:?}, {end:?}") };
        let last = format!("{:?}", call.messages.iter().last());
        let before = if base.not_run.is_some() { "came further before" } else { "ran before" };
        assert!(last.contains(&format!("{before} your work")), "{last}");
    }
}

#[test]
fn a_check_that_ran_neither_before_nor_now_decides_nothing() {
    for (base, end) in
        [(lacks(), lacks()), (unloaded(&["a", "b"]), unloaded(&["a"])), (lacks(), unloaded(&["a"]))]
    {
        let mut log = log(&["tests"]);
        at_base(&mut log, false, base.clone());
        changed(&mut log);
        log.say("Done.", &[]);
        log.gates_said(&[(false, end.clone())]);
        assert_eq!(log.state.corrections, 0, "{base:?}, {end:?}");
        answered(&mut log, "accept");
        assert_eq!(gist(&log.decide()), "end succeeded", "{base:?}, {end:?}");
        let why = crate::engine::unverified(&log.state, log.state.pins.as_ref().expect("started"));
        assert!(
            why.is_some_and(|why| why.reason.ends_with("nor did it before the work")),
            "{base:?}, {end:?}"
        );
    }
}

#[test]
fn again_runs_the_checks_once_more_and_never_asks_by_itself() {
    let mut log = log(&["tests"]);
    changed(&mut log);
    log.say("Done.", &[]);
    log.gates_said(&[(false, lacks())]);
    answered(&mut log, "again");
    assert_eq!(planned(&log), ["tests"]);
    log.gates_said(&[(true, tests(&[]))]);
    assert_eq!(gist(&log.decide()), "end succeeded");
    let pins = log.state.pins.clone().expect("started");
    assert_eq!(crate::engine::unverified(&log.state, &pins), None, "it ran, and passed");
}

#[test]
fn a_setting_says_what_becomes_of_an_unverified_run() {
    for (policy, ends) in [
        (UnverifiedPolicy::Complete, "end succeeded"),
        (UnverifiedPolicy::Fail, "failed Configuration: the result is unverified"),
    ] {
        let settings = RunSettings { turns_max: 100, unverified: policy, ..RunSettings::default() };
        let mut log = Log::of(settings, &["tests"], "namespaces");
        changed(&mut log);
        log.say("Done.", &[]);
        log.gates_said(&[(false, lacks())]);
        assert!(gist(&log.decide()).starts_with(ends), "{policy:?}: {}", gist(&log.decide()));
        assert!(crate::engine::unverified(&log.state, log.state.pins.as_ref().expect("started")).is_some());
    }
}

#[test]
fn a_check_that_cannot_run_asks_a_person_and_costs_no_round() {
    let mut log = log(&["lint", "tests"]);
    changed(&mut log);
    log.say("Done.", &[]);
    log.gates_said(&[(true, told(0)), (false, lacks())]);
    let Act::Block { question: Content::Text(asked), why: BlockedWhy::Unverified, .. } = log.decide().act
    else {
        panic!("it asks a person: {}", gist(&log.decide()))
    };
    let reason = "The result is unverified: the final check `tests` did not run: vitest is not there.";
    assert!(asked.starts_with(reason), "{asked}");
    assert_eq!(log.state.corrections, 0);
    // What the model can mend comes first.
    let settings = RunSettings { turns_max: 100, ..RunSettings::default() };
    let mut both = Log::of(settings, &["lint", "tests"], "namespaces");
    changed(&mut both);
    both.say("Done.", &[]);
    both.gates_said(&[(false, told(1)), (false, lacks())]);
    assert_eq!(both.state.corrections, 1);
    assert!(gist(&both.decide()).starts_with("ask"), "{}", gist(&both.decide()));
}

#[test]
fn after_a_persons_answer_the_model_reads_it_and_the_checks_run_again() {
    let mut log = log(&["tests"]);
    changed(&mut log);
    log.say("Done.", &[]);
    log.gates_said(&[(false, lacks())]);
    answered(&mut log, "It is installed.");
    assert!(gist(&log.decide()).starts_with("ask"), "{}", gist(&log.decide()));
    log.say("Done.", &[]);
    assert_eq!(planned(&log), ["tests"]);
}
