//! Real runs: submitted over HTTP, leased by a real supervisor, executed by a real run process against a
//! synthetic model. Cold start, harness time per turn, total time, memory.
//!
//! The harness time of a turn is the time from the last byte of a model's response to the head of the
//! next request. In between, docket decides, appends, runs the tool, takes a snapshot, appends again,
//! renders and connects.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use docket_coordinator::{clock::Clock, server::RunningServer};
use docket_schema::{
    api::SubmitRequest,
    ids::TaskId,
    message::ModelRef,
    task::{SettingsPatch, TaskRecord, TaskSpec, TaskState},
};
use docket_worker::{client::CoordinatorClient, secret::Secret};

use crate::{
    groups::runs::{crash, isolated},
    harness::{
        backlog,
        bench_folder::ServedCoordinator,
        docket_binary::GroupSite,
        model_server::{ModelScenario, ModelServer, RequestMark, ScenarioTool, creates_file},
        process_stats,
        synthetic_events::empty_base,
        worker_process::WorkerProcess,
    },
    report::{BenchReport, EffortLevel, Samples},
};

/// Turns of the timed run; the peers were measured with as many.
const TIMED_TURNS: usize = 30;
/// More than any scenario here has.
const TURNS_MAX: u32 = 300;
/// Turns of a run with a long history: two messages each.
const LONG_TURNS: usize = 280;
/// Turn from which the history has 500 messages.
const LONG_HISTORY_FROM: usize = 250;
/// Time limit for a task.
const END_TIMEOUT: Duration = Duration::from_secs(60);
/// Interval between checks for the end of a task. The measured time is the log's, not that of the
/// check.
const POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Coordinator, supervisor and model for runs.
pub(crate) struct RunBench {
    pub(crate) coordinator: ServedCoordinator,
    pub(crate) worker: WorkerProcess,
    pub(crate) model: ModelServer,
    pub(crate) client: CoordinatorClient,
    pub(crate) clock: Clock,
}

impl RunBench {
    /// Starts all of them, idle, with nothing leased.
    pub(crate) async fn start(site: &GroupSite, slots: u32) -> anyhow::Result<Self> {
        let served = ServedCoordinator::start(&site.folder).await?;
        let worker = WorkerProcess::start(site, &served, slots).await?;
        Self::from_parts(served, worker).await
    }

    /// Uses an existing coordinator and worker.
    pub(crate) async fn from_parts(served: ServedCoordinator, worker: WorkerProcess) -> anyhow::Result<Self> {
        let model = ModelServer::start().await?;
        let token = Secret::new(&served.token).context("the token is empty")?;
        let client = CoordinatorClient::new(&served.running.url(), token)?;
        let clock = Clock::new();
        backlog::put_blob(&served.running.handle().store(), &clock, empty_base().1).await?;
        Ok(Self { coordinator: served, worker, model, client, clock })
    }

    /// Replaces the worker with another one.
    pub(crate) fn replace_worker(self, worker: WorkerProcess) -> (WorkerProcess, Self) {
        let Self { coordinator: served, worker: before, model, client, clock } = self;
        (before, Self { coordinator: served, worker, model, client, clock })
    }

    pub(crate) fn running_coordinator(&self) -> &RunningServer {
        &self.coordinator.running
    }

    /// Submits one task over HTTP; returns its id and the time of the request.
    pub(crate) async fn submit(&self, spec: TaskSpec) -> anyhow::Result<(TaskId, Instant)> {
        let request = SubmitRequest { tasks: vec![spec], ids: None };
        let sent = Instant::now();
        let answer = self.client.submit(&request).await.context("the submit failed")?;
        Ok((answer.tasks.first().context("the submit answers no task")?.id, sent))
    }

    /// Waits until the task has ended; any end other than completion is an error.
    pub(crate) async fn wait_until_completed(&self, task: TaskId) -> anyhow::Result<TaskRecord> {
        self.wait_until_completed_within(task, END_TIMEOUT).await
    }

    /// Like [`RunBench::wait_until_completed`], for a task that takes longer.
    pub(crate) async fn wait_until_completed_within(
        &self,
        task: TaskId,
        timeout: Duration,
    ) -> anyhow::Result<TaskRecord> {
        let (store, started) = (self.running_coordinator().handle().store(), Instant::now());
        loop {
            let (record, _) = store.get_task(task).await?.context("the task is gone")?;
            if record.state == TaskState::Completed {
                return Ok(record);
            }
            if record.state.is_ended() || started.elapsed() > timeout {
                let message = record.message.unwrap_or_default();
                bail!(
                    "a task is {} in place of completed: {message} {}",
                    record.state,
                    self.worker.log_tail()
                );
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Shuts everything down.
    pub(crate) async fn shut_down(self) -> anyhow::Result<()> {
        let ended = self.worker.shut_down().await;
        self.coordinator.shut_down().await;
        ended
    }
}

/// Builds a task for the synthetic model.
pub(crate) fn model_task(model: ModelRef) -> TaskSpec {
    TaskSpec {
        settings: SettingsPatch { turns_max: Some(TURNS_MAX), ..SettingsPatch::default() },
        ..backlog::idle_task(model)
    }
}

pub(crate) async fn measure(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let stage = RunBench::start(site, isolated::worker_slots()).await?;
    let measured = measure_on(&stage, effort, report).await;
    let struck = stage.shut_down().await;
    measured.and(struck)
}

async fn measure_on(stage: &RunBench, effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    // The first run warms up caches; its memory is measured in its last turn.
    measure_memory(stage, report).await?;
    let files = ModelScenario { tool: ScenarioTool::Files, turns: TIMED_TURNS, hold_at: None };
    let (mut all, mut reads, mut writes) = (Samples::default(), Samples::default(), Samples::default());
    let (mut cold, mut whole) = (Samples::default(), Samples::default());
    for n in 0..effort.timed_runs() {
        let (marks, sent, record) = run_scenario(stage, &format!("files-{n}"), files).await?;
        let first = marks.first().context("the run asked nothing")?;
        cold.push_ms(first.arrived_at.duration_since(sent));
        let ended_at = record.ended_at.context("a completed task has an end")?;
        whole.push(ended_at.0.saturating_sub(record.submitted_at.0) as f64 / 1000.0);
        for (turn, ms) in turn_overheads(&marks) {
            all.push(ms);
            if creates_file(turn) { writes.push(ms) } else { reads.push(ms) }
        }
    }
    report.set_percentile("cold_start_ms", &cold, 50);
    report.set_percentile("run_30_turns_ms", &whole, 50);
    report.set_percentile("turn_overhead_ms_p50", &all, 50);
    report.set_percentile("turn_overhead_ms_p95", &all, 95);
    report.set_percentile("turn_overhead_read_ms_p50", &reads, 50);
    report.set_percentile("turn_overhead_write_ms_p50", &writes, 50);
    time_long_run(stage, report).await?;
    time_sandboxed_run(stage, effort, report).await?;
    isolated::measure(stage, effort, report).await?;
    crash::measure(stage, effort, report).await
}

/// Runs one scenario; returns its requests, the time of its submit, and the finished task.
async fn run_scenario(
    stage: &RunBench,
    name: &str,
    scenario: ModelScenario,
) -> anyhow::Result<(Vec<RequestMark>, Instant, TaskRecord)> {
    let (id, sent) = stage.submit(model_task(stage.model.model_ref(name, scenario))).await?;
    let record = stage.wait_until_completed(id).await?;
    Ok((stage.model.marks(name), sent, record))
}

/// Returns each turn with the milliseconds from its response to the next request.
fn turn_overheads(marks: &[RequestMark]) -> Vec<(usize, f64)> {
    let pairs = marks.iter().zip(marks.iter().skip(1));
    let times = pairs.filter_map(|(asked, next)| {
        let answered = asked.answered_at?;
        let time = next.arrived_at.saturating_duration_since(answered);
        (next.turn == asked.turn + 1).then_some((asked.turn, time.as_secs_f64() * 1000.0))
    });
    times.collect()
}

async fn time_long_run(stage: &RunBench, report: &mut BenchReport) -> anyhow::Result<()> {
    let files = ModelScenario { tool: ScenarioTool::Files, turns: LONG_TURNS, hold_at: None };
    let (marks, _, _) = run_scenario(stage, "long", files).await?;
    let mut samples = Samples::default();
    samples.extend(
        turn_overheads(&marks).into_iter().filter(|(turn, _)| *turn >= LONG_HISTORY_FROM).map(|(_, ms)| ms),
    );
    report.set_percentile("turn_overhead_500_messages_ms_p50", &samples, 50);
    Ok(())
}

async fn time_sandboxed_run(
    stage: &RunBench,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let commands = ModelScenario { tool: ScenarioTool::Command, turns: TIMED_TURNS, hold_at: None };
    let mut samples = Samples::default();
    for n in 0..effort.timed_runs().div_ceil(2) {
        let (marks, _, _) = run_scenario(stage, &format!("commands-{n}"), commands).await?;
        samples.extend(turn_overheads(&marks).into_iter().map(|(_, ms)| ms));
    }
    report.set_percentile("turn_overhead_sandboxed_ms_p50", &samples, 50);
    report.set_percentile("turn_overhead_sandboxed_ms_p95", &samples, 95);
    Ok(())
}

/// Measures the memory of supervisor and run process while the model holds back its last response.
async fn measure_memory(stage: &RunBench, report: &mut BenchReport) -> anyhow::Result<()> {
    let scenario =
        ModelScenario { tool: ScenarioTool::Files, turns: TIMED_TURNS, hold_at: Some(TIMED_TURNS) };
    let (id, _) = stage.submit(model_task(stage.model.model_ref("memory", scenario))).await?;
    stage
        .model
        .wait_for_requests("memory", TIMED_TURNS + 1)
        .await
        .with_context(|| stage.worker.log_tail())?;
    let supervisor = process_stats::read_memory(stage.worker.pid()).context("the supervisor is gone")?;
    report.set("rss_supervisor_mb", supervisor.resident);
    let runs = process_stats::run_process_pids(stage.worker.pid())?;
    let run = *runs.first().context("the supervisor has no run process")?;
    let memory = process_stats::read_memory(run).context("the run process is gone")?;
    report.set("rss_run_mb", memory.resident);
    match memory.private {
        Some(private) => report.set("rss_run_private_mb", private),
        None => report.set_missing("rss_run_private_mb", "this kernel has no smaps_rollup"),
    }
    report.set("run_30_turns_cpu_ms", process_stats::read_cpu_ms(run)?);
    stage.model.release();
    stage.wait_until_completed(id).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overhead_is_measured_between_adjacent_turns_only() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mark = |turn, came, answered: Option<u64>| RequestMark {
            turn,
            arrived_at: at(came),
            answered_at: answered.map(at),
        };
        // Turn 1 is requested again after a crash; its first response was never sent.
        let marks = [mark(0, 0, Some(1)), mark(1, 4, None), mark(1, 50, Some(51)), mark(2, 56, None)];
        assert_eq!(turn_overheads(&marks), [(0, 3.0), (1, 5.0)]);
    }
}
