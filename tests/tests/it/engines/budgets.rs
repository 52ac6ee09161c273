//! Budgets under each engine: of turns, tokens, money and time. Each ends the run with its reason, and what was done by then
//! is kept.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{FailureKind, RunEvent, RunOutcome},
    task::TaskState,
};
use docket_tests::{
    system::{History, room},
    talks::{ENGINES, Makes, by_command, makes, script, talk},
};

use super::stage::Stage;

/// Checks that fail for ever are corrected for ever; a model has a price.
const SETTINGS: &str = "[run]\ncorrections_max = 100\ncorrection_turns = 0\n[prices.\"scripted:x\"]\ninput = \"3\"\n\
                        output = \"15\"\ncache_read = \"0.3\"\ncache_write = \"3.75\"\ncontext_tokens = 200_000\n\
                        output_tokens_max = 32_000\n";
const FAILS: &str = "grep -q 'return 9' a.py";
const FAILS_SLOWLY: &str = "sleep 1; grep -q 'return 9' a.py";

/// `f` comes to give 2, which is not what is wanted, and nothing better follows.
fn never_right(engine: &str) -> String {
    let again = talk("architect", "asked again", &[r#"{"actions": [{"kind": "message", "text": "done"}]}"#]);
    match engine {
        "architect" => script(&[again, makes(engine, Makes { from: 1, to: 2, at: "", round: 1 })]),
        // What is planned again can be done again.
        _ => by_command(engine, 2),
    }
}

/// Turns in which the change is made, and one more round begins.
const fn turns(engine: &str) -> &'static str {
    match engine.as_bytes() {
        b"team" => "7",
        b"review" => "5",
        b"sop" => "4",
        _ => "3",
    }
}

/// Tokens and nano-dollars of all answers.
fn used(history: &History) -> (u64, u64) {
    let answers = history
        .events
        .iter()
        .filter_map(|event| if let RunEvent::ModelAnswered(e) = event { Some(e) } else { None });
    answers.fold((0, 0), |(tokens, cost), e| {
        (tokens + e.usage.asked_tokens() + e.usage.output_tokens, cost + e.cost_nusd)
    })
}

async fn ends(stage: &Stage, engine: &str, flags: &[&str], wanted: (FailureKind, &str)) -> Result<History> {
    let name = || format!("{engine} {flags:?}");
    let task = stage.submit(engine, &never_right(engine), "2", flags).await?;
    let history = stage.ends(task, TaskState::Discarded).await.with_context(name)?;
    let Some(RunEvent::RunEnded(end)) = history.events.last() else {
        anyhow::bail!("{}: {}", name(), history.kinds())
    };
    let RunOutcome::Failed { why, message } = &end.result else { anyhow::bail!("{}: {end:?}", name()) };
    ensure!((*why, message.contains(wanted.1)) == (wanted.0, true), "{}: {why:?}: {message}", name());
    // What was done is kept, and can be looked at.
    stage.gives(task, 2).await.with_context(name)?;
    let diff = stage.docket(&["diff", &task.to_string()]).await?;
    ensure!(diff.contains("+    return 2"), "{}: {diff}", name());
    let shown = stage.docket(&["show", &task.to_string()]).await?;
    ensure!(shown.contains(wanted.1), "{}: {shown}", name());
    Ok(history)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_budget_ends_a_run_of_each_engine_with_its_reason_and_keeps_what_was_done() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set(SETTINGS).await?;
    for engine in ENGINES {
        let capped = ["--tests", FAILS, "--turns", turns(engine)];
        let said = format!("the cap of {} turns is reached", turns(engine));
        let history = ends(&stage, engine, &capped, (FailureKind::TurnLimit, &said)).await?;
        // The same turns are paid for; `sop` wants its last one paid for as well.
        let (tokens, nusd) = used(&history);
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
            let history = ends(&stage, engine, &flags, (FailureKind::Limit, said)).await?;
            let last = history.events.iter().any(|event| match event {
                RunEvent::Concluded(e) => {
                    e.facts.iter().any(|fact| matches!(fact, docket_schema::run::Fact::LastTurn { .. }))
                }
                _ => false,
            });
            ensure!(last == (engine == "sop"), "{engine} {flag}: {}", history.kinds());
        }
    }
    stage.end().await
}
