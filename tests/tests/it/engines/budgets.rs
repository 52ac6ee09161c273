//! Budgets under each engine: of turns, tokens, money and time. Each ends the run with its reason, and what was done by then
//! is kept.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{FailureKind, RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::{
    scripted_talks::{ENGINES, FunctionChange, command_script, function_change_talks, join_talks, role_talk},
    system::{RunHistory, acquire_scenario_slot},
};

use super::fixture::EngineFixture;

/// Checks that fail for ever are corrected for ever; a model has a price.
const SETTINGS: &str = "[run]\ncorrections_max = 100\ncorrection_turns = 0\n[prices.\"scripted:x\"]\ninput = \"3\"\n\
                        output = \"15\"\ncache_read = \"0.3\"\ncache_write = \"3.75\"\ncontext_tokens = 200_000\n\
                        output_tokens_max = 32_000\n";
const FAILS: &str = "grep -q 'return 9' a.py";
const FAILS_SLOWLY: &str = "sleep 1; grep -q 'return 9' a.py";

/// `f` comes to give 2, which is not what is wanted, and nothing better follows.
fn failing_script(engine: &str) -> String {
    let again =
        role_talk("architect", "asked again", &[r#"{"actions": [{"kind": "message", "text": "done"}]}"#]);
    match engine {
        "architect" => join_talks(&[
            again,
            function_change_talks(engine, FunctionChange { from: 1, to: 2, at: "", round: 1 }),
        ]),
        // What is planned again can be done again.
        _ => command_script(engine, 2),
    }
}

/// Turns in which the change is made, and one more round begins.
const fn turn_limit(engine: &str) -> &'static str {
    match engine.as_bytes() {
        b"team" => "7",
        b"review" => "5",
        b"sop" => "4",
        _ => "3",
    }
}

/// Tokens and nano-dollars of all answers.
fn total_usage(history: &RunHistory) -> (u64, u64) {
    let answers = history
        .events
        .iter()
        .filter_map(|event| if let RunEvent::ModelAnswered(e) = event { Some(e) } else { None });
    answers.fold((0, 0), |(tokens, cost), e| {
        (tokens + e.usage.request_tokens() + e.usage.output_tokens, cost + e.cost_nusd)
    })
}

async fn assert_fails_with(
    stage: &EngineFixture,
    engine: &str,
    flags: &[&str],
    wanted: (FailureKind, &str),
) -> Result<RunHistory> {
    let name = || format!("{engine} {flags:?}");
    let task = stage.submit_task(engine, &failing_script(engine), "2", flags).await?;
    let history = stage.wait_for_verified_end(task, TaskState::Discarded).await.with_context(name)?;
    let Some(RunEvent::RunEnded(end)) = history.events.last() else {
        anyhow::bail!("{}: {}", name(), history.format_kinds())
    };
    let RunOutcome::Failed { why, message } = &end.result else { anyhow::bail!("{}: {end:?}", name()) };
    ensure!((*why, message.contains(wanted.1)) == (wanted.0, true), "{}: {why:?}: {message}", name());
    // What was done is kept, and can be looked at.
    stage.assert_result(task, 2).await.with_context(name)?;
    let diff = stage.docket_output(&["diff", &task.to_string()]).await?;
    ensure!(diff.contains("+    return 2"), "{}: {diff}", name());
    let shown = stage.docket_output(&["show", &task.to_string()]).await?;
    ensure!(shown.contains(wanted.1), "{}: {shown}", name());
    Ok(history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_budget_ends_every_engine_with_its_reason_and_keeps_the_work() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new(SETTINGS).await?;
    for engine in ENGINES {
        let capped = ["--tests", FAILS, "--turns", turn_limit(engine)];
        let said = format!("the cap of {} turns is reached", turn_limit(engine));
        let history = assert_fails_with(&stage, engine, &capped, (FailureKind::TurnLimit, &said)).await?;
        // The same turns are paid for; `sop` wants its last one paid for as well.
        let (tokens, nusd) = total_usage(&history);
        let more = if engine == "sop" { 4000 } else { 600 };
        let tokens = (tokens + more).to_string();
        // A call is made where it pays for a short answer, too.
        let dollars = nusd + more * 3000 + 4_000_000;
        let dollars = format!("{}.{:09}", dollars / 1_000_000_000, dollars % 1_000_000_000);
        for (flag, most, said) in [
            ("--max-tokens", tokens.as_str(), "the budget of"),
            ("--max-cost", dollars.as_str(), "the budget of"),
            ("--max-time", "2s", "the budget of time"),
        ] {
            let tests = if flag == "--max-time" { FAILS_SLOWLY } else { FAILS };
            let flags = ["--tests", tests, "--turns", "1000", flag, most];
            let history = assert_fails_with(&stage, engine, &flags, (FailureKind::Limit, said)).await?;
            let last = history.events.iter().any(|event| match event {
                RunEvent::Concluded(e) => {
                    e.facts.iter().any(|fact| matches!(fact, docket_schema::run::EngineFact::LastTurn { .. }))
                }
                _ => false,
            });
            ensure!(last == (engine == "sop"), "{engine} {flag}: {}", history.format_kinds());
        }
    }
    stage.shut_down().await
}
