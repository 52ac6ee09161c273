//! A worked example of a custom engine. Everything is here except its line in `all_engines()`, which would make it
//! part of this build: a role, its rules as a plain function of the recorded state, and its handling of an invalid
//! reply.

use docket_schema::{
    content::BlobRef,
    ids::DecisionHash,
    run::{
        Concluded, EngineFact, EngineRef, FailureKind, RoleBegan, RoleSpec, RunOutcome, RunSettings,
        RunStarted, RunState,
    },
};

use super::{
    Action, Decision, Engine, RoleDefinition, RoleStart, all_engines,
    react_tests::TestLog,
    roles::role_conversation::{self, FinalCheckOutcome},
    rules::budget,
};

const POET: &str = "poet";

/// Asks for three lines, and accepts nothing else.
struct VerseEngine;

impl Engine for VerseEngine {
    fn engine_ref(&self) -> EngineRef {
        EngineRef { name: "verse".to_owned(), version: 1 }
    }

    fn default_roles(&self) -> Vec<RoleDefinition> {
        vec![RoleDefinition::new(
            POET,
            "You are told of a change. Put it into three lines, and say nothing else.",
        )]
    }

    fn decide(&self, run: &RunState) -> Decision {
        // Budgets, and whatever is pinned, first.
        budget::decide_within_budget(run, |pins| next_decision(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// Returns the next decision; both variants carry one.
fn next_decision(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    // Requests of people, limits, waiting calls, compaction, failed attempts: the same for every engine.
    role_conversation::check_pending_decision(run, pins)?;
    if let Some(taken) = run.engine_state.answers.get(POET) {
        debug_assert!(taken.is_array());
        // The project's own checks decide.
        return Ok(match role_conversation::require_final_checks(run, pins)? {
            FinalCheckOutcome::Passed => role_conversation::succeed_run(run),
            FinalCheckOutcome::Failed => Decision::fail_run(run, FailureKind::Gates, "the checks fail"),
        });
    }
    if !role_conversation::is_active_role(run, POET, "the verse") {
        let (role, about) = (POET.to_owned(), "the verse".to_owned());
        return Ok(role_conversation::start_role(
            run,
            Vec::new(),
            RoleStart { role, about, opening: vec![role_conversation::task_content(pins)] },
        ));
    }
    if run.engine_state.invalid_answers >= role_conversation::INVALID_REPLIES_MAX {
        return Ok(Decision::fail_run(run, FailureKind::Plan, "three answers were no verse"));
    }
    // Whatever is needed until the role has given its final reply.
    let said = role_conversation::inline_text(role_conversation::require_final_reply(run, pins)?);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let fact = match lines.len() {
        3 => EngineFact::Answered { role: POET.to_owned(), content: serde_json::json!(lines) },
        n => {
            EngineFact::Invalid { what: "verse".to_owned(), problem: format!("it has {n} lines, not three") }
        }
    };
    Ok(role_conversation::record_facts(run, vec![fact]))
}

/// Applies its decisions like the run executor, until one needs more than the log.
fn play_answers(log: &mut TestLog, answers: &mut Vec<&str>) -> Action {
    loop {
        match VerseEngine.decide(&log.state).act {
            Action::Conclude(conclusion) => {
                let decision = DecisionHash::ZERO;
                if !conclusion.facts.is_empty() {
                    log.push(Concluded { facts: conclusion.facts, decision });
                }
                if let Some(RoleStart { role, about, opening }) = conclusion.begins {
                    log.push(RoleBegan { role, about, opening, decision });
                }
            }
            Action::CallModel(_) if !answers.is_empty() => {
                log.answer_with(answers.remove(0), &[]);
            }
            act => return act,
        }
    }
}

fn verse_log() -> TestLog {
    let mut log =
        TestLog::with_settings(RunSettings { turns_max: 100, ..RunSettings::default() }, &[], "namespaces");
    log.edit_pins(|pins| {
        let blob = BlobRef::for_bytes(b"x");
        let role = |def: RoleDefinition| RoleSpec {
            name: def.name,
            model: pins.models.main.clone(),
            system: blob,
            tools: blob,
            may: def.tools,
            answer: def.reply_schema,
            temperature_milli: None,
            effort: None,
            context_tokens_max: 0,
            writes: def.write_scope,
        };
        pins.roles = VerseEngine.default_roles().into_iter().map(role).collect();
    });
    log
}

#[test]
fn valid_reply_ends_the_run_and_invalid_one_is_returned_with_its_problem() {
    let mut log = verse_log();
    let act = play_answers(&mut log, &mut vec!["one line"]);
    let Action::CallModel(call) = act else { panic!("{act:?}") };
    assert_eq!(call.role.as_deref(), Some(POET));
    assert!(call.nudge.expect("its problem").contains("it has 1 lines, not three"));
    let act = play_answers(&mut log, &mut vec!["a line\nanother\nthe last"]);
    assert!(matches!(act, Action::End { result: RunOutcome::Succeeded, .. }), "{act:?}");
}

#[test]
fn three_invalid_replies_fail_the_run_and_the_engine_is_not_registered() {
    let act = play_answers(&mut verse_log(), &mut vec!["1", "2", "3"]);
    assert!(matches!(act, Action::End { result: RunOutcome::Failed { .. }, .. }), "{act:?}");
    assert!(all_engines().iter().all(|engine| engine.engine_ref() != VerseEngine.engine_ref()));
}
