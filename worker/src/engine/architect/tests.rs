//! The rules of `architect` that integration tests cannot trigger at will, one by one: given this log, expect that
//! decision.

use docket_schema::{
    content::{BlobRef, Content, WorkspacePath},
    ids::{DecisionHash, Epoch, EventHash, Seq},
    message::ModelRef,
    run::{
        BlockedReason, BlockerAnswered, Concluded, EngineFact, EventMeta, ForkReason, Forked, GateFinished,
        GateRequested, GateStep, ModelTerms, OtherModel, PolicyVerdict, RoleBegan, RoleSpec, RunBlocked,
        RunOutcome, RunSettings, Told, ToolFinished, ToolRequested, ToolStatus,
    },
    tool::{LintResult, LintStatus, ToolFacts},
};
use serde_json::Value;

use super::{
    super::{Action, Decision, EngineUpdate, react_tests::TestLog},
    *,
};

const EDIT_PLAN: &str =
    r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2", "hints": "mend total"}]}"#;
const COMMAND_PLAN: &str = r#"{"actions": [{"kind": "command", "cmd": "make"}]}"#;
const MESSAGE_PLAN: &str = r#"{"actions": [{"kind": "message", "text": "hello"}]}"#;
const PATCH: &str = "*** Begin Patch\n*** Update File: a.py\n-1\n+2\n*** End Patch";
const REJECT_VERDICT: &str = r#"{"verdict": "reject", "reason": "the other half is missing"}"#;

/// A run under the engine.
struct ArchitectScenario {
    log: TestLog,
}

impl ArchitectScenario {
    fn new() -> Self {
        let settings = RunSettings { turns_max: 100, corrections_max: 9, ..RunSettings::default() };
        let mut log = TestLog::with_settings(settings, &["tests"], "namespaces");
        log.edit_pins(|pins| {
            let blob = BlobRef::for_bytes(b"x");
            let model =
                |name: &str| ModelRef { provider: "scripted".into(), name: name.into(), base_url: None };
            let role = |def: RoleDefinition| RoleSpec {
                model: if def.name == CODER { model("cheap") } else { pins.models.main.clone() },
                name: def.name,
                system: blob,
                tools: blob,
                may: def.tools,
                answer: None,
                temperature_milli: None,
                effort: None,
                context_tokens_max: 0,
                writes: def.write_scope,
            };
            pins.roles = ArchitectEngine.default_roles().into_iter().map(role).collect();
            pins.models.roles = vec![OtherModel { model: model("cheap"), terms: ModelTerms::default() }];
        });
        Self { log }
    }

    /// The next decision other than a conclusion, with the conclusions before it.
    fn next_decision(&mut self) -> (Vec<EngineFact>, Decision) {
        let mut all = Vec::new();
        loop {
            let decision = ArchitectEngine.decide(&self.log.state);
            let Action::Conclude(conclusion) = decision.act else { return (all, decision) };
            let EngineUpdate { facts, begins } = *conclusion;
            if !facts.is_empty() {
                all.extend(facts.clone());
                self.log.push(Concluded { facts, decision: DecisionHash::ZERO });
            }
            if let Some(RoleStart { role, about, opening }) = begins {
                self.log.push(RoleBegan { role, about, opening, decision: DecisionHash::ZERO });
            }
        }
    }

    /// The called role replies with this.
    fn reply_as(&mut self, role: &str, text: &str) -> &mut Self {
        let (_, decision) = self.next_decision();
        let Action::CallModel(call) = decision.act else { panic!("{role} is not asked: {decision:?}") };
        assert_eq!(call.role.as_deref(), Some(role));
        self.log.answer_with(text, &[]);
        self
    }

    /// The runtime's next call gets this result; returns the call.
    fn run_call(&mut self, status: ToolStatus, text: &str, facts: ToolFacts) -> (String, Value) {
        let (_, decision) = self.next_decision();
        let Action::RunTools(batch) = &decision.act else { panic!("no call is made: {decision:?}") };
        let [planned] = batch.as_slice() else { panic!("{batch:?}") };
        let tool = self.log.state.pending_calls.front().expect("a call").clone();
        self.log.push(ToolRequested {
            call: planned.call.clone(),
            tool: planned.tool.clone(),
            class: planned.class,
            policy: PolicyVerdict::Allow { rule: "builtin".into() },
            labels: vec![],
            decision: DecisionHash::ZERO,
        });
        let (call, content) = (planned.call.clone(), text.into());
        self.log.push(ToolFinished { call, status, content, full: None, facts, duration_ms: 0 });
        (tool.name, tool.args)
    }

    fn show_file(&mut self) -> Value {
        let (name, args) = self.run_call(ToolStatus::Ok, "total = 1\n", ToolFacts::default());
        assert_eq!(name, tools::SHOW_FILE);
        args
    }

    /// The coder sees the file and its patch is applied, with these findings.
    fn apply_patch(&mut self, found: LintStatus) -> &mut Self {
        self.show_file();
        self.reply_as(CODER, PATCH);
        let changed = vec![WorkspacePath::new("a.py").expect("legal")];
        let lint = vec![LintResult::without_findings("ruff", found)];
        self.run_call(
            ToolStatus::Ok,
            "edited a.py (matched exactly)\n",
            ToolFacts { changed, lint, ..ToolFacts::default() },
        );
        self
    }

    fn end_command(&mut self, exit: i32, said: &str) -> &mut Self {
        let (name, _) =
            self.run_call(ToolStatus::Ok, said, ToolFacts { exit: Some(exit), ..ToolFacts::default() });
        assert_eq!(name, "run_command");
        self
    }

    fn end_checks(&mut self, passed: bool, said: &str) -> &mut Self {
        let (_, decision) = self.next_decision();
        let Action::RunGates(gates) = decision.act else { panic!("no checks: {decision:?}") };
        for gate in &gates {
            let (call, spec) = (gate.call.clone(), gate.gate.clone());
            self.log.push(GateRequested {
                call,
                gate: spec,
                step: GateStep::Check,
                decision: DecisionHash::ZERO,
            });
        }
        for gate in gates {
            let (call, content, facts) = (gate.call, said.into(), ToolFacts::default());
            let step = GateStep::Check;
            self.log.push(GateFinished { call, step, passed, content, full: None, facts, duration_ms: 0 });
        }
        self
    }

    /// The checks pass, and the verifier replies with this.
    fn pass_checks_and_judge(&mut self, said: &str) -> &mut Self {
        self.end_checks(true, "3 passed");
        let (name, _) = self.run_call(ToolStatus::Ok, "--- a/a.py\n+++ b/a.py\n", ToolFacts::default());
        assert_eq!(name, tools::SHOW_CHANGES);
        self.reply_as(VERIFIER, said)
    }

    /// A person is asked, and answers.
    fn answer_question(&mut self, asked: &str, said: &str) -> &mut Self {
        let (_, decision) = self.next_decision();
        let Action::Block { question: Content::Text(question), why, .. } = decision.act else {
            panic!("nobody is asked: {decision:?}")
        };
        assert!(question.contains(asked) && why == BlockedReason::Escalated, "{why:?} {question}");
        let (decision, question) = (DecisionHash::ZERO, question.into());
        self.log.push(RunBlocked { question, why, outages: 0, about: None, decision });
        self.log.push(BlockerAnswered { text: said.into(), by: "ann".to_owned() });
        self
    }

    fn assert_next(&mut self, wanted: &str) {
        let (_, decision) = self.next_decision();
        let told = match &decision.act {
            Action::CallModel(call) => format!("ask {}", call.role.as_deref().unwrap_or_default()),
            Action::RunTools(batch) => format!("run {}", batch[0].tool),
            Action::RunGates(_) => "checks".to_owned(),
            Action::Block { question: Content::Text(question), .. } => format!("block {question}"),
            Action::End { result: RunOutcome::Failed { message, .. }, .. } => format!("failed {message}"),
            Action::End { .. } => "end".to_owned(),
            other => format!("{other:?}"),
        };
        assert!(told.starts_with(wanted), "{wanted}: {told}");
    }

    fn opening_text(&self) -> String {
        self.log
            .state
            .transcript
            .conversation(None)
            .iter()
            .map(|said| format!("{:?}", said.message))
            .collect()
    }
}

#[test]
fn coder_uses_its_own_model_and_sees_at_most_its_context_share_of_a_file() {
    for (most, wanted) in [
        (0, serde_json::json!({ "path": "a.py" })),
        (
            1000,
            serde_json::json!({ "path": "a.py", "bytes_max": 2195,
                                "about": "What is to be changed: return 2\nWhat to know: mend total" }),
        ),
    ] {
        let mut play = ArchitectScenario::new();
        play.log.edit_pins(|pins| {
            pins.roles
                .iter_mut()
                .filter(|role| role.name == CODER)
                .for_each(|role| role.context_tokens_max = most);
        });
        let model = |play: &mut ArchitectScenario| match play.next_decision().1.act {
            Action::CallModel(call) => call.model.name.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(model(&mut play), "x");
        play.reply_as(ARCHITECT, EDIT_PLAN);
        assert_eq!(play.show_file(), wanted);
        assert_eq!(model(&mut play), "cheap");
    }
}

/// A check's log of 60,000 bytes, and a hint of the same size: the coder's opening stays within the limit.
#[test]
fn context_cap_bounds_the_coders_whole_opening() {
    let log = format!("a.py:1: the first\n{}the last", "a.py:1: E1 another\n".repeat(3000));
    let mend = |most: u64| {
        let mut play = ArchitectScenario::new();
        play.log.edit_pins(|pins| {
            let coder = pins.roles.iter_mut().find(|role| role.name == CODER).expect("is pinned");
            coder.context_tokens_max = most;
        });
        play.reply_as(ARCHITECT, &EDIT_PLAN.replace("mend total", &"mend total ".repeat(5000)))
            .apply_patch(LintStatus::Clean);
        play.end_checks(false, &log);
        let args = play.show_file();
        play.assert_next("ask coder");
        (args["bytes_max"].as_u64(), play.opening_text())
    };
    let (_, whole) = mend(0);
    assert!(whole.len() > 60_000 && !whole.contains("are left out"), "{}", whole.len());
    let (bytes, capped) = mend(4000);
    let bytes = bytes.expect("the file has its part");
    // At least half of it, and with everything else no more than the limit even for the longest file.
    assert!(bytes > 5500 && capped.len() > 2000, "{bytes}, {}", capped.len());
    assert!(bytes + capped.len() as u64 <= 12_000, "{bytes}, {}", capped.len());
    for part in ["the first", "are left out", "the last", "total = 1"] {
        assert!(capped.contains(part), "{part}: {capped}");
    }
}

#[test]
fn third_invalid_plan_and_each_later_one_asks_a_person() {
    let mut play = ArchitectScenario::new();
    for _ in 0..3 {
        play.assert_next("ask architect");
        play.reply_as(ARCHITECT, "I would change a.py.");
    }
    play.answer_question("3 answers in a row were to be a plan", "As JSON, please.");
    play.assert_next("ask architect");
    assert!(play.opening_text().contains("As JSON, please."));
    play.reply_as(ARCHITECT, "No.");
    play.answer_question("4 answers in a row", "Do.");
    play.reply_as(ARCHITECT, MESSAGE_PLAN);
    play.assert_next("checks");
    assert_eq!(play.log.state.engine_state.invalid_answers, 0);
}

#[test]
fn coder_fixes_linter_findings_once_or_declares_them_intended() {
    let begun = || {
        let mut play = ArchitectScenario::new();
        play.reply_as(ARCHITECT, EDIT_PLAN).apply_patch(LintStatus::Findings);
        play
    };
    let phase = |play: &ArchitectScenario| play.log.state.engine_state.phase.clone();
    let mut play = begun();
    play.assert_next("run show_file");
    assert_eq!(
        (phase(&play).as_deref(), play.log.state.engine_state.finished_steps[0].success),
        (Some(FIX_PHASE), false)
    );
    play.apply_patch(LintStatus::Clean).assert_next("checks");
    assert_eq!(phase(&play).as_deref(), Some(WRITE_PHASE));
    // The summary mentions both.
    let summaries: Vec<&String> = play.log.state.engine_state.summaries.values().collect();
    assert_eq!(summaries, ["- return 2 (+0 −0)\n- mended: return 2 (+0 −0)"]);
    let mut play = begun();
    play.show_file();
    play.reply_as(CODER, "UNCHANGED").assert_next("checks");
    let mut play = begun();
    play.apply_patch(LintStatus::Findings).assert_next("ask architect");
    assert!(
        play.opening_text().contains("asked again: action 1, the edit of a.py, failed"),
        "{}",
        play.opening_text()
    );
}

#[test]
fn command_that_failed_because_of_an_edit_reruns_after_the_fix() {
    let plan = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2"}, {"kind": "command", "cmd": "make"}]}"#;
    let begun = |said: &str| {
        let mut play = ArchitectScenario::new();
        play.reply_as(ARCHITECT, plan).apply_patch(LintStatus::Clean).end_command(2, said);
        play
    };
    let mut play = begun("a.py:2: error");
    play.apply_patch(LintStatus::Clean).end_command(0, "ok").assert_next("checks");
    let mut play = begun("a.py:2: error");
    play.apply_patch(LintStatus::Clean).end_command(2, "a.py:3: error").assert_next("ask architect");
    let mut play = begun("a.py:2: error");
    play.show_file();
    play.reply_as(CODER, "UNCHANGED").assert_next("ask architect");
    // It was expected to fail, or was not allowed to run: nothing in the file needs a fix.
    let fails = plan.replace("\"make\"", "\"make\", \"expect\": \"fail\"");
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, &fails)
        .apply_patch(LintStatus::Clean)
        .end_command(0, "ok")
        .assert_next("ask architect");
    assert!(play.opening_text().contains("`make`, was to fail and did not"));
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, plan).apply_patch(LintStatus::Clean);
    play.run_call(ToolStatus::Refused, "Refused by policy (x): no", ToolFacts::default());
    play.assert_next("ask architect");
    // Not its fault, as far as can be told: the architect decides.
    begun("x.py:1: error\ny.py:2: error").assert_next("ask architect");
    // Nothing was written at all.
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, COMMAND_PLAN).end_command(1, "a.py:2: error").assert_next("ask architect");
}

#[test]
fn after_three_plans_a_person_is_asked_and_can_allow_another() {
    let mut play = ArchitectScenario::new();
    for _ in 0..3 {
        play.assert_next("ask architect");
        play.reply_as(ARCHITECT, COMMAND_PLAN).end_command(1, "no");
    }
    play.answer_question("action 1, `make`, failed: no", "Install it by hand.");
    play.assert_next("ask architect");
    assert!(play.opening_text().contains("Install it by hand."));
    play.reply_as(ARCHITECT, COMMAND_PLAN).end_command(1, "no").assert_next("block The work does not get on");
}

#[test]
fn first_rejection_replans_and_the_second_asks_a_person() {
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, MESSAGE_PLAN).pass_checks_and_judge(REJECT_VERDICT).assert_next("ask architect");
    assert!(play.opening_text().contains("does not accept the work: the other half is missing"));
    play.reply_as(ARCHITECT, MESSAGE_PLAN).pass_checks_and_judge(REJECT_VERDICT);
    play.answer_question("the other half is missing", "It is in b.py.").assert_next("ask architect");
    play.reply_as(ARCHITECT, MESSAGE_PLAN)
        .pass_checks_and_judge(r#"{"verdict": "accept"}"#)
        .assert_next("end");
}

#[test]
fn invalid_verdict_is_requested_again() {
    for (said, wanted) in [
        (r#"{"verdict": "accept", "reason": "good"}"#, Ok((ReviewVerdict::Finish, "good".to_owned()))),
        (REJECT_VERDICT, Ok((ReviewVerdict::Replan, "the other half is missing".to_owned()))),
        (r#"{"verdict": "reject"}"#, Err("`reason` is empty")),
        (r#"{"verdict": "maybe"}"#, Err("unknown variant")),
        ("Looks fine.", Err("no JSON")),
    ] {
        match (parse_verdict(said), wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found, wanted),
            (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{found}"),
            (found, wanted) => panic!("{said}: {found:?}, not {wanted:?}"),
        }
    }
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, MESSAGE_PLAN)
        .pass_checks_and_judge("Looks fine.")
        .reply_as(VERIFIER, "Really.")
        .reply_as(VERIFIER, "Yes!");
    play.answer_question("were to be a verdict", "Answer in JSON.")
        .reply_as(VERIFIER, r#"{"verdict": "accept"}"#)
        .assert_next("end");
}

#[test]
fn failed_checks_are_fixed_once_per_plan_and_fail_the_run_without_plans_left() {
    let mut play = ArchitectScenario::new();
    for _ in 0..3 {
        play.reply_as(ARCHITECT, EDIT_PLAN).apply_patch(LintStatus::Clean).end_checks(false, "a.py:1: wrong");
        play.apply_patch(LintStatus::Clean).end_checks(false, "a.py:1: wrong");
    }
    play.assert_next("failed the final checks still fail after 5 rounds of correction: tests");
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, EDIT_PLAN).apply_patch(LintStatus::Clean).end_checks(false, "a.py:1: wrong");
    play.apply_patch(LintStatus::Clean).pass_checks_and_judge(r#"{"verdict": "accept"}"#).assert_next("end");
    // If the file is not at fault, nothing is rerun needlessly.
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, EDIT_PLAN).apply_patch(LintStatus::Clean).end_checks(false, "a.py:1: wrong");
    play.show_file();
    play.reply_as(CODER, "UNCHANGED").assert_next("ask architect");
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, MESSAGE_PLAN).end_checks(false, "x.py and y.py").assert_next("ask architect");
}

#[test]
fn user_messages_reach_the_architect() {
    let told = || Told { by: "ann".to_owned(), text: "Add a changelog.".into() };
    // While the coder writes.
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, EDIT_PLAN);
    play.show_file();
    play.next_decision();
    play.log.push(told());
    play.assert_next("ask architect");
    assert!(
        play.opening_text().contains("Add a changelog.") && play.opening_text().contains("something to say")
    );
    // While another problem is pending, together with it.
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, COMMAND_PLAN).end_command(1, "no");
    play.log.push(told());
    play.assert_next("ask architect");
    assert!(
        play.opening_text().contains("Add a changelog.")
            && play.opening_text().contains("`make`, failed: no")
    );
    // After the end, for a rejected result.
    let mut play = ArchitectScenario::new();
    play.reply_as(ARCHITECT, MESSAGE_PLAN)
        .pass_checks_and_judge(r#"{"verdict": "accept"}"#)
        .assert_next("end");
    let state = &play.log.state;
    let (run, parent) =
        (docket_schema::ids::RunId(uuid::Uuid::from_u128(9)), state.pins.as_ref().expect("begun").run);
    let (task, seq, hash, turn) =
        (state.pins.as_ref().expect("begun").task, state.seq, state.hash, state.turn);
    let (why, hint) = (ForkReason::Rejected, Some("There is no changelog.".into()));
    let forked = Forked { run, task, parent, seq, hash, turn, why, engine: None, models: None, hint };
    let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn, epoch: Epoch(2) };
    play.log.state.apply(meta, forked.into()).expect("legal");
    play.assert_next("ask architect");
    assert!(play.opening_text().contains("There is no changelog."), "{}", play.opening_text());
}

/// The log records each rejected patch, including the last one: it is counted there (E10).
#[test]
fn last_refused_patch_is_recorded_too() {
    let facts = |role_rules: u32, patch: &str| {
        let mut play = ArchitectScenario::new();
        play.log.edit_pins(|pins| pins.settings.role_rules = role_rules);
        play.reply_as(ARCHITECT, EDIT_PLAN);
        for _ in 0..3 {
            play.show_file();
            play.reply_as(CODER, patch);
        }
        play.next_decision().0
    };
    let refused = |fact: &&EngineFact| matches!(fact, EngineFact::Invalid { what, .. } if what == "patch");
    let failed = |fact: &EngineFact| matches!(fact, EngineFact::StepEnded { success: false, .. });
    for (role_rules, told) in [(1, 0), (2, 1)] {
        for patch in ["I would rather not.", "*** Begin Patch\n*** Update File: b.py\n-1\n+2\n*** End Patch"]
        {
            let facts = facts(role_rules, patch);
            assert_eq!(facts.iter().filter(refused).count(), told, "{role_rules}: {facts:?}");
            assert_eq!(facts.iter().position(failed), Some(told), "{role_rules}: {facts:?}");
        }
    }
}
