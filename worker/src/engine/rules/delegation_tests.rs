//! What a run may give away, in which batches, and that it rests for it.

use docket_schema::{
    content::BlobRef,
    ids::{DecisionHash, TaskId, Turn},
    message::{CallId, ModelRef, ToolUse},
    run::{
        BlockedWhy, ChildAnswered, Delegated, PauseRequested, RoleSpec, RunBlocked, RunPaused, RunSettings,
        RunStarted, Stage, ToolFinished, ToolRequested, ToolStatus, Unpaused, Verdict, WriteScope,
    },
    tool::{ChildFacts, RecoveryClass, ToolFacts},
};
use serde_json::{Value, json};

use super::delegation;
use crate::engine::{Act, Engine as _, PlannedTool, React, RoleDef, Sop, engine, react_tests::Log};

fn may() -> RunSettings {
    RunSettings { plan_asks_max: 0, delegation_depth_max: 1, ..RunSettings::default() }
}

fn log(settings: RunSettings) -> Log {
    Log::of(settings, &[], "none")
}

fn piece(more: &Value) -> (&'static str, Value) {
    let mut args = json!({ "title": "a piece", "instructions": "do it" });
    for (name, value) in more.as_object().into_iter().flatten() {
        args[name] = value.clone();
    }
    ("delegate", args)
}

fn batch(log: &Log) -> Vec<PlannedTool> {
    match log.decide().act {
        Act::RunTools(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn names(batch: &[PlannedTool]) -> Vec<&str> {
    batch.iter().map(|tool| tool.tool.as_str()).collect()
}

fn denied(batch: &[PlannedTool]) -> Vec<Option<&str>> {
    let rule = |tool: &PlannedTool| match &tool.policy {
        Verdict::Deny { rule, .. } => Some(rule.clone()),
        Verdict::Allow { .. } | Verdict::Ask { .. } => None,
    };
    let rules: Vec<Option<String>> = batch.iter().map(rule).collect();
    rules.into_iter().map(|rule| rule.map(|rule| &*rule.leak())).collect()
}

fn child(nth: u128) -> TaskId {
    TaskId(uuid::Uuid::from_u128(nth))
}

/// Announces what the engine plans, and gives it all away.
fn give(log: &mut Log) -> Vec<CallId> {
    let planned = batch(log);
    for tool in &planned {
        let (call, tool, class) = (tool.call.clone(), tool.tool.clone(), tool.class);
        let policy = Verdict::Allow { rule: "builtin".to_owned() };
        log.push(ToolRequested { call, tool, class, policy, labels: vec![], decision: DecisionHash::ZERO });
    }
    let calls: Vec<CallId> = planned.into_iter().map(|tool| tool.call).collect();
    for (nth, call) in (10..).zip(&calls) {
        log.push(Delegated { call: call.clone(), child: child(nth) });
    }
    calls
}

fn answer(log: &mut Log, call: &CallId, nth: u128, more: bool) {
    let content = "The child task is completed.".into();
    let (call, child) = (call.clone(), child(nth));
    log.push(ChildAnswered { call, child, content, is_error: false, run: None, more });
}

fn finish(log: &mut Log, call: &CallId, tokens: u64) {
    let state = docket_schema::task::TaskState::Completed;
    let (merged, conflicts) = (Vec::new(), Vec::new());
    let child = ChildFacts {
        task: child(1),
        run: None,
        state,
        tokens,
        cost_nusd: 7,
        worked_ms: 11,
        merged,
        conflicts,
    };
    let facts = ToolFacts { child: Some(child), ..ToolFacts::default() };
    let (call, status, content) = (call.clone(), ToolStatus::Ok, "It says: done".into());
    log.push(ToolFinished { call, status, content, full: None, facts, duration_ms: 0 });
}

#[test]
fn a_run_that_may_not_decides_as_before_there_was_such_a_thing() {
    let mut log = log(RunSettings { delegation_depth_max: 0, ..may() });
    log.say("", &[piece(&json!({})), ("list_files", json!({}))]);
    let planned = batch(&log);
    assert_eq!(names(&planned), ["delegate", "list_files"]);
    assert_eq!((planned[0].class, denied(&planned)), (RecoveryClass::Reads, vec![None, None]));
}

#[test]
fn pieces_of_one_answer_are_a_batch_of_their_own_and_the_run_rests_for_all() {
    let mut log = log(may());
    log.say(
        "",
        &[("list_files", json!({})), piece(&json!({})), piece(&json!({})), ("list_files", json!({}))],
    );
    assert_eq!(names(&batch(&log)), ["list_files"]);
    log.run_batch_with(&[(ToolStatus::Ok, "a", ToolFacts::default())]);
    let planned = batch(&log);
    assert_eq!(names(&planned), ["delegate", "delegate"]);
    // Also without walls: it is made once, however often it is asked for.
    assert!(planned.iter().all(|tool| tool.class == RecoveryClass::Workspace));
    let calls = give(&mut log);
    let Act::Block { why, question, .. } = log.decide().act else { panic!("{:?}", log.decide()) };
    assert_eq!(why, BlockedWhy::Child, "what follows in the answer waits, too");
    let decision = log.decide().hash();
    log.push(RunBlocked { question, why, outages: 0, about: None, decision });
    answer(&mut log, &calls[1], 11, true);
    assert_eq!(log.state.stage, Stage::Blocked);
    answer(&mut log, &calls[0], 10, false);
    // Their calls are open again: a crash from here on finds them.
    assert_eq!(log.state.stage, Stage::Tools);
    let open: Vec<&CallId> = log.state.open_tools.iter().map(|(open, _)| &open.call).collect();
    assert_eq!(open, [&calls[0], &calls[1]]);
    assert!(calls.iter().all(|call| log.state.delegation.answer(call).is_some()));
    calls.iter().for_each(|call| finish(&mut log, call, 100));
    assert_eq!((log.state.totals.children.tokens, log.state.totals.children.cost_nusd), (200, 14));
    let spent = log.state.asking.spent(&log.state.totals);
    assert_eq!((spent.tokens, log.state.totals.children.worked_ms), (200, 22));
    assert_eq!(spent.worked_ms, log.state.asking.worked_ms + 22);
    assert_eq!(names(&batch(&log)), ["list_files"]);
}

#[test]
fn a_child_that_ends_before_its_parent_rests_spares_the_rest() {
    let mut log = log(may());
    log.say("", &[piece(&json!({}))]);
    let calls = give(&mut log);
    answer(&mut log, &calls[0], 10, false);
    assert_eq!(log.state.stage, Stage::Tools);
}

/// A crash may come between one child and the next, and the first may be back by then: what the next may use is still what
/// it was when they were asked for, or all of them together could use more than there is.
#[test]
fn a_child_that_is_back_before_the_next_is_given_away_keeps_its_place() {
    let mut log = log(RunSettings { tokens_max: 1000, ..may() });
    log.say("", &[piece(&json!({})), piece(&json!({})), piece(&json!({}))]);
    let planned = batch(&log);
    let policy = Verdict::Allow { rule: "builtin".to_owned() };
    for tool in &planned {
        let (call, tool, class, policy) = (tool.call.clone(), tool.tool.clone(), tool.class, policy.clone());
        log.push(ToolRequested { call, tool, class, policy, labels: vec![], decision: DecisionHash::ZERO });
    }
    let first = planned[0].call.clone();
    log.push(Delegated { call: first.clone(), child: child(10) });
    answer(&mut log, &first, 10, false);
    let open: Vec<&ToolUse> = log.state.open_tools.iter().map(|(_, tool)| tool).collect();
    let calls: Vec<&CallId> = open.iter().map(|tool| &tool.call).collect();
    assert_eq!(calls, planned.iter().map(|tool| &tool.call).collect::<Vec<_>>());
    let pins = log.state.pins.clone().expect("started");
    let shares = delegation::allowances(&log.state, &pins, &open, 0).into_iter();
    let shares: Vec<Option<u64>> = shares.map(|share| share.expect("enough is left").tokens).collect();
    assert_eq!(shares, [Some(500), Some(250), Some(125)]);
}

#[test]
fn a_pause_outlasts_a_childs_answer() {
    let mut log = log(may());
    log.say("", &[piece(&json!({}))]);
    let calls = give(&mut log);
    log.push(PauseRequested { by: "ann".to_owned() });
    assert_eq!(log.decide().act, Act::Pause);
    let decision = log.decide().hash();
    log.push(RunPaused { decision });
    answer(&mut log, &calls[0], 10, false);
    assert_eq!(log.state.stage, Stage::Paused);
    log.push(Unpaused { by: "ann".to_owned() });
    assert_eq!(log.state.stage, Stage::Tools);
}

#[test]
fn beyond_the_number_nothing_is_given_away() {
    let mut log = log(RunSettings { children_max: 3, ..may() });
    log.say("", &[piece(&json!({})), piece(&json!({}))]);
    let calls = give(&mut log);
    for (nth, call) in (10..).zip(&calls) {
        answer(&mut log, call, nth, nth == 10);
    }
    calls.iter().for_each(|call| finish(&mut log, call, 0));
    log.say("", &[piece(&json!({})), piece(&json!({}))]);
    assert_eq!(denied(&batch(&log)), [None, Some("children_max")]);
}

/// Of time as of all else: what children use together is never more than what is left to whoever gives it away.
#[test]
fn what_children_may_use_is_of_what_is_left() {
    let settings = RunSettings { time_max_ms: 8000, ..may() };
    let log = log(settings);
    let pins = log.state.pins.clone().expect("started");
    let tool = |nth| {
        let (name, args) = piece(&json!({}));
        ToolUse { call: CallId::tool(Turn(1), nth), name: name.to_owned(), args, malformed: None }
    };
    let calls = [tool(0), tool(1)];
    let times = |pins: &RunStarted| -> Vec<Option<u64>> {
        let engine = engine(&pins.engine).expect("an engine");
        let time_max_ms = engine.time_for_calls(&log.state, pins.settings.time_max_ms);
        delegation::allowances(&log.state, pins, &[&calls[0], &calls[1]], time_max_ms)
            .into_iter()
            .map(|allowed| allowed.expect("enough is left").time_ms)
            .collect()
    };
    assert_eq!(times(&pins), [Some(4000), Some(2000)]);
    // Whoever has a last word leaves it time: nine tenths are to be shared.
    let of_sop = RunStarted { engine: Sop.id(), ..RunStarted::clone(&pins) };
    assert_eq!(times(&of_sop), [Some(3600), Some(1800)]);
}

#[test]
fn budgets_are_of_what_is_left() {
    let wants = |tokens: u64| piece(&json!({ "budget_tokens": tokens }));
    let mut log = log(RunSettings { tokens_max: 1000, ..may() });
    log.say("", &[wants(600), wants(500), wants(400)]);
    assert_eq!(denied(&batch(&log)), [None, Some("child_budget"), None]);
    // Who says nothing gets a half of the rest; and what children used is gone.
    let mut log = self::log(RunSettings { tokens_max: 1000, ..may() });
    log.say("", &[piece(&json!({}))]);
    let calls = give(&mut log);
    answer(&mut log, &calls[0], 10, false);
    finish(&mut log, &calls[0], 900);
    log.say("", &[wants(100), wants(1)]);
    assert_eq!(denied(&batch(&log)), [None, Some("child_budget")]);
    let mut log = self::log(RunSettings { tokens_max: 0, ..may() });
    log.say("", &[wants(u64::MAX)]);
    assert_eq!(denied(&batch(&log)), [None], "no budget, no rest");
}

fn role(may: &[&str], writes: WriteScope) -> RoleSpec {
    RoleSpec {
        name: "r".to_owned(),
        model: ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
        system: BlobRef::of(b""),
        tools: BlobRef::of(b""),
        may: may.iter().map(|name| (*name).to_owned()).collect(),
        answer: None,
        temperature_milli: None,
        effort: None,
        context_tokens_max: 0,
        writes,
    }
}

/// What a child changed is merged like a change of its parent's: a role gives that away only where it may write it.
#[test]
fn a_role_gives_away_what_writes_only_where_it_may_write_everything_itself() {
    let tool = |more: Value| {
        let (name, args) = piece(&more);
        ToolUse { call: CallId::tool(Turn(1), 0), name: name.to_owned(), args, malformed: None }
    };
    let (writes, reads) = (tool(json!({ "writes": true })), tool(json!({})));
    let pins = log(may()).state.pins.expect("started");
    for (tools, scope, gives) in [
        (&["read_file", "delegate"][..], WriteScope::Any, false),
        (&["read_file", "edit_file", "delegate"], WriteScope::Any, true),
        (&["delete_file", "delegate"], WriteScope::Any, true),
        (&["run_command", "delegate"], WriteScope::Any, true),
        (&["edit_file", "run_command", "delegate"], WriteScope::Tests, false),
    ] {
        let role = role(tools, scope);
        let refused = delegation::not_given_by(&role, &pins, &writes);
        assert_eq!(refused.is_none(), gives, "{tools:?}: {refused:?}");
        assert_eq!(delegation::not_given_by(&role, &pins, &reads), None, "{tools:?}");
    }
    // What its arguments do not say it does not ask for: the call itself is told what is wrong with them.
    let odd = tool(json!({ "writes": "yes" }));
    assert_eq!(delegation::not_given_by(&role(&["delegate"], WriteScope::Any), &pins, &odd), None);
    let pins = log(RunSettings { delegation_depth_max: 0, ..may() }).state.pins.expect("started");
    assert_eq!(delegation::not_given_by(&role(&["delegate"], WriteScope::Any), &pins, &writes), None);
}

/// The line that tests a piece is a command in its parent's words: a role without commands gives none.
#[test]
fn a_role_gives_a_line_that_tests_only_where_it_may_run_it() {
    let tool = |more: Value| {
        let (name, args) = piece(&more);
        ToolUse { call: CallId::tool(Turn(1), 0), name: name.to_owned(), args, malformed: None }
    };
    let mut log = log(may());
    log.pin(|pins| pins.tests = Some("make test".to_owned()));
    let pins = log.state.pins.expect("started");
    let refused = |tools: &[&str], tests: &str, writes: bool| {
        let tool = tool(json!({ "tests": tests, "writes": writes }));
        delegation::not_given_by(&role(tools, WriteScope::Any), &pins, &tool)
    };
    for (tools, tests, gives) in [
        (&["read_file", "delegate"][..], "sed -i s/a/b/ x.py", false),
        (&["read_file", "delegate"], "make test", false),
        (&["edit_file", "delegate"], "make test", false),
        (&["edit_file", "run_tests", "delegate"], "make test", true),
        (&["edit_file", "run_tests", "delegate"], "make test; rm x", false),
        (&["run_command", "delegate"], "make test; rm x", true),
        (&["read_file", "delegate"], " ", true),
    ] {
        let told = refused(tools, tests, false);
        assert_eq!(told.is_none(), gives, "{tools:?} {tests}: {told:?}");
        assert!(told.is_none_or(|told| told.contains("leave `tests` out")), "{tools:?} {tests}");
    }
    let both = refused(&["read_file", "delegate"], "make test", true);
    assert!(both.is_some_and(|told| told.contains("leave `writes` out")));
}

/// What a piece may not call follows from what whoever gives it away may call now.
#[test]
fn a_piece_may_not_do_what_its_giver_may_not() {
    let denied = |engine: &str, phase: &str, tools: &[&str], scope: WriteScope| {
        let mut log = log(may());
        log.pin(|pins| {
            engine.clone_into(&mut pins.engine.name);
            pins.roles = vec![role(tools, scope)];
        });
        log.state.work.role = Some("r".to_owned());
        log.state.work.phase = Some(phase.to_owned());
        let pins = log.state.pins.clone().expect("started");
        delegation::not_for_pieces(
            &*crate::engine::engine(&pins.engine).expect("an engine"),
            &log.state,
            &pins,
        )
    };
    let (reads, builds) = (&["read_file", "delegate"][..], &["edit_file", "run_command", "delegate"][..]);
    let (edits, all) = (&["edit_file", "run_tests", "delegate"][..], WriteScope::Any);
    let probes = ["read_file", "git_log", "edit_file", "delete_file", "run_tests", "run_command", "mcp__*"];
    for (engine, phase, tools, scope, may) in [
        ("review", "", builds, all, &probes[..]),
        ("team", "", builds, WriteScope::Tests, &probes),
        ("architect", "", reads, all, &probes[..2]),
        ("team", "", edits, all, &probes[..5]),
        ("team", "", edits, WriteScope::Tests, &["read_file", "git_log", "run_tests"]),
        ("sop", "plan", reads, all, &probes[..2]),
        ("sop", "implement", builds, all, &probes),
        ("sop", "verify", builds, all, &probes),
        // It may not now, whatever its role has.
        ("sop", "review", builds, all, &probes[..2]),
        // Another engine's steps may be called so as well.
        ("review", "review", builds, all, &probes),
    ] {
        let denied = denied(engine, phase, tools, scope);
        let left: Vec<&str> =
            probes.into_iter().filter(|probe| !denied.iter().any(|name| name == probe)).collect();
        assert_eq!(left, may, "{engine} {phase} {tools:?}");
        let rule = docket_schema::policy::PARTS_MAX;
        assert!(denied.len() < rule, "one rule holds them: {}", denied.len());
    }
    let log = log(may());
    let pins = log.state.pins.clone().expect("started");
    assert!(delegation::not_for_pieces(&React, &log.state, &pins).is_empty(), "who has no role may do all");
}

#[test]
fn an_engine_gives_something_away_where_a_role_of_it_has_the_tool() {
    let with = |tools: &[&str]| RoleDef {
        tools: tools.iter().map(|name| (*name).to_owned()).collect(),
        ..RoleDef::of("r", "")
    };
    for (roles, why) in [
        (vec![], None),
        (vec![with(&[]), with(&["delegate"])], None),
        (vec![with(&[]), with(&["read_file"])], Some("none of its roles has the tool")),
        (vec![with(&[]), with(&[])], Some("none of its roles calls tools")),
    ] {
        let told = delegation::gives_nothing_away("e", &roles);
        assert_eq!(told.is_none(), why.is_none(), "{told:?}");
        assert!(why.is_none_or(|why| told.is_some_and(|told| told.contains("`e`") && told.contains(why))));
    }
}
