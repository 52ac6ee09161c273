//! Runs whose model has a small window: they make their history shorter, go on, end well, and can be proven.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    run::{CallPurpose, Compacted, RunEvent},
    task::{TaskSpec, TaskState},
};
use docket_tests::{
    model_server::ModelServer,
    system::{
        CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, StoreLocation, WorkerOptions,
        WorkerProcess, acquire_scenario_slot,
    },
};
use docket_worker::{
    bootstrap::{Failpoint, FailpointTarget, FailpointTiming},
    model::{ModelProvider, OMITTED_REPLIES_MARK, ScriptedModel},
};
use serde_json::Value;

/// Prompt and tools take a third of it, five turns as much again.
const SETTINGS: &str = "[prices.\"anthropic:small\"]\ninput = \"3\"\noutput = \"5\"\ncache_read = \"1\"\n\
                        cache_write = \"3\"\ncontext_tokens = 14_000\noutput_tokens_max = 1000\n";

/// A plan, then readings of long files with an edit now and then, then the end. The summary fails once in three.
fn compaction_script(summary: &str) -> String {
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

struct CompactionFixture {
    coordinator: CoordinatorProcess,
    server: ModelServer,
    spec: TaskSpec,
}

impl CompactionFixture {
    async fn new(summary: &str) -> Result<Self> {
        let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
        let server = ModelServer::start(ScriptedModel::parse(compaction_script(summary).as_bytes())?).await?;
        let texts: Vec<(String, String)> = (0..4)
            .map(|file| {
                let line = |n| format!("f{file} line {n} of what is to be read\n");
                (format!("f{file}.txt"), (1..=100).map(line).collect())
            })
            .collect();
        let files: Vec<(&str, &str)> =
            texts.iter().map(|(path, text)| (path.as_str(), text.as_str())).collect();
        let sample = SampleRepository::new(&files)?;
        let args = ["--model", "openai:template", "--queue", "template", "--tests", "test -e finished"];
        let (template, spec) = sample.submit(&coordinator, &args).await?;
        coordinator.client().cancel(template, "a template").await?;
        Ok(Self { coordinator, server, spec })
    }

    /// A run to its good end.
    async fn run_to_end(&self, failpoints: Vec<Failpoint>) -> Result<RunHistory> {
        let options = WorkerOptions { failpoints, settings: SETTINGS.to_owned(), ..WorkerOptions::default() };
        let worker = WorkerProcess::start(&self.coordinator, &options).await?;
        let model = self.server.model_ref(ModelProvider::Anthropic, "small");
        let task = self.coordinator.submit_like(&self.spec, &"small".parse()?, model).await?;
        let view = self.coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
        ensure!(view.task.state == TaskState::Completed, "{:?}\n{}", view.task, worker.log_tail());
        let history = self.coordinator.run_history(view.task.last_run.context("a run")?).await?;
        history.verify(self.coordinator.client()).await?;
        worker.drain().await?;
        Ok(history)
    }
}

fn compactions(history: &RunHistory) -> Vec<&Compacted> {
    let compacted = history.events.iter().filter_map(|event| match event {
        RunEvent::Compacted(e) => Some(e),
        _ => None,
    });
    compacted.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_compacts_twice_and_every_request_verifies() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = CompactionFixture::new("").await?;
    let history = stage.run_to_end(vec![]).await?;
    let found = compactions(&history);
    ensure!(found.len() >= 2 && found.iter().any(|e| !e.cleared.is_empty()), "{}", history.format_kinds());
    let last = format!("{:?}", found.last().context("one")?.ledger);
    for kept in [OMITTED_REPLIES_MARK, "- [x] mark the end", "f1.txt: edited", "f2.txt: edited"] {
        ensure!(last.contains(kept), "{kept}: {last}");
    }
    let run = history.envelopes[0].stream.to_string();
    let run = run.trim_start_matches("run/");
    let said = stage.coordinator.run_docket(&["verify", run]).await?;
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
        if asked.purpose == CallPurpose::Compact {
            ensure!(body["tools"].is_null(), "a summary needs no tool");
            continue;
        }
        turn += 1;
        if turn != 1 && turn != 28 && !after.contains(&turn) {
            continue;
        }
        let made =
            stage.coordinator.run_docket(&["replay", run, "--turn", &turn.to_string(), "--request"]).await?;
        ensure!(made.success() && made.stdout.as_bytes() == sent.body, "turn {turn}: {made:?}");
    }
    ensure!(turn == 28, "{turn} turns");
    stage.coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_continues_after_a_crash_following_compaction() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    // The summary fails as well: what is put in its place is made by rule.
    let stage = CompactionFixture::new("[summary]\nfault = { kind = \"overloaded\", times = 9 }").await?;
    let history = stage.run_to_end(vec![]).await?;
    let seq_of = |nth: usize| {
        let mut of_kind = history.envelopes.iter().filter(|event| event.kind == "Compacted");
        of_kind.nth(nth).map(|event| event.seq.0).context("a compaction")
    };
    let first =
        Failpoint { seq: seq_of(0)?, when: FailpointTiming::After, epoch: 1, whom: FailpointTarget::Run };
    // A recovery is an event more before the second.
    let second =
        Failpoint { seq: seq_of(1)? + 1, when: FailpointTiming::After, epoch: 2, whom: FailpointTarget::Run };
    let again = stage.run_to_end(vec![first, second]).await?;
    ensure!(again.count_kind("RunRecovered") == 2, "{}", again.format_kinds());
    ensure!(again.final_tree() == history.final_tree(), "another tree");
    let shapes = |history: &RunHistory| -> Vec<(u32, usize)> {
        compactions(history).iter().map(|e| (e.messages, e.cleared.len())).collect()
    };
    ensure!(shapes(&again) == shapes(&history), "{:?} {:?}", shapes(&again), shapes(&history));
    stage.coordinator.end_and_check().await
}
