//! Loads a run's history quickly: this is all that precedes the first screen.

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

/// Loads the run that `id` names.
pub(super) async fn load_by_id(
    client: &CoordinatorClient,
    source: &HistorySource,
    id: &str,
) -> CliResult<Run> {
    load_run(source, resolve::resolve_run(client, id).await?).await
}

/// Loads a run.
pub(super) async fn load_run(source: &HistorySource, id: RunId) -> CliResult<Run> {
    let unreadable = || format!("cannot read the log of run {}", id.short());
    let mut run = Run::new(id);
    for page in source.map_pages(id, skim_events).await? {
        run.history.extend(page.fail_with(ExitKind::EngineMissing, unreadable)?);
    }
    Ok(run)
}

fn skim_events(events: Vec<Envelope>) -> Result<Vec<SkimmedEvent>, DecodeError> {
    events.into_iter().map(SkimmedEvent::parse).collect()
}
