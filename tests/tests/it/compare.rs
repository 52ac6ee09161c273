//! `docket compare` on real runs: two models with scripts of their own, and every figure right to the number.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{ids::TaskId, run::RunEvent};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, WorkerOptions, WorkerProcess,
        acquire_scenario_slot,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

/// Two turns, and done.
const QUICK: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "finished", content = "x\n" } }]
[[turns]]
text = "Done."
"#;

/// Three turns, and nothing done.
const IDLE: &str = r#"
[[turns]]
calls = [{ name = "list_files", args = {} }]
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
text = "I think it is done."
"#;

/// What `quick` costs is known, what `idle` costs is not. A failed check is not tried again.
const SETTINGS: &str = "[run]\ncorrections_max = 0\n[prices.\"openai:quick\"]\ninput = \"3\"\noutput = \"5\"\n\
                        cache_read = \"1\"\ncache_write = \"3\"\ncontext_tokens = 100_000\noutput_tokens_max = 1000\n";

fn find_variant<'a>(all: &'a Value, model: &str) -> Result<&'a Value> {
    let each = all["variants"].as_array().context("variants")?;
    each.iter().find(|variant| variant["model"] == model).with_context(|| format!("no {model} in {all}"))
}

fn number_field(of: &Value, name: &str) -> Result<u64> {
    of[name].as_u64().with_context(|| format!("{name} of {of}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn comparison_of_two_models_has_exact_figures() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let scripts = [("quick", QUICK), ("idle", IDLE)];
    let scripts = scripts.map(|(name, text)| (name.to_owned(), ScriptedModel::parse(text.as_bytes())));
    let scripts: BTreeMap<_, _> =
        scripts.into_iter().map(|(name, script)| Ok((name, script?))).collect::<Result<_>>()?;
    let server = ModelServer::start_by_model(scripts).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let tasks = tempfile::tempdir()?;
    let (one, two) = (tasks.path().join("one.md"), tasks.path().join("two.jsonl"));
    std::fs::write(&one, "# The first task\nDo it.\n")?;
    let line =
        serde_json::json!({ "title": "The second task", "text": "Do that, too.", "requires": ["a.txt"] });
    std::fs::write(&two, format!("{line}\n"))?;
    let worker = WorkerProcess::start(
        &coordinator,
        &WorkerOptions { settings: SETTINGS.to_owned(), ..WorkerOptions::default() },
    )
    .await?;
    let url = server.base_url(ModelProvider::OpenAi);
    let path = |path: &std::path::Path| path.to_str().map(str::to_owned).context("a UTF-8 path");
    let (one, two, repo) = (path(&one)?, path(&two)?, path(sample.path())?);
    let args = [
        "compare",
        &one,
        &two,
        "--repo",
        &repo,
        "--tests",
        "test -e finished",
        "--base-url",
        &url,
        "--model",
        "openai:quick",
        "--model",
        "openai:idle",
        "--repeat",
        "2",
        "--json",
    ];
    let told = coordinator.run_docket(&args).await?;
    ensure!(told.success(), "{told:?}\n{}", worker.log_tail());
    let all: Value = serde_json::from_str(&told.stdout).context("one object")?;

    // Eight tasks: two, twice, by each.
    let (quick, idle) = (find_variant(&all, "openai:quick")?, find_variant(&all, "openai:idle")?);
    for (of, succeeded, percent, turns, median) in [(quick, 4, 100, 8, 2), (idle, 0, 0, 12, 3)] {
        ensure!(number_field(of, "tasks")? == 4 && number_field(of, "succeeded")? == succeeded, "{of}");
        ensure!(
            number_field(of, "success_percent")? == percent && number_field(of, "under_way")? == 0,
            "{of}"
        );
        ensure!(number_field(of, "turns")? == turns && number_field(of, "turns_median")? == median, "{of}");
    }
    // Tokens: as the server counted what it was sent, and as the log has what was answered.
    let sent = |model: &str| -> Result<u64> {
        let mut sum = 0;
        for request in server.requests() {
            let body: Value = serde_json::from_slice(&request.body)?;
            sum += if body["model"] == model { request.body.len() as u64 / 4 } else { 0 };
        }
        Ok(sum)
    };
    ensure!(number_field(quick, "input_tokens")? == sent("quick")?, "{quick}");
    ensure!(number_field(idle, "input_tokens")? == sent("idle")?, "{idle}");
    let (mut answered, mut walls) = (BTreeMap::<String, u64>::new(), BTreeMap::<String, Vec<u64>>::new());
    let mut worked = BTreeMap::<String, Vec<u64>>::new();
    for of in all["tasks"].as_array().context("tasks")? {
        for variant in of["variants"].as_array().context("variants")? {
            ensure!(number_field(variant, "tasks")? == 2, "{variant}");
            let model = variant["model"].as_str().context("a model")?.to_owned();
            for id in variant["ids"].as_array().context("ids")? {
                let id: TaskId = id.as_str().context("an id")?.parse()?;
                let view = coordinator.client().get_task(id).await?;
                ensure!(view.task.spec.title == of["title"].as_str().context("a title")?, "{of}");
                let run = &view.runs[0];
                let took = run.ended_at.context("ended")?.ms_since(run.started_at.context("started")?);
                walls.entry(model.clone()).or_default().push(took);
                let mut took = 0;
                for event in &coordinator.run_history(run.id).await?.events {
                    if let RunEvent::ModelAnswered(answer) = event {
                        *answered.entry(model.clone()).or_default() += answer.usage.output_tokens;
                        took += answer.total_ms;
                    } else if let RunEvent::ToolFinished(finished) = event {
                        took += finished.duration_ms;
                    } else if let RunEvent::GateFinished(finished) = event {
                        took += finished.duration_ms;
                    }
                }
                worked.entry(model.clone()).or_default().push(took);
            }
        }
    }
    for (name, of) in [("openai:quick", quick), ("openai:idle", idle)] {
        ensure!(number_field(of, "output_tokens")? == answered[name], "{of}");
        let mut walls = walls[name].clone();
        walls.sort_unstable();
        ensure!(number_field(of, "wall_ms_median")? == u64::midpoint(walls[1], walls[2]), "{of} {walls:?}");
        let mut worked = worked[name].clone();
        worked.sort_unstable();
        ensure!(
            number_field(of, "worked_ms_median")? == u64::midpoint(worked[1], worked[2]),
            "{of} {worked:?}"
        );
    }
    let cost = number_field(quick, "input_tokens")? * 3000 + number_field(quick, "output_tokens")? * 5000;
    ensure!(number_field(quick, "cost_nusd")? == cost, "{quick}, not {cost}");
    ensure!(idle["cost_nusd"].is_null() && idle["cost_usd"].is_null(), "a price that is not known: {idle}");

    // Looked at again: nothing is asked, and all is the same.
    let calls = server.call_count();
    let batch = all["batch"].as_str().context("a batch")?;
    let again = coordinator.run_docket(&["compare", "--of", batch, "--json"]).await?.into_stdout()?;
    ensure!(serde_json::from_str::<Value>(&again)? == all, "{again}");
    let ids: Vec<String> = all["tasks"][0]["variants"]
        .as_array()
        .context("variants")?
        .iter()
        .map(|variant| variant["ids"][0].as_str().unwrap_or_default().to_owned())
        .collect();
    let table = coordinator.run_docket(&["compare", "--of", &ids.join(",")]).await?.into_stdout()?;
    let lines: Vec<&str> = table.lines().collect();
    ensure!(lines.len() == 5 && lines[0].starts_with("VARIANT"), "{table}");
    ensure!(
        lines[1].starts_with("openai:quick  1/1 100%") && lines[1].ends_with("The first task"),
        "{table}"
    );
    ensure!(lines[2].starts_with("openai:idle   0/1 0%") && lines[2].contains("unknown"), "{table}");
    ensure!(lines[3].ends_with("all 1 tasks"), "{table}");
    ensure!(server.call_count() == calls, "a model was asked");
    worker.drain().await?;

    // Nobody works: the batch waits, is told, and is no success.
    let mut late: Vec<&str> = args.to_vec();
    late.extend([
        "--no-wait",
        "--explore-model",
        "",
        "--explore-model",
        "openai:quick",
        "--max-tokens",
        "5000",
    ]);
    let told = coordinator.run_docket(&late).await?.into_stdout()?;
    let told: Value = serde_json::from_str(&told)?;
    let waiting = told["tasks"].as_array().context("tasks")?;
    ensure!(waiting.len() == 8, "{told}");
    for (nth, id) in waiting.iter().enumerate() {
        let spec = coordinator.client().get_task(id.as_str().context("an id")?.parse()?).await?.task.spec;
        // Variants take turns: the second has the first one's model to look around.
        let explore = (nth % 2 == 1).then(|| "openai:quick".to_owned());
        ensure!(spec.explore_model.map(|model| model.to_string()) == explore, "{nth}");
        ensure!(spec.requires.len() == usize::from(spec.title == "The second task"), "{nth}");
        ensure!(spec.settings.tokens_max == Some(5000), "{nth}");
    }
    let batch = told["batch"].as_str().context("a batch")?;
    let open = coordinator.run_docket(&["compare", "--of", batch]).await?;
    ensure!(open.code() == Some(1) && open.stderr.contains("not all tasks have ended"), "{open:?}");
    let wrong_lines = tasks.path().join("wrong.jsonl");
    std::fs::write(&wrong_lines, "{\"text\": \"x\"}\n{\"txt\": \"x\"}\n")?;
    let wrong_lines = path(&wrong_lines)?;
    for (wrong, words) in [
        (
            &["compare", &wrong_lines, "--repo", &repo, "--model", "openai:x", "--model", "openai:y"][..],
            "wrong.jsonl:2: unknown field `txt`",
        ),
        (&["compare", &one, "--repo", &repo, "--model", "openai:quick"], "nothing to compare"),
        (
            &[
                "compare",
                &one,
                "--repo",
                &repo,
                "--model",
                "openai:gpt-5.5",
                "--model",
                "openai:idle",
                "--max-cost",
                "0.00025",
            ],
            "no price is known for openai:idle",
        ),
        (&["compare", &one, "--repo", &repo, "--model", "openai:x", "--model", "openai:x"], "given twice"),
        (
            &["compare", &one, &one, "--repo", &repo, "--model", "openai:x", "--model", "openai:y"],
            "the same task",
        ),
        (
            &[
                "compare", &one, "--repo", &repo, "--model", "openai:x", "--engine", "react", "--engine",
                "none",
            ],
            "unknown engine `none`",
        ),
    ] {
        let said = coordinator.run_docket(wrong).await?;
        ensure!(said.code() == Some(2) && said.stderr.contains(words), "{wrong:?}: {said:?}");
    }
    coordinator.end_and_check().await
}

/// Gives the work away to another model.
const GIVES: &str = r#"
[[turns]]
calls = [{ name = "delegate", args = { title = "A piece", instructions = "Make finished.", writes = true, model = "openai:quick" } }]
[[turns]]
when = { last_result_contains = "Taken over" }
text = "Done."
"#;

/// What a task gave away is in its figures, and is no task of its own beside it: while it is waited for, and afterwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delegated_work_is_counted_once() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let script = |text: &str| ScriptedModel::parse(text.as_bytes());
    let scripts = [("gives".to_owned(), script(GIVES)?), ("quick".to_owned(), script(QUICK)?)];
    let server = ModelServer::start_by_model(scripts.into()).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let tasks = tempfile::tempdir()?;
    let one = tasks.path().join("one.md");
    std::fs::write(&one, "# A task\nDo it.\n")?;
    let settings = SETTINGS.replace("[run]\n", "[run]\ndelegation_depth_max = 1\n");
    let options = WorkerOptions { settings, slots: 2, ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let (url, one) = (server.base_url(ModelProvider::OpenAi), one.to_str().context("UTF-8")?.to_owned());
    let repo = sample.path().to_str().context("UTF-8")?;
    let args = ["compare", &one, "--repo", repo, "--tests", "test -e finished", "--base-url", &url];
    let args = [&args[..], &["--model", "openai:gives", "--model", "openai:quick", "--json"]].concat();
    let told = coordinator.run_docket(&args).await?;
    ensure!(told.success(), "{told:?}\n{}", worker.log_tail());
    let live: Value = serde_json::from_str(&told.stdout).context("one object")?;
    let batch = live["batch"].as_str().context("a batch")?.to_owned();
    let again = coordinator.run_docket(&["compare", "--of", &batch, "--json"]).await?.into_stdout()?;
    let sent: u64 = server.requests().iter().map(|request| request.body.len() as u64 / 4).sum();
    for all in [live, serde_json::from_str(&again)?] {
        let (gives, quick) = (find_variant(&all, "openai:gives")?, find_variant(&all, "openai:quick")?);
        ensure!(all["variants"].as_array().is_some_and(|each| each.len() == 2), "{all}");
        // Two of its own, and two of what it gave away to the model of the other one.
        for (of, turns) in [(gives, 4), (quick, 2)] {
            ensure!(number_field(of, "tasks")? == 1 && number_field(of, "succeeded")? == 1, "{of}");
            ensure!(number_field(of, "turns")? == turns, "{of}");
        }
        let told = number_field(gives, "input_tokens")? + number_field(quick, "input_tokens")?;
        ensure!(told == sent, "{told} of {sent}: {all}");
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}
