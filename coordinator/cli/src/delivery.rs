//! Builds the result of a run as git objects and delivers it.

mod claim;
pub(crate) mod deliverer;
mod delivery_attempt;
mod hook;

use crate::history::lineage;
use docket_schema::{
    content::WorkspacePath,
    ids::RunId,
    run::{RunStage, RunState},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{ResultCommit, build_result, ensure_cached_base},
};

pub(crate) use claim::{DeliveryClaimant, deliver_or_wait};
pub(crate) use delivery_attempt::{
    DeliveryFailure, DeliveryReport, DeliveryRequest, deliver, fetch_deliveries, local_source_folder,
    print_delivery,
};

use crate::{
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Builds a run's tree as git objects.
pub(crate) async fn build_run_result(
    cx: &CliContext,
    client: &CoordinatorClient,
    run: RunId,
) -> CliResult<(ResultCommit, RunState)> {
    let state = lineage::fold_run(client, run).await?;
    let Some(pins) = &state.pins else {
        let run = run.short();
        let message = match state.stage {
            RunStage::Ended(_) => {
                format!(
                    "run {run} ended before it started, so it has no result; `docket why {run}` shows what happens to its task next"
                )
            }
            RunStage::Unstarted
            | RunStage::Deciding
            | RunStage::Model(_)
            | RunStage::Tools
            | RunStage::Gates
            | RunStage::Paused
            | RunStage::Blocked => {
                format!("run {run} has not started yet; `docket follow {run}` waits for it")
            }
        };
        return Err(CliError::new(ExitKind::Refused, message));
    };
    let blobs = RemoteBlobs(client);
    let base = ensure_cached_base(&pins.base, &blobs, &cx.home.ensure_folder("cache")?)
        .await
        .fail_with(ExitKind::Failed, || "cannot read the tree that the run started from".to_owned())?;
    let scratch = cx.home.ensure_folder("scratch")?;
    let result = build_result(&base, &state.overlay, &blobs, &scratch).await.fail_as(ExitKind::Failed)?;
    note_skipped(run, result.skipped_paths());
    Ok((result, state))
}

/// Maximum number of skipped paths that are named.
const SKIPPED_NAMED_MAX: usize = 5;

/// Warns about paths of a run's tree that a commit cannot contain.
fn note_skipped(run: RunId, skipped: &[WorkspacePath]) {
    if skipped.is_empty() {
        return;
    }
    let named = skipped
        .iter()
        .take(SKIPPED_NAMED_MAX)
        .map(|path| format!("`{}`", display::sanitize_line(&path.to_string())));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match skipped.len().saturating_sub(SKIPPED_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    display::print_note(&format!(
        "not in the result of run {}: {named}{more}; `docket diff {}` shows why",
        run.short(),
        run.short()
    ));
}
