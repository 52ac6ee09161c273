//! A model request as it was sent, made again from the log and its blobs and proven by the recorded hash.

use docket_schema::{
    event::Envelope,
    run::{ModelRequested, RunState, Stage},
};

use super::verify::VerifyError;
use crate::{
    model::Rendered,
    run::{Material, RequestProof, rendered, reopened},
    workspace::Blobs,
};

/// A request made again.
#[derive(Debug, Clone)]
pub struct Rebuilt {
    /// What the log says of it.
    pub asked: ModelRequested,
    /// Its exact body.
    pub rendered: Rendered,
    /// What these bytes are.
    pub proof: RequestProof,
}

impl Rebuilt {
    /// Whether these are the very bytes that were sent.
    pub fn is_proven(&self) -> bool {
        self.proof == RequestProof { hash: self.asked.request, bytes: self.asked.request_bytes }
    }
}

/// The request that the last of `events` announces; `None` where that announces none. Needs no engine: an
/// open request says all that rendering it takes.
///
/// # Errors
/// [`VerifyError::Corrupt`], [`VerifyError::Request`].
pub async fn rebuild<S: Blobs>(
    events: &[Envelope],
    material: &Material<S>,
) -> Result<Option<Rebuilt>, VerifyError> {
    let mut state = RunState::default();
    for event in events {
        state.apply_envelope(event)?;
    }
    let Stage::Model(asked) = &state.stage else { return Ok(None) };
    let call = reopened(&state, asked);
    let rendered =
        rendered(material, &call).await.map_err(|source| VerifyError::Request { seq: state.seq, source })?;
    let proof = RequestProof::of(&rendered);
    Ok(Some(Rebuilt { asked: ModelRequested::clone(asked), rendered, proof }))
}
