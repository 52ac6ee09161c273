//! Budgets of batches through the binary: set in a backlog, kept to by workers, raised, counted.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::TaskQuery, run::RunEvent};
use docket_tests::system::{
    CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
    WorkerOptions, WorkerProcess, acquire_scenario_slot, run_program as run_tool,
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

fn parse_row(text: &str) -> Result<Value> {
    let line = text.lines().last().context("a line")?;
    serde_json::from_str(line).with_context(|| text.to_owned())
}

async fn check_batch_budget(place: StoreLocation) -> Result<()> {
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script(SCRIPT)?;
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
    let docket = async |args: &[&str]| coordinator.run_docket(args).await;
    let import = ["import", file.to_str().context("UTF-8")?, "--batch", "todo", "--repo", repo];
    let flags = ["--model", "scripted:s", "--script", script, "--tests", "true"];
    docket(&[&import[..], &flags].concat()).await?.into_stdout()?;
    let shown = docket(&["batch", "todo"]).await?.into_stdout()?;
    ensure!(shown.contains("budget: 0 tokens") && shown.contains("of 1000 tokens"), "{shown}");

    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let waited = docket(&["batch", "todo", "--wait", "--json"]).await?;
    let view = parse_row(&waited.stdout).with_context(|| worker.log_tail())?;
    ensure!(waited.code() == Some(1) && view["states"]["completed"].is_null(), "{waited:?}");
    ensure!(view["budget"]["spent"].as_str().is_some_and(|why| why.contains("1000 tokens")), "{view}");
    let tasks = coordinator.client().list_tasks(&TaskQuery::default()).await?.tasks;
    let rests = tasks.iter().find(|task| task.run.is_some()).context("a run began")?;
    let waits = tasks.iter().find(|task| task.run.is_none()).context("one waits")?;
    for task in [rests, waits] {
        let why = docket(&["why", &task.id.to_string()]).await?.into_stdout()?;
        ensure!(why.contains("budget is used up") && why.contains("docket batch budget"), "{why}");
    }
    let listed = docket(&["ps", "--batch", "todo"]).await?.into_stdout()?;
    ensure!(listed.contains("blocked") && listed.contains("1000 tokens"), "{listed}");

    // Enough for a few calls, by what they may use: the batch rests again, with some of its work done.
    docket(&["batch", "budget", "todo", "--tokens", "100000"]).await?.into_stdout()?;
    let waited = docket(&["batch", "todo", "--wait", "--json"]).await?;
    let view = parse_row(&waited.stdout)?;
    let used = view["tokens"].as_u64().context("tokens")?;
    ensure!(used > 0 && used <= 100_000, "{view}");
    docket(&["batch", "budget", "todo", "--none"]).await?.into_stdout()?;
    let waited = docket(&["batch", "todo", "--wait"]).await?;
    ensure!(waited.code() == Some(0), "{waited:?} {}", worker.log_tail());

    // What is counted is what the log says; and each run's decisions are derived from it, with the rests.
    let mut said = 0;
    for task in &tasks {
        let run = coordinator.client().get_task(task.id).await?.task.last_run.context("a run")?;
        for event in coordinator.run_history(run).await?.events {
            if let RunEvent::ModelAnswered(answered) = event {
                said += answered.usage.request_tokens() + answered.usage.output_tokens;
            }
        }
        docket(&["replay", &run.to_string(), "--verify"]).await?.into_stdout()?;
    }
    let view = parse_row(&docket(&["batch", "todo", "--json"]).await?.into_stdout()?)?;
    ensure!(view["tokens"] == said, "{view}, and the log says {said}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batch_stays_within_its_budget_on_sqlite() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_batch_budget(StoreLocation::HomeFolder).await
}

/// A home without a coordinator, and a backlog that is imported into it.
struct BudgetHome {
    home: tempfile::TempDir,
    sample: SampleRepository,
    script: String,
}

impl BudgetHome {
    fn new() -> Result<Self> {
        let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
        let script = sample.write_script(SCRIPT)?.to_str().context("UTF-8")?.to_owned();
        Ok(Self { home: tempfile::tempdir()?, sample, script })
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let env = [("DOCKET_HOME", self.home.path().as_os_str())];
        run_tool(TestProgram::Docket, self.home.path(), &env, args).await
    }

    async fn import(&self, lines: &[Value], more: &[&str]) -> Result<FinishedProcess> {
        let file = self.home.path().join("todo.jsonl");
        let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
        std::fs::write(&file, lines.join("\n"))?;
        let (file, repo) = (file.to_str().context("UTF-8")?, self.sample.path());
        let mut args = vec!["import", file, "--repo", repo.to_str().context("UTF-8")?];
        args.extend(["--model", "scripted:x", "--script", &self.script]);
        args.extend(more);
        self.run_docket(&args).await
    }

    /// What is set for the batch of the file.
    async fn batch_budget(&self, batch: &str) -> Result<Value> {
        Ok(parse_row(&self.run_docket(&["batch", batch, "--json"]).await?.into_stdout()?)?["budget"]["budget"].clone())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budget_applies_to_the_named_batch_and_changes_are_reported() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BudgetHome::new()?;
    let imported = parse_row(&stage.import(&[json!({ "text": "x" })], &["--json"]).await?.into_stdout()?)?;
    let (name, id) =
        (imported["name"].as_str().context("a name")?, imported["batch"].as_str().context("an id")?);
    ensure!(name.ends_with("/todo.jsonl"), "{name}");
    let short = &id[id.len() - 8..];
    let listed = stage.run_docket(&["batch"]).await?.into_stdout()?;
    ensure!(listed.contains(short), "{listed}");
    for (n, called) in [name, "todo.jsonl", id, short].into_iter().enumerate() {
        let tokens = (n + 700).to_string();
        let set = stage.run_docket(&["batch", "budget", called, "--tokens", &tokens]).await?;
        ensure!(set.stderr.is_empty() && set.stdout.contains(name), "{set:?}");
        ensure!(stage.batch_budget(called).await? == json!({ "tokens": n + 700 }), "{called}");
        // Every other command that takes a batch finds it so as well.
        for args in [&["ps", "--json", "--batch", called][..], &["compare", "--json", "--of", called]] {
            let found = stage.run_docket(args).await?;
            ensure!(found.stdout.contains(id), "{args:?}: {found:?}");
        }
        let none = stage.run_docket(&["archive", "list", "--batch", called]).await?;
        ensure!(none.stderr.contains("no matching archived tasks"), "{none:?}");
    }
    let typed_wrong = stage.run_docket(&["archive", "list", "--batch", "tood.jsonl"]).await?;
    ensure!(typed_wrong.code() == Some(3), "{typed_wrong:?}");

    // One that is not there can have a budget before its first task, and nobody can take it for another.
    let new = stage.run_docket(&["batch", "budget", "tood.jsonl", "--tokens", "5"]).await?;
    ensure!(new.code() == Some(0) && new.stderr.contains("the batch has no tasks yet"), "{new:?}");
    let new = parse_row(
        &stage.run_docket(&["batch", "budget", "later", "--tokens", "6", "--json"]).await?.into_stdout()?,
    )?;
    ensure!(new["new"] == true, "{new}");
    ensure!(stage.batch_budget(name).await? == json!({ "tokens": 703 }));
    stage.import(&[json!({ "text": "y" })], &["--batch", "later"]).await?.into_stdout()?;
    ensure!(stage.batch_budget("later").await? == json!({ "tokens": 6 }));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manually_set_budget_survives_reimport() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BudgetHome::new()?;
    let file = |tokens: u64| [json!({ "budget": { "tokens": tokens } }), json!({ "text": "x" })];
    let batch = ["--batch", "nightly"];
    let usd = |dollars: u64| json!(dollars * 1_000_000_000);
    stage.import(&file(1000), &batch).await?.into_stdout()?;
    ensure!(stage.batch_budget("nightly").await? == json!({ "tokens": 1000 }));
    // A file that says something else now is heard, as long as nobody said more.
    stage.import(&file(2000), &batch).await?.into_stdout()?;
    ensure!(stage.batch_budget("nightly").await? == json!({ "tokens": 2000 }));

    stage.run_docket(&["batch", "budget", "nightly", "--usd", "50"]).await?.into_stdout()?;
    let both = json!({ "tokens": 2000, "cost_nusd": usd(50) });
    ensure!(stage.batch_budget("nightly").await? == both, "the limit that was not named stays");
    stage.run_docket(&["batch", "budget", "nightly", "--tokens", "9000000"]).await?.into_stdout()?;
    let both = json!({ "tokens": 9_000_000, "cost_nusd": usd(50) });
    ensure!(stage.batch_budget("nightly").await? == both);
    let again = stage.import(&file(2000), &batch).await?;
    ensure!(again.code() == Some(0) && again.stderr.contains("is kept"), "{again:?}");
    ensure!(stage.batch_budget("nightly").await? == both);

    // With the command itself it is a person who says so.
    stage.import(&file(2000), &[&batch[..], &["--batch-usd", "60"]].concat()).await?.into_stdout()?;
    ensure!(stage.batch_budget("nightly").await? == json!({ "tokens": 9_000_000, "cost_nusd": usd(60) }));
    stage.run_docket(&["batch", "budget", "nightly", "--none"]).await?.into_stdout()?;
    stage.import(&file(2000), &batch).await?.into_stdout()?;
    ensure!(stage.batch_budget("nightly").await? == json!({}), "none was a person's word as well");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_budget_is_never_ignored() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BudgetHome::new()?;
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
            refused.code() == Some(2) && refused.stderr.contains("an invalid budget is never skipped"),
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
    ensure!(stage.run_docket(&["ps", "--json"]).await?.into_stdout()?.is_empty(), "nothing was submitted");
    // What is a task's is left out, also where the word occurs in it.
    let about = json!({ "text": "Mend the \"budget\"", "key": "budget", "prioritie": 1 });
    let some = parse_row(&stage.import(&[about, task], &["--skip-bad", "--json"]).await?.into_stdout()?)?;
    ensure!(some["submitted"] == 1 && some["bad"] == 1, "{some}");
    Ok(())
}
