//! A run's history, read as fast as it can be: what stands between the command and its first screen.

use docket_schema::{
    event::{DecodeError, Envelope},
    history::SkimmedEvent,
    ids::RunId,
};
use docket_worker::client::Client;

use super::run::Run;
use crate::{
    connect::resolve,
    history::lineage::Source,
    output::fail::{Exit, FailWith as _, Outcome},
};

/// The run that `id` names.
pub(super) async fn named(client: &Client, source: &Source, id: &str) -> Outcome<Run> {
    run(source, resolve::run(client, id).await?).await
}

/// A run, by its id.
pub(super) async fn run(source: &Source, id: RunId) -> Outcome<Run> {
    let unreadable = || format!("the log of run {} cannot be read", id.short());
    let mut run = Run::new(id);
    for page in source.pages(id, read).await? {
        run.history.extend(page.fail_with(Exit::EngineMissing, unreadable)?);
    }
    Ok(run)
}

fn read(events: Vec<Envelope>) -> Result<Vec<SkimmedEvent>, DecodeError> {
    events.into_iter().map(SkimmedEvent::read).collect()
}
