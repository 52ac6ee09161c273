//! Garbage collection of blobs that no event references, directly or through another blob.
//!
//! Called by the HTTP route and runs concurrently with everything else. It lists blobs not touched for a long
//! time, reads the whole log and removes every referenced blob from the list, then deletes the rest in small
//! separate transactions. Nothing is paused: a blob referenced while the log is read is touched by the
//! transaction that references it and is then not deleted (see [`crate::store`]). Events that cannot be
//! decoded retain everything they may reference; a blob kept by mistake only costs space.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    api::{GC_AGE_MS_MIN, GC_DEFAULT_AGE_MS, GcRequest, GcResponse, PAGE_EVENTS_MAX},
    blob_refs::{BlobRole, event_blobs, manifest_contents},
    event::{Envelope, find_blob_hashes},
    ids::{BlobHash, Position, Timestamp},
    snapshot::Manifest,
};

use crate::store::{Store, StoreError, TOUCH_INTERVAL_MS};

/// Blobs examined per pass over the log; bounds memory to about 100 MB.
const CANDIDATES_MAX: usize = 1_000_000;

/// Blobs listed per request.
const LIST_PAGE_BLOBS: u32 = 10_000;

/// Blobs deleted in one transaction and their total size; both bound how long an append waits for it.
const DROPPED_MAX: usize = 256;
const DROPPED_BYTES_MAX: u64 = 64 * 1024 * 1024;

const _: () = assert!(
    GC_AGE_MS_MIN as i64 > TOUCH_INTERVAL_MS,
    "a deletion could otherwise take a blob \
     that was just referenced"
);

/// Collects garbage. `ago` returns the earliest time that a blob touched within the given milliseconds can
/// have, even if the clock was stepped since ([`crate::clock::Clock::earliest_shown_within`]).
///
/// # Errors
/// Fails if the store fails. Blobs deleted before the failure stay deleted, and the call can be repeated.
pub async fn collect(
    store: &dyn Store,
    request: GcRequest,
    ago: impl Fn(u64) -> Timestamp,
) -> Result<GcResponse, StoreError> {
    let untouched_ms = request.untouched_for_ms.unwrap_or(GC_DEFAULT_AGE_MS).max(GC_AGE_MS_MIN);
    let since = ago(untouched_ms);
    let totals = store.blob_totals().await?;
    let mut report = GcResponse {
        delete: request.delete,
        blobs: totals.blobs,
        bytes: totals.bytes,
        ..GcResponse::default()
    };
    let mut after = None;
    let mut listed = 0;
    loop {
        let mut left = list_candidates(store, since, after).await?;
        let Some(last) = left.keys().next_back().copied() else { break };
        after = Some(last);
        listed += left.len() as u64;
        let (named, named_by_blobs) = remove_referenced(store, &mut left).await?;
        report.named += named;
        report.named_by_blobs += named_by_blobs;
        report.orphans += left.len() as u64;
        report.orphan_bytes += left.values().sum::<u64>();
        if request.delete {
            drop_orphans(store, left, since, &mut report).await?;
        }
    }
    (report.strays, report.stray_bytes) = store.sweep_stray_blobs(since, request.delete).await?;
    report.recent = totals.blobs.saturating_sub(listed);
    Ok(report)
}

/// Lists the next blobs not touched since `since`, with their sizes.
async fn list_candidates(
    store: &dyn Store,
    since: Timestamp,
    mut after: Option<BlobHash>,
) -> Result<BTreeMap<BlobHash, u64>, StoreError> {
    let mut all = BTreeMap::new();
    while all.len() < CANDIDATES_MAX {
        let page = store.list_untouched_blobs(since, after, LIST_PAGE_BLOBS).await?;
        let Some(last) = page.last() else { break };
        after = Some(last.hash);
        all.extend(page.into_iter().map(|blob| (blob.hash, blob.bytes)));
    }
    Ok(all)
}

/// Removes referenced blobs from the candidates; returns how many were referenced by events and by blobs.
async fn remove_referenced(
    store: &dyn Store,
    left: &mut BTreeMap<BlobHash, u64>,
) -> Result<(u64, u64), StoreError> {
    let all = left.len() as u64;
    let mut manifests = BTreeSet::new();
    let mut after = Position(0);
    loop {
        // Not `read_log`: while a transaction is open anywhere on a PostgreSQL server it withholds later
        // events, and blobs they reference would be deleted. An event committed behind this position has
        // touched its blobs.
        let page = store.read_committed_events(after, PAGE_EVENTS_MAX).await?;
        let Some(last) = page.last() else { break };
        after = last.position;
        for event in &page {
            for hash in find_blob_hashes(event.payload.as_str()).flatten() {
                left.remove(&hash);
            }
            collect_manifests(event, &mut manifests);
        }
    }
    let named = all - left.len() as u64;
    for manifest in manifests {
        if left.is_empty() {
            break;
        }
        // A missing or invalid manifest references nothing; `docket verify` reports it.
        let Some(bytes) = store.read_blob(manifest).await? else { continue };
        if let Ok(manifest) = Manifest::decode(&bytes) {
            for content in manifest_contents(&manifest) {
                left.remove(&content.hash);
            }
        }
    }
    Ok((named, all - named - left.len() as u64))
}

/// Collects blobs that reference others. An event of a newer docket may reference any of them.
fn collect_manifests(event: &Envelope, manifests: &mut BTreeSet<BlobHash>) {
    match event_blobs(event) {
        Ok(named) => {
            let is_manifest = |named_as| match named_as {
                BlobRole::Manifest { .. } => true,
                BlobRole::Required | BlobRole::FileContent => false,
            };
            manifests.extend(named.iter().filter(|n| is_manifest(n.role)).map(|n| n.blob.hash));
        }
        Err(_) => manifests.extend(find_blob_hashes(event.payload.as_str()).flatten()),
    }
}

async fn drop_orphans(
    store: &dyn Store,
    orphans: BTreeMap<BlobHash, u64>,
    since: Timestamp,
    report: &mut GcResponse,
) -> Result<(), StoreError> {
    let mut batch = Vec::new();
    let mut bytes = 0;
    let mut orphans = orphans.into_iter().peekable();
    while let Some((hash, size)) = orphans.next() {
        batch.push(hash);
        bytes += size;
        let full = batch.len() >= DROPPED_MAX || bytes >= DROPPED_BYTES_MAX;
        if full || orphans.peek().is_none() {
            let dropped = store.drop_blobs(std::mem::take(&mut batch), since).await?;
            report.dropped += dropped.len() as u64;
            report.dropped_bytes += dropped.iter().map(|blob| blob.bytes).sum::<u64>();
            bytes = 0;
        }
    }
    Ok(())
}
