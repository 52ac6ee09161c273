//! What `docket verify` says of streams that are archived: how many there are, and, where that is asked for,
//! that every file has just the streams, up to just the heads, whose stubs stand in the log's place. A file that is
//! not there, or cut, is a fault as one that was altered is; a place that does not answer is told once.

use std::collections::BTreeMap;

use docket_coordinator::archive::verify_file;
use docket_schema::{event::Head, ids::StreamId, wire::ArchivedView};
use docket_worker::client::Client;

use super::Report;
use crate::{
    connect::access::fetch_archived,
    context::Context,
    output::fail::{Chain, Exit, Failure, Outcome},
    progress::Progress,
};

/// Counts the stubs, and reads the files behind them if `files` says so.
pub(super) async fn check(cx: &Context, client: &Client, files: bool, report: &mut Report) -> Outcome<()> {
    let mut by_file: BTreeMap<(String, String), Vec<ArchivedView>> = BTreeMap::new();
    let mut after = None;
    while let Some(page) = report.read(client.archived(after.as_ref()).await)? {
        report.archived += page.archived.len();
        let last = page.archived.last().map(|view| view.stream.clone());
        for view in page.archived.into_iter().filter(|_| files) {
            by_file.entry((view.place.clone(), view.file.clone())).or_default().push(view);
        }
        match last {
            Some(last) if page.more => after = Some(last),
            Some(_) | None => break,
        }
    }
    let mut silent: BTreeMap<String, (usize, String)> = BTreeMap::new();
    let progress = Progress::of(cx, by_file.len() as u64, "archive files");
    for ((place, file), views) in by_file {
        progress.add(1);
        if let Some((count, _)) = silent.get_mut(&place) {
            *count += 1;
            continue;
        }
        match proven(cx, client, &views).await {
            Ok(None) => report.archive_files += 1,
            Ok(Some(what)) => report.fault(format!("{file} of {place}: {what}")),
            Err(failure) if failure.exit == Exit::Unreachable => {
                silent.insert(place, (1, failure.text(Chain::Hidden)));
            }
            Err(failure) => report.fault(format!("{file} of {place}: {}", failure.text(Chain::Shown))),
        }
    }
    let unread = silent.into_iter().map(|(place, (count, why))| format!("{count} files of {place}: {why}"));
    report.archives_unread.extend(unread);
    Ok(())
}

/// What is wrong with the file that holds all of `views`, if anything.
async fn proven(cx: &Context, client: &Client, views: &[ArchivedView]) -> Outcome<Option<String>> {
    let Some(first) = views.first() else { return Ok(None) };
    let file = fetch_archived(client, first, &cx.home.folder("scratch")?).await?;
    let family = verify_file(file.path(), first.file_hash).await;
    let family = family.map_err(|error| Failure { exit: Exit::Verification, error: error.into() })?;
    let has: BTreeMap<StreamId, Head> =
        family.header.streams.into_iter().map(|archived| (archived.stream, archived.head)).collect();
    let stubs: BTreeMap<StreamId, Head> = views.iter().map(|view| (view.stream.clone(), view.head)).collect();
    let of = |stream: &StreamId| (stubs.get(stream), has.get(stream));
    let differs = stubs.keys().chain(has.keys()).find(|stream| of(stream).0 != of(stream).1);
    Ok(differs.map(|stream| format!("{stream} is not what stands in its place here")))
}
