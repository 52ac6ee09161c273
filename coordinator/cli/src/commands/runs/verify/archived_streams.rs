//! Verifies archived streams: counts them, and on request checks that every archive file has
//! exactly the streams, up to exactly the heads, of the stubs in the store. A missing or truncated
//! file is a fault like an altered one; an archive that does not respond is reported once.

use std::collections::BTreeMap;

use docket_coordinator::archive::verify_file;
use docket_schema::{api::ArchivedStreamView, event::Head, ids::StreamId};
use docket_worker::client::CoordinatorClient;

use super::VerifyReport;
use crate::{
    connect::coordinator::fetch_archived,
    context::CliContext,
    output::error::{CauseDisplay, CliError, CliResult, ExitKind},
    progress::ProgressDisplay,
};

/// Counts the stubs, and reads their files if `files` is set.
pub(super) async fn check_archived(
    cx: &CliContext,
    client: &CoordinatorClient,
    files: bool,
    report: &mut VerifyReport,
) -> CliResult<()> {
    let mut by_file: BTreeMap<(String, String), Vec<ArchivedStreamView>> = BTreeMap::new();
    let mut after = None;
    while let Some(page) = report.read_or_fault(client.list_archived_streams(after.as_ref()).await)? {
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
    let progress = ProgressDisplay::bar(cx, by_file.len() as u64, "archive files");
    for ((place, file), views) in by_file {
        progress.advance(1);
        if let Some((count, _)) = silent.get_mut(&place) {
            *count += 1;
            continue;
        }
        match check_archive_file(cx, client, &views).await {
            Ok(None) => report.archive_files += 1,
            Ok(Some(what)) => report.add_fault(format!("{file} of {place}: {what}")),
            Err(failure) if failure.exit == ExitKind::Unreachable => {
                silent.insert(place, (1, failure.format_message(CauseDisplay::Hidden)));
            }
            Err(failure) => report
                .add_fault(format!("{file} of {place}: {}", failure.format_message(CauseDisplay::Shown))),
        }
    }
    let unread = silent.into_iter().map(|(place, (count, why))| format!("{count} files of {place}: {why}"));
    report.archives_unread.extend(unread);
    Ok(())
}

/// Returns the problem with the file of all `views`, if there is one.
async fn check_archive_file(
    cx: &CliContext,
    client: &CoordinatorClient,
    views: &[ArchivedStreamView],
) -> CliResult<Option<String>> {
    let Some(first) = views.first() else { return Ok(None) };
    let file = fetch_archived(client, first, &cx.home.ensure_folder("scratch")?).await?;
    let family = verify_file(file.path(), first.file_hash).await;
    let family = family.map_err(|error| CliError { exit: ExitKind::Verification, error: error.into() })?;
    let has: BTreeMap<StreamId, Head> =
        family.header.streams.into_iter().map(|archived| (archived.stream, archived.head)).collect();
    let stubs: BTreeMap<StreamId, Head> = views.iter().map(|view| (view.stream.clone(), view.head)).collect();
    let of = |stream: &StreamId| (stubs.get(stream), has.get(stream));
    let differs = stubs.keys().chain(has.keys()).find(|stream| of(stream).0 != of(stream).1);
    Ok(differs.map(|stream| format!("{stream} does not match the stub in the store")))
}
