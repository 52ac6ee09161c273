//! How soon a run goes on after its process was killed with -9 in mid-turn: the supervisor notices,
//! gives the lease back and takes it again, another process folds, restores, and asks the model again. And how soon the
//! runs of a worker go on at another one after the worker itself was killed: nobody gives its leases back, they end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use crate::{
    groups::runs::turns::{Stage, task},
    harness::{
        docket_binary::Site,
        model_server::{Scenario, Tool},
        places::{Served, sqlite_in},
        proc,
        worker_process::WorkerProcess,
    },
    report::{Effort, Report, Samples},
};

/// The request at which the run is killed: it has files by then, and a model at work.
const KILLED_AT: usize = 4;
/// Turns of the run.
const TURNS: usize = 6;
/// What another worker may take beyond the lease's end.
const GRACE: Duration = Duration::from_secs(15);

/// Measures.
pub(crate) async fn measure(stage: &Stage, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let mut samples = Samples::default();
    for n in 0..effort.crashes() {
        let name = format!("crash-{n}");
        let scenario = Scenario { tool: Tool::Files, turns: TURNS, hold_at: Some(KILLED_AT) };
        let (id, _) = stage.submit(task(stage.model.model(&name, scenario))).await?;
        stage.model.requests(&name, KILLED_AT + 1).await?;
        let runs = proc::run_processes_of(stage.worker.pid())?;
        ensure!(runs.len() == 1, "{} run processes stand under the supervisor in place of one", runs.len());
        let killed = Instant::now();
        kill(Pid::from_raw(runs[0]), Signal::SIGKILL).context("the run process cannot be killed")?;
        let marks = stage.model.requests(&name, KILLED_AT + 2).await?;
        let again = marks.last().context("no request")?;
        ensure!(again.turn == KILLED_AT, "turn {} was asked for again in place of {KILLED_AT}", again.turn);
        samples.push_ms(again.came.saturating_duration_since(killed));
        stage.ended(id).await?;
    }
    report.set_percentile("crash_to_running_ms", &samples, 50);
    Ok(())
}

/// Runs of the worker that is killed.
const ORPHANS: usize = 2;

/// Measures what becomes of a killed worker's runs, with a coordinator and workers of its own.
pub(crate) async fn measure_worker_loss(
    site: &Site,
    effort: Effort,
    report: &mut Report,
) -> anyhow::Result<()> {
    let lease = effort.lease();
    let lease_ms = u64::try_from(lease.as_millis())?;
    let served = Served::leasing(sqlite_in(&site.folder).await?, Some(lease_ms)).await?;
    let slots = u32::try_from(ORPHANS)?;
    let first = WorkerProcess::named("killed", &site.below("killed")?, &served, slots).await?;
    let stage = Stage::of(served, first).await?;
    let scenario = Scenario { tool: Tool::Files, turns: TURNS, hold_at: Some(KILLED_AT) };
    let (mut tasks, mut samples) = (Vec::new(), Samples::default());
    for n in 0..ORPHANS {
        let name = format!("orphan-{n}");
        tasks.push((stage.submit(task(stage.model.model(&name, scenario))).await?.0, name));
    }
    for (_, name) in &tasks {
        stage.model.requests(name, KILLED_AT + 1).await?;
    }
    // Not before: it would have taken them.
    let other = WorkerProcess::named("other", &site.below("other")?, &stage.served, slots).await?;
    let (first, stage) = stage.handed_to(other);
    let killed = Instant::now();
    kill(Pid::from_raw(first.pid()), Signal::SIGKILL).context("the worker cannot be killed")?;
    for (id, name) in &tasks {
        let marks = stage.model.requests_within(name, KILLED_AT + 2, lease * 2 + GRACE).await?;
        // While one was waited for the other went on.
        let again = marks.get(KILLED_AT + 1).context("no request")?;
        ensure!(again.turn == KILLED_AT, "turn {} was asked for again in place of {KILLED_AT}", again.turn);
        samples.push_ms(again.came.saturating_duration_since(killed));
        let record = stage.ended(*id).await?;
        ensure!(record.failures == 0 && record.runs == 1, "it is counted as a failure: {record:?}");
    }
    // The last of them: until then something of the worker's lies about.
    let last = samples.percentile(100).context("no sample")?;
    report.set("worker_killed_to_running_ms", last);
    report.set("worker_killed_lease_ms", lease_ms as f64);
    report.set("worker_killed_lease_ratio", last / lease_ms as f64);
    drop(first);
    stage.strike().await
}
