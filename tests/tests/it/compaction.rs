//! Runs whose model has a small window: they make their history shorter, go on, end well, and can be proven.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{Compacted, Purpose, RunEvent},
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{Coordinator, History, LeaseTime, Place, Sample, Worker, WorkerOptions, room},
};
use docket_worker::{
    bootstrap::{FailWhen, FailWhom, Failpoint},
    model::{LEFT_OUT_MARK, Provider, ScriptedModel},
};
use serde_json::Value;

/// Prompt and tools take a third of it, five turns as much again.
const SETTINGS: &str = "[prices.\"anthropic:small\"]\ninput = \"3\"\noutput = \"5\"\ncache_read = \"1\"\n\
                        cache_write = \"3\"\ncontext_tokens = 14_000\noutput_tokens_max = 1000\n";

/// A plan, then readings of long files with an edit now and then, then the end. The summary fails once in three.
fn script(summary: &str) -> String {
    let mut script =
        format!("{summary}\n[[turns]]\ntext = \"PLAN:\\n- [x] read all\\n- [x] mark the end\"\n");
    script.push_str("calls = [{ name = \"read_file\", args = { path = \"f0.txt\" } }]\n");
    for n in 1..26 {
        let file = n % 4;
        script.push_str(&format!(
            "[[turns]]\ncalls = [{{ name = \"read_file\", args = {{ path = \"f{file}.txt\", start_line = {n} }} }}, "
        ));
        script.push_str(&format!(
            "{{ name = \"edit_file\", args = {{ path = \"f{file}.txt\", edits = [{{ search = \"f{file} line {n} of\", \
             replace = \"f{file} LINE {n} of\" }}] }} }}]\n"
        ));
    }
    script.push_str("[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"finished\", content = \"x\\n\" } }]\n");
    script.push_str("[[turns]]\ntext = \"Done.\"\n");
    script
}

struct Stage {
    coordinator: Coordinator,
    server: ModelServer,
    spec: TaskSpec,
}

impl Stage {
    async fn set(summary: &str) -> Result<Self> {
        let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
        let server = ModelServer::start(ScriptedModel::parse(script(summary).as_bytes())?).await?;
        let texts: Vec<(String, String)> = (0..4)
            .map(|file| {
                let line = |n| format!("f{file} line {n} of what is to be read\n");
                (format!("f{file}.txt"), (1..=100).map(line).collect())
            })
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let sample = Sample::new(&files)?;
        let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e finished"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        Ok(Self { coordinator, server, spec })
    }

    /// A run to its good end.
    async fn run(&self, failpoints: Vec<Failpoint>) -> Result<History> {
        let options = WorkerOptions { failpoints, settings: SETTINGS.to_owned(), ..WorkerOptions::default() };
        let worker = Worker::start(&self.coordinator, &options).await?;
        let model = self.server.model(Provider::Anthropic, "small");
        let task = self.coordinator.submit_like(&self.spec, &"small".parse()?, model).await?;
        let view = self.coordinator.ended(task).await.with_context(|| worker.tail())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task, worker.tail());
        let history = self.coordinator.history(view.task.last_run.context("a run")?).await?;
        history.verify(self.coordinator.client()).await?;
        worker.drain().await?;
        Ok(history)
    }
}

fn compactions(history: &History) -> Vec<&Compacted> {
    let compacted = history.events.iter().filter_map(|event| match event {
        RunEvent::Compacted(e) => Some(e),
        _ => None,
    });
    compacted.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_fills_its_window_twice_goes_on_and_every_request_of_it_is_proven() -> Result<()> {
    let _room = room().await;
    let stage = Stage::set("").await?;
    let history = stage.run(vec![]).await?;
    let found = compactions(&history);
    ensure!(found.len() >= 2 && found.iter().any(|e| !e.cleared.is_empty()), "{}", history.kinds());
    let last = format!("{:?}", found.last().context("one")?.ledger);
    for kept in [LEFT_OUT_MARK, "- [x] mark the end", "f1.txt: edited", "f2.txt: edited"] {
        ensure!(last.contains(kept), "{kept}: {last}");
    }
    let run = history.envelopes[0].stream.to_string();
    let run = run.trim_start_matches("run/");
    let said = stage.coordinator.docket(&["verify", run]).await?;
    ensure!(said.success(), "{said:?}");

    // What a replay makes of each turn is what the server got; summaries are none of a turn's requests.
    let asked = history.events.iter().filter_map(|event| match event {
        RunEvent::ModelRequested(e) => Some(e),
        _ => None,
    });
    let sent = stage.server.requests();
    let asked: Vec<_> = asked.collect();
    ensure!(asked.len() == sent.len(), "{} {}", asked.len(), sent.len());
    let compacted = history.envelopes.iter().filter(|event| event.kind == "Compacted");
    let after: BTreeSet<u32> = compacted.map(|event| event.turn.0 + 1).collect();
    let mut turn = 0;
    for (asked, sent) in asked.iter().zip(&sent) {
        let body: Value = serde_json::from_slice(&sent.body)?;
        if asked.purpose == Purpose::Compact {
            ensure!(body["tools"].is_null(), "a summary needs no tool");
            continue;
        }
        turn += 1;
        if turn != 1 && turn != 28 && !after.contains(&turn) {
            continue;
        }
        let made =
            stage.coordinator.docket(&["replay", run, "--turn", &turn.to_string(), "--request"]).await?;
        ensure!(made.success() && made.stdout.as_bytes() == sent.body, "turn {turn}: {made:?}");
    }
    ensure!(turn == 28, "{turn} turns");
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_process_that_dies_behind_a_compaction_is_gone_on_with() -> Result<()> {
    let _room = room().await;
    // The summary fails as well: what is put in its place is made by rule.
    let stage = Stage::set("[summary]\nfault = { kind = \"overloaded\", times = 9 }").await?;
    let history = stage.run(vec![]).await?;
    let seq_of = |nth: usize| {
        let mut of_kind = history.envelopes.iter().filter(|event| event.kind == "Compacted");
        of_kind.nth(nth).map(|event| event.seq.0).context("a compaction")
    };
    let first = Failpoint { seq: seq_of(0)?, when: FailWhen::After, epoch: 1, whom: FailWhom::Run };
    // A recovery is an event more before the second.
    let second = Failpoint { seq: seq_of(1)? + 1, when: FailWhen::After, epoch: 2, whom: FailWhom::Run };
    let again = stage.run(vec![first, second]).await?;
    ensure!(again.count("RunRecovered") == 2, "{}", again.kinds());
    ensure!(again.tree() == history.tree(), "another tree");
    let shapes = |history: &History| -> Vec<(u32, usize)> {
        compactions(history).iter().map(|e| (e.messages, e.cleared.len())).collect()
    };
    ensure!(shapes(&again) == shapes(&history), "{:?} {:?}", shapes(&again), shapes(&history));
    stage.coordinator.end_and_check().await
}
