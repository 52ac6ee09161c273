//! Who plays a role, and how: settings, flags over them, one model over all; what each call was asked of.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::TaskQuery, task::RoleOverride};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, acquire_scenario_slot,
    run_program,
};

use super::{EngineRun, FILES, play_with_settings};

const SCRIPT: &str = r#"
[[talks]]
role = "planner"
[[talks.turns]]
text = '["mend f"]'
[[talks]]
role = "executor"
[[talks.turns]]
calls = [ { name = "read_file", args = { path = "a.py" } } ]
[[talks.turns]]
calls = [ { name = "edit_file", args = { path = "a.py", edits = [ { search = "    return 1", replace = "    return 2" } ] } } ]
[[talks.turns]]
text = '{"success": true, "output": "f returns 2"}'
[[talks]]
role = "reviewer"
[[talks.turns]]
text = '{"verdict": "finish", "reason": "the goal is reached"}'
"#;

const SETTINGS: &str = r#"
[task]
model = "scripted:main"
[roles.planner]
model = "scripted:strong"
effort = "high"
temperature = 0.2
[roles.executor]
model = "scripted:cheap"
context_tokens_max = 24000
"#;

/// Each role with the models that were asked in it.
fn requested_models(played: &EngineRun) -> Vec<(String, String)> {
    let calls = played.events.iter().filter(|event| event["kind"] == "ModelRequested");
    let mut asked: Vec<(String, String)> = calls
        .map(|event| {
            let text = |field: &serde_json::Value| field.as_str().unwrap_or_default().to_owned();
            (text(&event["payload"]["role"]), text(&event["payload"]["model"]["name"]))
        })
        .collect();
    asked.dedup();
    asked
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn roles_use_the_models_of_settings_and_flags() -> Result<()> {
    docket_tests::needs!("python3");
    let pairs = |models: [&str; 3]| {
        let roles = ["planner", "executor", "reviewer"].map(str::to_owned);
        roles.into_iter().zip(models.map(str::to_owned)).collect::<Vec<_>>()
    };
    let played = play_with_settings("review", SCRIPT, SETTINGS, &[]).await?;
    ensure!(played.outcome == "succeeded", "{}", played.outcome);
    ensure!(
        requested_models(&played) == pairs(["strong", "cheap", "main"]),
        "{:?}",
        requested_models(&played)
    );
    let started = played.events.iter().find(|event| event["kind"] == "RunStarted").context("a start")?;
    let roles = &started["payload"]["roles"];
    ensure!(roles[0]["effort"] == "high" && roles[0]["temperature_milli"] == 200, "{roles}");
    ensure!(roles[1]["context_tokens_max"] == 24000 && roles[1]["effort"].is_null(), "{roles}");
    let flags = ["--role", "planner=scripted:other", "--role", "reviewer=scripted:judge"];
    let played = play_with_settings("review", SCRIPT, SETTINGS, &flags).await?;
    ensure!(
        requested_models(&played) == pairs(["other", "cheap", "judge"]),
        "{:?}",
        requested_models(&played)
    );
    let played = play_with_settings("review", SCRIPT, SETTINGS, &["--model", "scripted:only"]).await?;
    ensure!(requested_models(&played) == pairs(["only"; 3]), "{:?}", requested_models(&played));
    let started = played.events.iter().find(|event| event["kind"] == "RunStarted").context("a start")?;
    ensure!(started["payload"]["roles"][0]["temperature_milli"] == 200, "it is the model alone");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_role_settings_are_reported_before_submit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let sample = SampleRepository::new(&FILES)?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    for (settings, flags, told) in [
        (
            "",
            &["--role", "tester=scripted:x"][..],
            "--role: there is no role `tester`; the engine `review` has planner, executor, reviewer",
        ),
        ("", &["--role", "planner"], "it must be NAME=MODEL"),
        ("", &["--model", "scripted:x", "--role", "planner=scripted:y"], "--model applies to every role"),
        (
            "[roles.plumber]\nmodel = \"scripted:x\"",
            &[],
            "`roles.plumber`: no engine has such a role; the roles are",
        ),
        ("[roles.planner]\ntemperature = 3", &[], "`roles.planner.temperature` is not"),
        (
            "",
            &["--role", "planner=openai:nobody-knows-its-price", "--max-cost", "1"],
            "no price is known for openai:nobody-knows-its-price",
        ),
    ] {
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("docket.toml"), settings)?;
        let env = [("DOCKET_HOME", folder.path().as_os_str()), ("DOCKET_MODEL", "scripted:x".as_ref())];
        let args = ["run", "Let f return 2", "--repo", repo, "--script", script, "--engine", "review"];
        let said =
            run_program(TestProgram::Docket, folder.path(), &env, &[&args[..], flags].concat()).await?;
        ensure!(said.stderr.contains(told) && said.code() == Some(2), "{told}: {said:?}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn import_and_compare_accept_role_models_like_submit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    std::fs::write(coordinator.home().join("docket.toml"), "[task]\nmodel = \"openai:main\"\n")?;
    let sample = SampleRepository::new(&FILES)?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let folder = tempfile::tempdir()?;
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text)?;
        path.to_str().map(str::to_owned).context("UTF-8")
    };
    let lines = "{\"text\": \"The first\"}\n{\"text\": \"The second\", \"model\": \"openai:own\"}\n";
    let (file, task) = (write("todo.jsonl", lines)?, write("task.md", "Do it.\n")?);
    let tasks = async |batch: &str| {
        let all = coordinator.client().list_tasks(&TaskQuery::default()).await?.tasks;
        let mut found = Vec::new();
        for task in all {
            let spec = coordinator.client().get_task(task.id).await?.task.spec;
            let named = |role: &RoleOverride| {
                format!("{}={}", role.name, role.model.as_ref().map_or(String::new(), ToString::to_string))
            };
            let roles: Vec<String> = spec.roles.iter().map(named).collect();
            if batch.is_empty() || spec.queue.as_str() == batch {
                found.push((spec.title, spec.model.to_string(), spec.engine, roles.join(" ")));
            }
        }
        found.sort();
        Ok::<_, anyhow::Error>(found)
    };
    let imports = [
        "import",
        &file,
        "--repo",
        repo,
        "--engine",
        "review",
        "--queue",
        "backlog",
        "--role",
        "planner=openai:strong",
    ];
    coordinator.run_docket(&imports).await?.into_stdout()?;
    let row = |title: &str, model: &str, engine: &str, roles: &str| {
        (title.to_owned(), model.to_owned(), engine.to_owned(), roles.to_owned())
    };
    let found = tasks("backlog").await?;
    // The model that a line names is every role's of its task.
    let wanted = [
        row("The first", "openai:main", "review", "planner=openai:strong"),
        row("The second", "openai:own", "review", ""),
    ];
    ensure!(found == wanted, "{found:?}");
    let compares = [
        "compare",
        &task,
        "--repo",
        repo,
        "--queue",
        "compared",
        "--no-wait",
        "--model",
        "openai:a",
        "--model",
        "openai:b",
        "--base-url",
        "http://127.0.0.1:9/v1",
        "--engine",
        "review",
        "--engine",
        "plan",
        "--role",
        "executor=openai:a",
    ];
    coordinator.run_docket(&compares).await?.into_stdout()?;
    let found: Vec<(String, String, String)> = tasks("compared")
        .await?
        .into_iter()
        .map(|(_, model, engine, roles)| (model, engine, roles))
        .collect();
    ensure!(found.len() == 4, "{found:?}");
    for (model, engine, roles) in &found {
        // Whoever is the main model anyway is not named again.
        let wanted = if model.contains(":a") { "executor=" } else { "executor=openai:a" };
        ensure!(
            roles.starts_with(wanted) && roles.contains("openai:a") != model.contains(":a"),
            "{model} {engine}: {roles}"
        );
    }
    let wrong = [&compares[..compares.len() - 1], &["reviewer=openai:a"]].concat();
    let said = coordinator.run_docket(&wrong).await?;
    ensure!(
        said.code() == Some(2)
            && said.stderr.contains("there is no role `reviewer`; the engine `plan` has planner, executor"),
        "{said:?}"
    );
    let both = [&imports[..], &["--model", "openai:x"]].concat();
    let said = coordinator.run_docket(&both).await?;
    ensure!(said.code() == Some(2) && said.stderr.contains("--model applies to every role"), "{said:?}");
    coordinator.end_and_check().await
}
