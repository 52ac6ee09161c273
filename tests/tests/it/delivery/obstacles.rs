//! What is in a delivery's way, and that nothing is lost by it: obstacles that go away and such that stay, hooks that
//! fail or take long, several who could deliver, another log under the same cursor, runs that changed nothing.

use std::{ffi::OsStr, fs};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{StoreLocation, acquire_scenario_slot, fresh_database, wait_until},
};
use serde_json::Value;

use super::scene::{DeliveryFixture, EDIT};

/// The task once its result was delivered so often.
async fn wait_until_delivered(scene: &DeliveryFixture, id: &str, times: usize) -> Result<Value> {
    wait_until(&format!("delivery {times} of {id}"), async || {
        let row = scene.task_row(id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == times).then_some(row)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_repository_is_waited_for_and_its_task_not_archived() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    fs::write(
        scene.home_path().join("docket.toml"),
        format!("[archive]\nto = \"file://{}\"\n", scene.path_in("old").display()),
    )?;
    let id = scene.submit_task(EDIT, &["--branch", "fix/it"]).await?;
    let (repo, away) = (scene.repo_path(), scene.path_in("away"));
    fs::rename(&repo, &away)?;
    let mut up = scene.start_up().await?;
    scene.wait_for_state(&id, "completed").await.with_context(|| up.log_tail())?;
    let kept = scene.run_docket(&["archive", "--older-than", "0h"]).await?;
    ensure!(format!("{kept:?}").contains("is not delivered yet"), "it stays, and says why: {kept:?}");
    scene.wait_for_state(&id, "completed").await?;
    // Also over a restart.
    up.kill().await?;
    let up = scene.start_up().await?;
    fs::rename(&away, &repo)?;
    wait_until_delivered(&scene, &id, 1).await.with_context(|| up.log_tail())?;
    scene.git_output(&["rev-parse", "--verify", "fix/it"]).await?;
    let gone = scene.run_docket(&["archive", "--older-than", "0h"]).await?;
    ensure!(!format!("{gone:?}").contains("is not delivered"), "{gone:?}");
    let list = scene.run_docket(&["ps", "--json"]).await?.into_stdout()?;
    ensure!(!list.contains(&id), "delivered, it goes: {gone:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn local_delivery_failure_is_retried_and_reported() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let beside = scene.submit_task(EDIT, &["--branch", "fix/one"]).await?;
    // Before it is submitted, that would be refused.
    scene.git_output(&["branch", "fix"]).await?;
    let locked = scene.submit_task(EDIT, &["--branch", "locked"]).await?;
    let lock = scene.repo_path().join(".git/refs/heads/locked.lock");
    fs::write(&lock, "")?;
    let up = scene.start_up().await?;
    // No try can mend a name that git has no room for.
    let row = scene.wait_for_state(&beside, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "taken", "{row}");
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("the branch `fix` exists")), "{row}");
    let why = scene.run_docket(&["why", &beside]).await?.into_stdout()?;
    ensure!(why.contains("docket accept") && !why.contains("docket answer"), "{why}");
    let refused = scene.run_docket(&["ps", "--state", "undelivered"]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("--state blocked"), "{refused:?}");
    scene.run_docket(&["apply", &beside, "--branch", "fix-one"]).await?.into_stdout()?;
    scene.wait_for_state(&beside, "completed").await?;
    // One that may go away is tried again, and said after some tries.
    let row = scene.wait_for_state(&locked, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "repository", "{row}");
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("retried automatically")), "{row}");
    fs::remove_file(&lock)?;
    let row = scene.wait_for_state(&locked, "completed").await.with_context(|| up.log_tail())?;
    ensure!(row["message"].is_null(), "{row}");
    wait_until_delivered(&scene, &locked, 1).await?;
    scene.git_output(&["rev-parse", "--verify", "locked"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_deliverers_delivers_and_the_hook_runs_once() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let StoreLocation::Postgres(url) = fresh_database(&cluster).await? else { anyhow::bail!("a database") };
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    let ran = scene.path_in("ran");
    let hook = format!("echo $DOCKET_TASK $DOCKET_DELIVERY_KEY >> {}; sleep 0.3", ran.display());
    let other = scene.path_in("other");
    fs::create_dir(&other)?;
    for home in [scene.home_path(), other.clone()] {
        fs::write(home.join("docket.toml"), format!("[delivery]\nhook = \"{hook}\"\n"))?;
    }
    let env: [(&str, &OsStr); 1] = [("DATABASE_URL", url.as_ref())];
    let up = scene.start_up_at(&scene.home_path(), &env).await?;
    let beside = scene.start_up_at(&other, &env).await?;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(scene.submit_task(EDIT, &["--push"]).await?);
    }
    for id in &ids {
        let row = wait_until("a hook", async || {
            scene.task_row(id).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 0)
        });
        let row = row.await.with_context(|| format!("{}\n{}", up.log_tail(), beside.log_tail()))?;
        let branch = row["delivery"]["delivered"][0]["branch"].as_str().context("a branch")?;
        scene.git_output_at(&bare, &["rev-parse", "--verify", branch]).await?;
    }
    // Both have seen the last: each writes how far it got only then.
    let last = scene.task_log(&ids[3]).await?;
    let at = last.iter().filter(|event| event["kind"] == "TaskCompleted");
    let at = at.filter_map(|event| event["position"].as_u64()).max().context("it ended")?;
    for home in [scene.home_path(), other] {
        wait_until("both to have looked at all", async || {
            let cursor = fs::read_to_string(home.join("delivered.position")).ok()?;
            (cursor.split(' ').next()?.parse::<u64>().ok()? >= at).then_some(())
        })
        .await?;
    }
    let ran = fs::read_to_string(&ran)?;
    for id in &ids {
        ensure!(ran.matches(id.as_str()).count() == 1, "once for {id}:\n{ran}");
        let kinds = scene.event_kinds(id, "TaskDeliver").await?;
        let expected = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered", "TaskDeliveryHookRan"];
        ensure!(kinds == expected, "by one: {kinds:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_log_under_the_same_cursor_is_delivered() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.submit_task(EDIT, &["--branch", "before"]).await?;
    let mut up = scene.start_up().await?;
    wait_until_delivered(&scene, &id, 1).await.with_context(|| up.log_tail())?;
    let cursor = scene.home_path().join("delivered.position");
    let kept = wait_until("the cursor", async || fs::read_to_string(&cursor).ok()).await?;
    up.kill().await?;
    // What a backup in its place amounts to: a log that does not have that event, and is shorter.
    for file in ["docket.db", "docket.db-wal", "docket.db-shm"] {
        let _ = fs::remove_file(scene.home_path().join(file));
    }
    fs::write(&cursor, format!("1000000 {}", kept.split(' ').nth(1).context("a hash")?))?;
    let id = scene.submit_task(EDIT, &["--branch", "after"]).await?;
    let up = scene.start_up().await?;
    wait_until_delivered(&scene, &id, 1).await.with_context(|| up.log_tail())?;
    scene.git_output(&["rev-parse", "--verify", "after"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_or_unrelated_results_undo_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let mended = r#"
[[turns]]
when = { any_contains = "otherwise" }
calls = [{ name = "run_command", args = { command = "echo more >> new.txt" } }]
[[turns]]
when = { any_contains = "otherwise" }
text = "Done otherwise."
"#;
    let id = scene.submit_task(&format!("{EDIT}{mended}"), &["--branch", "fix/it"]).await?;
    let up = scene.start_up().await?;
    let first = wait_until_delivered(&scene, &id, 1).await.with_context(|| up.log_tail())?;
    let first_run = first["run"].as_str().context("a run")?.to_owned();
    let first_commit = scene.git_output(&["rev-parse", "fix/it"]).await?;
    scene.run_docket(&["reject", &id, "--comment", "otherwise"]).await?.into_stdout()?;
    wait_until_delivered(&scene, &id, 2).await.with_context(|| up.log_tail())?;
    let second = scene.git_output(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git_output(&["rev-parse", "fix/it^"]).await? == first_commit);

    // The first run's result is under it already.
    let again = scene.run_docket(&["apply", &first_run]).await?.into_stdout()?;
    ensure!(again.contains(&first_commit[..12]), "{again}");
    ensure!(scene.git_output(&["rev-parse", "fix/it"]).await? == second, "nothing is put on top");
    // Also what a person put there stays.
    scene.git_output(&["switch", "--quiet", "fix/it"]).await?;
    scene.commit_files(&[("b.txt", "b\n")]).await?;
    scene.git_output(&["switch", "--quiet", "main"]).await?;
    let third = scene.git_output(&["rev-parse", "fix/it"]).await?;
    scene.run_docket(&["apply", &id]).await?.into_stdout()?;
    ensure!(scene.git_output(&["rev-parse", "fix/it"]).await? == third);
    scene.git_output(&["update-ref", "refs/heads/fix/it", &second]).await?;

    // A new try that begins at the base would revert what is there: nobody does that unasked.
    scene.run_docket(&["retry", &id]).await?.into_stdout()?;
    let row = scene.wait_for_state(&id, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("--replace")), "{row}");
    ensure!(scene.git_output(&["rev-parse", "fix/it"]).await? == second);
    scene.run_docket(&["apply", &id, "--replace"]).await?.into_stdout()?;
    scene.wait_for_state(&id, "completed").await?;
    ensure!(scene.git_output(&["rev-parse", "fix/it^"]).await? == second, "on top, for a person said so");
    ensure!(scene.git_output(&["show", "fix/it:new.txt"]).await? == "new");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_without_changes_delivers_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    let ran = scene.path_in("ran");
    fs::write(
        scene.home_path().join("docket.toml"),
        format!("[delivery]\nhook = \"touch {}\"\n", ran.display()),
    )?;
    let id = scene
        .submit_task(
            "after_end = \"repeat_last\"\n[[turns]]\ntext = \"There is nothing to do.\"\n",
            &["--push", "--branch", "none"],
        )
        .await?;
    let up = scene.start_up().await?;
    wait_until("word of it", async || {
        scene.event_kinds(&id, "TaskNeeded").await.ok().filter(|kinds| kinds.len() == 1)
    })
    .await
    .with_context(|| up.log_tail())?;
    let row = scene.task_row(&id).await?;
    ensure!(row["state"] == "completed" && row["delivery"]["delivered"] == serde_json::json!([]), "{row}");
    for repo in [scene.repo_path(), bare] {
        ensure!(scene.git_output_at(&repo, &["branch", "--list", "none"]).await?.is_empty(), "no branch");
    }
    let shown = scene.run_docket(&["show", &id]).await?.into_stdout()?;
    ensure!(shown.contains("none, changed nothing: no branch") && !shown.contains("pushed"), "{shown}");
    let said = scene.run_docket(&["push", &id]).await?.into_stdout()?;
    ensure!(said.contains("changed nothing"), "{said}");
    ensure!(!ran.exists(), "no hook");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failing_hook_is_retried_and_slow_hook_blocks_no_other_delivery() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let (keys, go) = (scene.path_in("keys"), scene.path_in("go"));
    // The first fails once; the second takes its time.
    let hook = format!(
        "if [ $DOCKET_BRANCH = slow ]; then until test -e {1}; do sleep 0.1; done; fi; \
         if [ $DOCKET_BRANCH = flaky ]; then echo $DOCKET_DELIVERY_KEY >> {0}; \
         test $(wc -l < {0}) -ge 2 || {{ echo no network; exit 7; }}; fi",
        keys.display(),
        go.display()
    );
    fs::write(scene.home_path().join("docket.toml"), format!("[delivery]\nhook = \"{hook}\"\n"))?;
    let slow = scene.submit_task(EDIT, &["--branch", "slow"]).await?;
    let up = scene.start_up().await?;
    wait_until("the slow one's branch", async || {
        scene.git_output(&["rev-parse", "--verify", "slow"]).await.ok()
    })
    .await?;
    let flaky = scene.submit_task(EDIT, &["--branch", "flaky"]).await?;
    let row = wait_until("the hook that fails", async || {
        // What the task says is read before what its log says.
        let said = |row: &serde_json::Value| {
            row["message"].as_str().is_some_and(|m| m.contains("exit 7: no network"))
        };
        scene.task_row(&flaky).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 7 && said(row))
    });
    let row = row.await.with_context(|| up.log_tail())?;
    ensure!(row["state"] == "completed", "the delivery stands: {row}");
    for told in [
        scene.run_docket(&["ps"]).await?.into_stdout()?,
        scene.run_docket(&["why", &flaky]).await?.into_stdout()?,
    ] {
        ensure!(told.contains("no network"), "{told}");
    }
    ensure!(scene.task_row(&slow).await?["delivery"]["hook"].is_null(), "the slow one is at it still");
    let row = wait_until("the hook to end well", async || {
        let row = scene.task_row(&flaky).await.ok();
        row.filter(|row| row["delivery"]["hook"]["exit"] == 0 && row["message"].is_null())
    });
    row.await.with_context(|| up.log_tail())?;
    let keys = fs::read_to_string(&keys)?;
    let keys: Vec<&str> = keys.lines().collect();
    ensure!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "the same key: {keys:?}");
    fs::write(&go, "")?;
    wait_until("the slow hook", async || {
        scene.task_row(&slow).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 0)
    })
    .await?;
    Ok(())
}
