//! A person's yes, and a no that the next run reads.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{acquire_scenario_slot, wait_until};

use super::scene::{DeliveryFixture, EDIT};

/// What the run does once it is told what is wrong; unless it is told, the script has no answer.
const MENDED: &str = r#"
[[turns]]
when = { any_contains = "the file is to be named otherwise.txt" }
calls = [{ name = "run_command", args = { command = "mv new.txt otherwise.txt" } }]
[[turns]]
text = "Done otherwise."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_result_is_continued_with_the_comment_and_delivered_on_top() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.submit_task(&format!("{EDIT}{MENDED}"), &["--branch", "fix/it"]).await?;
    let early = scene.run_docket(&["accept", &id]).await?;
    ensure!(!early.success(), "nothing ran yet: {early:?}");
    let up = scene.start_up().await?;
    let delivered = async |count: usize| {
        wait_until("a delivery", async || {
            let row = scene.task_row(&id).await.ok()?;
            (row["delivery"]["delivered"].as_array()?.len() == count).then_some(row)
        })
        .await
    };
    let row = delivered(1).await.with_context(|| up.log_tail())?;
    let first_run = row["run"].as_str().context("a run")?.to_owned();
    let first = scene.git_output(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git_output(&["show", "fix/it:new.txt"]).await? == "new");

    let blank = scene.run_docket(&["reject", &id, "--comment", " "]).await?;
    ensure!(!blank.success() && blank.stderr.contains("comment"), "{blank:?}");
    scene
        .run_docket(&["reject", &id, "--comment", "No: the file is to be named otherwise.txt"])
        .await?
        .into_stdout()?;
    let row = delivered(2).await.with_context(|| up.log_tail())?;
    ensure!(row["run"] != first_run.as_str() && row["state"] == "completed", "{row}");
    ensure!(
        scene.git_output(&["rev-parse", "fix/it^"]).await? == first,
        "on top of what was delivered, nothing moved back"
    );
    let changed = scene.git_output(&["diff", "--name-status", "--no-renames", "fix/it^", "fix/it"]).await?;
    ensure!(changed == "D\tnew.txt\nA\totherwise.txt", "{changed}");
    let kinds = scene.event_kinds(&id, "Task").await?;
    let at = kinds.iter().position(|kind| kind == "TaskRejected").context("recorded")?;
    ensure!(kinds[at + 1] == "TaskResumed", "{kinds:?}");
    ensure!(row["delivery"]["judged"]["accepted"] == false, "{row}");

    // Only the run that completed it is judged.
    let old = scene.run_docket(&["accept", &first_run]).await?;
    ensure!(old.code() == Some(4) && old.stderr.contains("a different run completed it"), "{old:?}");
    scene.git_output(&["update-ref", "-d", "refs/heads/fix/it"]).await?;
    scene.run_docket(&["accept", &id, "--comment", "good"]).await?.into_stdout()?;
    let row = scene.task_row(&id).await?;
    ensure!(row["delivery"]["judged"]["accepted"] == true, "{row}");
    ensure!(
        scene.git_output(&["show", "fix/it:otherwise.txt"]).await? == "new",
        "what it was to give is there again"
    );
    scene.run_docket(&["verify"]).await?.into_stdout()?;

    scene.run_docket(&["resume", &id, "--hint", "mind the README"]).await?.into_stdout()?;
    let run = scene.task_row(&id).await?["run"].as_str().context("a run")?.to_owned();
    let log = scene.run_docket(&["logs", &run, "--json"]).await?.into_stdout()?;
    let first: serde_json::Value =
        serde_json::from_str(log.lines().find(|line| line.contains(&run)).context("its own")?)?;
    ensure!(first["kind"] == "Forked" && first["payload"]["hint"]["text"] == "mind the README", "{first}");
    Ok(())
}

/// A conflict is the model's to mend only if it is told what it conflicts with: it sees the tree that it began from.
const FITTED: &str = r#"
[[turns]]
when = { any_contains = "+by a person" }
calls = [{ name = "run_command", args = { command = "sed -i 's/^by the run$/by a person/; s/^one$/by the run/' a.txt" } }]
[[turns]]
when = { any_contains = "conflicts with it in a.txt" }
text = "Done beside it."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejected_conflict_shows_the_model_upstream_changes() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let id = scene.submit_task(&format!("{EDIT}{FITTED}"), &["--branch", "fix/it"]).await?;
    scene.commit_files(&[("a.txt", &super::scene::nine_lines("one", "by a person"))]).await?;
    let up = scene.start_up().await?;
    let row = scene.wait_for_state(&id, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "conflict", "{row}");
    scene.run_docket(&["reject", &id, "--comment", "make it fit"]).await?.into_stdout()?;
    let row = scene.wait_for_state(&id, "completed").await.with_context(|| up.log_tail())?;
    ensure!(
        row["delivery"]["judged"]["comment"] == "make it fit",
        "the comment is the person's alone: {row}"
    );
    wait_until("the branch", async || scene.git_output(&["rev-parse", "--verify", "fix/it"]).await.ok())
        .await
        .with_context(|| up.log_tail())?;
    let merged = scene.git_output(&["show", "fix/it:a.txt"]).await?;
    ensure!(merged == super::scene::nine_lines("by the run", "by a person").trim_end(), "{merged}");
    ensure!(
        scene.git_output(&["rev-parse", "fix/it^"]).await?
            == scene.git_output(&["rev-parse", "main"]).await?
    );
    Ok(())
}
