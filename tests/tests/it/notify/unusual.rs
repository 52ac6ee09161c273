//! Ends of batches that are none in the strict sense, what comes from elsewhere, and whoever cannot be told any more.

use anyhow::{Context as _, Result, ensure};
use docket_schema::api::DeliveryState;
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, StoreLocation, WorkerOptions, WorkerProcess, acquire_scenario_slot,
    wait_until,
};
use serde_json::{Value, json};

use super::{
    ASKS, FAILS, NotifyScripts, WORKS, import_batch, is_in_state,
    receiver::{HookReply, WebhookReceiver},
    wait_for_delivery, webhook_settings, write_settings,
};

/// The ids of a batch's tasks in a state.
async fn batch_task_ids(coordinator: &CoordinatorProcess, batch: &str, state: &str) -> Result<Vec<String>> {
    let rows =
        coordinator.run_docket(&["ps", "--batch", batch, "--state", state, "--json"]).await?.into_stdout()?;
    let id = |line: &str| {
        let row: Value = serde_json::from_str(line)?;
        Ok(row["id"].as_str().context("an id")?.to_owned())
    };
    rows.lines().map(id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stuck_batch_is_notified_and_removed_targets_leave_dead_letters() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let receiver = WebhookReceiver::start().await?;
    receiver.set_reply("renamed", HookReply::Later("3600"));
    let home = tempfile::tempdir()?;
    let ends = "on = [\"batch.finished\"]";
    let stays = webhook_settings(receiver.port, "stays", ends);
    write_settings(home.path(), &format!("{stays}{}", webhook_settings(receiver.port, "renamed", ends)))?;
    let mut coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = NotifyScripts::new()?;
    let (works, fails) =
        (scripts.write_script("works.toml", WORKS)?, scripts.write_script("fails.toml", FAILS)?);
    let lines = [
        json!({ "key": "a", "text": "Fails", "script": fails, "turns": 2, "attempts": 1 }),
        json!({ "key": "b", "text": "Waits for it", "script": works, "after": ["a"] }),
    ];
    import_batch(&coordinator, &scripts, &lines, &["--batch", "stuck"]).await?;
    let stuck = receiver
        .wait_for_request("stays", "that nothing goes on", |got| got.kind() == "batch.finished")
        .await;
    let stuck = stuck.with_context(|| format!("{}\n{}", coordinator.log_tail(), worker.log_tail()))?;
    let counts = json!({ "all": 2, "completed": 0, "cancelled": 0, "discarded": 1, "behind_failed": 1 });
    ensure!(*stuck.data_field("tasks") == counts, "{stuck:?}");
    let waits = batch_task_ids(&coordinator, "stuck", "pending").await?;
    coordinator.run_docket(&["cancel", &waits[0]]).await?.into_stdout()?;
    let ended = receiver
        .wait_for_request("stays", "its end", |got| got.data_field("tasks")["cancelled"] == 1)
        .await?;
    ensure!(ended.data_field("tasks")["behind_failed"].is_null(), "{ended:?}");

    // Whoever is not in the settings any more is told nothing, and that is said.
    for id in [&stuck.id, &ended.id] {
        let one = wait_for_delivery(&coordinator, (id.parse()?, "renamed"), |one| one.attempts == 1).await?;
        ensure!(one.state == DeliveryState::Waiting, "{one:?}");
    }
    write_settings(home.path(), &stays)?;
    coordinator.restart().await?;
    for id in [&stuck.id, &ended.id] {
        let dead =
            wait_for_delivery(&coordinator, (id.parse()?, "renamed"), is_in_state(DeliveryState::Dead))
                .await?;
        ensure!(dead.why.as_ref().is_some_and(|why| why.contains("no longer configured")), "{dead:?}");
    }
    let again = coordinator.run_docket(&["notify", "retry", "--all"]).await?;
    ensure!(again.code() == Some(1) && again.stderr.matches("no target renamed").count() == 2, "{again:?}");
    let dropped = coordinator.run_docket(&["notify", "drop", "--all"]).await?.into_stdout()?;
    ensure!(dropped.lines().count() == 2 && dropped.contains("dropped for: renamed"), "{dropped}");
    ensure!(coordinator.client().get_overview().await?.notifications_dead == Some(0));
    let again = coordinator.run_docket(&["notify", "drop", &stuck.id]).await?;
    ensure!(again.code() == Some(4) && again.stderr.contains("or dropped"), "{again:?}");
    let listed = coordinator.run_docket(&["notify", "list", "--state", "dropped"]).await?.into_stdout()?;
    ensure!(listed.matches("renamed").count() == 2, "{listed}");
    let audit = coordinator.run_docket(&["logs", "system/audit"]).await?.into_stdout()?;
    ensure!(audit.matches("dropped notification").count() == 2, "{audit}");

    // It may be another batch's task that failed.
    coordinator.run_docket(&["queue", "pause", "default"]).await?.into_stdout()?;
    let one = json!({ "key": "a", "text": "Fails too", "script": fails, "turns": 2, "attempts": 1, "dedup": "shared" });
    import_batch(&coordinator, &scripts, std::slice::from_ref(&one), &["--batch", "before"]).await?;
    let waits = json!({ "key": "b", "text": "Waits for theirs", "script": works, "after": ["a"] });
    import_batch(&coordinator, &scripts, &[one, waits], &["--batch", "behind"]).await?;
    ensure!(batch_task_ids(&coordinator, "behind", "pending").await?.len() == 1);
    coordinator.run_docket(&["queue", "unpause", "default"]).await?.into_stdout()?;
    let behind = receiver
        .wait_for_request("stays", "that another's failure holds it", |got| {
            got.kind() == "batch.finished"
                && *got.data_field("tasks")
                    == json!({ "all": 1, "completed": 0, "cancelled": 0, "discarded": 0, "behind_failed": 1 })
        })
        .await;
    behind.with_context(|| format!("{}\n{}", coordinator.log_tail(), worker.log_tail()))?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn importing_an_unfinished_run_sends_no_notification() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let there = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&there, &WorkerOptions::default()).await?;
    let scripts = NotifyScripts::new()?;
    let asks = scripts.write_script("asks.toml", ASKS)?;
    import_batch(&there, &scripts, &[json!({ "text": "Asks", "script": asks })], &["--batch", "theirs"])
        .await?;
    let blocked =
        wait_until("a blocked task", async || batch_task_ids(&there, "theirs", "blocked").await.ok()?.pop());
    let blocked = blocked.await.with_context(|| worker.log_tail())?;
    let file = scripts.folder.path().join("run.docket").display().to_string();
    there.run_docket(&["export", &blocked, "-o", &file]).await?.into_stdout()?;

    let receiver = WebhookReceiver::start().await?;
    let home = tempfile::tempdir()?;
    write_settings(home.path(), &webhook_settings(receiver.port, "here", ""))?;
    let here =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    here.run_docket(&["import", &file]).await?.into_stdout()?;
    ensure!(batch_task_ids(&here, "theirs", "cancelled").await?.len() == 1, "it came, and was ended");
    // What is read after it is told.
    let works = scripts.write_script("works.toml", WORKS)?;
    import_batch(&here, &scripts, &[json!({ "text": "Ours", "script": works })], &["--batch", "ours"])
        .await?;
    let ours = batch_task_ids(&here, "ours", "available").await?;
    here.run_docket(&["cancel", &ours[0]]).await?.into_stdout()?;
    receiver
        .wait_for_request("here", "the end of ours", |got| *got.data_field("batch_name") == "ours")
        .await?;
    ensure!(receiver.received("here").len() == 1, "{:?}", receiver.received("here"));
    here.end_and_check().await?;
    there.end_and_check().await
}
