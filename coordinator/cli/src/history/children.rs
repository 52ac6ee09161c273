//! What runs gave away, and what that gave away in turn: for commands that tell of a run and its children.

use docket_schema::{ids::RunId, wire::ChildView};
use docket_worker::client::Client;

use crate::output::fail::Outcome;

/// The children of these runs, in order.
pub(crate) async fn of(client: &Client, runs: &[RunId]) -> Outcome<Vec<ChildView>> {
    let mut all = Vec::new();
    for run in runs {
        all.extend(client.children(*run).await?.children);
    }
    Ok(all)
}

/// All that these runs gave away, each child followed by its own.
pub(crate) async fn below(client: &Client, runs: &[RunId]) -> Outcome<Vec<ChildView>> {
    let mut found = Vec::new();
    // Taken from the end.
    let mut next: Vec<ChildView> = of(client, runs).await?;
    next.reverse();
    while let Some(child) = next.pop() {
        let runs: Vec<RunId> = child.view.runs.iter().map(|run| run.id).collect();
        let mut own = of(client, &runs).await?;
        own.reverse();
        next.extend(own);
        found.push(child);
    }
    Ok(found)
}
