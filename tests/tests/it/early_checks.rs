//! What can be known of a task before its first model call is reported before it: by the commands that submit, with the
//! field that is wrong, and no task and no request is made. And `docket why` names the true reason that a task waits.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::Cluster,
    system::{
        Coordinator, Finished, LeaseTime, Place, Sample, Tool, Worker, WorkerOptions, fresh_database, room,
        run,
    },
};
use docket_worker::model::{Provider, ScriptedModel};
use serde_json::Value;

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "new.txt", content = "new\n" } }]
[[turns]]
text = "Done."
"#;

const ASKS: &str = "[[turns]]\ntext = \"BLOCKED: which port?\"\n";

/// A home, a repository with a remote, and a model server that counts.
struct House {
    home: tempfile::TempDir,
    remote: tempfile::TempDir,
    sample: Sample,
    server: ModelServer,
    env: Vec<(&'static str, String)>,
}

impl House {
    async fn new(place: &Place) -> Result<Self> {
        let (home, remote) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let sample = Sample::new(&[("a.txt", "a\n")])?;
        let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
        let mut env = vec![("DOCKET_HOME", home.path().display().to_string())];
        if let Place::Postgres(url) = place {
            env.push(("DATABASE_URL", url.clone()));
        }
        let house = Self { home, remote, sample, server, env };
        house.git_at(house.remote.path(), &["init", "--quiet", "--bare"]).await?;
        let remote = house.remote.path().display().to_string();
        house.git(&["remote", "add", "origin", &remote]).await?;
        house.git(&["push", "--quiet", "origin", "main:theirs"]).await?;
        for branch in ["taken", "folder/of-others"] {
            house.git(&["branch", branch]).await?;
        }
        Ok(house)
    }

    async fn git_at(&self, folder: &Path, args: &[&str]) -> Result<String> {
        run(Tool::Git, folder, &[], args).await?.ok()
    }

    async fn git(&self, args: &[&str]) -> Result<String> {
        self.git_at(self.sample.path(), args).await
    }

    async fn docket(&self, args: &[&str]) -> Result<Finished> {
        let env: Vec<(&str, &OsStr)> = self.env.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        run(Tool::Docket, self.home.path(), &env, args).await
    }

    /// A command on a task of the repository, with the counting model.
    async fn asks(&self, verb: &str, more: &[&str]) -> Result<Finished> {
        let (repo, base) = (self.sample.path().display().to_string(), self.server.base_url(Provider::OpenAi));
        let mut args = vec![verb, "Do it", "--model", "openai:m", "--base-url", &base];
        if !more.contains(&"--empty") {
            args.extend(["--repo", repo.as_str()]);
        }
        self.docket(&[&args[..], more].concat()).await
    }

    async fn has_no_task(&self) -> Result<()> {
        let listed = self.docket(&["ps", "--json"]).await?.ok()?;
        ensure!(listed.is_empty() && self.server.calls() == 0, "{} calls: {listed}", self.server.calls());
        Ok(())
    }
}

/// It ends with 2 and one line that says all of this.
fn refused(done: &Finished, says: &[&str]) -> Result<()> {
    let lines: Vec<&str> = done.stderr.lines().collect();
    ensure!(done.code() == Some(2) && lines.len() == 1 && done.stdout.is_empty(), "{says:?}: {done:?}");
    ensure!(says.iter().all(|part| lines[0].contains(part)), "{says:?}: {}", lines[0]);
    Ok(())
}

async fn faults_are_reported_before_the_first_request(place: &Place) -> Result<()> {
    let mut house = House::new(place).await?;
    house.env.push(("OPENAI_API_KEY", ModelServer::KEY.to_owned()));
    let main = house.git(&["rev-parse", "taken"]).await?;
    let taken = ["--branch", "`taken` exists", main.trim()];
    let cases: &[(&[&str], &[&str])] = &[
        (&["--branch", "taken"], &taken),
        (&["--branch", "folder"], &["--branch", "folder/of-others"]),
        (&["--branch", "taken/below"], &["--branch", "`taken` is there"]),
        (&["--branch", "a..b"], &["--branch", "a..b", "git takes"]),
        (&["--branch", "x", "--empty"], &["--branch", "--empty", "--repo"]),
        (&["--push", "--empty"], &["--push", "--empty", "--repo"]),
        (&["--push", "--branch", "theirs"], &["--branch", "`theirs` of the remote origin exists"]),
        (&["--tests", "pytest \""], &["--tests", "is not valid shell syntax"]),
        (&["--tests", " "], &["--tests", "empty"]),
        (&["--setup", "if true; then"], &["--setup", "is not valid shell syntax"]),
        (&["--max-tokens", "300"], &["--max-tokens", "300 tokens does not pay", "at least"]),
        (&["--fallback-model", "openai:m", "--max-cost", "1"], &["price"]),
    ];
    for verb in ["run", "submit"] {
        for (flags, says) in cases {
            refused(&house.asks(verb, flags).await?, says).with_context(|| format!("{verb} {flags:?}"))?;
        }
    }
    // A worker of this process can be looked at as well.
    refused(&house.asks("run", &["--selector", "gpu=a100"]).await?, &["--selector", "worker.labels"])?;
    refused(
        &house.asks("run", &["--fallback-model", "anthropic:m"]).await?,
        &["--fallback-model", "ANTHROPIC_API_KEY"],
    )?;
    house.git(&["remote", "rename", "origin", "elsewhere"]).await?;
    for verb in ["run", "submit"] {
        let says = ["--push", "no remote `origin`", "there are: elsewhere"];
        refused(&house.asks(verb, &["--push"]).await?, &says)?;
    }
    house.has_no_task().await?;
    // Without a fault the same is done.
    house.git(&["remote", "rename", "elsewhere", "origin"]).await?;
    let flags = ["--push", "--branch", "ours", "--tests", "test -f new.txt", "--max-tokens", "1000000"];
    let done = house.asks("run", &flags).await?;
    ensure!(done.success() && house.server.calls() == 2, "{done:?}");
    house.git(&["rev-parse", "ours"]).await?;
    house.git_at(house.remote.path(), &["rev-parse", "ours"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn faults_that_can_be_known_are_reported_before_the_first_request() -> Result<()> {
    let _room = room().await;
    Box::pin(faults_are_reported_before_the_first_request(&Place::Home)).await?;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    Box::pin(faults_are_reported_before_the_first_request(&fresh_database(&cluster).await?)).await
}

/// A repository that cannot be a task's base is bad input, as a bad branch is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repository_that_cannot_be_a_base_is_the_command_lines_fault() -> Result<()> {
    let _room = room().await;
    let mut house = House::new(&Place::Home).await?;
    house.env.push(("OPENAI_API_KEY", ModelServer::KEY.to_owned()));
    let (outside, empty) = (tempfile::tempdir()?, tempfile::tempdir()?);
    house.git_at(empty.path(), &["init", "--quiet"]).await?;
    let [outside, empty] = [&outside, &empty].map(|folder| folder.path().display().to_string());
    let missing = format!("{outside}/missing");
    let whole = house.sample.path().display().to_string();
    let dirty = tempfile::tempdir()?;
    let copy = dirty.path().join("copy").display().to_string();
    house.git(&["clone", "--quiet", &whole, &copy]).await?;
    std::fs::write(dirty.path().join("copy/new.txt"), "new")?;
    let base = house.server.base_url(Provider::OpenAi);
    for verb in ["run", "submit"] {
        for (repo, more, says) in [
            (&missing, &[][..], "there is no folder"),
            (&outside, &[], "in no git repository"),
            (&empty, &[], "names no commit"),
            (&whole, &["--commit", "nowhere"], "`nowhere` names no commit"),
            (&copy, &[], "--include-dirty"),
        ] {
            let args = [verb, "Do it", "--model", "openai:m", "--base-url", &base, "--repo", repo];
            let done = house.docket(&[&args[..], more].concat()).await?;
            let told = done.code() == Some(2) && done.stderr.contains(says);
            ensure!(told, "{verb} {repo} {more:?}: {done:?}");
        }
    }
    house.has_no_task().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_line_of_an_import_is_checked_like_a_task_of_its_own() -> Result<()> {
    let _room = room().await;
    let house = House::new(&Place::Home).await?;
    let file = house.home.path().join("todo.jsonl");
    let lines = [
        r#"{"text": "one", "branch": "taken"}"#,
        r#"{"text": "two", "branch": "twice"}"#,
        r#"{"text": "three", "branch": "twice"}"#,
        r#"{"text": "four", "tests": "("}"#,
        r#"{"text": "five", "push": true, "branch": "theirs"}"#,
        r#"{"text": "six"}"#,
    ];
    std::fs::write(&file, lines.join("\n"))?;
    let (file, repo) = (file.display().to_string(), house.sample.path().display().to_string());
    let base = house.server.base_url(Provider::OpenAi);
    let args = ["import", &file, "--repo", &repo, "--model", "openai:m", "--base-url", &base];
    let done = house.docket(&args).await?;
    ensure!(done.code() == Some(2), "{done:?}");
    for says in [
        "todo.jsonl:1: `branch`: the branch `taken` exists",
        "todo.jsonl:3: `branch`: the task of line 2",
        "todo.jsonl:4: `tests`: `(` is not valid shell syntax",
        "todo.jsonl:5: `branch`: the branch `theirs` of the remote",
    ] {
        ensure!(done.stderr.contains(says), "{says}: {}", done.stderr);
    }
    ensure!(done.stderr.contains("4 faults"), "and no others: {}", done.stderr);
    house.has_no_task().await?;
    // A budget of money needs prices, whichever way it is given.
    let done = house.docket(&[&args[..], &["--batch-usd", "5", "--dry-run"]].concat()).await?;
    ensure!(done.code() == Some(2) && done.stderr.contains("no price is known"), "{done:?}");
    house.has_no_task().await
}

async fn a_run_without_its_key_makes_no_task(place: &Place) -> Result<()> {
    let house = House::new(place).await?;
    for model in ["anthropic:m", "openai:m", "openai-responses:m"] {
        let done = house.docket(&["run", "Do it", "--empty", "--model", model]).await?;
        let variable = if model.starts_with("anthropic") { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        refused(&done, &["--model", model, &format!("{variable} is not set"), "--base-url"])?;
    }
    house.has_no_task().await?;
    // For workers elsewhere, whose keys nobody here knows, it is submitted.
    house.docket(&["submit", "Do it", "--empty", "--model", "anthropic:m"]).await?.ok()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_without_its_key_is_refused_in_one_line_and_makes_no_task() -> Result<()> {
    let _room = room().await;
    a_run_without_its_key_makes_no_task(&Place::Home).await?;
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    a_run_without_its_key_makes_no_task(&fresh_database(&cluster).await?).await
}

async fn reason(house: &House, task: &str) -> Result<(String, String)> {
    let why: Value = serde_json::from_str(&house.docket(&["why", task, "--json"]).await?.ok()?)?;
    let text = |key: &str| why[key].as_str().map(str::to_owned).context("text");
    Ok((text("kind")?, text("text")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_is_left_by_a_run_waits_for_a_worker_and_not_for_its_slots() -> Result<()> {
    let _room = room().await;
    let house = House::new(&Place::Home).await?;
    let script = house.sample.script(ASKS)?;
    let script = script.to_str().context("UTF-8")?;
    let args = ["run", "Do it", "--json", "--empty", "--model", "scripted:x", "--script", script];
    let done = house.docket(&args).await?;
    ensure!(done.code() == Some(1), "it asks: {done:?}");
    let row: Value = serde_json::from_str(&done.stdout)?;
    let task = row["id"].as_str().context("an id")?;
    house.docket(&["answer", task, "8080"]).await?.ok()?;
    let (kind, text) = reason(&house, task).await?;
    ensure!(kind == "no_worker" && text.contains("`docket up`") && !text.contains("slot"), "{kind}: {text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_that_has_ended_is_no_reason_to_wait_and_one_that_cannot_serve_is_named() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let sample = Sample::new(&[("a.txt", "a\n")])?;
    let script = sample.script(SCRIPT)?;
    let script = script.to_str().context("UTF-8")?;
    let model = ["--model", "scripted:x", "--script", script];
    let options = WorkerOptions { queue: Some("here".parse()?), ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
    let (first, _) = sample.submit(&coordinator, &[&model[..], &["--queue", "here"]].concat()).await?;
    coordinator.ended(first).await.with_context(|| worker.tail())?;

    let submit = ["submit", "Do it", "--empty", "--queue", "there"];
    let done = coordinator.docket(&[&submit[..], &model].concat()).await?;
    ensure!(done.success() && done.stderr.contains("does not serve queue there"), "{done:?}");
    worker.drain().await?;
    let task = done.stdout.trim();
    let why: Value = serde_json::from_str(&coordinator.docket(&["why", task, "--json"]).await?.ok()?)?;
    let text = why["text"].as_str().context("text")?;
    ensure!(why["kind"] == "no_worker" && text.contains("`docket worker`"), "{why}");
    // What is advised is accepted: with that worker the task is done.
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    coordinator.ended(task.parse()?).await.with_context(|| worker.tail())?;
    worker.drain().await?;
    coordinator.end_and_check().await
}
