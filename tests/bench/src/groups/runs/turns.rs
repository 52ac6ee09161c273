//! Runs as they really are: submitted over HTTP, leased by a real supervisor, carried out by a real run
//! process against a made-up model. Cold start, harness time per turn, the whole run, memory.
//!
//! Harness time of a turn = from the last byte of a model's answer to the head of the next request: what
//! docket does in between is decide, append, run the tool, snapshot, append again, render, connect.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use docket_coordinator::{clock::Clock, server::Running};
use docket_schema::{
    ids::TaskId,
    message::ModelRef,
    task::{SettingsPatch, TaskRecord, TaskSpec, TaskState},
    wire::SubmitRequest,
};
use docket_worker::{client::Client, secret::Secret};

use crate::{
    groups::runs::{crash, isolated},
    harness::{
        backlog,
        docket_binary::Site,
        model_server::{Mark, ModelServer, Scenario, Tool, makes_file},
        places::Served,
        proc,
        stream::empty_base,
        worker_process::WorkerProcess,
    },
    report::{Effort, Report, Samples},
};

/// Turns of the run that is timed; the peers were measured with as many.
const TURNS: usize = 30;
/// More than any scenario here has.
const TURNS_MAX: u32 = 300;
/// Turns of a run with a long history: two messages each.
const LONG_TURNS: usize = 280;
/// From where on its history has 500 messages.
const LONG_FROM: usize = 250;
/// A task that is not done by then never will be.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// How often the end of a task is looked for. Its instant is the log's, not that of the look.
const LOOK: Duration = Duration::from_millis(5);

/// Coordinator, supervisor and model for runs.
pub(crate) struct Stage {
    pub(crate) served: Served,
    pub(crate) worker: WorkerProcess,
    pub(crate) model: ModelServer,
    pub(crate) client: Client,
    pub(crate) clock: Clock,
}

impl Stage {
    /// Sets the stage: all of it idle, nothing leased.
    pub(crate) async fn set(site: &Site, slots: u32) -> anyhow::Result<Self> {
        let served = Served::start(&site.folder).await?;
        let worker = WorkerProcess::start(site, &served, slots).await?;
        Self::of(served, worker).await
    }

    /// With a coordinator and a worker that are there.
    pub(crate) async fn of(served: Served, worker: WorkerProcess) -> anyhow::Result<Self> {
        let model = ModelServer::start().await?;
        let token = Secret::new(&served.token).context("the token is empty")?;
        let client = Client::new(&served.running.url(), token)?;
        let clock = Clock::new();
        backlog::put_blob(&served.running.handle().store(), &clock, empty_base().1).await?;
        Ok(Self { served, worker, model, client, clock })
    }

    /// Another worker in the place of the one that was there.
    pub(crate) fn handed_to(self, worker: WorkerProcess) -> (WorkerProcess, Self) {
        let Self { served, worker: before, model, client, clock } = self;
        (before, Self { served, worker, model, client, clock })
    }

    pub(crate) fn running(&self) -> &Running {
        &self.served.running
    }

    /// Submits one task over HTTP; its id, and when the request was sent.
    pub(crate) async fn submit(&self, spec: TaskSpec) -> anyhow::Result<(TaskId, Instant)> {
        let request = SubmitRequest { tasks: vec![spec], ids: None };
        let sent = Instant::now();
        let answer = self.client.submit(&request).await.context("the submit failed")?;
        Ok((answer.tasks.first().context("the submit answers no task")?.id, sent))
    }

    /// Waits until the task has ended, and refuses any end but the good one.
    pub(crate) async fn ended(&self, task: TaskId) -> anyhow::Result<TaskRecord> {
        self.ended_within(task, END_TIMEOUT).await
    }

    /// As [`Stage::ended`], for a task that takes longer.
    pub(crate) async fn ended_within(&self, task: TaskId, timeout: Duration) -> anyhow::Result<TaskRecord> {
        let (store, started) = (self.running().handle().store(), Instant::now());
        loop {
            let (record, _) = store.task(task).await?.context("the task is gone")?;
            if record.state == TaskState::Completed {
                return Ok(record);
            }
            if record.state.is_ended() || started.elapsed() > timeout {
                let message = record.message.unwrap_or_default();
                bail!(
                    "a task is {} in place of completed: {message} {}",
                    record.state,
                    self.worker.last_words()
                );
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Ends it all.
    pub(crate) async fn strike(self) -> anyhow::Result<()> {
        let ended = self.worker.end().await;
        self.served.end().await;
        ended
    }
}

/// A task for the made-up model.
pub(crate) fn task(model: ModelRef) -> TaskSpec {
    TaskSpec {
        settings: SettingsPatch { turns_max: Some(TURNS_MAX), ..SettingsPatch::default() },
        ..backlog::task(model)
    }
}

/// Measures.
pub(crate) async fn measure(site: &Site, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let stage = Stage::set(site, isolated::slots()).await?;
    let measured = on(&stage, effort, report).await;
    let struck = stage.strike().await;
    measured.and(struck)
}

async fn on(stage: &Stage, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    // The first run warms caches up, and is looked at from outside in its last turn.
    memory(stage, report).await?;
    let files = Scenario { tool: Tool::Files, turns: TURNS, hold_at: None };
    let (mut all, mut reads, mut writes) = (Samples::default(), Samples::default(), Samples::default());
    let (mut cold, mut whole) = (Samples::default(), Samples::default());
    for n in 0..effort.runs() {
        let (marks, sent, record) = play(stage, &format!("files-{n}"), files).await?;
        let first = marks.first().context("the run asked nothing")?;
        cold.push_ms(first.came.duration_since(sent));
        let ended_at = record.ended_at.context("a completed task has an end")?;
        whole.push(ended_at.0.saturating_sub(record.submitted_at.0) as f64 / 1000.0);
        for (turn, ms) in overheads(&marks) {
            all.push(ms);
            if makes_file(turn) { writes.push(ms) } else { reads.push(ms) }
        }
    }
    report.set_percentile("cold_start_ms", &cold, 50);
    report.set_percentile("run_30_turns_ms", &whole, 50);
    report.set_percentile("turn_overhead_ms_p50", &all, 50);
    report.set_percentile("turn_overhead_ms_p95", &all, 95);
    report.set_percentile("turn_overhead_read_ms_p50", &reads, 50);
    report.set_percentile("turn_overhead_write_ms_p50", &writes, 50);
    long(stage, report).await?;
    sandboxed(stage, effort, report).await?;
    isolated::measure(stage, effort, report).await?;
    crash::measure(stage, effort, report).await
}

/// One run through; its requests, when it was submitted, and the task at its end.
async fn play(
    stage: &Stage,
    name: &str,
    scenario: Scenario,
) -> anyhow::Result<(Vec<Mark>, Instant, TaskRecord)> {
    let (id, sent) = stage.submit(task(stage.model.model(name, scenario))).await?;
    let record = stage.ended(id).await?;
    Ok((stage.model.marks(name), sent, record))
}

/// Turn, and milliseconds from the answer that made it to the next request.
fn overheads(marks: &[Mark]) -> Vec<(usize, f64)> {
    let pairs = marks.iter().zip(marks.iter().skip(1));
    let times = pairs.filter_map(|(asked, next)| {
        let answered = asked.answered?;
        let time = next.came.saturating_duration_since(answered);
        (next.turn == asked.turn + 1).then_some((asked.turn, time.as_secs_f64() * 1000.0))
    });
    times.collect()
}

async fn long(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let files = Scenario { tool: Tool::Files, turns: LONG_TURNS, hold_at: None };
    let (marks, _, _) = play(stage, "long", files).await?;
    let mut samples = Samples::default();
    samples.extend(overheads(&marks).into_iter().filter(|(turn, _)| *turn >= LONG_FROM).map(|(_, ms)| ms));
    report.set_percentile("turn_overhead_500_messages_ms_p50", &samples, 50);
    Ok(())
}

async fn sandboxed(stage: &Stage, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let commands = Scenario { tool: Tool::Command, turns: TURNS, hold_at: None };
    let mut samples = Samples::default();
    for n in 0..effort.runs().div_ceil(2) {
        let (marks, _, _) = play(stage, &format!("commands-{n}"), commands).await?;
        samples.extend(overheads(&marks).into_iter().map(|(_, ms)| ms));
    }
    report.set_percentile("turn_overhead_sandboxed_ms_p50", &samples, 50);
    report.set_percentile("turn_overhead_sandboxed_ms_p95", &samples, 95);
    Ok(())
}

/// Memory of supervisor and run process while the model holds its last answer back.
async fn memory(stage: &Stage, report: &mut Report) -> anyhow::Result<()> {
    let scenario = Scenario { tool: Tool::Files, turns: TURNS, hold_at: Some(TURNS) };
    let (id, _) = stage.submit(task(stage.model.model("memory", scenario))).await?;
    stage.model.requests("memory", TURNS + 1).await.with_context(|| stage.worker.last_words())?;
    let supervisor = proc::memory(stage.worker.pid()).context("the supervisor is gone")?;
    report.set("rss_supervisor_mb", supervisor.resident);
    let runs = proc::run_processes_of(stage.worker.pid())?;
    let run = *runs.first().context("no run process stands under the supervisor")?;
    let memory = proc::memory(run).context("the run process is gone")?;
    report.set("rss_run_mb", memory.resident);
    match memory.private {
        Some(private) => report.set("rss_run_private_mb", private),
        None => report.lacks("rss_run_private_mb", "this kernel has no smaps_rollup"),
    }
    report.set("run_30_turns_cpu_ms", proc::cpu_ms(run)?);
    stage.model.release();
    stage.ended(id).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_neighbouring_turns_make_an_overhead() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mark =
            |turn, came, answered: Option<u64>| Mark { turn, came: at(came), answered: answered.map(at) };
        // Turn 1 is asked again after a crash; its first answer never went.
        let marks = [mark(0, 0, Some(1)), mark(1, 4, None), mark(1, 50, Some(51)), mark(2, 56, None)];
        assert_eq!(overheads(&marks), [(0, 3.0), (1, 5.0)]);
    }
}
