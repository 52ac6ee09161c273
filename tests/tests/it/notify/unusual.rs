//! Ends of batches that are none in the strict sense, what comes from elsewhere, and whoever cannot be told any more.

use anyhow::{Context as _, Result, ensure};
use docket_schema::wire::DeliveryState;
use docket_tests::system::{Coordinator, LeaseTime, Place, Worker, WorkerOptions, room, until};
use serde_json::{Value, json};

use super::{
    ASKS, FAILS, Scripts, WORKS, delivery, hook, import, is_in,
    receiver::{Answer, Receiver},
    settings,
};

/// The ids of a batch's tasks in a state.
async fn tasks(coordinator: &Coordinator, batch: &str, state: &str) -> Result<Vec<String>> {
    let rows = coordinator.docket(&["ps", "--batch", batch, "--state", state, "--json"]).await?.ok()?;
    let id = |line: &str| {
        let row: Value = serde_json::from_str(line)?;
        Ok(row["id"].as_str().context("an id")?.to_owned())
    };
    rows.lines().map(id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_is_stuck_is_told_and_who_is_gone_from_the_settings_leaves_dead_letters() -> Result<()> {
    let _room = room().await;
    let receiver = Receiver::start().await?;
    receiver.answers("renamed", Answer::Later("3600"));
    let home = tempfile::tempdir()?;
    let ends = "on = [\"batch.finished\"]";
    let stays = hook(receiver.port, "stays", ends);
    settings(home.path(), &format!("{stays}{}", hook(receiver.port, "renamed", ends)))?;
    let mut coordinator = Coordinator::start_in(home.path(), Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = Scripts::new()?;
    let (works, fails) = (scripts.file("works.toml", WORKS)?, scripts.file("fails.toml", FAILS)?);
    let lines = [
        json!({ "key": "a", "text": "Fails", "script": fails, "turns": 2, "attempts": 1 }),
        json!({ "key": "b", "text": "Waits for it", "script": works, "after": ["a"] }),
    ];
    import(&coordinator, &scripts, &lines, &["--batch", "stuck"]).await?;
    let stuck = receiver.gets("stays", "that nothing goes on", |got| got.kind() == "batch.finished").await;
    let stuck = stuck.with_context(|| format!("{}\n{}", coordinator.tail(), worker.tail()))?;
    let counts = json!({ "all": 2, "completed": 0, "cancelled": 0, "discarded": 1, "behind_failed": 1 });
    ensure!(*stuck.data("tasks") == counts, "{stuck:?}");
    let waits = tasks(&coordinator, "stuck", "pending").await?;
    coordinator.docket(&["cancel", &waits[0]]).await?.ok()?;
    let ended = receiver.gets("stays", "its end", |got| got.data("tasks")["cancelled"] == 1).await?;
    ensure!(ended.data("tasks")["behind_failed"].is_null(), "{ended:?}");

    // Whoever is not in the settings any more is told nothing, and that is said.
    for id in [&stuck.id, &ended.id] {
        let one = delivery(&coordinator, (id.parse()?, "renamed"), |one| one.attempts == 1).await?;
        ensure!(one.state == DeliveryState::Waiting, "{one:?}");
    }
    settings(home.path(), &stays)?;
    coordinator.restart().await?;
    for id in [&stuck.id, &ended.id] {
        let dead = delivery(&coordinator, (id.parse()?, "renamed"), is_in(DeliveryState::Dead)).await?;
        ensure!(dead.why.as_ref().is_some_and(|why| why.contains("no such target")), "{dead:?}");
    }
    let again = coordinator.docket(&["notify", "retry", "--all"]).await?;
    ensure!(again.code() == Some(1) && again.stderr.matches("no target renamed").count() == 2, "{again:?}");
    let dropped = coordinator.docket(&["notify", "drop", "--all"]).await?.ok()?;
    ensure!(dropped.lines().count() == 2 && dropped.contains("need not be told to: renamed"), "{dropped}");
    ensure!(coordinator.client().overview().await?.notifications_dead == Some(0));
    let again = coordinator.docket(&["notify", "drop", &stuck.id]).await?;
    ensure!(again.code() == Some(4) && again.stderr.contains("or need not"), "{again:?}");
    let listed = coordinator.docket(&["notify", "list", "--state", "dropped"]).await?.ok()?;
    ensure!(listed.matches("renamed").count() == 2, "{listed}");
    let audit = coordinator.docket(&["logs", "system/audit"]).await?.ok()?;
    ensure!(audit.matches("dropped notification").count() == 2, "{audit}");

    // It may be another batch's task that failed.
    coordinator.docket(&["queue", "pause", "default"]).await?.ok()?;
    let one = json!({ "key": "a", "text": "Fails too", "script": fails, "turns": 2, "attempts": 1, "dedup": "shared" });
    import(&coordinator, &scripts, std::slice::from_ref(&one), &["--batch", "before"]).await?;
    let waits = json!({ "key": "b", "text": "Waits for theirs", "script": works, "after": ["a"] });
    import(&coordinator, &scripts, &[one, waits], &["--batch", "behind"]).await?;
    ensure!(tasks(&coordinator, "behind", "pending").await?.len() == 1);
    coordinator.docket(&["queue", "unpause", "default"]).await?.ok()?;
    let behind = receiver
        .gets("stays", "that another's failure holds it", |got| {
            got.kind() == "batch.finished"
                && *got.data("tasks")
                    == json!({ "all": 1, "completed": 0, "cancelled": 0, "discarded": 0, "behind_failed": 1 })
        })
        .await;
    behind.with_context(|| format!("{}\n{}", coordinator.tail(), worker.tail()))?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_import_of_a_run_that_had_not_ended_tells_of_no_end() -> Result<()> {
    let _room = room().await;
    let there = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let worker = Worker::start(&there, &WorkerOptions::default()).await?;
    let scripts = Scripts::new()?;
    let asks = scripts.file("asks.toml", ASKS)?;
    import(&there, &scripts, &[json!({ "text": "Asks", "script": asks })], &["--batch", "theirs"]).await?;
    let blocked = until("a blocked task", async || tasks(&there, "theirs", "blocked").await.ok()?.pop());
    let blocked = blocked.await.with_context(|| worker.tail())?;
    let file = scripts.folder.path().join("run.docket").display().to_string();
    there.docket(&["export", &blocked, "-o", &file]).await?.ok()?;

    let receiver = Receiver::start().await?;
    let home = tempfile::tempdir()?;
    settings(home.path(), &hook(receiver.port, "here", ""))?;
    let here = Coordinator::start_in(home.path(), Place::Home, LeaseTime::Usual).await?;
    here.docket(&["import", &file]).await?.ok()?;
    ensure!(tasks(&here, "theirs", "cancelled").await?.len() == 1, "it came, and was ended");
    // What is read after it is told.
    let works = scripts.file("works.toml", WORKS)?;
    import(&here, &scripts, &[json!({ "text": "Ours", "script": works })], &["--batch", "ours"]).await?;
    let ours = tasks(&here, "ours", "available").await?;
    here.docket(&["cancel", &ours[0]]).await?.ok()?;
    receiver.gets("here", "the end of ours", |got| *got.data("batch_name") == "ours").await?;
    ensure!(receiver.got("here").len() == 1, "{:?}", receiver.got("here"));
    here.end_and_check().await?;
    there.end_and_check().await
}
