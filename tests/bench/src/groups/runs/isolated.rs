//! Tasks with a run process each and the scripted model: how soon the first event of a run is there, and
//! how many such tasks a worker finishes.

use anyhow::Context as _;
use docket_schema::{
    content::BlobRef,
    ids::{Seq, StreamId, TaskId},
    message::ModelRef,
    task::TaskSpec,
    wire::SubmitRequest,
};

use crate::{
    groups::runs::turns::Stage,
    harness::backlog,
    report::{Effort, Report, Samples},
};

/// What the scripted model says. It changes something: a run that changes nothing is asked whether that is all.
const SCRIPT: &str = r#"{"turns": [
    {"calls": [{"name": "create_file", "args": {"path": "note.txt", "content": "A note.\n"}}]},
    {"text": "The note is written."}
]}"#;
/// Slots for each processor: runs wait for disk and model more than they compute.
const SLOTS_PER_CPU: usize = 2;

/// Slots of the worker that is measured.
pub(crate) fn slots() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus * SLOTS_PER_CPU).unwrap_or(u32::MAX)
}

/// Measures.
pub(crate) async fn measure(stage: &Stage, effort: Effort, report: &mut Report) -> anyhow::Result<()> {
    let store = stage.running().handle().store();
    let script = backlog::put_blob(&store, &stage.clock, SCRIPT.as_bytes().to_vec()).await?;
    let mut first_events = Samples::default();
    for _ in 0..effort.lone_runs() {
        let (task, _) = stage.submit(scripted(script)).await?;
        let record = stage.ended(task).await?;
        let run = record.last_run.context("a completed task has a run")?;
        let events = store.read(StreamId::Run(run), Seq(0), 1).await?;
        let first = events.first().context("a completed run has events")?;
        first_events.push(first.recorded_at.0.saturating_sub(record.submitted_at.0) as f64 / 1000.0);
    }
    report.set_percentile("submit_to_run_ms_p50", &first_events, 50);
    report.set_percentile("submit_to_run_ms_p99", &first_events, 99);
    report.set("drain_isolated_tasks_per_s", drain(stage, script, effort.isolated_tasks()).await?);
    Ok(())
}

fn scripted(script: BlobRef) -> TaskSpec {
    let model = ModelRef { provider: "scripted".to_owned(), name: "bench".to_owned(), base_url: None };
    TaskSpec { script: Some(script), ..backlog::task(model) }
}

/// From the submit of `count` tasks to the end of the last one, by the log's own instants.
async fn drain(stage: &Stage, script: BlobRef, count: usize) -> anyhow::Result<f64> {
    let request = SubmitRequest { tasks: vec![scripted(script); count], ids: None };
    let answer = stage.client.submit(&request).await.context("the submit failed")?;
    let ids: Vec<TaskId> = answer.tasks.iter().map(|task| task.id).collect();
    let (mut from, mut to) = (i64::MAX, i64::MIN);
    for id in ids {
        let record = stage.ended(id).await?;
        from = from.min(record.submitted_at.0);
        to = to.max(record.ended_at.context("a completed task has an end")?.0);
    }
    Ok(count as f64 * 1e6 / (to - from).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use docket_worker::model::ScriptedModel;

    use super::SCRIPT;

    #[test]
    fn the_script_is_one() {
        ScriptedModel::parse(SCRIPT.as_bytes()).expect("a script");
    }
}
