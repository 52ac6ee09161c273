//! Predictions as SWE-bench's harness reads them: for each instance that was solved, its patch.

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

/// Tasks of a page of the list.
const PAGE_TASKS: u32 = 100;

/// Which, and under which name.
#[derive(Debug)]
pub(super) struct PredictionQuery<'a> {
    pub(super) batch: Option<&'a str>,
    /// What the harness calls the model.
    pub(super) model_name: Option<&'a str>,
}

/// The instance that a task is of: `docket import` gives it the instance's id as its title.
fn instance_id(task: &TaskRecord) -> Option<&str> {
    let title = task.spec.title.as_str();
    let key = task.spec.dedup_key.as_deref()?;
    let own = key == title || key.strip_suffix(title).is_some_and(|before| before.ends_with('/'));
    (own && title.contains("__")).then_some(title)
}

/// Writes a line for each completed task of an instance; of several the newest.
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
                    "{instance}: its patch is not UTF-8, and JSON holds nothing else; it is left out"
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
            "no completed task is an instance of SWE-bench; `docket import FILE --repos DIR` makes them",
        ));
    }
    if written == 0 {
        return Err(CliError::new(
            ExitKind::Failed,
            "no patch of these tasks is UTF-8: there is nothing to write",
        ));
    }
    Ok(ExportStats { events: written, blobs: 0 })
}
