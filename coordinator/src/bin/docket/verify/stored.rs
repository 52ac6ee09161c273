//! What `docket verify` asks of the store beside the chain of its events: that each stream ends where its
//! head says, that every blob is what its name says, and that what a run names is there.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::BlobRef,
    event::{Envelope, Head, follow},
    ids::{BlobHash, RunId, StreamId},
    names::{Named, NamedAs, blobs_named, contents_of},
    snapshot::Manifest,
};
use docket_worker::client::Client;

use super::{Blobs, Report};
use crate::fail::Outcome;

/// Follows each stream from where the feed left it to its end, which must be its head: a cut tail shows
/// here, and so does a stream that the feed could not be read as far as.
pub(super) async fn check_heads(
    client: &Client,
    heads: &mut BTreeMap<StreamId, Head>,
    broken: &BTreeSet<StreamId>,
    report: &mut Report,
) -> Outcome<()> {
    let mut after = None;
    loop {
        let Some(page) = report.read(client.streams(after.as_ref()).await)? else { return Ok(()) };
        for listed in &page.streams {
            let seen = heads.get(&listed.stream).copied();
            if broken.contains(&listed.stream) || seen == Some(listed.head) {
                continue;
            }
            if let Some(head) = catch_up(client, &listed.stream, seen, report).await? {
                // It may have gone on since it was listed; what the feed held before that may not.
                let later = head.seq > listed.head.seq && seen.is_none_or(|seen| seen.seq <= listed.head.seq);
                if head != listed.head && !later {
                    report.fault(wrong_head(&listed.stream, head, listed.head));
                }
                heads.insert(listed.stream.clone(), head);
            }
        }
        match page.streams.last() {
            Some(last) if page.more => after = Some(last.stream.clone()),
            Some(_) | None => return Ok(()),
        }
    }
}

fn wrong_head(stream: &StreamId, is: Head, says: Head) -> String {
    if is.seq == says.seq {
        format!("{stream}: event {} is not the one that its head names", is.seq)
    } else {
        format!("{stream}: its events end at {}, its head says {}", is.seq, says.seq)
    }
}

/// The stream's end as its events say; `None` where they do not follow, which is told.
async fn catch_up(
    client: &Client,
    stream: &StreamId,
    seen: Option<Head>,
    report: &mut Report,
) -> Outcome<Option<Head>> {
    let mut head = seen;
    loop {
        let after = head.unwrap_or(Head::EMPTY).seq;
        let Some(page) = report.read(client.stream_events(stream, after, None).await)? else {
            return Ok(None);
        };
        for event in &page.events {
            report.events += 1;
            match follow(head.unwrap_or_else(|| super::start_of(event)), event) {
                Ok(next) => head = Some(next),
                Err(error) => {
                    report.fault(error.to_string());
                    return Ok(None);
                }
            }
        }
        if !page.more || page.events.is_empty() {
            return Ok(Some(head.unwrap_or(Head::EMPTY)));
        }
    }
}

/// Has every stored blob hashed again.
pub(super) async fn check_blobs(client: &Client, report: &mut Report) -> Outcome<()> {
    let mut after = None;
    loop {
        let Some(part) = report.read(client.check_blobs(after).await)? else { return Ok(()) };
        report.blobs_checked += part.checked;
        for hash in part.damaged {
            report.fault(format!("blob {hash} was altered (its bytes do not have its hash)"));
        }
        match part.next {
            Some(next) if after != Some(next) => after = Some(next),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Asks for every blob that a run's events name, directly or through its base's manifest.
pub(super) async fn check_named(
    client: &Client,
    run: RunId,
    events: &[Envelope],
    blobs: Blobs,
    report: &mut Report,
) -> Outcome<()> {
    let (mut parts, mut contents, mut packed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    // Events that only a newer build knows were told before; what they name cannot be.
    for Named { blob, named_as } in events.iter().flat_map(|event| blobs_named(event).unwrap_or_default()) {
        match named_as {
            NamedAs::Content => contents.insert(blob.hash, blob),
            NamedAs::Part | NamedAs::Manifest { .. } if parts.contains_key(&blob.hash) => None,
            NamedAs::Part => parts.insert(blob.hash, blob),
            NamedAs::Manifest { packed: has_pack } => {
                parts.insert(blob.hash, blob);
                let manifest = match client.get_blob(&blob).await {
                    Ok(bytes) => Manifest::decode(&bytes).unwrap_or_default(),
                    Err(_) => Manifest::default(),
                };
                let within = contents_of(&manifest).map(|blob| (blob.hash, blob));
                if has_pack {
                    packed.extend(within.map(|(hash, _)| hash));
                } else {
                    parts.extend(within);
                }
                None
            }
        };
    }
    // What the base's pack holds needs no blob.
    parts.extend(contents.into_iter().filter(|(hash, _)| !packed.contains(hash)));
    let named: Vec<BlobRef> = parts.into_values().collect();
    report.blobs += named.len();
    let hashes: Vec<BlobHash> = named.iter().map(|blob| blob.hash).collect();
    let missing: BTreeSet<BlobHash> = client.missing_blobs(&hashes).await?.into_iter().collect();
    for hash in &missing {
        report.fault(format!("run {run}: blob {hash} is not stored"));
    }
    if blobs == Blobs::OfTheRun {
        for blob in named.iter().filter(|blob| !missing.contains(&blob.hash)) {
            report.blobs_checked += 1;
            // The coordinator hashes what it sends, and the client what it gets.
            report.read(client.get_blob(blob).await)?;
        }
    }
    Ok(())
}
