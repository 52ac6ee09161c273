//! A run of each engine is gone on with by each other one: its roles are pinned, what a person allowed the former engine is
//! asked again, and no question of the former engine's is open.

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::TaskId,
    run::{BlockedWhy, RunEvent},
    task::TaskState,
    tool::ToolSet,
};
use docket_tests::{
    system::{History, room},
    talks::{ENGINES, by_command, script, talk},
};
use serde_json::Value;

use super::stage::{Stage, own};

/// Whatever changes the file is asked about.
const ASKS: &str = "[[rules]]\nid = \"asks\"\nverdict = \"ask\"\ncommands = [\"sed *\"]\n";
const TESTS: [&str; 2] = ["--tests", "test \"$(sed -n 's/.*return //p' a.py)\" -ge 2"];

/// Forks a run at its last turn, or at this one, under another engine.
async fn forked(
    stage: &Stage,
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
    let made: Value = serde_json::from_str(&stage.docket(&args).await?)?;
    Ok(made["task"].as_str().context("a task")?.parse()?)
}

/// Answers what policy asks, and waits for the end.
async fn answered(stage: &Stage, task: TaskId, answer: &str) -> Result<History> {
    stage.asks(task).await?;
    stage.docket(&["answer", &task.to_string(), answer]).await?;
    stage.ends(task, TaskState::Completed).await
}

/// What a run must show that an engine went on with.
fn taken_over(history: &History, engine: &str, role: Option<&str>) -> Result<()> {
    let own = own(history)?;
    let RunEvent::Forked(fork) = &own[0] else { anyhow::bail!("{}", history.kinds()) };
    ensure!(fork.engine.as_ref().is_some_and(|found| found.name == engine), "{fork:?}");
    let pinned: Vec<_> = own
        .iter()
        .filter_map(|event| if let RunEvent::RolesPinned(e) = event { Some(e) } else { None })
        .collect();
    match role {
        None => ensure!(pinned.is_empty(), "{}", history.kinds()),
        Some(role) => {
            ensure!(pinned.len() == 1 && pinned[0].roles.iter().any(|one| one.name == role), "{pinned:?}");
            let begun = own.iter().position(|event| matches!(event, RunEvent::RoleBegan(_)));
            let asked = own.iter().position(|event| matches!(event, RunEvent::ModelRequested(_)));
            ensure!(begun.is_some() && begun < asked, "{}", history.kinds());
        }
    }
    // It is asked once, of this engine's own call; its answer is for nothing else.
    let asked = own.iter().filter(|event| match event {
        RunEvent::RunBlocked(e) => {
            e.why == BlockedWhy::Policy && e.about.as_ref().is_some_and(|about| about.rule == "asks")
        }
        _ => false,
    });
    ensure!(asked.count() == 1, "a permit of the former engine's holds: {}", history.kinds());
    Ok(())
}

/// The first role of each engine.
fn role_of(engine: &str) -> Option<&'static str> {
    match engine {
        "plan" | "review" | "sop" => Some("planner"),
        "architect" => Some("architect"),
        "team" => Some("orchestrator"),
        _ => None,
    }
}

async fn forks_of(sources: &[&str]) -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    let folder = tempfile::tempdir()?;
    let policy = folder.path().join("asks.toml");
    std::fs::write(&policy, ASKS)?;
    let flags = [&TESTS[..], &["--policy", policy.to_str().context("UTF-8")?]].concat();
    for from in sources {
        let task = stage.submit(from, &by_command(from, 2), "2", &flags).await?;
        let source = answered(&stage, task, "always").await.with_context(|| (*from).to_owned())?;
        let run = stage.coordinator.client().task(task).await?.task.last_run.context("a run")?.to_string();
        for to in ENGINES.into_iter().filter(|to| to != from) {
            let name = || format!("{from} to {to}");
            let fork = forked(&stage, &run, folder.path(), (to, &by_command(to, 7)), None)
                .await
                .with_context(name)?;
            let history = answered(&stage, fork, "yes").await.with_context(name)?;
            taken_over(&history, to, role_of(to)).with_context(name)?;
            stage.gives(fork, 7).await.with_context(name)?;
        }
        // At its first turn, where a role's conversation has just begun.
        let to = if *from == "team" { "sop" } else { "team" };
        let fork = forked(&stage, &run, folder.path(), (to, &by_command(to, 7)), Some(1)).await?;
        taken_over(&answered(&stage, fork, "yes").await?, to, role_of(to))
            .with_context(|| format!("{from} to {to}, turn 1"))?;
        // Only read.
        let after = stage.coordinator.history(run.parse()?).await?;
        ensure!(after.events.len() == source.events.len(), "{from}: the source has changed");
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_react_plan_or_review_is_gone_on_with_by_every_other_engine() -> Result<()> {
    forks_of(&ENGINES[..3]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_of_architect_team_or_sop_is_gone_on_with_by_every_other_engine() -> Result<()> {
    forks_of(&ENGINES[3..]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_question_of_the_former_engine_is_not_open_and_a_way_back_has_its_own_tools() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    let folder = tempfile::tempdir()?;
    let asks =
        script(&[talk("", "", &["!{ name = \"list_files\", args = {} }", "BLOCKED: What is f to give?"])]);
    let task = stage.submit("react", &asks, "2", &TESTS).await?;
    stage.asks(task).await?;
    let run = stage.coordinator.client().task(task).await?.task.last_run.context("a run")?.to_string();
    for to in ENGINES.into_iter().filter(|to| *to != "react") {
        let fork = forked(&stage, &run, folder.path(), (to, &by_command(to, 7)), None).await.context(to)?;
        let history = stage.ends(fork, TaskState::Completed).await.context(to)?;
        let is_open =
            |event: &RunEvent| matches!(event, RunEvent::RunBlocked(_) | RunEvent::BlockerAnswered(_));
        ensure!(!own(&history)?.iter().any(is_open), "{to}: {}", history.kinds());
        // `react` goes on behind it with the seven tools that it began with, of which the wide set lacks one.
        let last = stage.coordinator.client().task(fork).await?.task.last_run.context("a run")?.to_string();
        let makes = "!{ name = \"create_file\", args = { path = \"m.txt\", content = \"more\\n\" } }";
        let back = script(&[talk("", "", &[makes, "It is there."])]);
        let back = forked(&stage, &last, folder.path(), ("react", &back), None).await.context(to)?;
        let history =
            stage.ends(back, TaskState::Completed).await.with_context(|| format!("{to} to react"))?;
        let made = stage.docket(&["cat", &back.to_string(), "m.txt"]).await;
        ensure!(made.is_ok_and(|text| text == "more\n"), "{to} to react: {}", history.kinds());
    }
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_fork_to_the_same_engine_has_its_tools_again() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    let folder = tempfile::tempdir()?;
    let task = stage.submit("react", &by_command("react", 2), "2", &TESTS).await?;
    stage.ends(task, TaskState::Completed).await?;
    let mut task = task;
    for number in [3, 4] {
        let run = stage.coordinator.client().task(task).await?.task.last_run.context("a run")?.to_string();
        task = forked(&stage, &run, folder.path(), ("team", &by_command("team", number)), None).await?;
        let history = stage.ends(task, TaskState::Completed).await.with_context(|| number.to_string())?;
        let pins = own(&history)?
            .iter()
            .filter_map(|event| if let RunEvent::RolesPinned(e) = event { Some(e) } else { None });
        let sets: Vec<_> = pins.map(|event| event.tool_set).collect();
        ensure!(sets == [Some(ToolSet::Wide)], "{number}: {sets:?}; {}", history.kinds());
        stage.gives(task, number).await?;
    }
    stage.end().await
}
