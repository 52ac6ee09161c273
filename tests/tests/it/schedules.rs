//! Schedules through the binary: added, shown, run now, pinned again, paused, removed; a wrong line is named.

use anyhow::{Context as _, Result, ensure};
use docket_schema::task::TaskState;
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot, commit_all, wait_until,
};
use serde_json::Value;

const QUICK: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedule_creates_tasks_from_the_last_pinned_base() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script(QUICK)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let docket = async |args: &[&str]| coordinator.run_docket(args).await?.into_stdout();
    let add = async |cron: &str, more: &[&str]| {
        let head = ["schedule", "add", "nightly", "--cron", cron, "--tz", "Europe/Berlin"];
        let task =
            ["Tidy up", "--repo", repo, "--model", "scripted:s", "--script", script, "--tests", "true"];
        let all: Vec<&str> = head.iter().chain(&task).chain(more).copied().collect();
        coordinator.run_docket(&all).await
    };
    let wrong = add("0 25 * * *", &[]).await?;
    ensure!(wrong.code() == Some(2) && wrong.stderr.contains("the hour `25`"), "{wrong:?}");
    ensure!(add("0 3 * * 1-5", &[]).await?.into_stdout()?.contains("fires next at"));
    let twice = add("0 4 * * *", &[]).await?;
    ensure!(twice.code() != Some(0) && twice.stderr.contains("already exists"), "{twice:?}");
    let listed = docket(&["schedule"]).await?;
    ensure!(listed.contains("0 3 * * 1-5") && listed.contains("Europe/Berlin"), "{listed}");

    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let run = async || -> Result<String> {
        let id = docket(&["schedule", "run", "nightly"]).await?.trim().to_owned();
        let view = wait_until("the task's end", async || {
            let view = coordinator.client().get_task(id.parse().ok()?).await.ok()?;
            view.task.state.is_ended().then_some(view)
        });
        let view = view.await?;
        ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.state);
        Ok(view.task.spec.base.git.context("a commit")?.commit)
    };
    let first = run().await?;
    std::fs::write(sample.path().join("a.txt"), "b\n")?;
    commit_all(sample.path())?;
    ensure!(run().await? == first, "it was pinned when the schedule was added");
    docket(&["schedule", "repin", "nightly"]).await?;
    ensure!(run().await? != first, "it was pinned again");

    ensure!(docket(&["schedule", "pause", "nightly"]).await?.contains("is paused"));
    ensure!(docket(&["schedule"]).await?.contains("paused"));
    ensure!(docket(&["schedule", "unpause", "nightly"]).await?.contains("fires next at"));
    let shown: Value = serde_json::from_str(&docket(&["schedule", "show", "nightly", "--json"]).await?)?;
    ensure!(shown["schedule"]["overlap"] == "skip" && shown["task"].is_string(), "{shown}");
    ensure!(docket(&["schedule", "show", "nightly"]).await?.contains("base"));
    docket(&["schedule", "remove", "nightly"]).await?;
    ensure!(coordinator.run_docket(&["schedule", "show", "nightly"]).await?.code() == Some(3));
    let log = docket(&["logs", "system/schedules"]).await?;
    ensure!(log.matches("ScheduleFired").count() == 3 && log.contains("ScheduleRemoved"), "{log}");
    drop(worker);
    coordinator.end_and_check().await
}
