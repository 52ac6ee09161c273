//! What a run came to, handed over on real repositories: branches, merges onto what came meanwhile, pushes that are
//! broken off, the words of commits, hooks, and a person's yes and no.

mod obstacles;
mod pushes;
mod review_decisions;
mod scene;

use std::fs;

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_with_input, wait_until};
use scene::{DeliveryFixture, EDIT};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_is_merged_onto_upstream_changes_with_a_stable_commit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.play_task(EDIT, &[]).await?;
    let pinned = scene.git_output(&["rev-parse", "main"]).await?;
    // A line of the same file, far from the run's; and another file.
    scene.commit_files(&[("a.txt", &scene::nine_lines("by a person", "nine")), ("b.txt", "b\n")]).await?;
    let moved = scene.git_output(&["rev-parse", "main"]).await?;
    let before = scene.git_output(&["status", "--porcelain=v2", "--branch"]).await?;

    let first = scene.run_docket(&["apply", &id, "--branch", "merged", "--json"]).await?.into_stdout()?;
    let commit = scene.git_output(&["rev-parse", "merged"]).await?;
    ensure!(first.contains(&commit), "{first}");
    ensure!(scene.git_output(&["rev-parse", "merged^"]).await? == moved, "it stands on what came");
    ensure!(
        scene.git_output(&["show", "merged:a.txt"]).await?
            == scene::nine_lines("by a person", "by the run").trim_end()
    );
    let changed = scene.git_output(&["diff", "--name-only", "merged^", "merged"]).await?;
    ensure!(changed == "a.txt\nnew.txt", "the run's change alone: {changed}");
    ensure!(
        scene.git_output(&["status", "--porcelain=v2", "--branch"]).await? == before,
        "what is checked out stays"
    );

    // Whatever comes after: the branch that is there is known as the run's.
    scene.commit_files(&[("c.txt", "c\n")]).await?;
    scene.run_docket(&["apply", &id, "--branch", "merged"]).await?.into_stdout()?;
    ensure!(scene.git_output(&["rev-parse", "merged"]).await? == commit);
    let log = scene.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?;
    ensure!(log.matches("\"TaskDelivered\"").count() == 1, "told once: {log}");

    scene.run_docket(&["apply", &id, "--branch", "as-it-was", "--on-base"]).await?.into_stdout()?;
    ensure!(scene.git_output(&["rev-parse", "as-it-was^"]).await? == pinned);
    ensure!(
        scene.git_output(&["show", "as-it-was:a.txt"]).await?
            == scene::nine_lines("one", "by the run").trim_end()
    );
    let taken = scene.run_docket(&["apply", &id, "--branch", "main"]).await?;
    ensure!(taken.code() == Some(4) && taken.stderr.contains("exists and is at"), "{taken:?}");
    scene.git_output(&["fsck", "--strict"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn conflict_blocks_delivery_and_loses_nothing() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    // Whoever is told hears of a batch's end once all of it is settled, and not before.
    let told = scene.path_in("told.jsonl");
    // In one write: two may be told at once.
    let hook = format!("awk 1 >> {}", told.display());
    let target = format!("[[notify]]\nname = \"told\"\ncommand = [\"/bin/sh\", \"-c\", \"{hook}\"]\n");
    std::fs::write(scene.home_path().join("docket.toml"), target)?;
    let ids = scene.import_batch("both", EDIT, &["fix/one", "fix/two"]).await?;
    scene.commit_files(&[("a.txt", &scene::nine_lines("one", "by a person"))]).await?;
    let before = scene.git_output(&["status", "--porcelain=v2", "--branch"]).await?;
    let up = scene.start_up().await?;
    for id in &ids {
        let row = scene.wait_for_state(id, "blocked").await.with_context(|| up.log_tail())?;
        let message = row["message"].as_str().context("a message")?;
        ensure!(message.contains("conflicts") && message.contains("a.txt"), "the paths are named: {message}");
        ensure!(row["blocked_why"] == "person", "{row}");
        ensure!(row["delivery"]["blocked"]["why"] == "conflict", "{row}");
        ensure!(row["delivery"]["blocked"]["paths"] == serde_json::json!(["a.txt"]), "{row}");
        let kept = row["delivery"]["blocked"]["kept"].as_str().context("kept")?;
        let there = scene.git_output(&["show", &format!("{kept}:a.txt")]).await?;
        ensure!(there == scene::nine_lines("one", "by the run").trim_end(), "nothing is lost: {there}");
    }
    ensure!(
        scene.git_output(&["status", "--porcelain=v2", "--branch"]).await? == before,
        "what is checked out stays"
    );
    ensure!(!scene.git_output(&["branch", "--list"]).await?.contains("fix/"), "nothing half done");
    let list = scene.run_docket(&["ps"]).await?.into_stdout()?;
    ensure!(list.contains("undelivered") && list.contains("docket accept"), "{list}");
    let answer = scene.run_docket(&["answer", &ids[0], "go on"]).await?;
    ensure!(answer.code() == Some(4) && answer.stderr.contains("docket accept"), "{answer:?}");

    // One way out: another name, on the commit it started from. The other: merged by hand, and said so.
    scene.run_docket(&["apply", &ids[0], "--on-base", "--branch", "fix/other"]).await?.into_stdout()?;
    let row = scene.wait_for_state(&ids[0], "completed").await?;
    ensure!(row["message"].is_null() && row["delivery"]["blocked"].is_null(), "{row}");
    scene.run_docket(&["accept", &ids[1], "--comment", "merged by hand"]).await?.into_stdout()?;
    let row = scene.wait_for_state(&ids[1], "completed").await?;
    ensure!(row["delivery"]["judged"]["comment"] == "merged by hand", "{row}");
    let notices = wait_until("the batch's end is told", async || {
        let text = std::fs::read_to_string(&told).ok()?;
        let lines = text.lines().filter(|line| !line.is_empty()).map(serde_json::from_str::<Value>);
        let lines = lines.collect::<Result<Vec<_>, _>>().ok()?;
        let blocked = lines.iter().filter(|one| one["type"] == "task.blocked").count();
        (blocked == 2 && lines.last()?["type"] == "batch.finished").then_some(lines)
    });
    let notices = notices.await.with_context(|| up.log_tail())?;
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
    let rebuilt = scene.run_docket(&["db", "rebuild"]).await?.into_stdout()?;
    ensure!(scene.wait_for_state(&ids[1], "completed").await.is_ok(), "{rebuilt}");
    scene.run_docket(&["verify"]).await?.into_stdout()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn checked_out_files_are_updated_atomically() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.play_task(EDIT, &[]).await?;
    // Filters of the repository would run with git's own apply in it.
    fs::write(scene.repo_path().join(".git/info/attributes"), "* filter=trap\n")?;
    let trap = format!("touch {}", scene.path_in("fired").display());
    for driver in ["filter.trap.clean", "filter.trap.smudge"] {
        scene.git_output(&["config", driver, &trap]).await?;
    }
    fs::write(scene.repo_path().join("a.txt"), scene::nine_lines("mine, not committed", "nine"))?;
    scene.run_docket(&["apply", &id, "--work-tree"]).await?.into_stdout()?;
    let now = fs::read_to_string(scene.repo_path().join("a.txt"))?;
    ensure!(now == scene::nine_lines("mine, not committed", "by the run"), "{now}");
    ensure!(fs::read_to_string(scene.repo_path().join("new.txt"))? == "new\n");

    let again = scene.run_docket(&["apply", &id, "--work-tree"]).await?.into_stdout()?;
    ensure!(again.contains("already"), "all of it is there: {again}");

    fs::remove_file(scene.repo_path().join("new.txt"))?;
    let there = scene::nine_lines("one", "mine, in its place");
    fs::write(scene.repo_path().join("a.txt"), &there)?;
    let refused = scene.run_docket(&["apply", &id, "--work-tree"]).await?;
    ensure!(refused.code() == Some(4) && refused.stderr.contains("were not changed"), "{refused:?}");
    ensure!(refused.stderr.contains("in a.txt;"), "the path is named: {refused:?}");
    ensure!(fs::read_to_string(scene.repo_path().join("a.txt"))? == there);
    ensure!(!scene.repo_path().join("new.txt").exists(), "all or nothing");
    ensure!(!scene.path_in("fired").exists(), "no filter ran");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commit_trailers_name_run_and_task_and_cannot_be_forged() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let said = r#"The work is done.\n\nDocket-Run: forged\nSigned-off-by: root <root@example.org>\n---\n\u001b[2J# x"#;
    let script = EDIT.replace("Done.", said);
    let id = scene.play_task(&script, &[]).await?;
    scene.run_docket(&["apply", &id, "--branch", "x"]).await?.into_stdout()?;
    let run = scene.task_row(&id).await?["run"].as_str().context("a run")?.to_owned();
    let message = scene.git_output(&["log", "-1", "--format=%B", "x"]).await?;
    let args = ["interpret-trailers", "--parse"];
    let found = run_with_input(TestProgram::Git, &scene.repo_path(), &[], &args, message.as_bytes())
        .await?
        .into_stdout()?;
    ensure!(found == format!("Docket-Run: {run}\nDocket-Task: {id}\n"), "{found}\nof\n{message}");
    let format = "--format=%(trailers:key=Docket-Run,valueonly)%(trailers:key=Signed-off-by)";
    ensure!(scene.git_output(&["log", "-1", format, "x"]).await? == run);
    ensure!(message.starts_with("Do it\n\nThe work is done.\n"), "{message}");
    ensure!(!message.contains('\u{1b}') && message.contains("\n> Signed-off-by: root"), "{message:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn merged_and_deleted_branch_is_not_recreated() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.submit_task(EDIT, &["--branch", "fix/it"]).await?;
    let refused = scene.submit_task(EDIT, &["--branch", "a..b"]).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("branch")), "told before any work is done");
    let mut up = scene.start_up().await?;
    scene.wait_for_state(&id, "completed").await?;
    wait_until("the branch", async || scene.git_output(&["rev-parse", "--verify", "fix/it"]).await.ok())
        .await
        .with_context(|| up.log_tail())?;
    wait_until("the log", async || {
        (scene.task_row(&id).await.ok()?["delivery"]["delivered"].as_array()?.len() == 1).then_some(())
    })
    .await?;
    scene.git_output(&["merge", "--quiet", "--ff-only", "fix/it"]).await?;
    scene.git_output(&["branch", "--quiet", "-d", "fix/it"]).await?;
    up.kill().await?;
    // All is looked at again, from the first event on.
    fs::remove_file(scene.home_path().join("delivered.position"))?;
    let up = scene.start_up().await?;
    let other = scene
        .submit_task(
            &EDIT.replace("new.txt", "other.txt").replace("nine", "eight"),
            &["--branch", "fix/other"],
        )
        .await?;
    scene.wait_for_state(&other, "completed").await.with_context(|| up.log_tail())?;
    wait_until("the other branch", async || {
        scene.git_output(&["rev-parse", "--verify", "fix/other"]).await.ok()
    })
    .await?;
    ensure!(
        scene.git_output(&["branch", "--list", "fix/it"]).await?.is_empty(),
        "who deleted it had a reason"
    );
    Ok(())
}
