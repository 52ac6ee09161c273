//! A person's yes, and a no that the next run reads.

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{room, until};

use super::scene::{EDIT, Scene};

/// What the run does once it is told what is wrong; unless it is told, the script has no answer.
const MENDED: &str = r#"
[[turns]]
when = { any_contains = "the file is to be named otherwise.txt" }
calls = [{ name = "run_command", args = { command = "mv new.txt otherwise.txt" } }]
[[turns]]
text = "Done otherwise."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_result_goes_on_with_the_comment_and_lands_on_top() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.submit(&format!("{EDIT}{MENDED}"), &["--branch", "fix/it"]).await?;
    let early = scene.docket(&["accept", &id]).await?;
    ensure!(!early.success(), "nothing ran yet: {early:?}");
    let up = scene.up().await?;
    let delivered = async |count: usize| {
        until("a delivery", async || {
            let row = scene.row(&id).await.ok()?;
            (row["delivery"]["delivered"].as_array()?.len() == count).then_some(row)
        })
        .await
    };
    let row = delivered(1).await.with_context(|| up.tail())?;
    let first_run = row["run"].as_str().context("a run")?.to_owned();
    let first = scene.git(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git(&["show", "fix/it:new.txt"]).await? == "new");

    let blank = scene.docket(&["reject", &id, "--comment", " "]).await?;
    ensure!(!blank.success() && blank.stderr.contains("comment"), "{blank:?}");
    scene.docket(&["reject", &id, "--comment", "No: the file is to be named otherwise.txt"]).await?.ok()?;
    let row = delivered(2).await.with_context(|| up.tail())?;
    ensure!(row["run"] != first_run.as_str() && row["state"] == "completed", "{row}");
    ensure!(
        scene.git(&["rev-parse", "fix/it^"]).await? == first,
        "on top of what was delivered, nothing moved back"
    );
    let changed = scene.git(&["diff", "--name-status", "--no-renames", "fix/it^", "fix/it"]).await?;
    ensure!(changed == "D\tnew.txt\nA\totherwise.txt", "{changed}");
    let kinds = scene.kinds(&id, "Task").await?;
    let at = kinds.iter().position(|kind| kind == "TaskRejected").context("recorded")?;
    ensure!(kinds[at + 1] == "TaskResumed", "{kinds:?}");
    ensure!(row["delivery"]["judged"]["accepted"] == false, "{row}");

    // Only the run that completed it is judged.
    let old = scene.docket(&["accept", &first_run]).await?;
    ensure!(old.code() == Some(4) && old.stderr.contains("not the run that completed it"), "{old:?}");
    scene.git(&["update-ref", "-d", "refs/heads/fix/it"]).await?;
    scene.docket(&["accept", &id, "--comment", "good"]).await?.ok()?;
    let row = scene.row(&id).await?;
    ensure!(row["delivery"]["judged"]["accepted"] == true, "{row}");
    ensure!(
        scene.git(&["show", "fix/it:otherwise.txt"]).await? == "new",
        "what it was to give is there again"
    );
    scene.docket(&["verify"]).await?.ok()?;

    scene.docket(&["resume", &id, "--hint", "mind the README"]).await?.ok()?;
    let run = scene.row(&id).await?["run"].as_str().context("a run")?.to_owned();
    let log = scene.docket(&["logs", &run, "--json"]).await?.ok()?;
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
async fn a_rejected_conflict_tells_the_model_what_came_meanwhile() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let id = scene.submit(&format!("{EDIT}{FITTED}"), &["--branch", "fix/it"]).await?;
    scene.commit(&[("a.txt", &super::scene::text("one", "by a person"))]).await?;
    let up = scene.up().await?;
    let row = scene.is(&id, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "conflict", "{row}");
    scene.docket(&["reject", &id, "--comment", "make it fit"]).await?.ok()?;
    let row = scene.is(&id, "completed").await.with_context(|| up.tail())?;
    ensure!(
        row["delivery"]["judged"]["comment"] == "make it fit",
        "the comment is the person's alone: {row}"
    );
    until("the branch", async || scene.git(&["rev-parse", "--verify", "fix/it"]).await.ok())
        .await
        .with_context(|| up.tail())?;
    let merged = scene.git(&["show", "fix/it:a.txt"]).await?;
    ensure!(merged == super::scene::text("by the run", "by a person").trim_end(), "{merged}");
    ensure!(scene.git(&["rev-parse", "fix/it^"]).await? == scene.git(&["rev-parse", "main"]).await?);
    Ok(())
}
