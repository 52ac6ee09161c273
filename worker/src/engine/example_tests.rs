//! A worked example: an engine of one's own. All of it stands here but its line in `engines()`, which is what makes it one of
//! this build: a role, its rules as a plain function of what is recorded, and what it does with an answer that is none.

use docket_schema::{
    content::BlobRef,
    ids::DecisionHash,
    run::{
        Concluded, EngineRef, Fact, FailureKind, RoleBegan, RoleSpec, RunOutcome, RunSettings, RunStarted,
        RunState,
    },
};

use super::{
    Act, Begins, Decision, Engine, RoleDef, engines,
    react_tests::Log,
    roles::seat::{self, Checked},
    rules::budget,
};

const POET: &str = "poet";

/// Asks for three lines, and takes no others.
struct Verse;

impl Engine for Verse {
    fn id(&self) -> EngineRef {
        EngineRef { name: "verse".to_owned(), version: 1 }
    }

    fn roles(&self) -> Vec<RoleDef> {
        vec![RoleDef::of(POET, "You are told of a change. Put it into three lines, and say nothing else.")]
    }

    fn decide(&self, run: &RunState) -> Decision {
        // Budgets, and whatever is pinned, first.
        budget::within(run, |pins| next(run, pins).unwrap_or_else(|decision| decision))
    }
}

/// What is next; either way round a decision.
fn next(run: &RunState, pins: &RunStarted) -> Result<Decision, Decision> {
    // Wishes of people, limits, calls that wait, compaction, attempts that failed: the same for every engine.
    seat::first(run, pins)?;
    if let Some(taken) = run.work.answers.get(POET) {
        debug_assert!(taken.is_array());
        // The project's own checks have the last word.
        return Ok(match seat::checks(run, pins)? {
            Checked::Passed => seat::succeed(run),
            Checked::Failed => Decision::fail(run, FailureKind::Gates, "the checks fail"),
        });
    }
    if !seat::is_at(run, POET, "the verse") {
        let (role, about) = (POET.to_owned(), "the verse".to_owned());
        return Ok(seat::begin(run, Vec::new(), Begins { role, about, opening: vec![seat::task(pins)] }));
    }
    if run.work.invalid >= seat::INVALID_MAX {
        return Ok(Decision::fail(run, FailureKind::Plan, "three answers were no verse"));
    }
    // Whatever it takes until the role has said its last word.
    let said = seat::words(seat::speak(run, pins)?);
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let fact = match lines.len() {
        3 => Fact::Answered { role: POET.to_owned(), content: serde_json::json!(lines) },
        n => Fact::Invalid { what: "verse".to_owned(), problem: format!("it has {n} lines, not three") },
    };
    Ok(seat::conclude(run, vec![fact]))
}

/// What the driver does with its decisions, until something is to be done beyond the log.
fn played(log: &mut Log, answers: &mut Vec<&str>) -> Act {
    loop {
        match Verse.decide(&log.state).act {
            Act::Conclude(conclusion) => {
                let decision = DecisionHash::ZERO;
                if !conclusion.facts.is_empty() {
                    log.push(Concluded { facts: conclusion.facts, decision });
                }
                if let Some(Begins { role, about, opening }) = conclusion.begins {
                    log.push(RoleBegan { role, about, opening, decision });
                }
            }
            Act::CallModel(_) if !answers.is_empty() => {
                log.say(answers.remove(0), &[]);
            }
            act => return act,
        }
    }
}

fn log() -> Log {
    let mut log = Log::of(RunSettings { turns_max: 100, ..RunSettings::default() }, &[], "namespaces");
    log.pin(|pins| {
        let blob = BlobRef::of(b"x");
        let role = |def: RoleDef| RoleSpec {
            name: def.name,
            model: pins.models.main.clone(),
            system: blob,
            tools: blob,
            may: def.tools,
            answer: def.answer,
            temperature_milli: None,
            effort: None,
            context_tokens_max: 0,
            writes: def.writes,
        };
        pins.roles = Verse.roles().into_iter().map(role).collect();
    });
    log
}

#[test]
fn a_verse_ends_the_run_and_what_is_none_goes_back_with_its_problem() {
    let mut log = log();
    let act = played(&mut log, &mut vec!["one line"]);
    let Act::CallModel(call) = act else { panic!("{act:?}") };
    assert_eq!(call.role.as_deref(), Some(POET));
    assert!(call.nudge.expect("its problem").contains("it has 1 lines, not three"));
    let act = played(&mut log, &mut vec!["a line\nanother\nthe last"]);
    assert!(matches!(act, Act::End { result: RunOutcome::Succeeded, .. }), "{act:?}");
}

#[test]
fn three_answers_that_are_none_end_it_and_it_is_no_engine_of_this_build() {
    let act = played(&mut log(), &mut vec!["1", "2", "3"]);
    assert!(matches!(act, Act::End { result: RunOutcome::Failed { .. }, .. }), "{act:?}");
    assert!(engines().iter().all(|engine| engine.id() != Verse.id()));
}
