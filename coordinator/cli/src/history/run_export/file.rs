//! docket's own format: reads a run with its lineage from a coordinator, and checks it on the way.

use std::{collections::BTreeSet, io::Write};

use docket_schema::{
    content::BlobRef,
    event::Envelope,
    export::{Lineage as Checked, Writer},
    ids::{RunId, Seq, StreamId, TaskId},
    names::Needs,
    snapshot::Manifest,
};
use docket_worker::client::{Client, Lineage};
use futures_util::{StreamExt as _, TryStreamExt as _};

use super::Written;
use crate::{
    output::fail::{Exit, FailWith as _, Failure, Outcome},
    progress::Progress,
};

/// Blobs fetched at once.
const FETCHES: usize = 4;

/// Runs that may stand on each other: as many as a coordinator answers in one lineage.
const PARENTS_MAX: usize = 100;

/// Writes the file.
pub(super) async fn write(
    client: &Client,
    run: RunId,
    progress: &Progress,
    to: &mut impl Write,
) -> Outcome<Written> {
    progress.say("the events are read");
    let view = client.run(run).await?;
    let mut tasks = vec![view.task];
    let mut parent = view.parent;
    while let Some(of) = parent.take().filter(|_| tasks.len() <= PARENTS_MAX) {
        let view = client.run(of.run).await?;
        tasks.push(view.task);
        parent = view.parent;
    }
    // Tasks first: a run that ends meanwhile has ended in its own stream too, and not only in its task's.
    let mut events = Vec::new();
    let mut seen = BTreeSet::new();
    for task in tasks.into_iter().rev().filter(|task| seen.insert(*task)) {
        events.extend(task_events(client, task).await?);
    }
    events.extend(client.all_events(run, Lineage::Whole).await?);
    if !events.iter().any(|event| event.stream == StreamId::Run(run)) {
        let message =
            format!("run {} has no events yet; `docket follow {}` waits for them", run.short(), run.short());
        return Err(Failure::new(Exit::Refused, message));
    }

    let mut checked = Checked::default();
    let mut needs = Needs::default();
    let (mut writer, line) = Writer::begin(run, view.task, concat!("docket ", env!("CARGO_PKG_VERSION")));
    put(to, &line)?;
    for event in &events {
        checked.push(event).fail_with(Exit::Verification, damaged)?;
        needs.event(event).fail_with(Exit::EngineMissing, damaged)?;
        put(to, &writer.event(event))?;
    }
    checked.runs(run).fail_with(Exit::Verification, damaged)?;
    let blobs = wanted(client, &mut needs).await?;
    let count = blobs.len() as u64;
    progress.total(count);
    progress.say(format!("{} events", events.len()));
    let fetched = blobs.into_iter().map(|blob| async move { client.get_blob(&blob).await });
    let mut fetched = futures_util::stream::iter(fetched).buffered(FETCHES);
    while let Some(bytes) = fetched.try_next().await? {
        put(to, &writer.blob(&bytes))?;
        progress.add(1);
    }
    put(to, &writer.end())?;
    Ok(Written { events: events.len() as u64, blobs: count })
}

fn damaged() -> String {
    "what the coordinator has of the run does not hold; `docket verify` says more".to_owned()
}

fn put(to: &mut impl Write, line: &str) -> Outcome<()> {
    to.write_all(line.as_bytes()).fail_with(Exit::Failed, || "the file cannot be written".to_owned())
}

async fn task_events(client: &Client, task: TaskId) -> Outcome<Vec<Envelope>> {
    let (mut events, mut after): (Vec<Envelope>, _) = (Vec::new(), Seq(0));
    loop {
        let page = client.stream_events(&StreamId::Task(task), after, None).await?;
        let more = page.more;
        events.extend(page.events);
        match events.last().map(|event| event.seq) {
            Some(last) if more && last > after => after = last,
            Some(_) | None => return Ok(events),
        }
    }
}

/// Every blob that is named and stored, in order of the hashes; an error where one is needed and gone.
async fn wanted(client: &Client, needs: &mut Needs) -> Outcome<Vec<BlobRef>> {
    let manifests: Vec<BlobRef> =
        needs.all().filter(|(_, need)| need.manifest.is_some()).map(|(blob, _)| blob).collect();
    for blob in manifests {
        let bytes = client.get_blob(&blob).await?;
        needs.manifest(blob.hash, &Manifest::decode(&bytes).fail_with(Exit::Verification, damaged)?);
    }
    let hashes: Vec<_> = needs.all().map(|(blob, _)| blob.hash).collect();
    let missing: BTreeSet<_> = client.missing_blobs(&hashes).await?.into_iter().collect();
    if let Some((blob, need)) = needs.required().find(|(blob, _)| missing.contains(&blob.hash)) {
        let message = format!(
            "blob {} is not stored, which event {} of {} names; nothing was exported",
            blob.hash, need.seq, need.stream
        );
        return Err(Failure::new(Exit::Verification, message));
    }
    Ok(needs.all().map(|(blob, _)| blob).filter(|blob| !missing.contains(&blob.hash)).collect())
}
