//! Fetches the long texts of a run: docket stores them as blobs, other formats inline them.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    blob_refs::{BlobRole, event_blobs},
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::BlobHash,
    run::RunEvent,
};
use docket_worker::client::CoordinatorClient;
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::output::error::{CliResult, ExitKind, FailWith as _};

/// Concurrent downloads.
const CONCURRENT_FETCHES: usize = 4;

/// A text, truncated if it is too long.
#[derive(Debug, Clone)]
pub(super) struct FetchedText {
    pub(super) text: String,
    pub(super) truncated: bool,
}

/// Texts by blob.
#[derive(Debug, Default)]
pub(super) struct FetchedTexts(BTreeMap<BlobHash, FetchedText>);

impl FetchedTexts {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn get(&self, hash: &BlobHash) -> Option<&FetchedText> {
        self.0.get(hash)
    }

    /// Returns a content as text.
    pub(super) fn content_text(&self, content: &Content) -> String {
        match content.blob_ref() {
            Some(blob) => self.blob_text(&blob),
            None => content.text_or_size(),
        }
    }

    /// Returns a blob as text.
    pub(super) fn blob_text(&self, blob: &BlobRef) -> String {
        self.0.get(&blob.hash).map(|text| text.text.clone()).unwrap_or_default()
    }
}

/// Fetches every text that an event refers to: prompts, replies, outputs; not files or parts of bases.
pub(super) async fn fetch_texts(
    client: &CoordinatorClient,
    all: &[Envelope],
    text_bytes: usize,
) -> CliResult<FetchedTexts> {
    let mut wanted = BTreeSet::new();
    for event in all {
        let unknown = || format!("event {} of {} cannot be read", event.seq, event.stream);
        let named = event_blobs(event).fail_with(ExitKind::EngineMissing, unknown)?;
        wanted.extend(named.iter().filter(|named| named.role == BlobRole::Required).map(|named| named.blob));
        // Parts of a base are not texts.
        if let Ok(RunEvent::RunStarted(started)) =
            RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            && let Some(git) = &started.base.git
        {
            for blob in git.pack.iter().chain([&git.pack_index, &git.index]) {
                wanted.remove(blob);
            }
        }
    }
    let fetched = wanted.into_iter().map(|blob| async move {
        let bytes = client.get_blob(&blob).await?;
        Ok::<_, docket_worker::client::ClientError>((blob.hash, truncate_text(&bytes, text_bytes)))
    });
    let texts =
        futures_util::stream::iter(fetched).buffer_unordered(CONCURRENT_FETCHES).try_collect().await?;
    Ok(FetchedTexts(texts))
}

fn truncate_text(bytes: &[u8], text_bytes: usize) -> FetchedText {
    let whole = String::from_utf8_lossy(bytes);
    let end = whole.floor_char_boundary(text_bytes);
    FetchedText { text: whole[..end].to_owned(), truncated: end < whole.len() }
}
