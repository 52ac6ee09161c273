//! How soon a run continues after its process was killed with -9 in the middle of a turn: the supervisor
//! notices, releases the lease and leases it again, and another process folds, restores, and calls the model
//! again. Also how soon the runs of a killed worker continue on another one: their leases are not released,
//! they expire.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    groups::runs::turns::{RunBench, model_task},
    harness::{
        bench_folder::{ServedCoordinator, open_sqlite},
        docket_binary::GroupSite,
        model_server::{ModelScenario, ScenarioTool},
        process_stats,
        worker_process::WorkerProcess,
    },
    report::{BenchReport, EffortLevel, Samples},
};

/// The request at which the run is killed: it has files by that time, and a model call in progress.
const KILL_AT_REQUEST: usize = 4;
/// Turns of the run.
const TURNS: usize = 6;
/// Time that another worker may take beyond the lease's expiry.
const TAKEOVER_GRACE: Duration = Duration::from_secs(15);

pub(crate) async fn measure(
    stage: &RunBench,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    for n in 0..effort.killed_runs() {
        let name = format!("crash-{n}");
        let scenario =
            ModelScenario { tool: ScenarioTool::Files, turns: TURNS, hold_at: Some(KILL_AT_REQUEST) };
        let (id, _) = stage.submit(model_task(stage.model.model_ref(&name, scenario))).await?;
        stage.model.wait_for_requests(&name, KILL_AT_REQUEST + 1).await?;
        let runs = process_stats::run_process_pids(stage.worker.pid())?;
        ensure!(runs.len() == 1, "{} run processes stand under the supervisor in place of one", runs.len());
        let killed = Instant::now();
        kill(Pid::from_raw(runs[0]), Signal::SIGKILL).context("the run process cannot be killed")?;
        let marks = stage.model.wait_for_requests(&name, KILL_AT_REQUEST + 2).await?;
        let again = marks.last().context("no request")?;
        ensure!(
            again.turn == KILL_AT_REQUEST,
            "turn {} was asked for again in place of {KILL_AT_REQUEST}",
            again.turn
        );
        samples.push_ms(again.arrived_at.saturating_duration_since(killed));
        stage.wait_until_completed(id).await?;
    }
    report.set_percentile("crash_to_running_ms", &samples, 50);
    Ok(())
}

/// Number of runs of the killed worker.
const ORPHANED_RUNS: usize = 2;

/// Measures the takeover of a killed worker's runs, with a separate coordinator and workers.
pub(crate) async fn measure_worker_loss(
    site: &GroupSite,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let lease = effort.lease_time();
    let lease_ms = u64::try_from(lease.as_millis())?;
    let served =
        ServedCoordinator::start_with_lease_time(open_sqlite(&site.folder).await?, Some(lease_ms)).await?;
    let slots = u32::try_from(ORPHANED_RUNS)?;
    let first = WorkerProcess::start_named("killed", &site.create_subsite("killed")?, &served, slots).await?;
    let stage = RunBench::from_parts(served, first).await?;
    let scenario = ModelScenario { tool: ScenarioTool::Files, turns: TURNS, hold_at: Some(KILL_AT_REQUEST) };
    let (mut tasks, mut samples) = (Vec::new(), Samples::default());
    for n in 0..ORPHANED_RUNS {
        let name = format!("orphan-{n}");
        tasks.push((stage.submit(model_task(stage.model.model_ref(&name, scenario))).await?.0, name));
    }
    for (_, name) in &tasks {
        stage.model.wait_for_requests(name, KILL_AT_REQUEST + 1).await?;
    }
    // Started only now: before, it would have leased them.
    let other =
        WorkerProcess::start_named("other", &site.create_subsite("other")?, &stage.coordinator, slots)
            .await?;
    let (first, stage) = stage.replace_worker(other);
    let killed = Instant::now();
    kill(Pid::from_raw(first.pid()), Signal::SIGKILL).context("the worker cannot be killed")?;
    for (id, name) in &tasks {
        let marks = stage
            .model
            .wait_for_requests_within(name, KILL_AT_REQUEST + 2, lease * 2 + TAKEOVER_GRACE)
            .await?;
        // The other run continued while one was awaited.
        let again = marks.get(KILL_AT_REQUEST + 1).context("no request")?;
        ensure!(
            again.turn == KILL_AT_REQUEST,
            "turn {} was asked for again in place of {KILL_AT_REQUEST}",
            again.turn
        );
        samples.push_ms(again.arrived_at.saturating_duration_since(killed));
        let record = stage.wait_until_completed(*id).await?;
        ensure!(record.failures == 0 && record.runs == 1, "it is counted as a failure: {record:?}");
    }
    // The last of them, because until then files of the dead worker remain.
    let last = samples.percentile(100).context("no sample")?;
    report.set("worker_killed_to_running_ms", last);
    report.set("worker_killed_lease_ms", lease_ms as f64);
    report.set("worker_killed_lease_ratio", last / lease_ms as f64);
    drop(first);
    stage.shut_down().await
}
