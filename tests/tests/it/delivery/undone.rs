//! What is in a delivery's way, and that nothing is lost by it: obstacles that go away and such that stay, hooks that
//! fail or take long, several who could deliver, another log under the same cursor, runs that changed nothing.

use std::{ffi::OsStr, fs};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    pg_cluster::Cluster,
    system::{Place, fresh_database, room, until},
};
use serde_json::Value;

use super::scene::{EDIT, Scene};

/// The task once its result was delivered so often.
async fn delivered(scene: &Scene, id: &str, times: usize) -> Result<Value> {
    until(&format!("delivery {times} of {id}"), async || {
        let row = scene.row(id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == times).then_some(row)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_is_away_is_waited_for_and_its_task_is_not_archived() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    fs::write(
        scene.home().join("docket.toml"),
        format!("[archive]\nto = \"file://{}\"\n", scene.at("old").display()),
    )?;
    let id = scene.submit(EDIT, &["--branch", "fix/it"]).await?;
    let (repo, away) = (scene.repo(), scene.at("away"));
    fs::rename(&repo, &away)?;
    let mut up = scene.up().await?;
    scene.is(&id, "completed").await.with_context(|| up.tail())?;
    let kept = scene.docket(&["archive", "--older-than", "0h"]).await?;
    ensure!(format!("{kept:?}").contains("is not delivered yet"), "it stays, and says why: {kept:?}");
    scene.is(&id, "completed").await?;
    // Also over a restart.
    up.kill().await?;
    let up = scene.up().await?;
    fs::rename(&away, &repo)?;
    delivered(&scene, &id, 1).await.with_context(|| up.tail())?;
    scene.git(&["rev-parse", "--verify", "fix/it"]).await?;
    let gone = scene.docket(&["archive", "--older-than", "0h"]).await?;
    ensure!(!format!("{gone:?}").contains("is not delivered"), "{gone:?}");
    let list = scene.docket(&["ps", "--json"]).await?.ok()?;
    ensure!(!list.contains(&id), "delivered, it goes: {gone:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_fails_here_is_tried_again_and_told_before_long() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let beside = scene.submit(EDIT, &["--branch", "fix/one"]).await?;
    // Before it is submitted, that would be refused.
    scene.git(&["branch", "fix"]).await?;
    let locked = scene.submit(EDIT, &["--branch", "locked"]).await?;
    let lock = scene.repo().join(".git/refs/heads/locked.lock");
    fs::write(&lock, "")?;
    let up = scene.up().await?;
    // No try can mend a name that git has no room for.
    let row = scene.is(&beside, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "taken", "{row}");
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("the branch `fix` is there")), "{row}");
    let why = scene.docket(&["why", &beside]).await?.ok()?;
    ensure!(why.contains("docket accept") && !why.contains("docket answer"), "{why}");
    let refused = scene.docket(&["ps", "--state", "undelivered"]).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("--state blocked"), "{refused:?}");
    scene.docket(&["apply", &beside, "--branch", "fix-one"]).await?.ok()?;
    scene.is(&beside, "completed").await?;
    // One that may go away is tried again, and said after some tries.
    let row = scene.is(&locked, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "repository", "{row}");
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("tried again by itself")), "{row}");
    fs::remove_file(&lock)?;
    let row = scene.is(&locked, "completed").await.with_context(|| up.tail())?;
    ensure!(row["message"].is_null(), "{row}");
    delivered(&scene, &locked, 1).await?;
    scene.git(&["rev-parse", "--verify", "locked"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_that_could_deliver_one_does_and_the_hook_runs_once() -> Result<()> {
    let _room = room().await;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let Place::Postgres(url) = fresh_database(&cluster).await? else { anyhow::bail!("a database") };
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    let ran = scene.at("ran");
    let hook = format!("echo $DOCKET_TASK $DOCKET_DELIVERY_KEY >> {}; sleep 0.3", ran.display());
    let other = scene.at("other");
    fs::create_dir(&other)?;
    for home in [scene.home(), other.clone()] {
        fs::write(home.join("docket.toml"), format!("[delivery]\nhook = \"{hook}\"\n"))?;
    }
    let env: [(&str, &OsStr); 1] = [("DATABASE_URL", url.as_ref())];
    let up = scene.up_at(&scene.home(), &env).await?;
    let beside = scene.up_at(&other, &env).await?;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(scene.submit(EDIT, &["--push"]).await?);
    }
    for id in &ids {
        let row = until("a hook", async || {
            scene.row(id).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 0)
        });
        let row = row.await.with_context(|| format!("{}\n{}", up.tail(), beside.tail()))?;
        let branch = row["delivery"]["delivered"][0]["branch"].as_str().context("a branch")?;
        scene.git_at(&bare, &["rev-parse", "--verify", branch]).await?;
    }
    // Both have seen the last: each writes how far it got only then.
    let last = scene.log_of(&ids[3]).await?;
    let at = last.iter().filter(|event| event["kind"] == "TaskCompleted");
    let at = at.filter_map(|event| event["position"].as_u64()).max().context("it ended")?;
    for home in [scene.home(), other] {
        until("both to have looked at all", async || {
            let cursor = fs::read_to_string(home.join("delivered.position")).ok()?;
            (cursor.split(' ').next()?.parse::<u64>().ok()? >= at).then_some(())
        })
        .await?;
    }
    let ran = fs::read_to_string(&ran)?;
    for id in &ids {
        ensure!(ran.matches(id.as_str()).count() == 1, "once for {id}:\n{ran}");
        let kinds = scene.kinds(id, "TaskDeliver").await?;
        let expected = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered", "TaskDeliveryHookRan"];
        ensure!(kinds == expected, "by one: {kinds:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_log_under_the_same_cursor_is_delivered_of() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.submit(EDIT, &["--branch", "before"]).await?;
    let mut up = scene.up().await?;
    delivered(&scene, &id, 1).await.with_context(|| up.tail())?;
    let cursor = scene.home().join("delivered.position");
    let kept = until("the cursor", async || fs::read_to_string(&cursor).ok()).await?;
    up.kill().await?;
    // What a backup in its place amounts to: a log that does not have that event, and is shorter.
    for file in ["docket.db", "docket.db-wal", "docket.db-shm"] {
        let _ = fs::remove_file(scene.home().join(file));
    }
    fs::write(&cursor, format!("1000000 {}", kept.split(' ').nth(1).context("a hash")?))?;
    let id = scene.submit(EDIT, &["--branch", "after"]).await?;
    let up = scene.up().await?;
    delivered(&scene, &id, 1).await.with_context(|| up.tail())?;
    scene.git(&["rev-parse", "--verify", "after"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_result_and_one_that_knows_nothing_of_it_undo_nothing() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let mended = r#"
[[turns]]
when = { any_contains = "otherwise" }
calls = [{ name = "run_command", args = { command = "echo more >> new.txt" } }]
[[turns]]
when = { any_contains = "otherwise" }
text = "Done otherwise."
"#;
    let id = scene.submit(&format!("{EDIT}{mended}"), &["--branch", "fix/it"]).await?;
    let up = scene.up().await?;
    let first = delivered(&scene, &id, 1).await.with_context(|| up.tail())?;
    let first_run = first["run"].as_str().context("a run")?.to_owned();
    let first_commit = scene.git(&["rev-parse", "fix/it"]).await?;
    scene.docket(&["reject", &id, "--comment", "otherwise"]).await?.ok()?;
    delivered(&scene, &id, 2).await.with_context(|| up.tail())?;
    let second = scene.git(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git(&["rev-parse", "fix/it^"]).await? == first_commit);

    // The first run's result is under it already.
    let again = scene.docket(&["apply", &first_run]).await?.ok()?;
    ensure!(again.contains(&first_commit[..12]), "{again}");
    ensure!(scene.git(&["rev-parse", "fix/it"]).await? == second, "nothing is put on top");
    // Also what a person put there stays.
    scene.git(&["switch", "--quiet", "fix/it"]).await?;
    scene.commit(&[("b.txt", "b\n")]).await?;
    scene.git(&["switch", "--quiet", "main"]).await?;
    let third = scene.git(&["rev-parse", "fix/it"]).await?;
    scene.docket(&["apply", &id]).await?.ok()?;
    ensure!(scene.git(&["rev-parse", "fix/it"]).await? == third);
    scene.git(&["update-ref", "refs/heads/fix/it", &second]).await?;

    // A new try that begins at the base would revert what is there: nobody does that unasked.
    scene.docket(&["retry", &id]).await?.ok()?;
    let row = scene.is(&id, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["message"].as_str().is_some_and(|m| m.contains("--replace")), "{row}");
    ensure!(scene.git(&["rev-parse", "fix/it"]).await? == second);
    scene.docket(&["apply", &id, "--replace"]).await?.ok()?;
    scene.is(&id, "completed").await?;
    ensure!(scene.git(&["rev-parse", "fix/it^"]).await? == second, "on top, for a person said so");
    ensure!(scene.git(&["show", "fix/it:new.txt"]).await? == "new");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_changed_nothing_gives_no_branch_no_push_and_no_hook() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    let ran = scene.at("ran");
    fs::write(scene.home().join("docket.toml"), format!("[delivery]\nhook = \"touch {}\"\n", ran.display()))?;
    let id = scene
        .submit(
            "after_end = \"repeat_last\"\n[[turns]]\ntext = \"There is nothing to do.\"\n",
            &["--push", "--branch", "none"],
        )
        .await?;
    let up = scene.up().await?;
    until("word of it", async || scene.kinds(&id, "TaskNeeded").await.ok().filter(|kinds| kinds.len() == 1))
        .await
        .with_context(|| up.tail())?;
    let row = scene.row(&id).await?;
    ensure!(row["state"] == "completed" && row["delivery"]["delivered"] == serde_json::json!([]), "{row}");
    for repo in [scene.repo(), bare] {
        ensure!(scene.git_at(&repo, &["branch", "--list", "none"]).await?.is_empty(), "no branch");
    }
    let shown = scene.docket(&["show", &id]).await?.ok()?;
    ensure!(shown.contains("none, changed nothing: no branch") && !shown.contains("pushed"), "{shown}");
    let said = scene.docket(&["push", &id]).await?.ok()?;
    ensure!(said.contains("changed nothing"), "{said}");
    ensure!(!ran.exists(), "no hook");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_that_fails_is_seen_and_runs_again_and_a_slow_one_keeps_nobody_back() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let (keys, go) = (scene.at("keys"), scene.at("go"));
    // The first fails once; the second takes its time.
    let hook = format!(
        "if [ $DOCKET_BRANCH = slow ]; then until test -e {1}; do sleep 0.1; done; fi; \
         if [ $DOCKET_BRANCH = flaky ]; then echo $DOCKET_DELIVERY_KEY >> {0}; \
         test $(wc -l < {0}) -ge 2 || {{ echo no network; exit 7; }}; fi",
        keys.display(),
        go.display()
    );
    fs::write(scene.home().join("docket.toml"), format!("[delivery]\nhook = \"{hook}\"\n"))?;
    let slow = scene.submit(EDIT, &["--branch", "slow"]).await?;
    let up = scene.up().await?;
    until("the slow one's branch", async || scene.git(&["rev-parse", "--verify", "slow"]).await.ok()).await?;
    let flaky = scene.submit(EDIT, &["--branch", "flaky"]).await?;
    let row = until("the hook that fails", async || {
        // What the task says is read before what its log says.
        let said = |row: &serde_json::Value| {
            row["message"].as_str().is_some_and(|m| m.contains("exit 7: no network"))
        };
        scene.row(&flaky).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 7 && said(row))
    });
    let row = row.await.with_context(|| up.tail())?;
    ensure!(row["state"] == "completed", "the delivery stands: {row}");
    for told in [scene.docket(&["ps"]).await?.ok()?, scene.docket(&["why", &flaky]).await?.ok()?] {
        ensure!(told.contains("no network"), "{told}");
    }
    ensure!(scene.row(&slow).await?["delivery"]["hook"].is_null(), "the slow one is at it still");
    let row = until("the hook to end well", async || {
        let row = scene.row(&flaky).await.ok();
        row.filter(|row| row["delivery"]["hook"]["exit"] == 0 && row["message"].is_null())
    });
    row.await.with_context(|| up.tail())?;
    let keys = fs::read_to_string(&keys)?;
    let keys: Vec<&str> = keys.lines().collect();
    ensure!(keys.len() == 2 && keys[0] == keys[1] && keys[0].len() == 32, "the same key: {keys:?}");
    fs::write(&go, "")?;
    until("the slow hook", async || {
        scene.row(&slow).await.ok().filter(|row| row["delivery"]["hook"]["exit"] == 0)
    })
    .await?;
    Ok(())
}
