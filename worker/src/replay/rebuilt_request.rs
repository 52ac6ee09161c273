//! Rebuilds a model request as it was sent, from the log and its blobs, and checks it against the recorded hash.

use docket_schema::{
    event::Envelope,
    run::{ModelRequested, RunStage, RunState},
};

use super::verify::VerifyError;
use crate::{
    model::RenderedRequest,
    run::{BlobCache, RequestProof, rebuild_open_call, render_call},
    workspace::BlobReader,
};

/// A rebuilt request.
#[derive(Debug, Clone)]
pub struct RebuiltRequest {
    /// The event that announced it.
    pub requested: ModelRequested,
    /// Its exact body.
    pub rendered: RenderedRequest,
    /// The hash and size of the rebuilt body.
    pub proof: RequestProof,
}

impl RebuiltRequest {
    /// Whether the body is byte-identical to the one that was sent.
    pub fn matches_recorded_hash(&self) -> bool {
        self.proof == RequestProof { hash: self.requested.request, bytes: self.requested.request_bytes }
    }
}

/// Rebuilds the request that the last of `events` announces; `None` if it announces none. Needs no engine: an open
/// request contains everything needed to render it.
///
/// # Errors
/// [`VerifyError::Corrupt`], [`VerifyError::Request`].
pub async fn rebuild_request<S: BlobReader>(
    events: &[Envelope],
    material: &BlobCache<S>,
) -> Result<Option<RebuiltRequest>, VerifyError> {
    let mut state = RunState::default();
    for event in events {
        state.apply_envelope(event)?;
    }
    let RunStage::Model(asked) = &state.stage else { return Ok(None) };
    let call = rebuild_open_call(&state, asked);
    let rendered = render_call(material, &call)
        .await
        .map_err(|source| VerifyError::Request { seq: state.seq, source })?;
    let proof = RequestProof::from_rendered(&rendered);
    Ok(Some(RebuiltRequest { requested: ModelRequested::clone(asked), rendered, proof }))
}
