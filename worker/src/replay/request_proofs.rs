//! Proves a run's requests one after the other, hashing only the new part of each.

use docket_schema::{
    content::BlobRef,
    message::ModelRef,
    run::{CallPurpose, Conversation},
};

use crate::{
    engine::{ModelCall, SamplingOptions},
    model::BodyHasher,
    run::{BlobCache, RequestProof, RunExecutorError, build_model_request},
    workspace::BlobReader,
};

/// Incremental hasher of a run's requests.
#[derive(Default)]
pub(super) struct RequestProver {
    hasher: Option<(RequestParameters, BodyHasher)>,
}

/// The parameters that requests of one hasher share: all but the conversation.
#[derive(PartialEq)]
struct RequestParameters {
    model: ModelRef,
    purpose: CallPurpose,
    system: BlobRef,
    tools: BlobRef,
    output_tokens_max: u32,
    manner: SamplingOptions,
}

impl RequestParameters {
    fn from_call(call: &ModelCall) -> Self {
        Self {
            model: call.model.clone(),
            purpose: call.purpose,
            system: call.system,
            tools: call.tools,
            output_tokens_max: call.output_tokens_max,
            manner: call.manner,
        }
    }
}

impl RequestProver {
    /// Returns the proof of the request for `call`.
    ///
    /// # Errors
    /// The errors of [`crate::run::render_call`].
    pub(super) async fn prove_request<S: BlobReader>(
        &mut self,
        call: &ModelCall,
        material: &BlobCache<S>,
    ) -> Result<RequestProof, RunExecutorError> {
        let alike = RequestParameters::from_call(call);
        if self.hasher.as_ref().is_none_or(|(of, _)| *of != alike) {
            let silent = ModelCall { messages: Conversation::default(), ..call.clone() };
            self.hasher = Some((alike, BodyHasher::new(&build_model_request(material, &silent).await?)?));
        }
        let (_, hasher) = self.hasher.as_mut().expect("it was made just now where there was none");
        let from = hasher.first_unhashed_message(&call.messages);
        material.fetch_message_blobs(call.messages.entries_from(from)).await?;
        let (hash, bytes) = hasher.hash_body(&call.messages, material)?;
        Ok(RequestProof { hash, bytes })
    }
}
