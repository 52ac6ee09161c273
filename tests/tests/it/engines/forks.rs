//! A run of each engine is gone on with by each other one: its roles are pinned, what a person allowed the former engine is
//! asked again, and no question of the former engine's is open.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::TaskId,
    run::{BlockedReason, RunEvent},
    task::TaskState,
    tool::ToolSet,
};
use docket_tests::{
    scripted_talks::{ENGINES, command_script, join_talks, role_talk},
    system::{RunHistory, acquire_scenario_slot},
};
use serde_json::Value;

use super::fixture::{EngineFixture, own_events};

/// Whatever changes the file is asked about.
const ASKS: &str = "[[rules]]\nid = \"asks\"\nverdict = \"ask\"\ncommands = [\"sed *\"]\n";
const TESTS: [&str; 2] = ["--tests", "test \"$(sed -n 's/.*return //p' a.py)\" -ge 2"];

/// Forks a run at its last turn, or at this one, under another engine.
async fn fork_run(
    stage: &EngineFixture,
    run: &str,
    folder: &Path,
    (engine, script): (&str, &str),
    turn: Option<u32>,
) -> Result<TaskId> {
    let file = folder.join("fork.toml");
    std::fs::write(&file, script)?;
    let turn = turn.map(|turn| turn.to_string());
    let mut args = vec![
        "fork",
        run,
        "--engine",
        engine,
        "--model",
        "scripted:y",
        "--script",
        file.to_str().context("UTF-8")?,
    ];
    if let Some(turn) = &turn {
        args.extend(["--turn", turn]);
    }
    args.push("--json");
    let made: Value = serde_json::from_str(&stage.docket_output(&args).await?)?;
    Ok(made["task"].as_str().context("a task")?.parse()?)
}

/// Answers what policy asks, and waits for the end.
async fn answer_and_wait(stage: &EngineFixture, task: TaskId, answer: &str) -> Result<RunHistory> {
    stage.wait_until_blocked(task).await?;
    stage.docket_output(&["answer", &task.to_string(), answer]).await?;
    stage.wait_for_verified_end(task, TaskState::Completed).await
}

/// What a run must show that an engine went on with.
fn check_taken_over(history: &RunHistory, engine: &str, role: Option<&str>) -> Result<()> {
    let own = own_events(history)?;
    let RunEvent::Forked(fork) = &own[0] else { anyhow::bail!("{}", history.format_kinds()) };
    ensure!(fork.engine.as_ref().is_some_and(|found| found.name == engine), "{fork:?}");
    let pinned: Vec<_> = own
        .iter()
        .filter_map(|event| if let RunEvent::RolesPinned(e) = event { Some(e) } else { None })
        .collect();
    match role {
        None => ensure!(pinned.is_empty(), "{}", history.format_kinds()),
        Some(role) => {
            ensure!(pinned.len() == 1 && pinned[0].roles.iter().any(|one| one.name == role), "{pinned:?}");
            let begun = own.iter().position(|event| matches!(event, RunEvent::RoleBegan(_)));
            let asked = own.iter().position(|event| matches!(event, RunEvent::ModelRequested(_)));
            ensure!(begun.is_some() && begun < asked, "{}", history.format_kinds());
        }
    }
    // It is asked once, of this engine's own call; its answer is for nothing else.
    let asked = own.iter().filter(|event| match event {
        RunEvent::RunBlocked(e) => {
            e.why == BlockedReason::Policy && e.about.as_ref().is_some_and(|about| about.rule == "asks")
        }
        _ => false,
    });
    ensure!(asked.count() == 1, "a permit of the former engine's holds: {}", history.format_kinds());
    Ok(())
}

/// The first role of each engine.
fn first_role(engine: &str) -> Option<&'static str> {
    match engine {
        "plan" | "review" | "sop" => Some("planner"),
        "architect" => Some("architect"),
        "team" => Some("orchestrator"),
        _ => None,
    }
}

async fn check_forks(sources: &[&str]) -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("").await?;
    let folder = tempfile::tempdir()?;
    let policy = folder.path().join("asks.toml");
    std::fs::write(&policy, ASKS)?;
    let flags = [&TESTS[..], &["--policy", policy.to_str().context("UTF-8")?]].concat();
    for from in sources {
        let task = stage.submit_task(from, &command_script(from, 2), "2", &flags).await?;
        let source = answer_and_wait(&stage, task, "always").await.with_context(|| (*from).to_owned())?;
        let run =
            stage.coordinator.client().get_task(task).await?.task.last_run.context("a run")?.to_string();
        for to in ENGINES.into_iter().filter(|to| to != from) {
            let name = || format!("{from} to {to}");
            let fork = fork_run(&stage, &run, folder.path(), (to, &command_script(to, 7)), None)
                .await
                .with_context(name)?;
            let history = answer_and_wait(&stage, fork, "yes").await.with_context(name)?;
            check_taken_over(&history, to, first_role(to)).with_context(name)?;
            stage.assert_result(fork, 7).await.with_context(name)?;
        }
        // At its first turn, where a role's conversation has just begun.
        let to = if *from == "team" { "sop" } else { "team" };
        let fork = fork_run(&stage, &run, folder.path(), (to, &command_script(to, 7)), Some(1)).await?;
        check_taken_over(&answer_and_wait(&stage, fork, "yes").await?, to, first_role(to))
            .with_context(|| format!("{from} to {to}, turn 1"))?;
        // Only read.
        let after = stage.coordinator.run_history(run.parse()?).await?;
        ensure!(after.events.len() == source.events.len(), "{from}: the source has changed");
    }
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn react_plan_and_review_runs_continue_under_every_other_engine() -> Result<()> {
    check_forks(&ENGINES[..3]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn architect_team_and_sop_runs_continue_under_every_other_engine() -> Result<()> {
    check_forks(&ENGINES[3..]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fork_drops_open_questions_and_restores_its_own_tools() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("").await?;
    let folder = tempfile::tempdir()?;
    let asks = join_talks(&[role_talk(
        "",
        "",
        &["!{ name = \"list_files\", args = {} }", "BLOCKED: What is f to give?"],
    )]);
    let task = stage.submit_task("react", &asks, "2", &TESTS).await?;
    stage.wait_until_blocked(task).await?;
    let run = stage.coordinator.client().get_task(task).await?.task.last_run.context("a run")?.to_string();
    for to in ENGINES.into_iter().filter(|to| *to != "react") {
        let fork =
            fork_run(&stage, &run, folder.path(), (to, &command_script(to, 7)), None).await.context(to)?;
        let history = stage.wait_for_verified_end(fork, TaskState::Completed).await.context(to)?;
        let is_open =
            |event: &RunEvent| matches!(event, RunEvent::RunBlocked(_) | RunEvent::BlockerAnswered(_));
        ensure!(!own_events(&history)?.iter().any(is_open), "{to}: {}", history.format_kinds());
        // `react` goes on behind it with the seven tools that it began with, of which the wide set lacks one.
        let last =
            stage.coordinator.client().get_task(fork).await?.task.last_run.context("a run")?.to_string();
        let makes = "!{ name = \"create_file\", args = { path = \"m.txt\", content = \"more\\n\" } }";
        let back = join_talks(&[role_talk("", "", &[makes, "It is there."])]);
        let back = fork_run(&stage, &last, folder.path(), ("react", &back), None).await.context(to)?;
        let history = stage
            .wait_for_verified_end(back, TaskState::Completed)
            .await
            .with_context(|| format!("{to} to react"))?;
        let made = stage.docket_output(&["cat", &back.to_string(), "m.txt"]).await;
        ensure!(made.is_ok_and(|text| text == "more\n"), "{to} to react: {}", history.format_kinds());
    }
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_fork_to_the_same_engine_restores_its_tools() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = EngineFixture::new("").await?;
    let folder = tempfile::tempdir()?;
    let task = stage.submit_task("react", &command_script("react", 2), "2", &TESTS).await?;
    stage.wait_for_verified_end(task, TaskState::Completed).await?;
    let mut task = task;
    for number in [3, 4] {
        let run =
            stage.coordinator.client().get_task(task).await?.task.last_run.context("a run")?.to_string();
        task = fork_run(&stage, &run, folder.path(), ("team", &command_script("team", number)), None).await?;
        let history = stage
            .wait_for_verified_end(task, TaskState::Completed)
            .await
            .with_context(|| number.to_string())?;
        let pins = own_events(&history)?
            .iter()
            .filter_map(|event| if let RunEvent::RolesPinned(e) = event { Some(e) } else { None });
        let sets: Vec<_> = pins.map(|event| event.tool_set).collect();
        ensure!(sets == [Some(ToolSet::Wide)], "{number}: {sets:?}; {}", history.format_kinds());
        stage.assert_result(task, number).await?;
    }
    stage.shut_down().await
}
