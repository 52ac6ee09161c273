//! A run's history, read as fast as it can be: what stands between the command and its first screen.

use docket_schema::{
    event::{DecodeError, Envelope},
    history::SkimmedEvent,
    ids::RunId,
};
use docket_worker::client::CoordinatorClient;

use super::run::Run;
use crate::{
    connect::resolve,
    history::lineage::HistorySource,
    output::error::{CliResult, ExitKind, FailWith as _},
};

/// The run that `id` names.
pub(super) async fn load_by_id(
    client: &CoordinatorClient,
    source: &HistorySource,
    id: &str,
) -> CliResult<Run> {
    load_run(source, resolve::resolve_run(client, id).await?).await
}

/// A run, by its id.
pub(super) async fn load_run(source: &HistorySource, id: RunId) -> CliResult<Run> {
    let unreadable = || format!("the log of run {} cannot be read", id.short());
    let mut run = Run::new(id);
    for page in source.map_pages(id, skim_events).await? {
        run.history.extend(page.fail_with(ExitKind::EngineMissing, unreadable)?);
    }
    Ok(run)
}

fn skim_events(events: Vec<Envelope>) -> Result<Vec<SkimmedEvent>, DecodeError> {
    events.into_iter().map(SkimmedEvent::parse).collect()
}
