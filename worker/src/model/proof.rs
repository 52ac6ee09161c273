//! Hashes of the bodies of one growing conversation, without making each body anew. Pure.
//!
//! The bytes before the last few turns are the same in every request that follows; they are hashed once. The
//! pieces are those of which [`render`](super::render) makes a body, so a hash here is the hash of that body.
//! Called by verification: deriving all requests of a run costs its length, not the square of it.

use docket_schema::{ids::DecisionHash, message::Role, run::Conversation};

use super::{
    dialect::Provider,
    request::{BlobSource, Layout, Listener, ModelRequest, RenderError, Spoken, marks, pair, spoken},
};

/// See the module. For requests that differ in their conversation alone.
#[derive(Debug)]
pub struct BodyHasher {
    listener: Listener,
    layout: Layout,
    settled: Settled,
}

/// What no later request changes.
#[derive(Debug, Clone)]
struct Settled {
    hasher: blake3::Hasher,
    bytes: u64,
    /// How many messages are in it; the next one is the model's and says something.
    messages: usize,
    /// Digest of the conversation up to and with that next one.
    digest: [u8; 32],
    /// Whether a message stands before the next.
    comma: bool,
}

impl BodyHasher {
    /// For requests like `request`, whose own messages are not looked at.
    ///
    /// # Errors
    /// [`RenderError::UnknownProvider`].
    pub fn new(request: &ModelRequest) -> Result<Self, RenderError> {
        let provider = Provider::of(&request.model)?;
        let layout = provider.dialect().layout(request);
        let settled = Settled::nothing(&layout);
        Ok(Self { listener: Listener::of(&request.model, provider.name()), layout, settled })
    }

    /// The first message of `conversation` that [`Self::proof`] will look at: what it and those behind it
    /// refer to has to be at hand.
    pub fn resume(&mut self, conversation: &Conversation) -> usize {
        let settled = self.settled.messages;
        if settled >= conversation.len() || conversation.digest_of(settled + 1) != self.settled.digest {
            self.settled = Settled::nothing(&self.layout);
        }
        self.settled.messages
    }

    /// Hash and size of the body that carries `conversation`.
    ///
    /// # Errors
    /// As [`render`](super::render).
    pub fn proof(
        &mut self,
        conversation: &Conversation,
        blobs: &impl BlobSource,
    ) -> Result<(DecisionHash, u64), RenderError> {
        let from = self.resume(conversation);
        let messages = conversation.since(from).zip(from..).map(|(said, place)| (place, &said.message));
        let mut turns = spoken(messages, &self.listener, blobs)?;
        pair(&mut turns, if from == 0 { Role::User } else { Role::Assistant })?;
        let stays = self.stays(&turns);
        let mut now = None;
        for (nth, (turn, marked)) in marks(self.layout.dialect, &turns).enumerate() {
            if nth == stays && nth > 0 {
                self.settle(turn.from, conversation);
            }
            let settled =
                if nth < stays { &mut self.settled } else { now.get_or_insert_with(|| self.settled.clone()) };
            let mut piece = Vec::new();
            if std::mem::replace(&mut settled.comma, true) {
                piece.push(b',');
            }
            self.layout.dialect.speak(turn, marked, &mut piece);
            settled.take(&piece);
        }
        let mut now = now.unwrap_or_else(|| self.settled.clone());
        now.take(&self.layout.tail);
        Ok((DecisionHash(*now.hasher.finalize().as_bytes()), now.bytes))
    }

    /// How many of the turns no later request changes: all up to a turn of the model's behind which stand
    /// those that may bear marks now or be longer next time.
    fn stays(&self, turns: &[Spoken<'_>]) -> usize {
        let users = turns.iter().enumerate().rev().filter(|(_, turn)| turn.role == Role::User);
        let last = users.take(self.layout.dialect.marked_turns().max(1)).last();
        last.map_or(0, |(place, _)| place.saturating_sub(1))
    }

    fn settle(&mut self, messages: usize, conversation: &Conversation) {
        self.settled.messages = messages;
        self.settled.digest =
            if messages < conversation.len() { conversation.digest_of(messages + 1) } else { [0; 32] };
    }
}

impl Settled {
    fn nothing(layout: &Layout) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&layout.head);
        let bytes = layout.head.len() as u64;
        Self { hasher, bytes, messages: 0, digest: [0; 32], comma: layout.has_messages }
    }

    fn take(&mut self, piece: &[u8]) {
        self.hasher.update(piece);
        self.bytes += piece.len() as u64;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use bytes::Bytes;
    use docket_schema::{
        content::{BlobRef, Content},
        ids::{BlobHash, Turn},
        message::{CallId, Part, ToolSpec, ToolUse},
        run::{Compacted, Transcript},
    };
    use proptest::prelude::*;

    use super::*;
    use crate::model::{render, request_hash};

    fn request(model: &str, system: &str) -> ModelRequest {
        let tool = ToolSpec {
            name: "read_file".into(),
            description: "Reads.".into(),
            input_schema: serde_json::json!({ "type": "object" }),
        };
        ModelRequest {
            model: model.parse().expect("a model"),
            system: system.to_owned(),
            tools: vec![tool],
            messages: Vec::new(),
            max_output_tokens: 100,
            temperature_milli: None,
            effort: None,
            completion_tokens: false,
            thought: None,
        }
    }

    fn text(text: &str) -> Part {
        Part::Text { text: text.into() }
    }

    /// What one turn of a run brings: calls, an answer's text, a word from a person, and whether the
    /// conversation is another one from here on.
    type Brought = (usize, Option<&'static str>, bool, bool);

    fn brought() -> impl Strategy<Value = Brought> {
        let said = prop::option::of(prop::sample::select(vec!["words", " ", "\u{1b}[2J"]));
        (0usize..3, said, any::<bool>(), prop::bool::weighted(0.1))
    }

    proptest! {
        #[test]
        fn each_hash_is_that_of_the_body(turns in prop::collection::vec(brought(), 1..12)) {
            let large = Bytes::from_static(b"a large result");
            let blob = BlobRef::of(&large);
            let blobs: HashMap<BlobHash, Bytes> = HashMap::from([(blob.hash, large)]);
            let models = ["anthropic:x", "openai:x", "openai-responses:x"].map(|model| (model, "Be brief."));
            for (model, system) in models.into_iter().chain([("openai:x", "")]) {
                let mut hasher = BodyHasher::new(&request(model, system)).expect("is known");
                let mut transcript = Transcript::default();
                transcript.note(text("the task"));
                for (nth, (calls, said, tell, another)) in turns.iter().enumerate() {
                    if *another {
                        let messages = u32::try_from(transcript.sealed().len()).expect("few");
                        let summary = "what was".into();
                        transcript.compact(Compacted { messages, summary, ..Compacted::default() }).expect("legal");
                    }
                    let nudge = (nth % 3 == 1).then_some("go on");
                    let conversation = transcript.conversation(nudge);
                    let messages = conversation.iter().map(|said| said.message.clone()).collect();
                    let whole = ModelRequest { messages, ..request(model, system) };
                    let hashed = hasher.proof(&conversation, &blobs);
                    match render(&whole, &blobs) {
                        Ok(body) => {
                            prop_assert_eq!(hashed, Ok((request_hash(&body), body.len() as u64)));
                        }
                        Err(error) => prop_assert_eq!(hashed, Err(error)),
                    }
                    if let Some(nudge) = nudge {
                        transcript.note(text(nudge));
                    }
                    transcript.seal();
                    let turn = Turn(u32::try_from(nth).expect("small") + 1);
                    let uses = (0..*calls).map(|call| Part::ToolUse(ToolUse {
                        call: CallId::tool(turn, call),
                        name: "read_file".to_owned(),
                        args: serde_json::json!({ "path": nth }),
                        malformed: None,
                    }));
                    transcript.answer(said.iter().map(|said| text(said)).chain(uses).collect());
                    for call in (0..*calls).rev() {
                        let id = CallId::tool(turn, call);
                        let content = if call == 1 { Content::Blob(blob) } else { "done".into() };
                        let part = Part::ToolResult { call: id.clone(), content, is_error: call == 2 };
                        transcript.result(&id, part);
                    }
                    if *tell || *calls == 0 {
                        transcript.note(text("a word"));
                    }
                }
                // A long run's beginning is looked at no more.
                if turns.len() > 8 && turns.iter().all(|turn| turn.0 > 0 && !turn.3) {
                    prop_assert!(hasher.resume(&transcript.conversation(None)) > 8);
                }
            }
        }
    }
}
