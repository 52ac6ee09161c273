//! What a run left behind, as git objects; and blobs in both directions. [`deliver`] hands it over.

mod claim;
mod hook;
mod steps;

use bytes::Bytes;
use docket_schema::{
    content::{BlobRef, WorkPath},
    ids::RunId,
    run::{RunState, Stage},
};
use docket_worker::{
    client::Client,
    workspace::{BlobError, BlobSink, Blobs, ResultCommit, build_result, cached_base},
};

pub(crate) use claim::{Claims, deliver_now};
pub(crate) use steps::{Ask, Done, Undone, deliver, deliveries, say, source_of};

use crate::{
    context::Context,
    display,
    fail::{Exit, FailWith as _, Failure, Outcome},
    show,
};

/// Blobs wait here until they make an upload worth its round trip.
const UPLOAD_BYTES: u64 = 8 * 1024 * 1024;

/// A coordinator's blobs, read.
pub(crate) struct Remote<'a>(pub(crate) &'a Client);

impl Blobs for Remote<'_> {
    async fn get(&self, blob: &BlobRef) -> Result<Bytes, BlobError> {
        self.0.get_blob(blob).await.map_err(|error| match error.code() {
            Some(docket_schema::wire::ProblemCode::NotFound) => BlobError::Missing(blob.hash),
            Some(_) | None => BlobError::Unavailable(Box::new(error)),
        })
    }
}

/// A coordinator's blobs, written; [`Upload::flush`] sends the last of them.
pub(crate) struct Upload<'a> {
    client: &'a Client,
    waiting: Vec<(BlobRef, Bytes)>,
    bytes: u64,
}

impl<'a> Upload<'a> {
    /// An upload to this coordinator.
    pub(crate) const fn new(client: &'a Client) -> Self {
        Self { client, waiting: Vec::new(), bytes: 0 }
    }

    /// Sends what waits.
    pub(crate) async fn flush(&mut self) -> Result<(), BlobError> {
        self.bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        self.client.upload_all(waiting).await.map_err(|error| BlobError::Unavailable(Box::new(error)))
    }
}

impl BlobSink for Upload<'_> {
    async fn put(&mut self, blob: BlobRef, bytes: Vec<u8>) -> Result<(), BlobError> {
        self.bytes += blob.bytes;
        self.waiting.push((blob, bytes.into()));
        if self.bytes >= UPLOAD_BYTES { self.flush().await } else { Ok(()) }
    }
}

/// A run's tree as git objects.
pub(crate) async fn result_of(
    cx: &Context,
    client: &Client,
    run: RunId,
) -> Outcome<(ResultCommit, RunState)> {
    let state = show::fold(client, run).await?;
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
