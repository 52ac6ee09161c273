//! Verifies blobs: that every stored blob matches its hash, and that the blobs a run references
//! exist.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    blob_refs::{BlobReference, BlobRole, event_blobs, manifest_contents},
    content::BlobRef,
    event::Envelope,
    ids::{BlobHash, RunId},
    snapshot::Manifest,
};
use docket_worker::client::CoordinatorClient;

use super::{BlobScope, VerifyReport};
use crate::{context::CliContext, output::error::CliResult, progress::ProgressDisplay};

/// Hashes every stored blob again.
pub(super) async fn check_blobs(
    cx: &CliContext,
    client: &CoordinatorClient,
    report: &mut VerifyReport,
) -> CliResult<()> {
    let progress = ProgressDisplay::counter(cx, "blobs");
    let mut after = None;
    loop {
        let Some(part) = report.read_or_fault(client.check_blobs(after).await)? else { return Ok(()) };
        report.blobs_checked += part.checked;
        progress.set_position(report.blobs_checked);
        part.storage.into_iter().for_each(|what| report.add_fault(format!("database: {what}")));
        part.lost.into_iter().for_each(|what| report.add_fault(what));
        for hash in part.damaged {
            report.add_fault(format!("blob {hash} was altered (its content does not match its hash)"));
        }
        match part.next {
            Some(next) if after != Some(next) => after = Some(next),
            Some(_) | None => return Ok(()),
        }
    }
}

/// Checks every blob that a run's events reference, directly or through its base's manifest.
pub(super) async fn check_named_blobs(
    client: &CoordinatorClient,
    run: RunId,
    events: &[Envelope],
    blobs: BlobScope,
    report: &mut VerifyReport,
) -> CliResult<()> {
    let (mut parts, mut contents, mut packed) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
    // Events of a newer build were reported before; their references are unknown.
    for BlobReference { blob, role: named_as } in
        events.iter().flat_map(|event| event_blobs(event).unwrap_or_default())
    {
        match named_as {
            BlobRole::FileContent => contents.insert(blob.hash, blob),
            BlobRole::Required | BlobRole::Manifest { .. } if parts.contains_key(&blob.hash) => None,
            BlobRole::Required => parts.insert(blob.hash, blob),
            BlobRole::Manifest { packed: has_pack } => {
                parts.insert(blob.hash, blob);
                let manifest = match client.get_blob(&blob).await {
                    Ok(bytes) => Manifest::decode(&bytes).unwrap_or_default(),
                    Err(_) => Manifest::default(),
                };
                let within = manifest_contents(&manifest).map(|blob| (blob.hash, blob));
                if has_pack {
                    packed.extend(within.map(|(hash, _)| hash));
                } else {
                    parts.extend(within);
                }
                None
            }
        };
    }
    // Contents in the base's pack need no blob.
    parts.extend(contents.into_iter().filter(|(hash, _)| !packed.contains(hash)));
    let named: Vec<BlobRef> = parts.into_values().collect();
    report.blobs += named.len();
    let hashes: Vec<BlobHash> = named.iter().map(|blob| blob.hash).collect();
    let missing: BTreeSet<BlobHash> = client.missing_blobs(&hashes).await?.into_iter().collect();
    for hash in &missing {
        report.add_fault(format!("run {run}: blob {hash} is not stored"));
    }
    if blobs == BlobScope::NamedByRun {
        for blob in named.iter().filter(|blob| !missing.contains(&blob.hash)) {
            report.blobs_checked += 1;
            // The coordinator hashes what it sends, and the client what it receives.
            report.read_or_fault(client.get_blob(blob).await)?;
        }
    }
    Ok(())
}
