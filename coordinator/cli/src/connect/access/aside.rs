//! An archived run, unpacked into a store of its own for one command.

use std::io::Write as _;

use docket_coordinator::{
    archive::unpack,
    clock::Clock,
    store::{Admin as _, Into, sqlite},
};
use docket_schema::{ids::StreamId, wire::ArchivedView};
use docket_worker::client::Client;

use super::Access;
use crate::{
    connect::local::{Listening, Local},
    context::Context,
    output::fail::{Exit, FailWith as _, Failure, Outcome},
};

/// Fetches the file that holds `stream`, proves it, and serves what is in it.
pub(super) async fn open(cx: &Context, client: &Client, stream: &StreamId) -> Outcome<Access> {
    let view = client.archived_one(stream).await?;
    let folder = cx.home.folder("scratch")?;
    let failed = || format!("cannot write in {}", folder.display());
    let scratch = tempfile::Builder::new().prefix("archived-").tempdir_in(&folder);
    let scratch = scratch.fail_with(Exit::Failed, failed)?;
    let file = fetch(client, &view, &folder).await?;
    let database = scratch.path().join("docket.db");
    let store = sqlite::open(&database).await.fail_as(Exit::Failed)?;
    let now = Clock::new().now();
    let unpacked = unpack(file.path(), view.file_hash, &store, String::new(), Into::Scratch, now).await;
    store.close().await;
    unpacked.fail_with(Exit::Verification, || format!("{} of {} does not hold", view.file, view.place))?;
    let mut aside = cx.clone();
    aside.config.store = Some(format!("sqlite:{}", database.display()));
    let local = Local::start(&aside, Listening::for_a_moment()).await?;
    let client = Client::new(local.address(), cx.home.token()?)?;
    Ok(Access { client, local: Some(local), lock: None, scratch: Some(scratch) })
}

/// The file that holds an archived stream, as it came.
pub(crate) async fn fetch(
    client: &Client,
    view: &ArchivedView,
    folder: &std::path::Path,
) -> Outcome<tempfile::NamedTempFile> {
    let failed = || format!("cannot write in {}", folder.display());
    let mut file = tempfile::NamedTempFile::new_in(folder).fail_with(Exit::Failed, failed)?;
    let mut offset = 0;
    while offset < view.file_bytes {
        let part = client.archive_part(&view.stream, offset).await?;
        if part.is_empty() {
            return Err(Failure::new(Exit::Verification, format!("{} of {} is cut", view.file, view.place)));
        }
        file.write_all(&part).fail_with(Exit::Failed, failed)?;
        offset += part.len() as u64;
    }
    file.flush().fail_with(Exit::Failed, failed)?;
    Ok(file)
}
