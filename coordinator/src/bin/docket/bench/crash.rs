//! How soon a run goes on after its process was killed with -9 in mid-turn: the supervisor notices,
//! gives the lease back and takes it again, another process folds, restores, and asks the model again.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    command::Effort,
    model_server::{Scenario, Tool},
    proc,
    report::Report,
    stats::Samples,
    turns::{Stage, task},
};

/// The request at which the run is killed: it has files by then, and a model at work.
const KILLED_AT: usize = 4;
/// Turns of the run.
const TURNS: usize = 6;

/// Measures.
pub(super) async fn measure(stage: &Stage, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
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
