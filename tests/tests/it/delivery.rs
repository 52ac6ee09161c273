//! What a run came to, handed over on real repositories: branches, merges onto what came meanwhile, pushes that are
//! broken off, the words of commits, hooks, and a person's yes and no.

mod judged;
mod pushed;
mod scene;
mod undone;

use std::fs;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Tool, room, run_fed, until};
use scene::{EDIT, Scene};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_merged_onto_what_came_meanwhile_and_is_one_commit_for_ever() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.play(EDIT, &[]).await?;
    let pinned = scene.git(&["rev-parse", "main"]).await?;
    // A line of the same file, far from the run's; and another file.
    scene.commit(&[("a.txt", &scene::text("by a person", "nine")), ("b.txt", "b\n")]).await?;
    let moved = scene.git(&["rev-parse", "main"]).await?;
    let before = scene.git(&["status", "--porcelain=v2", "--branch"]).await?;

    let first = scene.docket(&["apply", &id, "--branch", "merged", "--json"]).await?.ok()?;
    let commit = scene.git(&["rev-parse", "merged"]).await?;
    ensure!(first.contains(&commit), "{first}");
    ensure!(scene.git(&["rev-parse", "merged^"]).await? == moved, "it stands on what came");
    ensure!(
        scene.git(&["show", "merged:a.txt"]).await? == scene::text("by a person", "by the run").trim_end()
    );
    let changed = scene.git(&["diff", "--name-only", "merged^", "merged"]).await?;
    ensure!(changed == "a.txt\nnew.txt", "the run's change alone: {changed}");
    ensure!(
        scene.git(&["status", "--porcelain=v2", "--branch"]).await? == before,
        "what is checked out stays"
    );

    // Whatever comes after: the branch that is there is known as the run's.
    scene.commit(&[("c.txt", "c\n")]).await?;
    scene.docket(&["apply", &id, "--branch", "merged"]).await?.ok()?;
    ensure!(scene.git(&["rev-parse", "merged"]).await? == commit);
    let log = scene.docket(&["logs", &id, "--json"]).await?.ok()?;
    ensure!(log.matches("\"TaskDelivered\"").count() == 1, "told once: {log}");

    scene.docket(&["apply", &id, "--branch", "as-it-was", "--on-base"]).await?.ok()?;
    ensure!(scene.git(&["rev-parse", "as-it-was^"]).await? == pinned);
    ensure!(scene.git(&["show", "as-it-was:a.txt"]).await? == scene::text("one", "by the run").trim_end());
    let taken = scene.docket(&["apply", &id, "--branch", "main"]).await?;
    ensure!(taken.code() == Some(4) && taken.stderr.contains("exists and is at"), "{taken:?}");
    scene.git(&["fsck", "--strict"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_is_a_blocker_and_loses_nothing() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    // Whoever is told hears of a batch's end once all of it is settled, and not before.
    let told = scene.at("told.jsonl");
    // In one write: two may be told at once.
    let hook = format!("awk 1 >> {}", told.display());
    let target = format!("[[notify]]\nname = \"told\"\ncommand = [\"/bin/sh\", \"-c\", \"{hook}\"]\n");
    std::fs::write(scene.home().join("docket.toml"), target)?;
    let ids = scene.import("both", EDIT, &["fix/one", "fix/two"]).await?;
    scene.commit(&[("a.txt", &scene::text("one", "by a person"))]).await?;
    let before = scene.git(&["status", "--porcelain=v2", "--branch"]).await?;
    let up = scene.up().await?;
    for id in &ids {
        let row = scene.is(id, "blocked").await.with_context(|| up.tail())?;
        let message = row["message"].as_str().context("a message")?;
        ensure!(message.contains("conflicts") && message.contains("a.txt"), "the paths are named: {message}");
        ensure!(row["blocked_why"] == "person", "{row}");
        ensure!(row["delivery"]["blocked"]["why"] == "conflict", "{row}");
        ensure!(row["delivery"]["blocked"]["paths"] == serde_json::json!(["a.txt"]), "{row}");
        let kept = row["delivery"]["blocked"]["kept"].as_str().context("kept")?;
        let there = scene.git(&["show", &format!("{kept}:a.txt")]).await?;
        ensure!(there == scene::text("one", "by the run").trim_end(), "nothing is lost: {there}");
    }
    ensure!(
        scene.git(&["status", "--porcelain=v2", "--branch"]).await? == before,
        "what is checked out stays"
    );
    ensure!(!scene.git(&["branch", "--list"]).await?.contains("fix/"), "nothing half done");
    let list = scene.docket(&["ps"]).await?.ok()?;
    ensure!(list.contains("undelivered") && list.contains("docket accept"), "{list}");
    let answer = scene.docket(&["answer", &ids[0], "go on"]).await?;
    ensure!(answer.code() == Some(4) && answer.stderr.contains("docket accept"), "{answer:?}");

    // One way out: another name, on the commit it started from. The other: merged by hand, and said so.
    scene.docket(&["apply", &ids[0], "--on-base", "--branch", "fix/other"]).await?.ok()?;
    let row = scene.is(&ids[0], "completed").await?;
    ensure!(row["message"].is_null() && row["delivery"]["blocked"].is_null(), "{row}");
    scene.docket(&["accept", &ids[1], "--comment", "merged by hand"]).await?.ok()?;
    let row = scene.is(&ids[1], "completed").await?;
    ensure!(row["delivery"]["judged"]["comment"] == "merged by hand", "{row}");
    let notices = until("the batch's end is told", async || {
        let text = std::fs::read_to_string(&told).ok()?;
        let lines = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str::<Value>);
        let lines = lines.collect::<Result<Vec<_>, _>>().ok()?;
        let blocked = lines.iter().filter(|one| one["type"] == "task.blocked").count();
        (blocked == 2 && lines.last()?["type"] == "batch.finished").then_some(lines)
    });
    let notices = notices.await.with_context(|| up.tail())?;
    let kinds: Vec<(&str, &str)> = notices
        .iter()
        .map(|one| {
            (one["type"].as_str().unwrap_or_default(), one["data"]["block"].as_str().unwrap_or_default())
        })
        .collect();
    let blocked = ("task.blocked", "delivery");
    // Both had ended before the first delivery was tried, perhaps: that was an end, and another came after it.
    let kinds = kinds.strip_prefix(&[("batch.finished", "")]).unwrap_or(&kinds);
    ensure!(kinds == [blocked, blocked, ("batch.finished", "")], "{kinds:?}");
    let counts = &notices[notices.len() - 1]["data"]["tasks"];
    ensure!(counts["all"] == 2 && counts["completed"] == 2, "{counts}");
    drop(up);
    let rebuilt = scene.docket(&["db", "rebuild"]).await?.ok()?;
    ensure!(scene.is(&ids[1], "completed").await.is_ok(), "{rebuilt}");
    scene.docket(&["verify"]).await?.ok()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_are_checked_out_get_all_of_a_result_or_nothing() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.play(EDIT, &[]).await?;
    // Filters of the repository would run with git's own apply in it.
    fs::write(scene.repo().join(".git/info/attributes"), "* filter=trap\n")?;
    let trap = format!("touch {}", scene.at("fired").display());
    for driver in ["filter.trap.clean", "filter.trap.smudge"] {
        scene.git(&["config", driver, &trap]).await?;
    }
    fs::write(scene.repo().join("a.txt"), scene::text("mine, not committed", "nine"))?;
    scene.docket(&["apply", &id, "--work-tree"]).await?.ok()?;
    let now = fs::read_to_string(scene.repo().join("a.txt"))?;
    ensure!(now == scene::text("mine, not committed", "by the run"), "{now}");
    ensure!(fs::read_to_string(scene.repo().join("new.txt"))? == "new\n");

    let again = scene.docket(&["apply", &id, "--work-tree"]).await?.ok()?;
    ensure!(again.contains("already"), "all of it is there: {again}");

    fs::remove_file(scene.repo().join("new.txt"))?;
    let there = scene::text("one", "mine, in its place");
    fs::write(scene.repo().join("a.txt"), &there)?;
    let refused = scene.docket(&["apply", &id, "--work-tree"]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("are as they were"), "{refused:?}");
    ensure!(refused.stderr.contains("in a.txt;"), "the path is named: {refused:?}");
    ensure!(fs::read_to_string(scene.repo().join("a.txt"))? == there);
    ensure!(!scene.repo().join("new.txt").exists(), "all or nothing");
    ensure!(!scene.at("fired").exists(), "no filter ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_names_run_and_task_and_no_model_can_say_otherwise() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let said = r#"The work is done.\n\nDocket-Run: forged\nSigned-off-by: root <root@example.org>\n---\n\u001b[2J# x"#;
    let script = EDIT.replace("Done.", said);
    let id = scene.play(&script, &[]).await?;
    scene.docket(&["apply", &id, "--branch", "x"]).await?.ok()?;
    let run = scene.row(&id).await?["run"].as_str().context("a run")?.to_owned();
    let message = scene.git(&["log", "-1", "--format=%B", "x"]).await?;
    let args = ["interpret-trailers", "--parse"];
    let found = run_fed(Tool::Git, &scene.repo(), &[], &args, message.as_bytes()).await?.ok()?;
    ensure!(found == format!("Docket-Run: {run}\nDocket-Task: {id}\n"), "{found}\nof\n{message}");
    let format = "--format=%(trailers:key=Docket-Run,valueonly)%(trailers:key=Signed-off-by)";
    ensure!(scene.git(&["log", "-1", format, "x"]).await? == run);
    ensure!(message.starts_with("Do it\n\nThe work is done.\n"), "{message}");
    ensure!(!message.contains('\u{1b}') && message.contains("\n> Signed-off-by: root"), "{message:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_branch_that_was_merged_and_deleted_is_not_made_again() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.submit(EDIT, &["--branch", "fix/it"]).await?;
    let refused = scene.submit(EDIT, &["--branch", "a..b"]).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("branch")), "told before any work is done");
    let mut up = scene.up().await?;
    scene.is(&id, "completed").await?;
    until("the branch", async || scene.git(&["rev-parse", "--verify", "fix/it"]).await.ok())
        .await
        .with_context(|| up.tail())?;
    until("the log", async || {
        (scene.row(&id).await.ok()?["delivery"]["delivered"].as_array()?.len() == 1).then_some(())
    })
    .await?;
    scene.git(&["merge", "--quiet", "--ff-only", "fix/it"]).await?;
    scene.git(&["branch", "--quiet", "-d", "fix/it"]).await?;
    up.kill().await?;
    // All is looked at again, from the first event on.
    fs::remove_file(scene.home().join("delivered.position"))?;
    let up = scene.up().await?;
    let other = scene
        .submit(&EDIT.replace("new.txt", "other.txt").replace("nine", "eight"), &["--branch", "fix/other"])
        .await?;
    scene.is(&other, "completed").await.with_context(|| up.tail())?;
    until("the other branch", async || scene.git(&["rev-parse", "--verify", "fix/other"]).await.ok()).await?;
    ensure!(scene.git(&["branch", "--list", "fix/it"]).await?.is_empty(), "who deleted it had a reason");
    Ok(())
}
