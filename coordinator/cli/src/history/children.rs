//! Child tasks of runs and their descendants, for commands that show a run with its children.

use docket_schema::{api::ChildView, ids::RunId};
use docket_worker::client::CoordinatorClient;

use crate::output::error::CliResult;

/// Returns the children of these runs, in order.
pub(crate) async fn list_children(client: &CoordinatorClient, runs: &[RunId]) -> CliResult<Vec<ChildView>> {
    let mut all = Vec::new();
    for run in runs {
        all.extend(client.list_children(*run).await?.children);
    }
    Ok(all)
}

/// Returns all descendants of these runs, each child followed by its own children.
pub(crate) async fn list_descendants(
    client: &CoordinatorClient,
    runs: &[RunId],
) -> CliResult<Vec<ChildView>> {
    let mut found = Vec::new();
    // The stack is popped from the end.
    let mut next: Vec<ChildView> = list_children(client, runs).await?;
    next.reverse();
    while let Some(child) = next.pop() {
        let runs: Vec<RunId> = child.view.runs.iter().map(|run| run.id).collect();
        let mut own = list_children(client, &runs).await?;
        own.reverse();
        next.extend(own);
        found.push(child);
    }
    Ok(found)
}
