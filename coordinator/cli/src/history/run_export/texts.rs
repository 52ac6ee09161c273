//! The long texts of a run, fetched: what the formats of others have in place and docket out of line.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::{BlobRef, Content},
    event::{Envelope, TypedEvent as _},
    ids::BlobHash,
    names::{NamedAs, blobs_named},
    run::RunEvent,
};
use docket_worker::client::Client;
use futures_util::{StreamExt as _, TryStreamExt as _};

use crate::output::fail::{Exit, FailWith as _, Outcome};

/// Texts fetched at once.
const FETCHES: usize = 4;

/// A text, cut where it is too long.
#[derive(Debug, Clone)]
pub(super) struct Text {
    pub(super) text: String,
    pub(super) cut: bool,
}

/// Texts by their blobs.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeMap<BlobHash, Text>);

impl Texts {
    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// One of them.
    pub(super) fn get(&self, hash: &BlobHash) -> Option<&Text> {
        self.0.get(hash)
    }

    /// A content as text.
    pub(super) fn of(&self, content: &Content) -> String {
        match content.blob() {
            Some(blob) => self.of_blob(&blob),
            None => content.text_or_size(),
        }
    }

    /// A blob as text.
    pub(super) fn of_blob(&self, blob: &BlobRef) -> String {
        self.0.get(&blob.hash).map(|text| text.text.clone()).unwrap_or_default()
    }
}

/// Fetches every text that an event names: prompts, answers, outputs; no files and no parts of bases.
pub(super) async fn read(client: &Client, all: &[Envelope], text_bytes: usize) -> Outcome<Texts> {
    let mut wanted = BTreeSet::new();
    for event in all {
        let unknown = || format!("event {} of {} cannot be read", event.seq, event.stream);
        let named = blobs_named(event).fail_with(Exit::EngineMissing, unknown)?;
        wanted.extend(named.iter().filter(|named| named.named_as == NamedAs::Part).map(|named| named.blob));
        // What makes up a base is no text.
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
        Ok::<_, docket_worker::client::ClientError>((blob.hash, cut(&bytes, text_bytes)))
    });
    let texts = futures_util::stream::iter(fetched).buffer_unordered(FETCHES).try_collect().await?;
    Ok(Texts(texts))
}

fn cut(bytes: &[u8], text_bytes: usize) -> Text {
    let whole = String::from_utf8_lossy(bytes);
    let end = whole.floor_char_boundary(text_bytes);
    Text { text: whole[..end].to_owned(), cut: end < whole.len() }
}
