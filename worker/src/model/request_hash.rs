//! Hashes the bodies of one growing conversation incrementally. Pure.
//!
//! The bytes before the last few turns are the same in every later request and are hashed once. The pieces
//! are those from which [`render`](super::render) builds a body, so the hash is that of the rendered body.
//! Called by verification: deriving all requests of a run takes time linear in its length instead of
//! quadratic.

use docket_schema::{ids::DecisionHash, message::MessageRole, run::Conversation};

use super::{
    provider_protocol::ModelProvider,
    request::{
        BlobSource, BodyFrame, ConversationTurn, ModelRequest, RenderError, TargetModel, collect_turns,
        mark_cached_turns, pair_calls_with_results,
    },
};

/// Incremental body hash for requests that differ only in their conversation; see the module documentation.
#[derive(Debug)]
pub struct BodyHasher {
    target_model: TargetModel,
    body_frame: BodyFrame,
    hashed_prefix: HashedPrefix,
}

/// The prefix that no later request changes.
#[derive(Debug, Clone)]
struct HashedPrefix {
    hasher: blake3::Hasher,
    bytes: u64,
    /// The number of messages in it; the next one is a non-empty message of the model.
    message_count: usize,
    /// Digest of the conversation up to and including that next message.
    digest: [u8; 32],
    /// Whether a message precedes the next one.
    needs_comma: bool,
}

impl BodyHasher {
    /// Creates a hasher for requests like `request`, whose own messages are ignored.
    ///
    /// # Errors
    /// [`RenderError::UnknownProvider`] if the model's provider is not supported.
    pub fn new(request: &ModelRequest) -> Result<Self, RenderError> {
        let provider = ModelProvider::for_model(&request.model)?;
        let layout = provider.protocol().body_frame(request);
        let settled = HashedPrefix::from_frame(&layout);
        Ok(Self {
            target_model: TargetModel::new(&request.model, provider.name()),
            body_frame: layout,
            hashed_prefix: settled,
        })
    }

    /// Returns the index of the first message of `conversation` that [`Self::hash_body`] will read. Blobs
    /// referenced by this and later messages must be available.
    pub fn first_unhashed_message(&mut self, conversation: &Conversation) -> usize {
        let settled = self.hashed_prefix.message_count;
        if settled >= conversation.len()
            || conversation.prefix_digest(settled + 1) != self.hashed_prefix.digest
        {
            self.hashed_prefix = HashedPrefix::from_frame(&self.body_frame);
        }
        self.hashed_prefix.message_count
    }

    /// Returns the hash and size of the body with `conversation`.
    ///
    /// # Errors
    /// Those of [`render`](super::render).
    pub fn hash_body(
        &mut self,
        conversation: &Conversation,
        blobs: &impl BlobSource,
    ) -> Result<(DecisionHash, u64), RenderError> {
        let from = self.first_unhashed_message(conversation);
        let messages =
            conversation.entries_from(from).zip(from..).map(|(said, place)| (place, &said.message));
        let mut turns = collect_turns(messages, &self.target_model, blobs)?;
        pair_calls_with_results(
            &mut turns,
            if from == 0 { MessageRole::User } else { MessageRole::Assistant },
        )?;
        let stays = self.count_stable_turns(&turns);
        let mut now = None;
        for (nth, (turn, marked)) in mark_cached_turns(self.body_frame.protocol, &turns).enumerate() {
            if nth == stays && nth > 0 {
                self.mark_prefix_end(turn.first_message, conversation);
            }
            let settled = if nth < stays {
                &mut self.hashed_prefix
            } else {
                now.get_or_insert_with(|| self.hashed_prefix.clone())
            };
            let mut piece = Vec::new();
            if std::mem::replace(&mut settled.needs_comma, true) {
                piece.push(b',');
            }
            self.body_frame.protocol.write_turn(turn, marked, &mut piece);
            settled.update(&piece);
        }
        let mut now = now.unwrap_or_else(|| self.hashed_prefix.clone());
        now.update(&self.body_frame.tail);
        Ok((DecisionHash(*now.hasher.finalize().as_bytes()), now.bytes))
    }

    /// Returns the number of turns that no later request changes: up to a model turn that is followed by
    /// those that may have marks now or grow later.
    fn count_stable_turns(&self, turns: &[ConversationTurn<'_>]) -> usize {
        let users = turns.iter().enumerate().rev().filter(|(_, turn)| turn.role == MessageRole::User);
        let last = users.take(self.body_frame.protocol.cache_marked_turns().max(1)).last();
        last.map_or(0, |(place, _)| place.saturating_sub(1))
    }

    fn mark_prefix_end(&mut self, messages: usize, conversation: &Conversation) {
        self.hashed_prefix.message_count = messages;
        self.hashed_prefix.digest =
            if messages < conversation.len() { conversation.prefix_digest(messages + 1) } else { [0; 32] };
    }
}

impl HashedPrefix {
    fn from_frame(layout: &BodyFrame) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&layout.head);
        let bytes = layout.head.len() as u64;
        Self { hasher, bytes, message_count: 0, digest: [0; 32], needs_comma: layout.has_messages }
    }

    fn update(&mut self, piece: &[u8]) {
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
        message::{CallId, MessagePart, ToolSpec, ToolUse},
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
            use_completion_tokens_field: false,
            began_with_thought: None,
        }
    }

    fn text(text: &str) -> MessagePart {
        MessagePart::Text { text: text.into() }
    }

    /// The content of one turn of a run: calls, a reply's text, a person's message, and whether the
    /// conversation is replaced from here on.
    type GeneratedTurn = (usize, Option<&'static str>, bool, bool);

    fn any_turn() -> impl Strategy<Value = GeneratedTurn> {
        let said = prop::option::of(prop::sample::select(vec!["words", " ", "\u{1b}[2J"]));
        (0usize..3, said, any::<bool>(), prop::bool::weighted(0.1))
    }

    proptest! {
        #[test]
        fn incremental_hash_equals_body_hash(turns in prop::collection::vec(any_turn(), 1..12)) {
            let large = Bytes::from_static(b"a large result");
            let blob = BlobRef::for_bytes(&large);
            let blobs: HashMap<BlobHash, Bytes> = HashMap::from([(blob.hash, large)]);
            let models = ["anthropic:x", "openai:x", "openai-responses:x"].map(|model| (model, "Be brief."));
            for (model, system) in models.into_iter().chain([("openai:x", "")]) {
                let mut hasher = BodyHasher::new(&request(model, system)).expect("is known");
                let mut transcript = Transcript::default();
                transcript.add_note(text("the task"));
                for (nth, (calls, said, tell, another)) in turns.iter().enumerate() {
                    if *another {
                        let messages = u32::try_from(transcript.sealed_entries().len()).expect("few");
                        let summary = "what was".into();
                        transcript.compact(Compacted { messages, summary, ..Compacted::default() }).expect("legal");
                    }
                    let nudge = (nth % 3 == 1).then_some("go on");
                    let conversation = transcript.conversation(nudge);
                    let messages = conversation.iter().map(|said| said.message.clone()).collect();
                    let whole = ModelRequest { messages, ..request(model, system) };
                    let hashed = hasher.hash_body(&conversation, &blobs);
                    match render(&whole, &blobs) {
                        Ok(body) => {
                            prop_assert_eq!(hashed, Ok((request_hash(&body), body.len() as u64)));
                        }
                        Err(error) => prop_assert_eq!(hashed, Err(error)),
                    }
                    if let Some(nudge) = nudge {
                        transcript.add_note(text(nudge));
                    }
                    transcript.seal_pending();
                    let turn = Turn(u32::try_from(nth).expect("small") + 1);
                    let uses = (0..*calls).map(|call| MessagePart::ToolUse(ToolUse {
                        call: CallId::for_tool(turn, call),
                        name: "read_file".to_owned(),
                        args: serde_json::json!({ "path": nth }),
                        malformed: None,
                    }));
                    transcript.add_answer(said.iter().map(|said| text(said)).chain(uses).collect());
                    for call in (0..*calls).rev() {
                        let id = CallId::for_tool(turn, call);
                        let content = if call == 1 { Content::Blob(blob) } else { "done".into() };
                        let part = MessagePart::ToolResult { call: id.clone(), content, is_error: call == 2 };
                        transcript.add_result(&id, part);
                    }
                    if *tell || *calls == 0 {
                        transcript.add_note(text("a word"));
                    }
                }
                // The beginning of a long run is not read again.
                if turns.len() > 8 && turns.iter().all(|turn| turn.0 > 0 && !turn.3) {
                    prop_assert!(hasher.first_unhashed_message(&transcript.conversation(None)) > 8);
                }
            }
        }
    }
}
