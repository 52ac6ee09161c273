//! Routes of blobs: bytes by the hash of their content.

use std::{collections::HashSet, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, StatusCode, header},
};
use docket_schema::{
    content::BlobRef,
    ids::BlobHash,
    wire::{BLOB_HASHES_MAX, BlobCheckQuery, MissingBlobsRequest, MissingBlobsResponse, ProblemCode},
};

use super::{
    api::Api,
    call::{Call, empty, json},
    errors::Refusal,
};
use crate::store::NewBlob;

/// Blobs from this size on are hashed off the threads that serve requests: a millisecond's work.
const HASH_ASIDE_BYTES: usize = 1024 * 1024;

type Answered = Result<Response<Body>, Refusal>;

pub(super) async fn get(api: Arc<Api>, call: Call) -> Answered {
    let hash: BlobHash = call.id()?;
    let bytes = api.store.blob(hash).await?.ok_or_else(|| absent(hash))?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Whatever the bytes are, no browser is to make a page of them.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, immutable"));
    Ok(response)
}

pub(super) async fn head(api: Arc<Api>, call: Call) -> Answered {
    let hash: BlobHash = call.id()?;
    let present = api.store.blobs_present(vec![hash]).await?;
    if present.is_empty() { Err(absent(hash)) } else { Ok(empty(StatusCode::OK)) }
}

pub(super) async fn put(api: Arc<Api>, call: Call) -> Answered {
    let hash: BlobHash = call.id()?;
    let blob = ref_of(call.body.clone()).await?;
    if blob.hash != hash {
        let detail = format!("the body's BLAKE3 is {}, not {hash}; send it again whole", blob.hash);
        return Err(Refusal::new(ProblemCode::BlobMismatch, detail).field("body"));
    }
    api.store.put_blobs(vec![NewBlob { blob, bytes: call.body }], api.clock.now()).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn missing(api: Arc<Api>, call: Call) -> Answered {
    let MissingBlobsRequest { hashes, keep } = call.json()?;
    if hashes.len() > BLOB_HASHES_MAX {
        let detail = format!("at most {BLOB_HASHES_MAX} hashes in one request; send several");
        return Err(Refusal::new(ProblemCode::TooLarge, detail).field("hashes"));
    }
    let present = if keep {
        api.store.keep_blobs(hashes.clone(), api.clock.now()).await?
    } else {
        api.store.blobs_present(hashes.clone()).await?
    };
    let present: HashSet<BlobHash> = present.into_iter().collect();
    let missing = hashes.into_iter().filter(|hash| !present.contains(hash)).collect();
    json(&MissingBlobsResponse { missing })
}

/// A part of the stored blobs, read and hashed again.
pub(super) async fn check(api: Arc<Api>, call: Call) -> Answered {
    let BlobCheckQuery { after } = call.query()?;
    json(&api.store.check_blobs(after).await?)
}

/// Name and size of `bytes`.
pub(super) async fn ref_of(bytes: Bytes) -> Result<BlobRef, Refusal> {
    if bytes.len() < HASH_ASIDE_BYTES {
        return Ok(BlobRef::of(&bytes));
    }
    tokio::task::spawn_blocking(move || BlobRef::of(&bytes)).await.map_err(|error| {
        tracing::error!("hashing a blob: {error}");
        Refusal::new(ProblemCode::Internal, "the blob could not be hashed; send it again")
    })
}

fn absent(hash: BlobHash) -> Refusal {
    Refusal::new(ProblemCode::NotFound, format!("blob {hash} is not stored"))
}
