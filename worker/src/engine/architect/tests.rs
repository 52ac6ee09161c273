//! The rules of `architect` that real parts cannot bring about at will, one by one: given this log, the decision is that.

use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    ids::{DecisionHash, Epoch, EventHash, Seq},
    message::ModelRef,
    run::{
        BlockedWhy, BlockerAnswered, Concluded, EventMeta, Fact, ForkWhy, Forked, GateFinished,
        GateRequested, GateStep, ModelTerms, OtherModel, RoleBegan, RoleSpec, RunBlocked, RunOutcome,
        RunSettings, Told, ToolFinished, ToolRequested, ToolStatus, Verdict,
    },
    tool::{LintSeen, LintStatus, ToolFacts},
};
use serde_json::Value;

use super::{
    super::{Act, Conclusion, Decision, react_tests::Log},
    *,
};

const EDIT: &str =
    r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2", "hints": "mend total"}]}"#;
const COMMAND: &str = r#"{"actions": [{"kind": "command", "cmd": "make"}]}"#;
const MESSAGE: &str = r#"{"actions": [{"kind": "message", "text": "hello"}]}"#;
const PATCH: &str = "*** Begin Patch\n*** Update File: a.py\n-1\n+2\n*** End Patch";
const REJECT: &str = r#"{"verdict": "reject", "reason": "the other half is missing"}"#;

/// A run under the engine.
struct Play {
    log: Log,
}

impl Play {
    fn new() -> Self {
        let settings = RunSettings { turns_max: 100, corrections_max: 9, ..RunSettings::default() };
        let mut log = Log::of(settings, &["tests"], "namespaces");
        log.pin(|pins| {
            let blob = BlobRef::of(b"x");
            let model =
                |name: &str| ModelRef { provider: "scripted".into(), name: name.into(), base_url: None };
            let role = |def: RoleDef| RoleSpec {
                model: if def.name == CODER { model("cheap") } else { pins.models.main.clone() },
                name: def.name,
                system: blob,
                tools: blob,
                may: def.tools,
                answer: None,
                temperature_milli: None,
                effort: None,
                context_tokens_max: 0,
                writes: def.writes,
            };
            pins.roles = Architect.roles().into_iter().map(role).collect();
            pins.models.roles = vec![OtherModel { model: model("cheap"), terms: ModelTerms::default() }];
        });
        Self { log }
    }

    /// The next decision that is more than a conclusion, with what is concluded on the way.
    fn next(&mut self) -> (Vec<Fact>, Decision) {
        let mut all = Vec::new();
        loop {
            let decision = Architect.decide(&self.log.state);
            let Act::Conclude(conclusion) = decision.act else { return (all, decision) };
            let Conclusion { facts, begins } = *conclusion;
            if !facts.is_empty() {
                all.extend(facts.clone());
                self.log.push(Concluded { facts, decision: DecisionHash::ZERO });
            }
            if let Some(Begins { role, about, opening }) = begins {
                self.log.push(RoleBegan { role, about, opening, decision: DecisionHash::ZERO });
            }
        }
    }

    /// Whoever is asked says this.
    fn say(&mut self, role: &str, text: &str) -> &mut Self {
        let (_, decision) = self.next();
        let Act::CallModel(call) = decision.act else { panic!("{role} is not asked: {decision:?}") };
        assert_eq!(call.role.as_deref(), Some(role));
        self.log.say(text, &[]);
        self
    }

    /// The runtime's next call comes to this; gives the call.
    fn run(&mut self, status: ToolStatus, text: &str, facts: ToolFacts) -> (String, Value) {
        let (_, decision) = self.next();
        let Act::RunTools(batch) = &decision.act else { panic!("no call is made: {decision:?}") };
        let [planned] = batch.as_slice() else { panic!("{batch:?}") };
        let tool = self.log.state.wanted.front().expect("a call").clone();
        self.log.push(ToolRequested {
            call: planned.call.clone(),
            tool: planned.tool.clone(),
            class: planned.class,
            policy: Verdict::Allow { rule: "builtin".into() },
            labels: vec![],
            decision: DecisionHash::ZERO,
        });
        let (call, content) = (planned.call.clone(), text.into());
        self.log.push(ToolFinished { call, status, content, full: None, facts, duration_ms: 0 });
        (tool.name, tool.args)
    }

    fn shown(&mut self) -> Value {
        let (name, args) = self.run(ToolStatus::Ok, "total = 1\n", ToolFacts::default());
        assert_eq!(name, tools::SHOW_FILE);
        args
    }

    /// The coder is shown the file and its patch is applied, with these findings.
    fn write(&mut self, found: LintStatus) -> &mut Self {
        self.shown();
        self.say(CODER, PATCH);
        let changed = vec![WorkPath::new("a.py").expect("legal")];
        let lint = vec![LintSeen::plain("ruff", found)];
        self.run(
            ToolStatus::Ok,
            "edited a.py (matched exactly)\n",
            ToolFacts { changed, lint, ..ToolFacts::default() },
        );
        self
    }

    fn command(&mut self, exit: i32, said: &str) -> &mut Self {
        let (name, _) =
            self.run(ToolStatus::Ok, said, ToolFacts { exit: Some(exit), ..ToolFacts::default() });
        assert_eq!(name, "run_command");
        self
    }

    fn checks(&mut self, passed: bool, said: &str) -> &mut Self {
        let (_, decision) = self.next();
        let Act::RunGates(gates) = decision.act else { panic!("no checks: {decision:?}") };
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

    /// The checks pass, and the verifier says this.
    fn judge(&mut self, said: &str) -> &mut Self {
        self.checks(true, "3 passed");
        let (name, _) = self.run(ToolStatus::Ok, "--- a/a.py\n+++ b/a.py\n", ToolFacts::default());
        assert_eq!(name, tools::SHOW_CHANGES);
        self.say(VERIFIER, said)
    }

    /// A person is asked, and answers.
    fn answer(&mut self, asked: &str, said: &str) -> &mut Self {
        let (_, decision) = self.next();
        let Act::Block { question: Content::Text(question), why, .. } = decision.act else {
            panic!("nobody is asked: {decision:?}")
        };
        assert!(question.contains(asked) && why == BlockedWhy::Escalated, "{why:?} {question}");
        let (decision, question) = (DecisionHash::ZERO, question.into());
        self.log.push(RunBlocked { question, why, outages: 0, about: None, decision });
        self.log.push(BlockerAnswered { text: said.into(), by: "ann".to_owned() });
        self
    }

    fn is(&mut self, wanted: &str) {
        let (_, decision) = self.next();
        let told = match &decision.act {
            Act::CallModel(call) => format!("ask {}", call.role.as_deref().unwrap_or_default()),
            Act::RunTools(batch) => format!("run {}", batch[0].tool),
            Act::RunGates(_) => "checks".to_owned(),
            Act::Block { question: Content::Text(question), .. } => format!("block {question}"),
            Act::End { result: RunOutcome::Failed { message, .. }, .. } => format!("failed {message}"),
            Act::End { .. } => "end".to_owned(),
            other => format!("{other:?}"),
        };
        assert!(told.starts_with(wanted), "{wanted}: {told}");
    }

    fn opening(&self) -> String {
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
fn the_coder_has_its_own_model_and_no_more_of_a_file_than_its_role_may_have() {
    for (most, wanted) in [
        (0, serde_json::json!({ "path": "a.py" })),
        (
            1000,
            serde_json::json!({ "path": "a.py", "bytes_max": 2195,
                                "about": "What is to be changed: return 2\nWhat to know: mend total" }),
        ),
    ] {
        let mut play = Play::new();
        play.log.pin(|pins| {
            pins.roles
                .iter_mut()
                .filter(|role| role.name == CODER)
                .for_each(|role| role.context_tokens_max = most);
        });
        let model = |play: &mut Play| match play.next().1.act {
            Act::CallModel(call) => call.model.name.clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(model(&mut play), "x");
        play.say(ARCHITECT, EDIT);
        assert_eq!(play.shown(), wanted);
        assert_eq!(model(&mut play), "cheap");
    }
}

/// A long log of a check, of 60,000 bytes, and a hint of as many: what the coder begins with keeps to the cap.
#[test]
fn a_cap_bounds_all_that_the_coder_begins_with() {
    let log = format!("a.py:1: the first\n{}the last", "a.py:1: E1 another\n".repeat(3000));
    let mend = |most: u64| {
        let mut play = Play::new();
        play.log.pin(|pins| {
            let coder = pins.roles.iter_mut().find(|role| role.name == CODER).expect("is pinned");
            coder.context_tokens_max = most;
        });
        play.say(ARCHITECT, &EDIT.replace("mend total", &"mend total ".repeat(5000)))
            .write(LintStatus::Clean);
        play.checks(false, &log);
        let args = play.shown();
        play.is("ask coder");
        (args["bytes_max"].as_u64(), play.opening())
    };
    let (_, whole) = mend(0);
    assert!(whole.len() > 60_000 && !whole.contains("are left out"), "{}", whole.len());
    let (bytes, capped) = mend(4000);
    let bytes = bytes.expect("the file has its part");
    // Half of it at the least, and with all else no more than the cap, were the file as long as it may be.
    assert!(bytes > 5500 && capped.len() > 2000, "{bytes}, {}", capped.len());
    assert!(bytes + capped.len() as u64 <= 12_000, "{bytes}, {}", capped.len());
    for part in ["the first", "are left out", "the last", "total = 1"] {
        assert!(capped.contains(part), "{part}: {capped}");
    }
}

#[test]
fn a_third_plan_that_cannot_be_taken_is_a_persons_and_so_is_each_after_it() {
    let mut play = Play::new();
    for _ in 0..3 {
        play.is("ask architect");
        play.say(ARCHITECT, "I would change a.py.");
    }
    play.answer("3 answers in a row were to be a plan", "As JSON, please.");
    play.is("ask architect");
    assert!(play.opening().contains("As JSON, please."));
    play.say(ARCHITECT, "No.");
    play.answer("4 answers in a row", "Do.");
    play.say(ARCHITECT, MESSAGE);
    play.is("checks");
    assert_eq!(play.log.state.work.invalid, 0);
}

#[test]
fn what_a_linter_finds_the_coder_mends_once_or_says_that_it_is_meant() {
    let begun = || {
        let mut play = Play::new();
        play.say(ARCHITECT, EDIT).write(LintStatus::Findings);
        play
    };
    let phase = |play: &Play| play.log.state.work.phase.clone();
    let mut play = begun();
    play.is("run show_file");
    assert_eq!((phase(&play).as_deref(), play.log.state.work.ended[0].success), (Some(MEND), false));
    play.write(LintStatus::Clean).is("checks");
    assert_eq!(phase(&play).as_deref(), Some(WRITE));
    // The summary tells of both.
    let summaries: Vec<&String> = play.log.state.work.summaries.values().collect();
    assert_eq!(summaries, ["- return 2 (+0 −0)\n- mended: return 2 (+0 −0)"]);
    let mut play = begun();
    play.shown();
    play.say(CODER, "UNCHANGED").is("checks");
    let mut play = begun();
    play.write(LintStatus::Findings).is("ask architect");
    assert!(play.opening().contains("asked again: action 1, the edit of a.py, failed"), "{}", play.opening());
}

#[test]
fn a_command_that_fails_for_what_was_written_is_run_again_once_that_is_mended() {
    let plan = r#"{"actions": [{"kind": "edit", "file": "a.py", "description": "return 2"}, {"kind": "command", "cmd": "make"}]}"#;
    let begun = |said: &str| {
        let mut play = Play::new();
        play.say(ARCHITECT, plan).write(LintStatus::Clean).command(2, said);
        play
    };
    let mut play = begun("a.py:2: error");
    play.write(LintStatus::Clean).command(0, "ok").is("checks");
    let mut play = begun("a.py:2: error");
    play.write(LintStatus::Clean).command(2, "a.py:3: error").is("ask architect");
    let mut play = begun("a.py:2: error");
    play.shown();
    play.say(CODER, "UNCHANGED").is("ask architect");
    // It was to fail, or was not let run: nothing in the file is to be mended.
    let fails = plan.replace("\"make\"", "\"make\", \"expect\": \"fail\"");
    let mut play = Play::new();
    play.say(ARCHITECT, &fails).write(LintStatus::Clean).command(0, "ok").is("ask architect");
    assert!(play.opening().contains("`make`, was to fail and did not"));
    let mut play = Play::new();
    play.say(ARCHITECT, plan).write(LintStatus::Clean);
    play.run(ToolStatus::Refused, "Refused by policy (x): no", ToolFacts::default());
    play.is("ask architect");
    // Not its fault, as far as one can tell: the architect's to judge.
    begun("x.py:1: error\ny.py:2: error").is("ask architect");
    // Nothing was written at all.
    let mut play = Play::new();
    play.say(ARCHITECT, COMMAND).command(1, "a.py:2: error").is("ask architect");
}

#[test]
fn three_plans_are_enough_and_a_person_can_have_another() {
    let mut play = Play::new();
    for _ in 0..3 {
        play.is("ask architect");
        play.say(ARCHITECT, COMMAND).command(1, "no");
    }
    play.answer("action 1, `make`, failed: no", "Install it by hand.");
    play.is("ask architect");
    assert!(play.opening().contains("Install it by hand."));
    play.say(ARCHITECT, COMMAND).command(1, "no").is("block The work does not get on");
}

#[test]
fn the_verifier_is_heeded_once_and_then_a_person_is() {
    let mut play = Play::new();
    play.say(ARCHITECT, MESSAGE).judge(REJECT).is("ask architect");
    assert!(play.opening().contains("does not accept the work: the other half is missing"));
    play.say(ARCHITECT, MESSAGE).judge(REJECT);
    play.answer("the other half is missing", "It is in b.py.").is("ask architect");
    play.say(ARCHITECT, MESSAGE).judge(r#"{"verdict": "accept"}"#).is("end");
}

#[test]
fn a_verdict_is_one_or_asked_for_again() {
    for (said, wanted) in [
        (r#"{"verdict": "accept", "reason": "good"}"#, Ok((Judgement::Finish, "good".to_owned()))),
        (REJECT, Ok((Judgement::Replan, "the other half is missing".to_owned()))),
        (r#"{"verdict": "reject"}"#, Err("`reason` is empty")),
        (r#"{"verdict": "maybe"}"#, Err("unknown variant")),
        ("Looks fine.", Err("no JSON")),
    ] {
        match (verdict_of(said), wanted) {
            (Ok(found), Ok(wanted)) => assert_eq!(found, wanted),
            (Err(found), Err(wanted)) => assert!(found.contains(wanted), "{found}"),
            (found, wanted) => panic!("{said}: {found:?}, not {wanted:?}"),
        }
    }
    let mut play = Play::new();
    play.say(ARCHITECT, MESSAGE).judge("Looks fine.").say(VERIFIER, "Really.").say(VERIFIER, "Yes!");
    play.answer("were to be a verdict", "Answer in JSON.")
        .say(VERIFIER, r#"{"verdict": "accept"}"#)
        .is("end");
}

#[test]
fn checks_that_fail_are_mended_once_a_plan_and_end_the_run_where_no_plan_is_left() {
    let mut play = Play::new();
    for _ in 0..3 {
        play.say(ARCHITECT, EDIT).write(LintStatus::Clean).checks(false, "a.py:1: wrong");
        play.write(LintStatus::Clean).checks(false, "a.py:1: wrong");
    }
    play.is("failed the final checks still fail after 5 rounds of correction: tests");
    let mut play = Play::new();
    play.say(ARCHITECT, EDIT).write(LintStatus::Clean).checks(false, "a.py:1: wrong");
    play.write(LintStatus::Clean).judge(r#"{"verdict": "accept"}"#).is("end");
    // Where it does not lie with the file, nothing is run again in vain.
    let mut play = Play::new();
    play.say(ARCHITECT, EDIT).write(LintStatus::Clean).checks(false, "a.py:1: wrong");
    play.shown();
    play.say(CODER, "UNCHANGED").is("ask architect");
    let mut play = Play::new();
    play.say(ARCHITECT, MESSAGE).checks(false, "x.py and y.py").is("ask architect");
}

#[test]
fn what_a_person_says_is_the_architects_to_plan_by() {
    let told = || Told { by: "ann".to_owned(), text: "Add a changelog.".into() };
    // While the coder writes.
    let mut play = Play::new();
    play.say(ARCHITECT, EDIT);
    play.shown();
    play.next();
    play.log.push(told());
    play.is("ask architect");
    assert!(play.opening().contains("Add a changelog.") && play.opening().contains("something to say"));
    // While something else is the matter, with that.
    let mut play = Play::new();
    play.say(ARCHITECT, COMMAND).command(1, "no");
    play.log.push(told());
    play.is("ask architect");
    assert!(play.opening().contains("Add a changelog.") && play.opening().contains("`make`, failed: no"));
    // Behind the end, of a result that was rejected.
    let mut play = Play::new();
    play.say(ARCHITECT, MESSAGE).judge(r#"{"verdict": "accept"}"#).is("end");
    let state = &play.log.state;
    let (run, parent) =
        (docket_schema::ids::RunId(uuid::Uuid::from_u128(9)), state.pins.as_ref().expect("begun").run);
    let (task, seq, hash, turn) =
        (state.pins.as_ref().expect("begun").task, state.seq, state.hash, state.turn);
    let (why, hint) = (ForkWhy::Rejected, Some("There is no changelog.".into()));
    let forked = Forked { run, task, parent, seq, hash, turn, why, engine: None, models: None, hint };
    let meta = EventMeta { seq: Seq(1), hash: EventHash::ZERO, turn, epoch: Epoch(2) };
    play.log.state.apply(meta, forked.into()).expect("legal");
    play.is("ask architect");
    assert!(play.opening().contains("There is no changelog."), "{}", play.opening());
}

/// The log tells of each patch that was refused, of the last one as well: there it is counted (E10).
#[test]
fn of_the_last_refused_patch_the_log_tells_as_well() {
    let facts = |role_rules: u32, patch: &str| {
        let mut play = Play::new();
        play.log.pin(|pins| pins.settings.role_rules = role_rules);
        play.say(ARCHITECT, EDIT);
        for _ in 0..3 {
            play.shown();
            play.say(CODER, patch);
        }
        play.next().0
    };
    let refused = |fact: &&Fact| matches!(fact, Fact::Invalid { what, .. } if what == "patch");
    let failed = |fact: &Fact| matches!(fact, Fact::StepEnded { success: false, .. });
    for (role_rules, told) in [(1, 0), (2, 1)] {
        for patch in ["I would rather not.", "*** Begin Patch\n*** Update File: b.py\n-1\n+2\n*** End Patch"]
        {
            let facts = facts(role_rules, patch);
            assert_eq!(facts.iter().filter(refused).count(), told, "{role_rules}: {facts:?}");
            assert_eq!(facts.iter().position(failed), Some(told), "{role_rules}: {facts:?}");
        }
    }
}
