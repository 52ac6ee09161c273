//! Models that are refused, away or set up wrongly, and what is asked of them: whole runs over real HTTP, each
//! proven afterwards.

use std::{collections::BTreeMap, ffi::OsStr};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{ModelFailed, RunEvent},
    task::{Backoff, SettingsPatch, TaskBlockedReason, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        DocketTerminal, RunHistory, RunningProcess, SampleRepository, Signal, TestProgram,
        acquire_scenario_slot, run_program, send_signal, wait_until,
    },
};
use docket_worker::model::{ModelProvider, ScriptedModel};
use serde_json::{Value, json};

use crate::models::{ModelFixture, PROTOCOLS, price_settings};

const MAIN: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Done."
"#;

fn model_failures(history: &RunHistory) -> Vec<&ModelFailed> {
    let failed = history.events.iter().filter_map(|event| match event {
        RunEvent::ModelFailed(e) => Some(e),
        _ => None,
    });
    failed.collect()
}

/// Told where the task is submitted, and nothing is; where nobody looked there, by one run, not by three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cost_budget_without_a_price_is_rejected_at_submit() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", MAIN)], "").await?;
    let submit = ["submit", "Do it", "--empty", "--max-cost", "5", "--base-url", "http://127.0.0.1:9/v1"];
    let unheard = ["--model", "openai:unheard-of"];
    for more in [&unheard[..], &["--model", "openai:main", "--fallback-model", "openai:unheard-of"]] {
        let said = stage.coordinator.run_docket(&[&submit[..], more].concat()).await?;
        let told =
            ["no price is known for openai:unheard-of", "[prices.\"openai:unheard-of\"]", "docket.toml"];
        ensure!(said.code() == Some(2) && told.iter().all(|word| said.stderr.contains(word)), "{said:?}");
    }
    let rows = stage.coordinator.run_docket(&["ps", "--json"]).await?.into_stdout()?;
    ensure!(!rows.contains("unheard-of") && !rows.contains("Do it"), "{rows}");
    // Past the command line: the run says so once.
    let sample = SampleRepository::new(&[("a", "")])?;
    let args = ["--model", "openai:template", "--queue", "template"];
    let (template, mut spec) = sample.submit(&stage.coordinator, &args).await?;
    stage.coordinator.client().cancel(template, "a template").await?;
    spec.settings = SettingsPatch { cost_max_nusd: Some(5_000_000_000), ..SettingsPatch::default() };
    let model = stage.server.model_ref(ModelProvider::OpenAi, "unheard-of");
    let task = stage.coordinator.submit_like(&spec, &"default".parse()?, model).await?;
    let task = stage.wait_until_resting(task).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && task.runs == 1, "{task:?}");
    ensure!(message.contains("no price is known for openai:unheard-of"), "{message}");
    ensure!(stage.server.call_count() == 0);
    stage.shut_down().await
}

/// The server does not know the cheap model: it is asked once, and the main one does the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_explore_model_is_skipped() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("main", MAIN)], "").await?;
        let task = stage.submit_and_wait(&["--explore-model", "@nowhere"]).await?;
        ensure!(
            task.state == TaskState::Completed && task.runs == 1,
            "{task:?}\n{}",
            stage.worker.log_tail()
        );
        ensure!(stage.requested_models()? == ["nowhere", "main", "main"], "{:?}", stage.requested_models()?);
        let history = stage.verified_history(&task).await?;
        let failed = model_failures(&history);
        ensure!(failed.len() == 1 && failed[0].message.contains("nowhere"), "{failed:?}");
        stage.shut_down().await?;
    }
    Ok(())
}

/// Three attempts are left and none is made: what no run can mend is told by the first. Mended, `docket retry`
/// begins again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_main_model_ends_the_task_at_once() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("spare", MAIN)], "").await?;
        let task = stage.submit_and_wait(&["--attempts", "3"]).await?;
        ensure!(
            task.state == TaskState::Discarded && task.runs == 1,
            "{task:?}\n{}",
            stage.worker.log_tail()
        );
        let message = task.message.clone().unwrap_or_default();
        let told = ["model: main", "check the model's name", "docket retry"];
        ensure!(told.iter().all(|word| message.contains(word)), "{message}");
        ensure!(stage.server.call_count() == 1, "{}", stage.server.call_count());
        stage.verified_history(&task).await?;
        let again = stage.coordinator.run_docket(&["retry", &task.id.to_string()]).await?;
        ensure!(again.success(), "{again:?}");
        let again = stage.coordinator.wait_until_ended(task.id).await?.task;
        ensure!(again.runs == 2 && stage.server.call_count() == 2, "{again:?}");
        stage.shut_down().await?;
    }
    Ok(())
}

/// A provider that stays away is asked again by the queue's clock, and nothing that was paid is bought again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_waiting_for_an_outage_resumes_by_itself() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Done."
fault = { kind = "overloaded", times = 5 }
"#;
    let stage =
        ModelFixture::new(ModelProvider::Anthropic, &[("main", script)], "[run]\nmodel_attempts_max = 2\n")
            .await?;
    let sample = SampleRepository::new(&[("a", "")])?;
    let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e a.txt"];
    let (template, mut spec) = sample.submit(&stage.coordinator, &args).await?;
    stage.coordinator.client().cancel(template, "a template").await?;
    spec.backoff = Backoff { base_ms: 1, max_ms: 1 };
    let model = stage.server.model_ref(ModelProvider::Anthropic, "main");
    let task = stage.coordinator.submit_like(&spec, &"default".parse()?, model).await?;
    let done = wait_until("a task that ends by itself", async || {
        let task = stage.coordinator.client().get_task(task).await.ok()?.task;
        task.state.is_ended().then_some(task)
    });
    let done = done.await.with_context(|| stage.worker.log_tail())?;
    ensure!(done.state == TaskState::Completed && done.runs == 1 && done.failures == 0, "{done:?}");
    let history = stage.verified_history(&done).await?;
    let rests: Vec<u32> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::RunBlocked(e) => Some(e.outages),
            _ => None,
        })
        .collect();
    ensure!(
        rests == [1, 2] && history.count_kind("ModelAnswered") == 2,
        "{rests:?} {}",
        history.format_kinds()
    );
    let requests = stage.server.requests();
    ensure!(requests.len() == 7 && requests[1..].iter().all(|request| request.body == requests[1].body));
    stage.shut_down().await
}

/// Answers that break off again and again are an outage too; who stands in keeps its turns, and a provider that
/// wants to be left alone is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_answers_trigger_the_fallback_and_retry_after_is_respected() -> Result<()> {
    let main = |fault: &str| {
        format!(
            "[[turns]]\ntext = \"Not heard.\"\nfault = {{ {fault}, times = 99 }}\n\
             [[turns]]\ntext = \"Not asked.\"\n[[turns]]\ntext = \"Done.\"\n"
        )
    };
    let spare = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
calls = [{ name = "read_file", args = { path = "long.txt" } }]
[[turns]]
text = "Done, by the other."
"#;
    for (fault, settings, expected) in [
        (
            "kind = 'cut_stream'",
            "fallback_after = 2\nfallback_turns = 2",
            ["main", "main", "spare", "spare", "main"],
        ),
        (
            "kind = 'reset'",
            "fallback_after = 2\nfallback_turns = 2",
            ["main", "main", "spare", "spare", "main"],
        ),
        // Longer than anybody waits: after the first, and to the end of the work.
        (
            "kind = 'rate_limited', retry_after_ms = 600000",
            "fallback_after = 2\nfallback_turns = 1",
            ["main", "spare", "spare", "spare", ""],
        ),
    ] {
        let _room = acquire_scenario_slot().await;
        let main = main(fault);
        let scripts = [("main", main.as_str()), ("spare", spare)];
        let stage =
            ModelFixture::new(ModelProvider::Anthropic, &scripts, &format!("[run]\n{settings}\n")).await?;
        let task = stage.submit_and_wait(&["--fallback-model", "@spare"]).await?;
        ensure!(
            task.state == TaskState::Completed && task.runs == 1,
            "{task:?}\n{}",
            stage.worker.log_tail()
        );
        let expected: Vec<&str> = expected.into_iter().filter(|name| !name.is_empty()).collect();
        ensure!(stage.requested_models()? == expected, "{fault}: {:?}", stage.requested_models()?);
        stage.verified_history(&task).await?;
        stage.shut_down().await?;
    }
    Ok(())
}

/// What a refusal came with is not carried out: a person is asked, and reads of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tool_call_in_a_refusal_is_not_executed() -> Result<()> {
    let script = r#"
[[turns]]
text = "I will not."
calls = [{ name = "create_file", args = { path = "a.txt", content = "done all the same\n" } }]
fault = { kind = "refusal" }
"#;
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("main", script)], "").await?;
        let task = stage.submit_and_wait(&[]).await?;
        ensure!(
            task.state == TaskState::Blocked && task.blocked_why == Some(TaskBlockedReason::Person),
            "{provider:?} {task:?}"
        );
        let message = task.message.clone().unwrap_or_default();
        ensure!(message.contains("I will not.") && message.contains("`create_file`"), "{message}");
        let history = stage.verified_history(&task).await?;
        ensure!(history.count_kind("ToolRequested") == 0, "{}", history.format_kinds());
        stage.shut_down().await?;
    }
    Ok(())
}

/// A thought in the text is no answer: a model that only thinks is asked again, and what it thought goes back as
/// it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thinking_in_text_is_not_an_answer() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
[[turns]]
when = { last_text_contains = "Your last answer was empty" }
text = "<think>One file.</think>\nI write it."
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
or = [{ text = "<think>\nI could be done.\n</think>\n\n" }]
[[turns]]
text = "<think>All of it is there.</think>\n\nThe file is written."
"#;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", script)], "").await?;
    let task = stage.submit_and_wait(&[]).await?;
    ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.log_tail());
    let history = stage.verified_history(&task).await?;
    let requests = stage.server.requests();
    let body: Value = serde_json::from_slice(&requests[2].body)?;
    let said = body["messages"].as_array().context("messages")?.iter().rfind(|m| m["role"] == "assistant");
    let said = said.context("an answer")?["content"].clone();
    ensure!(said == "<think>One file.</think>\nI write it.", "{said}");
    let summary = history.events.iter().find_map(|event| match event {
        RunEvent::RunEnded(e) => e.summary.clone(),
        _ => None,
    });
    ensure!(summary == Some("The file is written.".into()), "{summary:?}");
    stage.shut_down().await
}

/// A server that answers with one object in place of a stream is read all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn non_streaming_server_is_supported() -> Result<()> {
    let script = r#"
[[turns]]
text = "I write it."
thinking = "a thought"
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
fault = { kind = "unstreamed" }
[[turns]]
when = { last_result_contains = "a.txt" }
text = "Done."
fault = { kind = "unstreamed" }
"#;
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("main", script)], "").await?;
        let task = stage.submit_and_wait(&[]).await?;
        ensure!(task.state == TaskState::Completed, "{provider:?} {task:?}\n{}", stage.worker.log_tail());
        let history = stage.verified_history(&task).await?;
        ensure!(
            history.count_kind("ModelFailed") == 0 && stage.server.call_count() == 2,
            "{}",
            history.format_kinds()
        );
        let counted = history.events.iter().all(|event| match event {
            RunEvent::ModelAnswered(e) => e.usage.input_tokens > 0,
            _ => true,
        });
        ensure!(counted, "{provider:?}");
        stage.shut_down().await?;
    }
    Ok(())
}

/// Effort and temperature stand in every request of the main model, in the words of its protocol, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effort_and_temperature_are_pinned_and_sent() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = acquire_scenario_slot().await;
        let stage = ModelFixture::new(provider, &[("main", MAIN)], "[run]\neffort = \"low\"\n").await?;
        for (flags, effort, temperature) in
            [(&["--effort", "high", "--temperature", "0.25"][..], "high", Some(0.25)), (&[][..], "low", None)]
        {
            let before = usize::try_from(stage.server.call_count())?;
            let task = stage.submit_and_wait(flags).await?;
            ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.log_tail());
            stage.verified_history(&task).await?;
            for request in &stage.server.requests()[before..] {
                let body: Value = serde_json::from_slice(&request.body)?;
                let asked = match provider {
                    ModelProvider::Anthropic => &body["output_config"]["effort"],
                    ModelProvider::OpenAiResponses => &body["reasoning"]["effort"],
                    ModelProvider::OpenAi | ModelProvider::Scripted => &body["reasoning_effort"],
                };
                ensure!(*asked == effort, "{body}");
                let wanted = temperature.filter(|_| provider != ModelProvider::Anthropic);
                ensure!(body["temperature"] == json!(wanted), "{body}");
            }
        }
        stage.shut_down().await?;
    }
    let _room = acquire_scenario_slot().await;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", MAIN)], "").await?;
    for flags in [["--effort", "much"], ["--temperature", "3"]] {
        let args = [&["submit", "Do it", "--empty", "--model", "openai:main"], &flags[..]].concat();
        let said = stage.coordinator.run_docket(&args).await?;
        ensure!(said.code() == Some(2) && said.stderr.contains(flags[0]), "{said:?}");
    }
    stage.shut_down().await
}

/// A command that would go on beyond the run's time is ended with it, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_budget_ends_a_running_command() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "sleep 50" } }]
"#;
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", script)], "").await?;
    let task = stage.submit_and_wait(&["--max-time", "2s"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of time"), "{task:?}");
    let history = stage.verified_history(&task).await?;
    let finished = history.events.iter().find_map(|event| match event {
        RunEvent::ToolFinished(e) => Some(e),
        _ => None,
    });
    let finished = finished.context("a result")?;
    ensure!(finished.duration_ms < 20_000 && finished.facts.timed_out, "{finished:?}");
    ensure!(
        format!("{:?}", finished.content).contains("the run's budget of time is used up"),
        "{finished:?}"
    );
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_budget_ends_an_unanswered_model_call() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let script = "[[turns]]\ntext = \"Done.\"\nfault = { kind = \"slow_first_byte\" }\n";
    let stage = ModelFixture::new(ModelProvider::Anthropic, &[("main", script)], "").await?;
    let task = stage.submit_and_wait(&["--max-time", "2s"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of time"), "{task:?}");
    let history = stage.verified_history(&task).await?;
    let failed = history.events.iter().find_map(|event| match event {
        RunEvent::ModelFailed(e) => Some(e),
        _ => None,
    });
    let failed = failed.context("a failed call")?;
    ensure!(failed.duration_ms < 20_000 && failed.message.contains("budget of time ended"), "{failed:?}");
    stage.shut_down().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_budget_holds_without_server_usage() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let look =
        "[[turns]]\ncalls = [{ name = \"list_files\", args = {} }]\nfault = { kind = \"uncounted\" }\n";
    let stage = ModelFixture::new(ModelProvider::OpenAi, &[("main", &look.repeat(30))], "").await?;
    let task = stage.submit_and_wait(&["--max-tokens", "30000"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of 30000 tokens"), "{task:?}");
    let history = stage.verified_history(&task).await?;
    let answers: Vec<_> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::ModelAnswered(e) => Some(e.usage),
            _ => None,
        })
        .collect();
    ensure!(answers.iter().all(|usage| usage.estimated && usage.input_tokens > 1000), "{answers:?}");
    ensure!((2..12).contains(&answers.len()), "{answers:?}");
    stage.shut_down().await
}

/// `docket run` waits through an outage as `docket up` does, and says so; interrupted, it leaves the task to `docket up`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_waits_for_the_provider_to_recover() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    // Two attempts each: `main` is asked again after one outage, `spare` after one in which a person stops it.
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Done."
fault = { kind = "overloaded", times = 3 }
"#;
    let scripts = ["main", "spare"].map(|name| (name.to_owned(), script));
    let scripts: Result<BTreeMap<_, _>, _> = scripts
        .into_iter()
        .map(|(name, script)| ScriptedModel::parse(script.as_bytes()).map(|script| (name, script)))
        .collect();
    let server = ModelServer::start_by_model(scripts?).await?;
    let home = tempfile::tempdir()?;
    std::fs::write(
        home.path().join("docket.toml"),
        format!("[run]\nmodel_attempts_max = 2\n{}", price_settings()),
    )?;
    let sample = SampleRepository::new(&[("a", "")])?;
    let (repo, url) = (sample.path().to_str().context("UTF-8")?, server.base_url(ModelProvider::OpenAi));
    let env =
        [("DOCKET_HOME", home.path().as_os_str()), ("OPENAI_API_KEY", OsStr::new(ModelServer::DEFAULT_KEY))];
    let start = |name: &str| {
        let model = format!("openai:{name}");
        let args = ["run", "Do it", "--repo", repo, "--model", &model, "--base-url", &url];
        DocketTerminal::start(home.path(), &env, &args)
    };
    let mut terminal = start("main")?;
    terminal.wait_for_text("waiting for the model's provider since").await?;
    terminal.wait_for_text("next try at").await?;
    terminal.wait_for_text("and `docket up` continues it").await?;
    let status = terminal.wait().await?;
    ensure!(
        status.success() && terminal.full_output().contains("a.txt"),
        "{status}: {}",
        terminal.full_output()
    );

    let mut terminal = start("spare")?;
    terminal.wait_for_text("waiting for the model's provider since").await?;
    send_signal(terminal.pid()?, Signal::SIGINT);
    let status = terminal.wait().await?;
    terminal.wait_for_text("stopped; task").await?;
    terminal.wait_for_text("`docket up` continues it").await?;
    ensure!(status.code() == Some(1), "{status}: {}", terminal.full_output());
    let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
    let up_env = [env[1], ("DOCKET_BASE_URLS", OsStr::new("http://127.0.0.1:*"))];
    let (up, _) = RunningProcess::start_docket("up", home.path(), &up_env, &args).await?;
    let row = wait_until("the end of the task that was left", async || {
        let rows = run_program(TestProgram::Docket, home.path(), &env[..1], &["ps", "--json"])
            .await
            .ok()?
            .into_stdout()
            .ok()?;
        let mut rows = rows.lines().filter_map(|row| serde_json::from_str::<Value>(row).ok());
        rows.find(|row| row["model"] == "openai:spare" && row["state"] == "completed")
    });
    let row = row.await.with_context(|| up.log_tail())?;
    ensure!(row["runs"] == 1 && row["failures"] == 0, "{row}");
    Ok(())
}
