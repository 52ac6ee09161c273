//! What `docket verify` asks of the store beside its streams: that every blob is what its name says, and
//! that what a run names is there.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::BlobRef,
    event::Envelope,
    ids::{BlobHash, RunId},
    names::{Named, NamedAs, blobs_named, contents_of},
    snapshot::Manifest,
};
use docket_worker::client::Client;

use super::{Blobs, Report};
use crate::{context::Context, output::fail::Outcome, progress::Progress};

/// Has every stored blob hashed again.
pub(super) async fn check_blobs(cx: &Context, client: &Client, report: &mut Report) -> Outcome<()> {
    let progress = Progress::counting(cx, "blobs");
    let mut after = None;
    loop {
        let Some(part) = report.read(client.check_blobs(after).await)? else { return Ok(()) };
        report.blobs_checked += part.checked;
        progress.at(report.blobs_checked);
        part.storage.into_iter().for_each(|what| report.fault(format!("the database itself: {what}")));
        part.lost.into_iter().for_each(|what| report.fault(what));
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
