//! Tasks with a run process each and the scripted model: the time until a run's first event, and the
//! number of such tasks that a worker finishes.

use anyhow::Context as _;
use docket_schema::{
    api::SubmitRequest,
    content::BlobRef,
    ids::{Seq, StreamId, TaskId},
    message::ModelRef,
    task::TaskSpec,
};

use crate::{
    groups::runs::turns::RunBench,
    harness::backlog,
    report::{BenchReport, EffortLevel, Samples},
};

/// Script of the model. It changes a file, because a run without changes gets a confirmation question.
const MODEL_SCRIPT: &str = r#"{"turns": [
    {"calls": [{"name": "create_file", "args": {"path": "note.txt", "content": "A note.\n"}}]},
    {"text": "The note is written."}
]}"#;
/// Slots per processor: runs wait for disk and model more than they compute.
const SLOTS_PER_CPU: usize = 2;

/// Returns the number of slots of the measured worker.
pub(crate) fn worker_slots() -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    u32::try_from(cpus * SLOTS_PER_CPU).unwrap_or(u32::MAX)
}

pub(crate) async fn measure(
    stage: &RunBench,
    effort: EffortLevel,
    report: &mut BenchReport,
) -> anyhow::Result<()> {
    let store = stage.running_coordinator().handle().store();
    let script = backlog::put_blob(&store, &stage.clock, MODEL_SCRIPT.as_bytes().to_vec()).await?;
    let mut first_events = Samples::default();
    for _ in 0..effort.lone_runs() {
        let (task, _) = stage.submit(scripted_task(script)).await?;
        let record = stage.wait_until_completed(task).await?;
        let run = record.last_run.context("a completed task has a run")?;
        let events = store.read_events(StreamId::Run(run), Seq(0), 1).await?;
        let first = events.first().context("a completed run has events")?;
        first_events.push(first.recorded_at.0.saturating_sub(record.submitted_at.0) as f64 / 1000.0);
    }
    report.set_percentile("submit_to_run_ms_p50", &first_events, 50);
    report.set_percentile("submit_to_run_ms_p99", &first_events, 99);
    report.set("drain_isolated_tasks_per_s", time_drain(stage, script, effort.isolated_tasks()).await?);
    Ok(())
}

fn scripted_task(script: BlobRef) -> TaskSpec {
    let model = ModelRef { provider: "scripted".to_owned(), name: "bench".to_owned(), base_url: None };
    TaskSpec { script: Some(script), ..backlog::idle_task(model) }
}

/// Measures from the submit of `count` tasks to the end of the last one, by the log's own
/// timestamps.
async fn time_drain(stage: &RunBench, script: BlobRef, count: usize) -> anyhow::Result<f64> {
    let request = SubmitRequest { tasks: vec![scripted_task(script); count], ids: None };
    let answer = stage.client.submit(&request).await.context("the submit failed")?;
    let ids: Vec<TaskId> = answer.tasks.iter().map(|task| task.id).collect();
    let (mut from, mut to) = (i64::MAX, i64::MIN);
    for id in ids {
        let record = stage.wait_until_completed(id).await?;
        from = from.min(record.submitted_at.0);
        to = to.max(record.ended_at.context("a completed task has an end")?.0);
    }
    Ok(count as f64 * 1e6 / (to - from).max(1) as f64)
}

#[cfg(test)]
mod tests {
    use docket_worker::model::ScriptedModel;

    use super::MODEL_SCRIPT;

    #[test]
    fn script_is_valid() {
        ScriptedModel::parse(MODEL_SCRIPT.as_bytes()).expect("a script");
    }
}
