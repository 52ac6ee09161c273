//! Models that are refused, away or set up wrongly, and what is asked of them: whole runs over real HTTP, each
//! proven afterwards.

use std::{collections::BTreeMap, ffi::OsStr};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{ModelFailed, RunEvent},
    task::{Backoff, SettingsPatch, TaskBlockedWhy, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{History, Proc, Sample, Signal, Terminal, Tool, room, run, send, until},
};
use docket_worker::model::{Provider, ScriptedModel};
use serde_json::{Value, json};

use crate::models::{PROTOCOLS, Stage, prices};

const MAIN: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Done."
"#;

fn failures(history: &History) -> Vec<&ModelFailed> {
    let failed = history.events.iter().filter_map(|event| match event {
        RunEvent::ModelFailed(e) => Some(e),
        _ => None,
    });
    failed.collect()
}

/// Told where the task is submitted, and nothing is; where nobody looked there, by one run, not by three.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_money_without_a_price_is_told_at_submit() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set(Provider::OpenAi, &[("main", MAIN)], "").await?;
    let submit = ["submit", "Do it", "--empty", "--max-cost", "5", "--base-url", "http://127.0.0.1:9/v1"];
    let unheard = ["--model", "openai:unheard-of"];
    for more in [&unheard[..], &["--model", "openai:main", "--fallback-model", "openai:unheard-of"]] {
        let said = stage.coordinator.docket(&[&submit[..], more].concat()).await?;
        let told =
            ["no price is known for openai:unheard-of", "[prices.\"openai:unheard-of\"]", "docket.toml"];
        ensure!(said.code() == Some(2) && told.iter().all(|word| said.stderr.contains(word)), "{said:?}");
    }
    let rows = stage.coordinator.docket(&["ps", "--json"]).await?.ok()?;
    ensure!(!rows.contains("unheard-of") && !rows.contains("Do it"), "{rows}");
    // Past the command line: the run says so once.
    let sample = Sample::new(&[("a", "")])?;
    let args = ["--model", "openai:template", "--queue", "template"];
    let (template, mut spec) = sample.submit(&stage.coordinator, &args).await?;
    stage.coordinator.client().cancel(template, "a template").await?;
    spec.settings = SettingsPatch { cost_max_nusd: Some(5_000_000_000), ..SettingsPatch::default() };
    let model = stage.server.model(Provider::OpenAi, "unheard-of");
    let task = stage.coordinator.submit_like(&spec, &"default".parse()?, model).await?;
    let task = stage.rests(task).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && task.runs == 1, "{task:?}");
    ensure!(message.contains("no price is known for openai:unheard-of"), "{message}");
    ensure!(stage.server.calls() == 0);
    stage.end().await
}

/// The server does not know the cheap model: it is asked once, and the main one does the work.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_explore_model_that_there_is_not_is_done_without() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = room().await;
        let stage = Stage::set(provider, &[("main", MAIN)], "").await?;
        let task = stage.task(&["--explore-model", "@nowhere"]).await?;
        ensure!(task.state == TaskState::Completed && task.runs == 1, "{task:?}\n{}", stage.worker.tail());
        ensure!(stage.asked()? == ["nowhere", "main", "main"], "{:?}", stage.asked()?);
        let history = stage.proven(&task).await?;
        let failed = failures(&history);
        ensure!(failed.len() == 1 && failed[0].message.contains("nowhere"), "{failed:?}");
        stage.end().await?;
    }
    Ok(())
}

/// Three attempts are left and none is made: what no run can mend is told by the first. Mended, `docket retry`
/// begins again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_main_model_that_there_is_not_ends_the_task_at_once() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = room().await;
        let stage = Stage::set(provider, &[("spare", MAIN)], "").await?;
        let task = stage.task(&["--attempts", "3"]).await?;
        ensure!(task.state == TaskState::Discarded && task.runs == 1, "{task:?}\n{}", stage.worker.tail());
        let message = task.message.clone().unwrap_or_default();
        let told = ["model: main", "check the model's name", "docket retry"];
        ensure!(told.iter().all(|word| message.contains(word)), "{message}");
        ensure!(stage.server.calls() == 1, "{}", stage.server.calls());
        stage.proven(&task).await?;
        let again = stage.coordinator.docket(&["retry", &task.id.to_string()]).await?;
        ensure!(again.success(), "{again:?}");
        let again = stage.coordinator.ended(task.id).await?.task;
        ensure!(again.runs == 2 && stage.server.calls() == 2, "{again:?}");
        stage.end().await?;
    }
    Ok(())
}

/// A provider that stays away is asked again by the queue's clock, and nothing that was paid is bought again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_rests_at_an_outage_goes_on_by_itself() -> Result<()> {
    let _room = room().await;
    let script = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
[[turns]]
text = "Done."
fault = { kind = "overloaded", times = 5 }
"#;
    let stage =
        Stage::set(Provider::Anthropic, &[("main", script)], "[run]\nmodel_attempts_max = 2\n").await?;
    let sample = Sample::new(&[("a", "")])?;
    let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e a.txt"];
    let (template, mut spec) = sample.submit(&stage.coordinator, &args).await?;
    stage.coordinator.client().cancel(template, "a template").await?;
    spec.backoff = Backoff { base_ms: 1, max_ms: 1 };
    let model = stage.server.model(Provider::Anthropic, "main");
    let task = stage.coordinator.submit_like(&spec, &"default".parse()?, model).await?;
    let done = until("a task that ends by itself", async || {
        let task = stage.coordinator.client().task(task).await.ok()?.task;
        task.state.is_ended().then_some(task)
    });
    let done = done.await.with_context(|| stage.worker.tail())?;
    ensure!(done.state == TaskState::Completed && done.runs == 1 && done.failures == 0, "{done:?}");
    let history = stage.proven(&done).await?;
    let rests: Vec<u32> = history
        .events
        .iter()
        .filter_map(|event| match event {
            RunEvent::RunBlocked(e) => Some(e.outages),
            _ => None,
        })
        .collect();
    ensure!(rests == [1, 2] && history.count("ModelAnswered") == 2, "{rests:?} {}", history.kinds());
    let requests = stage.server.requests();
    ensure!(requests.len() == 7 && requests[1..].iter().all(|request| request.body == requests[1].body));
    stage.end().await
}

/// Answers that break off again and again are an outage too; who stands in keeps its turns, and a provider that
/// wants to be left alone is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn broken_answers_are_stood_in_for_and_who_wants_rest_has_it() -> Result<()> {
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
        let _room = room().await;
        let main = main(fault);
        let scripts = [("main", main.as_str()), ("spare", spare)];
        let stage = Stage::set(Provider::Anthropic, &scripts, &format!("[run]\n{settings}\n")).await?;
        let task = stage.task(&["--fallback-model", "@spare"]).await?;
        ensure!(task.state == TaskState::Completed && task.runs == 1, "{task:?}\n{}", stage.worker.tail());
        let expected: Vec<&str> = expected.into_iter().filter(|name| !name.is_empty()).collect();
        ensure!(stage.asked()? == expected, "{fault}: {:?}", stage.asked()?);
        stage.proven(&task).await?;
        stage.end().await?;
    }
    Ok(())
}

/// What a refusal came with is not carried out: a person is asked, and reads of it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_within_a_refusal_is_not_carried_out() -> Result<()> {
    let script = r#"
[[turns]]
text = "I will not."
calls = [{ name = "create_file", args = { path = "a.txt", content = "done all the same\n" } }]
fault = { kind = "refusal" }
"#;
    for provider in PROTOCOLS {
        let _room = room().await;
        let stage = Stage::set(provider, &[("main", script)], "").await?;
        let task = stage.task(&[]).await?;
        ensure!(
            task.state == TaskState::Blocked && task.blocked_why == Some(TaskBlockedWhy::Person),
            "{provider:?} {task:?}"
        );
        let message = task.message.clone().unwrap_or_default();
        ensure!(message.contains("I will not.") && message.contains("`create_file`"), "{message}");
        let history = stage.proven(&task).await?;
        ensure!(history.count("ToolRequested") == 0, "{}", history.kinds());
        stage.end().await?;
    }
    Ok(())
}

/// A thought in the text is no answer: a model that only thinks is asked again, and what it thought goes back as
/// it came.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thought_in_the_text_is_no_answer() -> Result<()> {
    let _room = room().await;
    let script = r#"
[[turns]]
when = { last_text_contains = "Your last answer was empty" }
text = "<think>One file.</think>\nI write it."
calls = [{ name = "create_file", args = { path = "a.txt", content = "1\n" } }]
or = [{ text = "<think>\nI could be done.\n</think>\n\n" }]
[[turns]]
text = "<think>All of it is there.</think>\n\nThe file is written."
"#;
    let stage = Stage::set(Provider::OpenAi, &[("main", script)], "").await?;
    let task = stage.task(&[]).await?;
    ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.tail());
    let history = stage.proven(&task).await?;
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
    stage.end().await
}

/// A server that answers with one object in place of a stream is read all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_does_not_stream_is_understood() -> Result<()> {
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
        let _room = room().await;
        let stage = Stage::set(provider, &[("main", script)], "").await?;
        let task = stage.task(&[]).await?;
        ensure!(task.state == TaskState::Completed, "{provider:?} {task:?}\n{}", stage.worker.tail());
        let history = stage.proven(&task).await?;
        ensure!(history.count("ModelFailed") == 0 && stage.server.calls() == 2, "{}", history.kinds());
        let counted = history.events.iter().all(|event| match event {
            RunEvent::ModelAnswered(e) => e.usage.input_tokens > 0,
            _ => true,
        });
        ensure!(counted, "{provider:?}");
        stage.end().await?;
    }
    Ok(())
}

/// Effort and temperature stand in every request of the main model, in the words of its protocol, and nowhere else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn effort_and_temperature_are_pinned_and_asked_for() -> Result<()> {
    for provider in PROTOCOLS {
        let _room = room().await;
        let stage = Stage::set(provider, &[("main", MAIN)], "[run]\neffort = \"low\"\n").await?;
        for (flags, effort, temperature) in
            [(&["--effort", "high", "--temperature", "0.25"][..], "high", Some(0.25)), (&[][..], "low", None)]
        {
            let before = usize::try_from(stage.server.calls())?;
            let task = stage.task(flags).await?;
            ensure!(task.state == TaskState::Completed, "{task:?}\n{}", stage.worker.tail());
            stage.proven(&task).await?;
            for request in &stage.server.requests()[before..] {
                let body: Value = serde_json::from_slice(&request.body)?;
                let asked = match provider {
                    Provider::Anthropic => &body["output_config"]["effort"],
                    Provider::OpenAiResponses => &body["reasoning"]["effort"],
                    Provider::OpenAi | Provider::Scripted => &body["reasoning_effort"],
                };
                ensure!(*asked == effort, "{body}");
                let wanted = temperature.filter(|_| provider != Provider::Anthropic);
                ensure!(body["temperature"] == json!(wanted), "{body}");
            }
        }
        stage.end().await?;
    }
    let _room = room().await;
    let stage = Stage::set(Provider::OpenAi, &[("main", MAIN)], "").await?;
    for flags in [["--effort", "much"], ["--temperature", "3"]] {
        let args = [&["submit", "Do it", "--empty", "--model", "openai:main"], &flags[..]].concat();
        let said = stage.coordinator.docket(&args).await?;
        ensure!(said.code() == Some(2) && said.stderr.contains(flags[0]), "{said:?}");
    }
    stage.end().await
}

/// A command that would go on beyond the run's time is ended with it, and says why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_time_ends_a_command_that_runs() -> Result<()> {
    let _room = room().await;
    let script = r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "sleep 50" } }]
"#;
    let stage = Stage::set(Provider::OpenAi, &[("main", script)], "").await?;
    let task = stage.task(&["--max-time", "2s"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of time"), "{task:?}");
    let history = stage.proven(&task).await?;
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
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_time_ends_a_call_that_nobody_answers() -> Result<()> {
    let _room = room().await;
    let script = "[[turns]]\ntext = \"Done.\"\nfault = { kind = \"slow_first_byte\" }\n";
    let stage = Stage::set(Provider::Anthropic, &[("main", script)], "").await?;
    let task = stage.task(&["--max-time", "2s"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of time"), "{task:?}");
    let history = stage.proven(&task).await?;
    let failed = history.events.iter().find_map(|event| match event {
        RunEvent::ModelFailed(e) => Some(e),
        _ => None,
    });
    let failed = failed.context("a failed call")?;
    ensure!(failed.duration_ms < 20_000 && failed.message.contains("budget of time ended"), "{failed:?}");
    stage.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_of_tokens_holds_where_the_server_counts_none() -> Result<()> {
    let _room = room().await;
    let look =
        "[[turns]]\ncalls = [{ name = \"list_files\", args = {} }]\nfault = { kind = \"uncounted\" }\n";
    let stage = Stage::set(Provider::OpenAi, &[("main", &look.repeat(30))], "").await?;
    let task = stage.task(&["--max-tokens", "30000"]).await?;
    let message = task.message.clone().unwrap_or_default();
    ensure!(task.state == TaskState::Discarded && message.contains("budget of 30000 tokens"), "{task:?}");
    let history = stage.proven(&task).await?;
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
    stage.end().await
}

/// `docket run` waits through an outage as `docket up` does, and says so; interrupted, it leaves the task to `docket up`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn docket_run_waits_until_the_provider_answers_again() -> Result<()> {
    let _room = room().await;
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
    std::fs::write(home.path().join("docket.toml"), format!("[run]\nmodel_attempts_max = 2\n{}", prices()))?;
    let sample = Sample::new(&[("a", "")])?;
    let (repo, url) = (sample.path().to_str().context("UTF-8")?, server.base_url(Provider::OpenAi));
    let env = [("DOCKET_HOME", home.path().as_os_str()), ("OPENAI_API_KEY", OsStr::new(ModelServer::KEY))];
    let start = |name: &str| {
        let model = format!("openai:{name}");
        let args = ["run", "Do it", "--repo", repo, "--model", &model, "--base-url", &url];
        Terminal::start(home.path(), &env, &args)
    };
    let mut terminal = start("main")?;
    terminal.shows("waiting for the model's provider since").await?;
    terminal.shows("next try at").await?;
    terminal.shows("and `docket up` continues it then").await?;
    let status = terminal.wait().await?;
    ensure!(status.success() && terminal.all().contains("a.txt"), "{status}: {}", terminal.all());

    let mut terminal = start("spare")?;
    terminal.shows("waiting for the model's provider since").await?;
    send(terminal.pid()?, Signal::SIGINT);
    let status = terminal.wait().await?;
    terminal.shows("stopped; task").await?;
    terminal.shows("`docket up` continues it").await?;
    ensure!(status.code() == Some(1), "{status}: {}", terminal.all());
    let args = ["up", "-v", "--json", "--slots", "1", "--listen", "127.0.0.1:0"];
    let up_env = [env[1], ("DOCKET_BASE_URLS", OsStr::new("http://127.0.0.1:*"))];
    let (up, _) = Proc::start("up", home.path(), &up_env, &args).await?;
    let row = until("the end of the task that was left", async || {
        let rows = run(Tool::Docket, home.path(), &env[..1], &["ps", "--json"]).await.ok()?.ok().ok()?;
        let mut rows = rows.lines().filter_map(|row| serde_json::from_str::<Value>(row).ok());
        rows.find(|row| row["model"] == "openai:spare" && row["state"] == "completed")
    });
    let row = row.await.with_context(|| up.tail())?;
    ensure!(row["runs"] == 1 && row["failures"] == 0, "{row}");
    Ok(())
}
