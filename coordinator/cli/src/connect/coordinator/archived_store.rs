//! An archived run, unpacked into a temporary store for one command.

use std::io::Write as _;

use docket_coordinator::{
    archive::unpack_file,
    clock::Clock,
    store::{RestoreDestination, StoreAdmin as _, sqlite},
};
use docket_schema::{api::ArchivedStreamView, ids::StreamId};
use docket_worker::client::CoordinatorClient;

use super::Coordinator;
use crate::{
    connect::local_coordinator::{ListenOptions, LocalCoordinator},
    context::CliContext,
    output::error::{CliError, CliResult, ExitKind, FailWith as _},
};

/// Downloads the file that contains `stream`, verifies it, and serves its contents.
pub(super) async fn serve_archived_run(
    cx: &CliContext,
    client: &CoordinatorClient,
    stream: &StreamId,
) -> CliResult<Coordinator> {
    let view = client.get_archived(stream).await?;
    let folder = cx.home.ensure_folder("scratch")?;
    let failed = || format!("cannot write to {}", folder.display());
    let scratch = tempfile::Builder::new().prefix("archived-").tempdir_in(&folder);
    let scratch = scratch.fail_with(ExitKind::Failed, failed)?;
    let file = download_archive_file(client, &view, &folder).await?;
    let database = scratch.path().join("docket.db");
    let store = sqlite::open(&database).await.fail_as(ExitKind::Failed)?;
    let now = Clock::new().now();
    let unpacked = unpack_file(
        file.path(),
        view.file_hash,
        &store,
        String::new(),
        RestoreDestination::ScratchStore,
        now,
    )
    .await;
    store.close().await;
    unpacked.fail_with(ExitKind::Verification, || {
        format!("{} of {} failed verification", view.file, view.place)
    })?;
    let mut aside = cx.clone();
    aside.config.store = Some(format!("sqlite:{}", database.display()));
    let local = LocalCoordinator::start(&aside, ListenOptions::ephemeral()).await?;
    let client = CoordinatorClient::new(local.address(), cx.home.load_or_create_token()?)?;
    Ok(Coordinator { client, local: Some(local), lock: None, scratch: Some(scratch) })
}

/// Downloads the archive file that contains a stream, unchanged.
pub(crate) async fn download_archive_file(
    client: &CoordinatorClient,
    view: &ArchivedStreamView,
    folder: &std::path::Path,
) -> CliResult<tempfile::NamedTempFile> {
    let failed = || format!("cannot write to {}", folder.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).fail_with(ExitKind::Failed, failed)?;
    let mut offset = 0;
    while offset < view.file_bytes {
        let part = client.read_archive_part(&view.stream, offset).await?;
        if part.is_empty() {
            return Err(CliError::new(
                ExitKind::Verification,
                format!("{} of {} is truncated", view.file, view.place),
            ));
        }
        file.write_all(&part).fail_with(ExitKind::Failed, failed)?;
        offset += part.len() as u64;
    }
    file.flush().fail_with(ExitKind::Failed, failed)?;
    Ok(file)
}
