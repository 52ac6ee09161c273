//! Proofs of a run's requests, one after the other: each costs what is new in it.

use docket_schema::{
    content::BlobRef,
    message::ModelRef,
    run::{Conversation, Purpose},
};

use crate::{
    engine::{Manner, ModelCall},
    model::BodyHasher,
    run::{DriverError, Material, RequestProof, model_request},
    workspace::Blobs,
};

/// See the module.
#[derive(Default)]
pub(super) struct Proofs {
    hasher: Option<(Alike, BodyHasher)>,
}

/// What requests of one hasher have in common: all but the conversation.
#[derive(PartialEq)]
struct Alike {
    model: ModelRef,
    purpose: Purpose,
    system: BlobRef,
    tools: BlobRef,
    output_tokens_max: u32,
    manner: Manner,
}

impl Alike {
    fn of(call: &ModelCall) -> Self {
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

impl Proofs {
    /// The proof of the request that `call` stands for.
    ///
    /// # Errors
    /// As [`crate::run::rendered`].
    pub(super) async fn of<S: Blobs>(
        &mut self,
        call: &ModelCall,
        material: &Material<S>,
    ) -> Result<RequestProof, DriverError> {
        let alike = Alike::of(call);
        if self.hasher.as_ref().is_none_or(|(of, _)| *of != alike) {
            let silent = ModelCall { messages: Conversation::default(), ..call.clone() };
            self.hasher = Some((alike, BodyHasher::new(&model_request(material, &silent).await?)?));
        }
        let (_, hasher) = self.hasher.as_mut().expect("it was made just now where there was none");
        let from = hasher.resume(&call.messages);
        material.gather(call.messages.since(from)).await?;
        let (hash, bytes) = hasher.proof(&call.messages, material)?;
        Ok(RequestProof { hash, bytes })
    }
}
