//! Budgets of batches through the binary: set in a backlog, kept to by workers, raised, counted.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{run::RunEvent, wire::TaskQuery};
use docket_tests::system::{
    Coordinator, Finished, LeaseTime, Place, Sample, Tool, Worker, WorkerOptions, room, run as run_tool,
};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
calls = [{ name = "create_file", args = { path = "two.txt", content = "two\n" } }]
[[turns]]
text = "Done."
"#;

fn row(text: &str) -> Result<Value> {
    let line = text.lines().last().context("a line")?;
    serde_json::from_str(line).with_context(|| text.to_owned())
}

async fn a_batch_keeps_to_its_budget(place: Place) -> Result<()> {
    let coordinator = Coordinator::start(place, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let script = sample.script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("todo.jsonl");
    // A call may use some tens of thousands of tokens by its limits, and has far fewer.
    let lines = [
        json!({ "budget": { "tokens": 1000 } }),
        json!({ "text": "The first" }),
        json!({ "text": "The second" }),
        json!({ "text": "The third" }),
    ];
    std::fs::write(&file, lines.map(|line| line.to_string()).join("\n"))?;
    let docket = async |args: &[&str]| coordinator.docket(args).await;
    let import = ["import", file.to_str().context("UTF-8")?, "--batch", "todo", "--repo", repo];
    let flags = ["--model", "scripted:s", "--script", script, "--tests", "true"];
    docket(&[&import[..], &flags].concat()).await?.ok()?;
    let shown = docket(&["batch", "todo"]).await?.ok()?;
    ensure!(shown.contains("budget: 0 tokens") && shown.contains("of 1000 tokens"), "{shown}");

    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let waited = docket(&["batch", "todo", "--wait", "--json"]).await?;
    let view = row(&waited.stdout).with_context(|| worker.tail())?;
    ensure!(waited.code() == Some(1) && view["states"]["completed"].is_null(), "{waited:?}");
    ensure!(view["budget"]["spent"].as_str().is_some_and(|why| why.contains("1000 tokens")), "{view}");
    let tasks = coordinator.client().tasks(&TaskQuery::default()).await?.tasks;
    let rests = tasks.iter().find(|task| task.run.is_some()).context("a run began")?;
    let waits = tasks.iter().find(|task| task.run.is_none()).context("one waits")?;
    for task in [rests, waits] {
        let why = docket(&["why", &task.id.to_string()]).await?.ok()?;
        ensure!(why.contains("may use no more") && why.contains("docket batch budget"), "{why}");
    }
    let listed = docket(&["ps", "--batch", "todo"]).await?.ok()?;
    ensure!(listed.contains("blocked") && listed.contains("1000 tokens"), "{listed}");

    // Enough for a few calls, by what they may use: the batch rests again, with some of its work done.
    docket(&["batch", "budget", "todo", "--tokens", "100000"]).await?.ok()?;
    let waited = docket(&["batch", "todo", "--wait", "--json"]).await?;
    let view = row(&waited.stdout)?;
    let used = view["tokens"].as_u64().context("tokens")?;
    ensure!(used > 0 && used <= 100_000, "{view}");
    docket(&["batch", "budget", "todo", "--none"]).await?.ok()?;
    let waited = docket(&["batch", "todo", "--wait"]).await?;
    ensure!(waited.code() == Some(0), "{waited:?} {}", worker.tail());

    // What is counted is what the log says; and each run's decisions are derived from it, with the rests.
    let mut said = 0;
    for task in &tasks {
        let run = coordinator.client().task(task.id).await?.task.last_run.context("a run")?;
        for event in coordinator.history(run).await?.events {
            if let RunEvent::ModelAnswered(answered) = event {
                said += answered.usage.asked_tokens() + answered.usage.output_tokens;
            }
        }
        docket(&["replay", &run.to_string(), "--verify"]).await?.ok()?;
    }
    let view = row(&docket(&["batch", "todo", "--json"]).await?.ok()?)?;
    ensure!(view["tokens"] == said, "{view}, and the log says {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_keeps_to_its_budget_on_sqlite() -> Result<()> {
    let _room = room().await;
    a_batch_keeps_to_its_budget(Place::Home).await
}

/// A home without a coordinator, and a backlog that is imported into it.
struct Stage {
    home: tempfile::TempDir,
    sample: Sample,
    script: String,
}

impl Stage {
    fn set() -> Result<Self> {
        let sample = Sample::new(&[("a.txt", "one\n")])?;
        let script = sample.script(SCRIPT)?.to_str().context("UTF-8")?.to_owned();
        Ok(Self { home: tempfile::tempdir()?, sample, script })
    }

    async fn docket(&self, args: &[&str]) -> Result<Finished> {
        let env = [("DOCKET_HOME", self.home.path().as_os_str())];
        run_tool(Tool::Docket, self.home.path(), &env, args).await
    }

    async fn import(&self, lines: &[Value], more: &[&str]) -> Result<Finished> {
        let file = self.home.path().join("todo.jsonl");
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(&file, lines.join("\n"))?;
        let (file, repo) = (file.to_str().context("UTF-8")?, self.sample.path());
        let mut args = vec!["import", file, "--repo", repo.to_str().context("UTF-8")?];
        args.extend(["--model", "scripted:x", "--script", &self.script]);
        args.extend(more);
        self.docket(&args).await
    }

    /// What is set for the batch of the file.
    async fn set_for(&self, batch: &str) -> Result<Value> {
        Ok(row(&self.docket(&["batch", batch, "--json"]).await?.ok()?)?["budget"]["budget"].clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_is_of_the_batch_that_is_meant_and_a_new_one_is_told() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set()?;
    let imported = row(&stage.import(&[json!({ "text": "x" })], &["--json"]).await?.ok()?)?;
    let (name, id) =
        (imported["name"].as_str().context("a name")?, imported["batch"].as_str().context("an id")?);
    ensure!(name.ends_with("/todo.jsonl"), "{name}");
    let short = &id[id.len() - 8..];
    let listed = stage.docket(&["batch"]).await?.ok()?;
    ensure!(listed.contains(short), "{listed}");
    for (n, called) in [name, "todo.jsonl", id, short].into_iter().enumerate() {
        let tokens = (n + 700).to_string();
        let set = stage.docket(&["batch", "budget", called, "--tokens", &tokens]).await?;
        ensure!(set.stderr.is_empty() && set.stdout.contains(name), "{set:?}");
        ensure!(stage.set_for(called).await? == json!({ "tokens": n + 700 }), "{called}");
        // Every other command that takes a batch finds it so as well.
        for args in [&["ps", "--json", "--batch", called][..], &["compare", "--json", "--of", called]] {
            let found = stage.docket(args).await?;
            ensure!(found.stdout.contains(id), "{args:?}: {found:?}");
        }
        let none = stage.docket(&["archive", "list", "--batch", called]).await?;
        ensure!(none.stderr.contains("no such task is archived"), "{none:?}");
    }
    let typed_wrong = stage.docket(&["archive", "list", "--batch", "tood.jsonl"]).await?;
    ensure!(typed_wrong.code() == Some(3), "{typed_wrong:?}");

    // One that is not there can have a budget before its first task, and nobody can take it for another.
    let new = stage.docket(&["batch", "budget", "tood.jsonl", "--tokens", "5"]).await?;
    ensure!(new.code() == Some(0) && new.stderr.contains("no task is in it yet"), "{new:?}");
    let new = row(&stage.docket(&["batch", "budget", "later", "--tokens", "6", "--json"]).await?.ok()?)?;
    ensure!(new["new"] == true, "{new}");
    ensure!(stage.set_for(name).await? == json!({ "tokens": 703 }));
    stage.import(&[json!({ "text": "y" })], &["--batch", "later"]).await?.ok()?;
    ensure!(stage.set_for("later").await? == json!({ "tokens": 6 }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_person_set_stays_whatever_is_imported_again() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set()?;
    let file = |tokens: u64| [json!({ "budget": { "tokens": tokens } }), json!({ "text": "x" })];
    let batch = ["--batch", "nightly"];
    let usd = |dollars: u64| json!(dollars * 1_000_000_000);
    stage.import(&file(1000), &batch).await?.ok()?;
    ensure!(stage.set_for("nightly").await? == json!({ "tokens": 1000 }));
    // A file that says something else now is heard, as long as nobody said more.
    stage.import(&file(2000), &batch).await?.ok()?;
    ensure!(stage.set_for("nightly").await? == json!({ "tokens": 2000 }));

    stage.docket(&["batch", "budget", "nightly", "--usd", "50"]).await?.ok()?;
    let both = json!({ "tokens": 2000, "cost_nusd": usd(50) });
    ensure!(stage.set_for("nightly").await? == both, "the limit that was not named stays");
    stage.docket(&["batch", "budget", "nightly", "--tokens", "9000000"]).await?.ok()?;
    let both = json!({ "tokens": 9_000_000, "cost_nusd": usd(50) });
    ensure!(stage.set_for("nightly").await? == both);
    let again = stage.import(&file(2000), &batch).await?;
    ensure!(again.code() == Some(0) && again.stderr.contains("stays"), "{again:?}");
    ensure!(stage.set_for("nightly").await? == both);

    // With the command itself it is a person who says so.
    stage.import(&file(2000), &[&batch[..], &["--batch-usd", "60"]].concat()).await?.ok()?;
    ensure!(stage.set_for("nightly").await? == json!({ "tokens": 9_000_000, "cost_nusd": usd(60) }));
    stage.docket(&["batch", "budget", "nightly", "--none"]).await?.ok()?;
    stage.import(&file(2000), &batch).await?.ok()?;
    ensure!(stage.set_for("nightly").await? == json!({}), "none was a person's word as well");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_that_is_wrong_is_never_left_out() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set()?;
    let task = json!({ "text": "x" });
    for wrong in [
        json!({ "budget": { "usd": "lots" } }),
        json!({ "budget": 5 }),
        json!({ "Budget": { "usd": 5 } }),
        json!({ "budjet": { "usd": 5 } }),
        json!({ "budget": { "usd": 5 }, "queue": "a" }),
    ] {
        let refused = stage.import(&[wrong.clone(), task.clone()], &["--skip-bad"]).await?;
        ensure!(
            refused.code() == Some(2) && refused.stderr.contains("a budget is never left out"),
            "{wrong}: {refused:?}"
        );
    }
    let twice = json!({ "budget": { "usd": 5 } });
    let refused = stage.import(&[twice.clone(), twice, task.clone()], &["--skip-bad"]).await?;
    ensure!(refused.code() == Some(2), "{refused:?}");
    // Behind so many faults that the rest is not looked at.
    let mut many = vec![json!({ "text": "" }); 1100];
    many.extend([task.clone(), json!({ "budget": { "usd": "lots" } })]);
    let refused = stage.import(&many, &["--skip-bad"]).await?;
    ensure!(refused.code() == Some(2), "{refused:?}");
    ensure!(stage.docket(&["ps", "--json"]).await?.ok()?.is_empty(), "nothing was submitted");
    // What is a task's is left out, also where the word occurs in it.
    let about = json!({ "text": "Mend the \"budget\"", "key": "budget", "prioritie": 1 });
    let some = row(&stage.import(&[about, task], &["--skip-bad", "--json"]).await?.ok()?)?;
    ensure!(some["submitted"] == 1 && some["bad"] == 1, "{some}");
    Ok(())
}
