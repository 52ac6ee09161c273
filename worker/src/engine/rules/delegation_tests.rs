//! Tests of what a run may delegate, in which batches, and that it rests meanwhile.

use docket_schema::{
    content::BlobRef,
    ids::{DecisionHash, TaskId, Turn},
    message::{CallId, ModelRef, ToolUse},
    run::{
        BlockedReason, ChildAnswered, Delegated, PauseRequested, PolicyVerdict, RoleSpec, RunBlocked,
        RunPaused, RunSettings, RunStage, RunStarted, ToolFinished, ToolRequested, ToolStatus, Unpaused,
        WriteScope,
    },
    tool::{ChildFacts, RecoveryClass, ToolFacts},
};
use serde_json::{Value, json};

use super::delegation;
use crate::engine::{
    Action, Engine as _, PlannedTool, ReactEngine, RoleDefinition, SopEngine, find_engine,
    react_tests::TestLog,
};

fn delegating_settings() -> RunSettings {
    RunSettings { plan_asks_max: 0, delegation_depth_max: 1, ..RunSettings::default() }
}

fn delegating_log(settings: RunSettings) -> TestLog {
    TestLog::with_settings(settings, &[], "none")
}

fn delegate_call(more: &Value) -> (&'static str, Value) {
    let mut args = json!({ "title": "a piece", "instructions": "do it" });
    for (name, value) in more.as_object().into_iter().flatten() {
        args[name] = value.clone();
    }
    ("delegate", args)
}

fn next_batch(log: &TestLog) -> Vec<PlannedTool> {
    match log.decide().act {
        Action::RunTools(batch) => batch,
        other => panic!("{other:?}"),
    }
}

fn tool_names(batch: &[PlannedTool]) -> Vec<&str> {
    batch.iter().map(|tool| tool.tool.as_str()).collect()
}

fn denied_rules(batch: &[PlannedTool]) -> Vec<Option<&str>> {
    let rule = |tool: &PlannedTool| match &tool.policy {
        PolicyVerdict::Deny { rule, .. } => Some(rule.clone()),
        PolicyVerdict::Allow { .. } | PolicyVerdict::Ask { .. } => None,
    };
    let rules: Vec<Option<String>> = batch.iter().map(rule).collect();
    rules.into_iter().map(|rule| rule.map(|rule| &*rule.leak())).collect()
}

fn child_task(nth: u128) -> TaskId {
    TaskId(uuid::Uuid::from_u128(nth))
}

/// Announces what the engine plans, and delegates all of it.
fn delegate_all(log: &mut TestLog) -> Vec<CallId> {
    let planned = next_batch(log);
    for tool in &planned {
        let (call, tool, class) = (tool.call.clone(), tool.tool.clone(), tool.class);
        let policy = PolicyVerdict::Allow { rule: "builtin".to_owned() };
        log.push(ToolRequested { call, tool, class, policy, labels: vec![], decision: DecisionHash::ZERO });
    }
    let calls: Vec<CallId> = planned.into_iter().map(|tool| tool.call).collect();
    for (nth, call) in (10..).zip(&calls) {
        log.push(Delegated { call: call.clone(), child: child_task(nth) });
    }
    calls
}

fn answer_child(log: &mut TestLog, call: &CallId, nth: u128, more: bool) {
    let content = "The child task is completed.".into();
    let (call, child) = (call.clone(), child_task(nth));
    log.push(ChildAnswered { call, child, content, is_error: false, run: None, more });
}

fn finish_call(log: &mut TestLog, call: &CallId, tokens: u64) {
    let state = docket_schema::task::TaskState::Completed;
    let (merged, conflicts) = (Vec::new(), Vec::new());
    let child = ChildFacts {
        task: child_task(1),
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
fn run_without_delegation_decides_as_before() {
    let mut log = delegating_log(RunSettings { delegation_depth_max: 0, ..delegating_settings() });
    log.answer_with("", &[delegate_call(&json!({})), ("list_files", json!({}))]);
    let planned = next_batch(&log);
    assert_eq!(tool_names(&planned), ["delegate", "list_files"]);
    assert_eq!((planned[0].class, denied_rules(&planned)), (RecoveryClass::Reads, vec![None, None]));
}

#[test]
fn delegations_form_their_own_batch_and_the_run_waits_for_all() {
    let mut log = delegating_log(delegating_settings());
    log.answer_with(
        "",
        &[
            ("list_files", json!({})),
            delegate_call(&json!({})),
            delegate_call(&json!({})),
            ("list_files", json!({})),
        ],
    );
    assert_eq!(tool_names(&next_batch(&log)), ["list_files"]);
    log.run_batch_with(&[(ToolStatus::Ok, "a", ToolFacts::default())]);
    let planned = next_batch(&log);
    assert_eq!(tool_names(&planned), ["delegate", "delegate"]);
    // Also without a sandbox: the child is created once, however often it is requested.
    assert!(planned.iter().all(|tool| tool.class == RecoveryClass::Workspace));
    let calls = delegate_all(&mut log);
    let Action::Block { why, question, .. } = log.decide().act else { panic!("{:?}", log.decide()) };
    assert_eq!(why, BlockedReason::Child, "what follows in the answer waits, too");
    let decision = log.decide().hash();
    log.push(RunBlocked { question, why, outages: 0, about: None, decision });
    answer_child(&mut log, &calls[1], 11, true);
    assert_eq!(log.state.stage, RunStage::Blocked);
    answer_child(&mut log, &calls[0], 10, false);
    // Their calls are open again: a crash from here on finds them.
    assert_eq!(log.state.stage, RunStage::Tools);
    let open: Vec<&CallId> = log.state.open_tools.iter().map(|(open, _)| &open.call).collect();
    assert_eq!(open, [&calls[0], &calls[1]]);
    assert!(calls.iter().all(|call| log.state.delegation.child_answer(call).is_some()));
    calls.iter().for_each(|call| finish_call(&mut log, call, 100));
    assert_eq!((log.state.totals.children.tokens, log.state.totals.children.cost_nusd), (200, 14));
    let spent = log.state.model_attempts.spending(&log.state.totals);
    assert_eq!((spent.tokens, log.state.totals.children.worked_ms), (200, 22));
    assert_eq!(spent.worked_ms, log.state.model_attempts.worked_ms + 22);
    assert_eq!(tool_names(&next_batch(&log)), ["list_files"]);
}

#[test]
fn child_that_ends_early_avoids_the_wait() {
    let mut log = delegating_log(delegating_settings());
    log.answer_with("", &[delegate_call(&json!({}))]);
    let calls = delegate_all(&mut log);
    answer_child(&mut log, &calls[0], 10, false);
    assert_eq!(log.state.stage, RunStage::Tools);
}

/// A crash may happen between two children, and the first may have finished when the run resumes: the next one's
/// budget stays as it was when they were requested, or together they could use more than there is.
#[test]
fn early_child_result_keeps_its_position() {
    let mut log = delegating_log(RunSettings { tokens_max: 1000, ..delegating_settings() });
    log.answer_with("", &[delegate_call(&json!({})), delegate_call(&json!({})), delegate_call(&json!({}))]);
    let planned = next_batch(&log);
    let policy = PolicyVerdict::Allow { rule: "builtin".to_owned() };
    for tool in &planned {
        let (call, tool, class, policy) = (tool.call.clone(), tool.tool.clone(), tool.class, policy.clone());
        log.push(ToolRequested { call, tool, class, policy, labels: vec![], decision: DecisionHash::ZERO });
    }
    let first = planned[0].call.clone();
    log.push(Delegated { call: first.clone(), child: child_task(10) });
    answer_child(&mut log, &first, 10, false);
    let open: Vec<&ToolUse> = log.state.open_tools.iter().map(|(_, tool)| tool).collect();
    let calls: Vec<&CallId> = open.iter().map(|tool| &tool.call).collect();
    assert_eq!(calls, planned.iter().map(|tool| &tool.call).collect::<Vec<_>>());
    let pins = log.state.pins.clone().expect("started");
    let shares = delegation::allot_child_budgets(&log.state, &pins, &open, 0).into_iter();
    let shares: Vec<Option<u64>> = shares.map(|share| share.expect("enough is left").tokens).collect();
    assert_eq!(shares, [Some(500), Some(250), Some(125)]);
}

#[test]
fn pause_survives_a_childs_answer() {
    let mut log = delegating_log(delegating_settings());
    log.answer_with("", &[delegate_call(&json!({}))]);
    let calls = delegate_all(&mut log);
    log.push(PauseRequested { by: "ann".to_owned() });
    assert_eq!(log.decide().act, Action::Pause);
    let decision = log.decide().hash();
    log.push(RunPaused { decision });
    answer_child(&mut log, &calls[0], 10, false);
    assert_eq!(log.state.stage, RunStage::Paused);
    log.push(Unpaused { by: "ann".to_owned() });
    assert_eq!(log.state.stage, RunStage::Tools);
}

#[test]
fn delegation_beyond_the_limit_is_denied() {
    let mut log = delegating_log(RunSettings { children_max: 3, ..delegating_settings() });
    log.answer_with("", &[delegate_call(&json!({})), delegate_call(&json!({}))]);
    let calls = delegate_all(&mut log);
    for (nth, call) in (10..).zip(&calls) {
        answer_child(&mut log, call, nth, nth == 10);
    }
    calls.iter().for_each(|call| finish_call(&mut log, call, 0));
    log.answer_with("", &[delegate_call(&json!({})), delegate_call(&json!({}))]);
    assert_eq!(denied_rules(&next_batch(&log)), [None, Some("children_max")]);
}

/// Time works like the other budgets: children together never use more than their parent has left.
#[test]
fn child_budgets_come_from_the_remaining_budget() {
    let settings = RunSettings { time_max_ms: 8000, ..delegating_settings() };
    let log = delegating_log(settings);
    let pins = log.state.pins.clone().expect("started");
    let tool = |nth| {
        let (name, args) = delegate_call(&json!({}));
        ToolUse { call: CallId::for_tool(Turn(1), nth), name: name.to_owned(), args, malformed: None }
    };
    let calls = [tool(0), tool(1)];
    let times = |pins: &RunStarted| -> Vec<Option<u64>> {
        let engine = find_engine(&pins.engine).expect("an engine");
        let time_max_ms = engine.call_time_budget_ms(&log.state, pins.settings.time_max_ms);
        delegation::allot_child_budgets(&log.state, pins, &[&calls[0], &calls[1]], time_max_ms)
            .into_iter()
            .map(|allowed| allowed.expect("enough is left").time_ms)
            .collect()
    };
    assert_eq!(times(&pins), [Some(4000), Some(2000)]);
    // An engine with a last turn reserves time for it: nine tenths are shared.
    let of_sop = RunStarted { engine: SopEngine.engine_ref(), ..RunStarted::clone(&pins) };
    assert_eq!(times(&of_sop), [Some(3600), Some(1800)]);
}

#[test]
fn allotted_budgets_never_exceed_the_remainder() {
    let wants = |tokens: u64| delegate_call(&json!({ "budget_tokens": tokens }));
    let mut log = delegating_log(RunSettings { tokens_max: 1000, ..delegating_settings() });
    log.answer_with("", &[wants(600), wants(500), wants(400)]);
    assert_eq!(denied_rules(&next_batch(&log)), [None, Some("child_budget"), None]);
    // A call that requests nothing gets half of the rest, after the usage of earlier children.
    let mut log = self::delegating_log(RunSettings { tokens_max: 1000, ..delegating_settings() });
    log.answer_with("", &[delegate_call(&json!({}))]);
    let calls = delegate_all(&mut log);
    answer_child(&mut log, &calls[0], 10, false);
    finish_call(&mut log, &calls[0], 900);
    log.answer_with("", &[wants(100), wants(1)]);
    assert_eq!(denied_rules(&next_batch(&log)), [None, Some("child_budget")]);
    let mut log = self::delegating_log(RunSettings { tokens_max: 0, ..delegating_settings() });
    log.answer_with("", &[wants(u64::MAX)]);
    assert_eq!(denied_rules(&next_batch(&log)), [None], "no budget, no rest");
}

fn role_spec(may: &[&str], writes: WriteScope) -> RoleSpec {
    RoleSpec {
        name: "r".to_owned(),
        model: ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
        system: BlobRef::for_bytes(b""),
        tools: BlobRef::for_bytes(b""),
        may: may.iter().map(|name| (*name).to_owned()).collect(),
        answer: None,
        temperature_milli: None,
        effort: None,
        context_tokens_max: 0,
        writes,
    }
}

/// A child's changes are merged like its parent's own: a role delegates writing only where it may write itself.
#[test]
fn role_delegates_writing_only_if_it_may_write_everything() {
    let tool = |more: Value| {
        let (name, args) = delegate_call(&more);
        ToolUse { call: CallId::for_tool(Turn(1), 0), name: name.to_owned(), args, malformed: None }
    };
    let (writes, reads) = (tool(json!({ "writes": true })), tool(json!({})));
    let pins = delegating_log(delegating_settings()).state.pins.expect("started");
    for (tools, scope, gives) in [
        (&["read_file", "delegate"][..], WriteScope::Any, false),
        (&["read_file", "edit_file", "delegate"], WriteScope::Any, true),
        (&["delete_file", "delegate"], WriteScope::Any, true),
        (&["run_command", "delegate"], WriteScope::Any, true),
        (&["edit_file", "run_command", "delegate"], WriteScope::Tests, false),
    ] {
        let role = role_spec(tools, scope);
        let refused = delegation::delegation_denied_reason(&role, &pins, &writes);
        assert_eq!(refused.is_none(), gives, "{tools:?}: {refused:?}");
        assert_eq!(delegation::delegation_denied_reason(&role, &pins, &reads), None, "{tools:?}");
    }
    // Invalid arguments request nothing: the call itself reports what is wrong with them.
    let odd = tool(json!({ "writes": "yes" }));
    assert_eq!(
        delegation::delegation_denied_reason(&role_spec(&["delegate"], WriteScope::Any), &pins, &odd),
        None
    );
    let pins = delegating_log(RunSettings { delegation_depth_max: 0, ..delegating_settings() })
        .state
        .pins
        .expect("started");
    assert_eq!(
        delegation::delegation_denied_reason(&role_spec(&["delegate"], WriteScope::Any), &pins, &writes),
        None
    );
}

/// A child's test command runs as its parent's command: a role without commands cannot set one.
#[test]
fn role_delegates_a_test_command_only_if_it_may_run_it() {
    let tool = |more: Value| {
        let (name, args) = delegate_call(&more);
        ToolUse { call: CallId::for_tool(Turn(1), 0), name: name.to_owned(), args, malformed: None }
    };
    let mut log = delegating_log(delegating_settings());
    log.edit_pins(|pins| pins.tests = Some("make test".to_owned()));
    let pins = log.state.pins.expect("started");
    let refused = |tools: &[&str], tests: &str, writes: bool| {
        let tool = tool(json!({ "tests": tests, "writes": writes }));
        delegation::delegation_denied_reason(&role_spec(tools, WriteScope::Any), &pins, &tool)
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

/// The tools denied to a child follow from what its parent may call now.
#[test]
fn child_may_not_do_what_its_parent_may_not() {
    let denied = |engine: &str, phase: &str, tools: &[&str], scope: WriteScope| {
        let mut log = delegating_log(delegating_settings());
        log.edit_pins(|pins| {
            engine.clone_into(&mut pins.engine.name);
            pins.roles = vec![role_spec(tools, scope)];
        });
        log.state.engine_state.role = Some("r".to_owned());
        log.state.engine_state.phase = Some(phase.to_owned());
        let pins = log.state.pins.clone().expect("started");
        delegation::tools_denied_to_children(
            &*crate::engine::find_engine(&pins.engine).expect("an engine"),
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
        // Not allowed now, whatever tools its role has.
        ("sop", "review", builds, all, &probes[..2]),
        // Steps of another engine may have the same name.
        ("review", "review", builds, all, &probes),
    ] {
        let denied = denied(engine, phase, tools, scope);
        let left: Vec<&str> =
            probes.into_iter().filter(|probe| !denied.iter().any(|name| name == probe)).collect();
        assert_eq!(left, may, "{engine} {phase} {tools:?}");
        let rule = docket_schema::policy::PARTS_MAX;
        assert!(denied.len() < rule, "one rule holds them: {}", denied.len());
    }
    let log = delegating_log(delegating_settings());
    let pins = log.state.pins.clone().expect("started");
    assert!(
        delegation::tools_denied_to_children(&ReactEngine, &log.state, &pins).is_empty(),
        "who has no role may do all"
    );
}

#[test]
fn engine_can_delegate_if_one_role_has_the_tool() {
    let with = |tools: &[&str]| RoleDefinition {
        tools: tools.iter().map(|name| (*name).to_owned()).collect(),
        ..RoleDefinition::new("r", "")
    };
    for (roles, why) in [
        (vec![], None),
        (vec![with(&[]), with(&["delegate"])], None),
        (vec![with(&[]), with(&["read_file"])], Some("none of its roles has the tool")),
        (vec![with(&[]), with(&[])], Some("none of its roles calls tools")),
    ] {
        let told = delegation::cannot_delegate_reason("e", &roles);
        assert_eq!(told.is_none(), why.is_none(), "{told:?}");
        assert!(why.is_none_or(|why| told.is_some_and(|told| told.contains("`e`") && told.contains(why))));
    }
}
