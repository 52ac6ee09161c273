//! Writes SWE-bench predictions: the patch of each solved instance, in the format of the harness.

use crate::connect::batch_lookup;
use std::{collections::BTreeSet, io::Write};

use docket_schema::{
    api::TaskQuery,
    task::{TaskRecord, TaskState},
};
use docket_worker::client::CoordinatorClient;

use crate::history::run_export::ExportStats;
use crate::{
    context::CliContext,
    delivery,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Tasks per page of the list.
const PAGE_TASKS: u32 = 100;

/// Which tasks to export, and under which model name.
#[derive(Debug)]
pub(super) struct PredictionQuery<'a> {
    pub(super) batch: Option<&'a str>,
    /// The model name in the predictions.
    pub(super) model_name: Option<&'a str>,
}

/// Returns the instance of a task: `docket import` uses the instance's ID as the title.
fn instance_id(task: &TaskRecord) -> Option<&str> {
    let title = task.spec.title.as_str();
    let key = task.spec.dedup_key.as_deref()?;
    let own = key == title || key.strip_suffix(title).is_some_and(|before| before.ends_with('/'));
    (own && title.contains("__")).then_some(title)
}

/// Writes a line for each instance with a completed task; the newest task wins.
pub(super) async fn write_predictions(
    cx: &CliContext,
    client: &CoordinatorClient,
    asked: &PredictionQuery<'_>,
    to: &mut impl Write,
) -> CliResult<ExportStats> {
    let mut query = TaskQuery {
        state: Some(TaskState::Completed.into()),
        batch: match asked.batch {
            Some(batch) => Some(batch_lookup::resolve_batch(client, batch).await?),
            None => None,
        },
        limit: Some(PAGE_TASKS),
        ..TaskQuery::default()
    };
    let (mut done, mut written) = (BTreeSet::<String>::new(), 0);
    let progress = ProgressDisplay::counter(cx, "patches");
    loop {
        let page = client.list_tasks(&query).await?;
        for task in &page.tasks {
            let (Some(instance), Some(run)) = (instance_id(task), task.last_run) else { continue };
            if !done.insert(instance.to_owned()) {
                continue;
            }
            progress.advance(1);
            let (result, _) = delivery::build_run_result(cx, client, run).await?;
            let patch = result.to_patch().await.fail_as(ExitKind::Failed)?;
            let Ok(patch) = String::from_utf8(patch) else {
                let message = format!(
                    "{instance}: skipped because its patch is not UTF-8 and cannot be written as JSON"
                );
                progress.print_note(&display::sanitize_line(&message));
                continue;
            };
            let model = asked.model_name.map_or_else(|| task.spec.model.to_string(), str::to_owned);
            let line = serde_json::json!({
                "instance_id": instance, "model_name_or_path": model, "model_patch": patch,
            });
            writeln!(to, "{line}").fail_as(ExitKind::Failed)?;
            written += 1;
        }
        match page.next {
            None => break,
            next => query.before = next,
        }
    }
    if done.is_empty() {
        return Err(CliError::new(
            ExitKind::NotFound,
            "no completed SWE-bench tasks; import instances with `docket import FILE --repos DIR`",
        ));
    }
    if written == 0 {
        return Err(CliError::new(
            ExitKind::Failed,
            "none of these tasks has a UTF-8 patch; nothing to write",
        ));
    }
    Ok(ExportStats { events: written, blobs: 0 })
}
