//! What can be known of a task before its first model call is reported before it: by the commands that submit, with the
//! field that is wrong, and no task and no request is made. And `docket why` names the true reason that a task waits.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::{
    model_server::ModelServer,
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, run_program,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::Value;

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "new.txt", content = "new\n" } }]
[[turns]]
text = "Done."
"#;

const ASKS: &str = "[[turns]]\ntext = \"BLOCKED: which port?\"\n";

/// A home, a repository with a remote, and a model server that counts.
struct EarlyCheckFixture {
    home: tempfile::TempDir,
    remote: tempfile::TempDir,
    sample: SampleRepository,
    server: ModelServer,
    env: Vec<(&'static str, String)>,
}

impl EarlyCheckFixture {
    async fn new(place: &StoreLocation) -> Result<Self> {
        let (home, remote) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
        let server = ModelServer::start(ScriptedModel::parse(SCRIPT.as_bytes())?).await?;
        let mut env = vec![("DOCKET_HOME", home.path().display().to_string())];
        if let StoreLocation::Postgres(url) = place {
            env.push(("DATABASE_URL", url.clone()));
        }
        let house = Self { home, remote, sample, server, env };
        house.git_output_at(house.remote.path(), &["init", "--quiet", "--bare"]).await?;
        let remote = house.remote.path().display().to_string();
        house.git_output(&["remote", "add", "origin", &remote]).await?;
        house.git_output(&["push", "--quiet", "origin", "main:theirs"]).await?;
        for branch in ["taken", "folder/of-others"] {
            house.git_output(&["branch", branch]).await?;
        }
        Ok(house)
    }

    async fn git_output_at(&self, folder: &Path, args: &[&str]) -> Result<String> {
        run_program(TestProgram::Git, folder, &[], args).await?.into_stdout()
    }

    async fn git_output(&self, args: &[&str]) -> Result<String> {
        self.git_output_at(self.sample.path(), args).await
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let env: Vec<(&str, &OsStr)> = self.env.iter().map(|(name, value)| (*name, value.as_ref())).collect();
        run_program(TestProgram::Docket, self.home.path(), &env, args).await
    }

    /// A command on a task of the repository, with the counting model.
    async fn run_task_command(&self, verb: &str, more: &[&str]) -> Result<FinishedProcess> {
        let (repo, base) =
            (self.sample.path().display().to_string(), self.server.base_url(ModelProvider::OpenAi));
        let mut args = vec![verb, "Do it", "--model", "openai:m", "--base-url", &base];
        if !more.contains(&"--empty") {
            args.extend(["--repo", repo.as_str()]);
        }
        self.run_docket(&[&args[..], more].concat()).await
    }

    async fn assert_no_task(&self) -> Result<()> {
        let listed = self.run_docket(&["ps", "--json"]).await?.into_stdout()?;
        ensure!(
            listed.is_empty() && self.server.call_count() == 0,
            "{} calls: {listed}",
            self.server.call_count()
        );
        Ok(())
    }
}

/// It ends with 2 and one line that says all of this.
fn assert_usage_error(done: &FinishedProcess, says: &[&str]) -> Result<()> {
    let lines: Vec<&str> = done.stderr.lines().collect();
    ensure!(done.code() == Some(2) && lines.len() == 1 && done.stdout.is_empty(), "{says:?}: {done:?}");
    ensure!(says.iter().all(|part| lines[0].contains(part)), "{says:?}: {}", lines[0]);
    Ok(())
}

async fn check_faults_are_reported_early(place: &StoreLocation) -> Result<()> {
    let mut house = EarlyCheckFixture::new(place).await?;
    house.env.push(("OPENAI_API_KEY", ModelServer::DEFAULT_KEY.to_owned()));
    let main = house.git_output(&["rev-parse", "taken"]).await?;
    let taken = ["--branch", "`taken` exists", main.trim()];
    let cases: &[(&[&str], &[&str])] = &[
        (&["--branch", "taken"], &taken),
        (&["--branch", "folder"], &["--branch", "folder/of-others"]),
        (&["--branch", "taken/below"], &["--branch", "the branch `taken` exists"]),
        (&["--branch", "a..b"], &["--branch", "a..b", "valid git branch name"]),
        (&["--branch", "x", "--empty"], &["--branch", "--empty", "--repo"]),
        (&["--push", "--empty"], &["--push", "--empty", "--repo"]),
        (&["--push", "--branch", "theirs"], &["--branch", "`theirs` already exists on the remote origin"]),
        (&["--tests", "pytest \""], &["--tests", "is not valid shell syntax"]),
        (&["--tests", " "], &["--tests", "empty"]),
        (&["--setup", "if true; then"], &["--setup", "is not valid shell syntax"]),
        (&["--max-tokens", "300"], &["--max-tokens", "300 tokens does not cover", "at least"]),
        (&["--fallback-model", "openai:m", "--max-cost", "1"], &["price"]),
    ];
    for verb in ["run", "submit"] {
        for (flags, says) in cases {
            assert_usage_error(&house.run_task_command(verb, flags).await?, says)
                .with_context(|| format!("{verb} {flags:?}"))?;
        }
    }
    // A worker of this process can be looked at as well.
    assert_usage_error(
        &house.run_task_command("run", &["--selector", "gpu=a100"]).await?,
        &["--selector", "worker.labels"],
    )?;
    assert_usage_error(
        &house.run_task_command("run", &["--fallback-model", "anthropic:m"]).await?,
        &["--fallback-model", "ANTHROPIC_API_KEY"],
    )?;
    house.git_output(&["remote", "rename", "origin", "elsewhere"]).await?;
    for verb in ["run", "submit"] {
        let says = ["--push", "no remote `origin`", "existing remotes: elsewhere"];
        assert_usage_error(&house.run_task_command(verb, &["--push"]).await?, &says)?;
    }
    house.assert_no_task().await?;
    // Without a fault the same is done.
    house.git_output(&["remote", "rename", "elsewhere", "origin"]).await?;
    let flags = ["--push", "--branch", "ours", "--tests", "test -f new.txt", "--max-tokens", "1000000"];
    let done = house.run_task_command("run", &flags).await?;
    ensure!(done.success() && house.server.call_count() == 2, "{done:?}");
    house.git_output(&["rev-parse", "ours"]).await?;
    house.git_output_at(house.remote.path(), &["rev-parse", "ours"]).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn known_faults_are_reported_before_the_first_request() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_faults_are_reported_early(&StoreLocation::HomeFolder)).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_faults_are_reported_early(&fresh_database(&cluster).await?)).await
}

/// A repository that cannot be a task's base is bad input, as a bad branch is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unusable_repository_is_a_usage_error() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let mut house = EarlyCheckFixture::new(&StoreLocation::HomeFolder).await?;
    house.env.push(("OPENAI_API_KEY", ModelServer::DEFAULT_KEY.to_owned()));
    let (outside, empty) = (tempfile::tempdir()?, tempfile::tempdir()?);
    house.git_output_at(empty.path(), &["init", "--quiet"]).await?;
    let [outside, empty] = [&outside, &empty].map(|folder| folder.path().display().to_string());
    let missing = format!("{outside}/missing");
    let whole = house.sample.path().display().to_string();
    let dirty = tempfile::tempdir()?;
    let copy = dirty.path().join("copy").display().to_string();
    house.git_output(&["clone", "--quiet", &whole, &copy]).await?;
    std::fs::write(dirty.path().join("copy/new.txt"), "new")?;
    let base = house.server.base_url(ModelProvider::OpenAi);
    for verb in ["run", "submit"] {
        for (repo, more, says) in [
            (&missing, &[][..], "no folder"),
            (&outside, &[], "not in a git repository"),
            (&empty, &[], "is not a commit"),
            (&whole, &["--commit", "nowhere"], "`nowhere` is not a commit"),
            (&copy, &[], "--include-dirty"),
        ] {
            let args = [verb, "Do it", "--model", "openai:m", "--base-url", &base, "--repo", repo];
            let done = house.run_docket(&[&args[..], more].concat()).await?;
            let told = done.code() == Some(2) && done.stderr.contains(says);
            ensure!(told, "{verb} {repo} {more:?}: {done:?}");
        }
    }
    house.assert_no_task().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_import_line_is_checked_like_a_single_task() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = EarlyCheckFixture::new(&StoreLocation::HomeFolder).await?;
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
    let base = house.server.base_url(ModelProvider::OpenAi);
    let args = ["import", &file, "--repo", &repo, "--model", "openai:m", "--base-url", &base];
    let done = house.run_docket(&args).await?;
    ensure!(done.code() == Some(2), "{done:?}");
    for says in [
        "todo.jsonl:1: `branch`: the branch `taken` exists",
        "todo.jsonl:3: `branch`: the task on line 2",
        "todo.jsonl:4: `tests`: `(` is not valid shell syntax",
        "todo.jsonl:5: `branch`: the branch `theirs` already exists on the remote",
    ] {
        ensure!(done.stderr.contains(says), "{says}: {}", done.stderr);
    }
    ensure!(done.stderr.contains("4 errors"), "and no others: {}", done.stderr);
    house.assert_no_task().await?;
    // A budget of money needs prices, whichever way it is given.
    let done = house.run_docket(&[&args[..], &["--batch-usd", "5", "--dry-run"]].concat()).await?;
    ensure!(done.code() == Some(2) && done.stderr.contains("no price is known"), "{done:?}");
    house.assert_no_task().await
}

async fn check_missing_key_creates_no_task(place: &StoreLocation) -> Result<()> {
    let house = EarlyCheckFixture::new(place).await?;
    for model in ["anthropic:m", "openai:m", "openai-responses:m"] {
        let done = house.run_docket(&["run", "Do it", "--empty", "--model", model]).await?;
        let variable = if model.starts_with("anthropic") { "ANTHROPIC_API_KEY" } else { "OPENAI_API_KEY" };
        assert_usage_error(&done, &["--model", model, &format!("{variable} is not set"), "--base-url"])?;
    }
    house.assert_no_task().await?;
    // For workers elsewhere, whose keys nobody here knows, it is submitted.
    house.run_docket(&["submit", "Do it", "--empty", "--model", "anthropic:m"]).await?.into_stdout()?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_key_is_reported_in_one_line_and_creates_no_task() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_missing_key_creates_no_task(&StoreLocation::HomeFolder).await?;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    check_missing_key_creates_no_task(&fresh_database(&cluster).await?).await
}

async fn why_reason(house: &EarlyCheckFixture, task: &str) -> Result<(String, String)> {
    let why: Value = serde_json::from_str(&house.run_docket(&["why", task, "--json"]).await?.into_stdout()?)?;
    let text = |key: &str| why[key].as_str().map(str::to_owned).context("text");
    Ok((text("kind")?, text("text")?))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_names_a_missing_worker_not_its_slots() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let house = EarlyCheckFixture::new(&StoreLocation::HomeFolder).await?;
    let script = house.sample.write_script(ASKS)?;
    let script = script.to_str().context("UTF-8")?;
    let args = ["run", "Do it", "--json", "--empty", "--model", "scripted:x", "--script", script];
    let done = house.run_docket(&args).await?;
    ensure!(done.code() == Some(1), "it asks: {done:?}");
    let row: Value = serde_json::from_str(&done.stdout)?;
    let task = row["id"].as_str().context("an id")?;
    house.run_docket(&["answer", task, "8080"]).await?.into_stdout()?;
    let (kind, text) = why_reason(&house, task).await?;
    ensure!(kind == "no_worker" && text.contains("`docket up`") && !text.contains("slot"), "{kind}: {text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn why_ignores_ended_workers_and_names_unsuitable_ones() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "a\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("UTF-8")?;
    let model = ["--model", "scripted:x", "--script", script];
    let options = WorkerOptions { queue: Some("here".parse()?), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let (first, _) = sample.submit(&coordinator, &[&model[..], &["--queue", "here"]].concat()).await?;
    coordinator.wait_until_ended(first).await.with_context(|| worker.log_tail())?;

    let submit = ["submit", "Do it", "--empty", "--queue", "there"];
    let done = coordinator.run_docket(&[&submit[..], &model].concat()).await?;
    ensure!(done.success() && done.stderr.contains("does not serve queue there"), "{done:?}");
    worker.drain().await?;
    let task = done.stdout.trim();
    let why: Value =
        serde_json::from_str(&coordinator.run_docket(&["why", task, "--json"]).await?.into_stdout()?)?;
    let text = why["text"].as_str().context("text")?;
    ensure!(why["kind"] == "no_worker" && text.contains("`docket worker`"), "{why}");
    // What is advised is accepted: with that worker the task is done.
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    coordinator.wait_until_ended(task.parse()?).await.with_context(|| worker.log_tail())?;
    worker.drain().await?;
    coordinator.end_and_check().await
}
