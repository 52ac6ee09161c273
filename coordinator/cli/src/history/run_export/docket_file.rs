//! docket's own format: reads a run with its lineage from a coordinator and verifies it.

use std::{collections::BTreeSet, io::Write};

use docket_schema::{
    blob_refs::BlobRefs,
    content::BlobRef,
    event::Envelope,
    export::{ExportWriter, LineageValidator as Checked},
    ids::{RunId, Seq, StreamId, TaskId},
    snapshot::Manifest,
};
use docket_worker::client::{CoordinatorClient, HistoryScope};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::ExportStats;
use crate::{
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
    progress::ProgressDisplay,
};

/// Concurrent blob downloads.
const CONCURRENT_FETCHES: usize = 4;

/// Maximum length of a lineage, as in the coordinator.
const PARENTS_MAX: usize = 100;

/// Writes the file.
pub(super) async fn write_docket_file(
    client: &CoordinatorClient,
    run: RunId,
    progress: &ProgressDisplay,
    to: &mut impl Write,
) -> CliResult<ExportStats> {
    progress.set_message("the events are read");
    let view = client.get_run(run).await?;
    let mut tasks = vec![view.task];
    let mut parent = view.parent;
    while let Some(of) = parent.take().filter(|_| tasks.len() <= PARENTS_MAX) {
        let view = client.get_run(of.run).await?;
        tasks.push(view.task);
        parent = view.parent;
    }
    // Tasks first: a run that ends in the meantime must be ended in its own stream too, not only in its task's.
    let mut events = Vec::new();
    let mut seen = BTreeSet::new();
    for task in tasks.into_iter().rev().filter(|task| seen.insert(*task)) {
        events.extend(task_events(client, task).await?);
    }
    events.extend(client.all_events(run, HistoryScope::WithAncestors).await?);
    if !events.iter().any(|event| event.stream == StreamId::Run(run)) {
        let message =
            format!("run {} has no events yet; `docket follow {}` waits for them", run.short(), run.short());
        return Err(CliError::new(ExitKind::Refused, message));
    }

    let mut checked = Checked::default();
    let mut needs = BlobRefs::default();
    let (mut writer, line) =
        ExportWriter::begin_export(run, view.task, concat!("docket ", env!("CARGO_PKG_VERSION")));
    write_line(to, &line)?;
    for event in &events {
        checked.push(event).fail_with(ExitKind::Verification, damaged_message)?;
        needs.add_event(event).fail_with(ExitKind::EngineMissing, damaged_message)?;
        write_line(to, &writer.encode_event(event))?;
    }
    checked.resolve_runs(run).fail_with(ExitKind::Verification, damaged_message)?;
    let blobs = collect_blobs(client, &mut needs).await?;
    let count = blobs.len() as u64;
    progress.set_total(count);
    progress.set_message(format!("{} events", events.len()));
    let fetched = blobs.into_iter().map(|blob| async move { client.get_blob(&blob).await });
    let mut fetched = futures_util::stream::iter(fetched).buffered(CONCURRENT_FETCHES);
    while let Some(bytes) = fetched.try_next().await? {
        write_line(to, &writer.encode_blob(&bytes))?;
        progress.advance(1);
    }
    write_line(to, &writer.finish())?;
    Ok(ExportStats { events: events.len() as u64, blobs: count })
}

fn damaged_message() -> String {
    "the run's log on the coordinator failed verification; `docket verify` shows details".to_owned()
}

fn write_line(to: &mut impl Write, line: &str) -> CliResult<()> {
    to.write_all(line.as_bytes()).fail_with(ExitKind::Failed, || "cannot write the file".to_owned())
}

async fn task_events(client: &CoordinatorClient, task: TaskId) -> CliResult<Vec<Envelope>> {
    let (mut events, mut after): (Vec<Envelope>, _) = (Vec::new(), Seq(0));
    loop {
        let page = client.list_stream_events(&StreamId::Task(task), after, None).await?;
        let more = page.more;
        events.extend(page.events);
        match events.last().map(|event| event.seq) {
            Some(last) if more && last > after => after = last,
            Some(_) | None => return Ok(events),
        }
    }
}

/// Fetches every referenced blob that is stored, ordered by hash; fails if a required one is missing.
async fn collect_blobs(client: &CoordinatorClient, needs: &mut BlobRefs) -> CliResult<Vec<BlobRef>> {
    let manifests: Vec<BlobRef> =
        needs.all().filter(|(_, need)| need.manifest.is_some()).map(|(blob, _)| blob).collect();
    for blob in manifests {
        let bytes = client.get_blob(&blob).await?;
        needs.add_manifest(
            blob.hash,
            &Manifest::decode(&bytes).fail_with(ExitKind::Verification, damaged_message)?,
        );
    }
    let hashes: Vec<_> = needs.all().map(|(blob, _)| blob.hash).collect();
    let missing: BTreeSet<_> = client.missing_blobs(&hashes).await?.into_iter().collect();
    if let Some((blob, need)) = needs.required().find(|(blob, _)| missing.contains(&blob.hash)) {
        let message = format!(
            "blob {} is missing; event {} of {} references it; nothing was exported",
            blob.hash, need.seq, need.stream
        );
        return Err(CliError::new(ExitKind::Verification, message));
    }
    Ok(needs.all().map(|(blob, _)| blob).filter(|blob| !missing.contains(&blob.hash)).collect())
}
