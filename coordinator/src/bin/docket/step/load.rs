//! A run's history, read as fast as it can be: what stands between the command and its first screen.

use docket_schema::ids::RunId;
use docket_worker::client::{Client, Lineage};

use super::skeleton::Run;
use crate::{
    fail::{Exit, FailWith as _, Outcome},
    resolve,
};

/// The run that `id` names.
pub(super) async fn named(client: &Client, id: &str) -> Outcome<Run> {
    run(client, resolve::run(client, id).await?).await
}

/// A run, by its id.
pub(super) async fn run(client: &Client, id: RunId) -> Outcome<Run> {
    let events = client.all_events(id, Lineage::Whole).await?;
    let mut run = Run::new(id);
    run.extend(events)
        .fail_with(Exit::EngineMissing, || format!("the log of run {} cannot be read", id.short()))?;
    Ok(run)
}
