//! The result of a run as git objects, and its delivery.

mod claim;
pub(crate) mod deliverer;
mod hook;
mod steps;

use crate::history::lineage;
use docket_schema::{
    content::WorkPath,
    ids::RunId,
    run::{RunState, Stage},
};
use docket_worker::{
    client::Client,
    workspace::{ResultCommit, build_result, cached_base},
};

pub(crate) use claim::{Claims, deliver_now};
pub(crate) use steps::{Ask, Done, Undone, deliver, deliveries, say, source_of};

use crate::{
    context::Context,
    history::blobs::Remote,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// A run's tree as git objects.
pub(crate) async fn result_of(
    cx: &Context,
    client: &Client,
    run: RunId,
) -> Outcome<(ResultCommit, RunState)> {
    let state = lineage::fold(client, run).await?;
    let Some(pins) = &state.pins else {
        let run = run.short();
        let message = match state.stage {
            Stage::Ended(_) => {
                format!(
                    "run {run} ended before it had begun, so it left nothing; `docket why {run}` says how its task goes on"
                )
            }
            Stage::Unstarted
            | Stage::Deciding
            | Stage::Model(_)
            | Stage::Tools
            | Stage::Gates
            | Stage::Paused
            | Stage::Blocked => format!("run {run} has not started yet; `docket follow {run}` waits for it"),
        };
        return Err(Failure::new(Exit::Refused, message));
    };
    let blobs = Remote(client);
    let base = cached_base(&pins.base, &blobs, &cx.home.folder("cache")?)
        .await
        .fail_with(Exit::Failed, || "the tree that the run started from cannot be read".to_owned())?;
    let scratch = cx.home.folder("scratch")?;
    let result = build_result(&base, &state.overlay, &blobs, &scratch).await.fail_as(Exit::Failed)?;
    note_skipped(run, result.skipped());
    Ok((result, state))
}

/// Names of paths that are told: enough to recognize what they are.
const SKIPPED_NAMED_MAX: usize = 5;

/// Says what a commit cannot hold of a run's tree, before it is missed.
fn note_skipped(run: RunId, skipped: &[WorkPath]) {
    if skipped.is_empty() {
        return;
    }
    let named =
        skipped.iter().take(SKIPPED_NAMED_MAX).map(|path| format!("`{}`", display::line(&path.to_string())));
    let named = named.collect::<Vec<_>>().join(", ");
    let more = match skipped.len().saturating_sub(SKIPPED_NAMED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    display::note(&format!(
        "not in the result of run {}: {named}{more}; `docket diff {}` says why",
        run.short(),
        run.short()
    ));
}
