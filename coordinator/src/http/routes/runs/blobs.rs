//! Routes of blobs: content addressed by hash.

use std::{collections::HashSet, sync::Arc};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, StatusCode, header},
};
use docket_schema::{
    api::{BLOB_HASHES_MAX, BlobCheckQuery, MissingBlobsRequest, MissingBlobsResponse, ProblemCode},
    content::BlobRef,
    ids::BlobHash,
};

use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    request::{ApiRequest, empty_response, json_response},
};
use crate::store::NewBlob;

/// Blobs of this size or more are hashed off the request threads, because that takes about a
/// millisecond.
const BLOCKING_HASH_BYTES: usize = 1024 * 1024;

type HandlerResult = Result<Response<Body>, ApiError>;

pub(in crate::http) async fn get_blob(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let hash: BlobHash = call.id()?;
    let bytes = api.store.read_blob(hash).await?.ok_or_else(|| blob_not_found(hash))?;
    let mut response = Response::new(Body::from(bytes));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    // Prevents browsers from rendering the bytes as a page.
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("private, immutable"));
    Ok(response)
}

pub(in crate::http) async fn head_blob(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let hash: BlobHash = call.id()?;
    let present = api.store.find_present_blobs(vec![hash]).await?;
    if present.is_empty() { Err(blob_not_found(hash)) } else { Ok(empty_response(StatusCode::OK)) }
}

pub(in crate::http) async fn put_blob(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let hash: BlobHash = call.id()?;
    let blob = compute_blob_ref(call.body.clone()).await?;
    if blob.hash != hash {
        let detail =
            format!("the body's BLAKE3 hash is {}, not {hash}; send the complete blob again", blob.hash);
        return Err(ApiError::new(ProblemCode::BlobMismatch, detail).with_field("body"));
    }
    api.store.put_blobs(vec![NewBlob { blob, bytes: call.body }], api.clock.now()).await?;
    Ok(empty_response(StatusCode::NO_CONTENT))
}

pub(in crate::http) async fn list_missing_blobs(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let MissingBlobsRequest { hashes, keep } = call.json()?;
    if hashes.len() > BLOB_HASHES_MAX {
        let detail = format!("at most {BLOB_HASHES_MAX} hashes in one request; send several");
        return Err(ApiError::new(ProblemCode::TooLarge, detail).with_field("hashes"));
    }
    let present = if keep {
        api.store.touch_blobs(hashes.clone(), api.clock.now()).await?
    } else {
        api.store.find_present_blobs(hashes.clone()).await?
    };
    let present: HashSet<BlobHash> = present.into_iter().collect();
    let missing = hashes.into_iter().filter(|hash| !present.contains(hash)).collect();
    json_response(&MissingBlobsResponse { missing })
}

/// Hashes a page of the stored blobs again.
pub(in crate::http) async fn check_blobs(api: Arc<ApiState>, call: ApiRequest) -> HandlerResult {
    let BlobCheckQuery { after } = call.query()?;
    json_response(&api.store.check_blobs(after).await?)
}

/// Computes the hash and size of `bytes`.
pub(in crate::http) async fn compute_blob_ref(bytes: Bytes) -> Result<BlobRef, ApiError> {
    if bytes.len() < BLOCKING_HASH_BYTES {
        return Ok(BlobRef::for_bytes(&bytes));
    }
    tokio::task::spawn_blocking(move || BlobRef::for_bytes(&bytes)).await.map_err(|error| {
        tracing::error!("hashing a blob: {error}");
        ApiError::new(ProblemCode::Internal, "cannot hash the blob; send it again")
    })
}

fn blob_not_found(hash: BlobHash) -> ApiError {
    ApiError::new(ProblemCode::NotFound, format!("blob {hash} is not stored"))
}
