//! The conversation as it grows: messages that were sent or answered, and what waits to be said.
//!
//! Invariant: roles alternate, and every tool use of an assistant message has its one result in the
//! user message after it, in call order. Whatever order events come in, [`Transcript::conversation`]
//! is a request that every provider takes.

use std::sync::Arc;

use crate::message::{CallId, Message, Part, Role, ToolUse};

/// A message, and the digest of the conversation up to and with it. The digest is computed once, from the
/// one before it: a decision over five hundred messages hashes one digest, not a megabyte.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The message.
    pub message: Message,
    /// BLAKE3 of the digest before it (none for the first) and of its JSON.
    pub digest: [u8; 32],
}

impl Said {
    /// Seals a message that follows `before`.
    pub fn after(before: Option<&Self>, message: Message) -> Arc<Self> {
        let json = serde_json::to_vec(&message).expect("messages have string keys only");
        let mut hasher = blake3::Hasher::new();
        if let Some(before) = before {
            hasher.update(&before.digest);
        }
        hasher.update(&json);
        Arc::new(Self { digest: *hasher.finalize().as_bytes(), message })
    }
}

/// A conversation as a request carries it: the sealed messages, shared with the transcript they are from,
/// and what would be sealed by sending it.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    sealed: Arc<Vec<Arc<Said>>>,
    /// How many of `sealed` belong to it.
    shared: usize,
    last: Option<Arc<Said>>,
}

impl Conversation {
    /// How many messages it has.
    pub fn len(&self) -> usize {
        self.shared + usize::from(self.last.is_some())
    }

    /// Whether nothing was said.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The message at `place`, from 0.
    pub fn get(&self, place: usize) -> Option<&Arc<Said>> {
        if place < self.shared {
            self.sealed.get(place)
        } else {
            self.last.as_ref().filter(|_| place == self.shared)
        }
    }

    /// The messages from `place` on.
    pub fn since(&self, place: usize) -> impl Iterator<Item = &Arc<Said>> {
        (place..self.len()).filter_map(|place| self.get(place))
    }

    /// All messages.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Said>> {
        self.since(0)
    }

    /// The digest of it all; zeros where nothing was said.
    pub fn digest(&self) -> [u8; 32] {
        self.len().checked_sub(1).and_then(|last| self.get(last)).map_or([0; 32], |said| said.digest)
    }
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.digest() == other.digest()
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// Shared with the conversations taken from it: taking one copies nothing.
    sealed: Arc<Vec<Arc<Said>>>,
    /// Calls of the last assistant message whose results are being collected, in order.
    calls: Vec<CallId>,
    results: Vec<(CallId, Part)>,
    notes: Vec<Part>,
    /// Said with the next request, if there is one; no reason to make one.
    asides: Vec<Part>,
}

impl Transcript {
    /// Messages already sent or answered.
    pub fn sealed(&self) -> &[Arc<Said>] {
        &self.sealed
    }

    /// Adds a text for the model, to be said with the next request, after any tool results.
    pub fn note(&mut self, part: Part) {
        self.notes.push(part);
    }

    /// Adds a text that goes with the next request, but calls for none: a run that is at its end ends.
    pub fn aside(&mut self, part: Part) {
        self.asides.push(part);
    }

    /// Whether something waits to be said that calls for an answer.
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Adds the model's answer. An answer that says nothing leaves no message: providers refuse
    /// an empty one.
    pub fn answer(&mut self, parts: Vec<Part>) {
        let parts: Vec<Part> = parts.into_iter().filter(|part| !is_empty_text(part)).collect();
        let speaks = |part: &Part| !matches!(part, Part::Thinking { .. });
        if !parts.iter().any(speaks) {
            return;
        }
        self.calls = calls_of(&parts).map(|tool| tool.call.clone()).collect();
        let said =
            Said::after(self.sealed.last().map(|said| &**said), Message { role: Role::Assistant, parts });
        Arc::make_mut(&mut self.sealed).push(said);
    }

    /// Adds a result of a call of the last answer.
    pub fn result(&mut self, call: &CallId, part: Part) {
        self.results.push((call.clone(), part));
    }

    /// Seals what waits into a user message: called when a request with it is on its way.
    pub fn seal(&mut self) {
        if let Some(next) = self.pending(None) {
            self.calls.clear();
            self.results.clear();
            self.notes.clear();
            self.asides.clear();
            let sealed = Arc::make_mut(&mut self.sealed);
            sealed.truncate(next.after);
            sealed.push(next.said);
        }
    }

    /// The whole conversation, with what waits to be said at its end, and then `nudge`: what a
    /// request that adds these words would carry.
    pub fn conversation(&self, nudge: Option<&str>) -> Conversation {
        let sealed = Arc::clone(&self.sealed);
        match self.pending(nudge) {
            None => Conversation { shared: sealed.len(), sealed, last: None },
            Some(next) => Conversation { shared: next.after, sealed, last: Some(next.said) },
        }
    }

    /// The messages already sent or answered, as a request for an answer to them carries them.
    pub fn sealed_conversation(&self) -> Conversation {
        Conversation { shared: self.sealed.len(), sealed: Arc::clone(&self.sealed), last: None }
    }

    /// Replaces the first `count` messages by one user message, as a recorded compaction says.
    /// The message after the replaced ones must be the model's.
    pub fn compact(&mut self, count: usize, summary: Part) {
        let count = count.min(self.sealed.len());
        let first = Message { role: Role::User, parts: vec![summary] };
        let kept = self.sealed[count..].iter().map(|said| said.message.clone());
        // The digests of all that follows change with what it follows.
        let mut sealed: Vec<Arc<Said>> = Vec::with_capacity(1 + self.sealed.len() - count);
        for message in std::iter::once(first).chain(kept) {
            let said = Said::after(sealed.last().map(|said| &**said), message);
            sealed.push(said);
        }
        self.sealed = Arc::new(sealed);
    }

    fn pending(&self, nudge: Option<&str>) -> Option<Pending> {
        let mut parts: Vec<Part> = Vec::with_capacity(self.results.len() + self.notes.len());
        for call in &self.calls {
            let result = self.results.iter().find(|(of, _)| of == call);
            parts.extend(result.map(|(_, part)| part.clone()));
        }
        parts.extend(self.asides.iter().chain(&self.notes).cloned());
        parts.extend(nudge.map(|text| Part::Text { text: text.into() }));
        if parts.is_empty() {
            return None;
        }
        // Two user messages in a row are refused by providers: the last one becomes longer.
        let after = match self.sealed.last() {
            Some(last) if last.message.role == Role::User => {
                parts.splice(..0, last.message.parts.iter().cloned());
                self.sealed.len() - 1
            }
            Some(_) | None => self.sealed.len(),
        };
        let before = after.checked_sub(1).and_then(|last| self.sealed.get(last)).map(|said| &**said);
        Some(Pending { after, said: Said::after(before, Message { role: Role::User, parts }) })
    }
}

/// The next message of the user's side.
struct Pending {
    /// How many sealed messages it follows: not the last one, where it continues that.
    after: usize,
    said: Arc<Said>,
}

/// The tool calls among `parts`, in order.
pub fn calls_of(parts: &[Part]) -> impl Iterator<Item = &ToolUse> {
    parts.iter().filter_map(|part| match part {
        Part::ToolUse(tool) => Some(tool),
        Part::Text { .. } | Part::Thinking { .. } | Part::ToolResult { .. } => None,
    })
}

fn is_empty_text(part: &Part) -> bool {
    match part {
        Part::Text { text } => match text {
            crate::content::Content::Text(text) => text.trim().is_empty(),
            crate::content::Content::B64(_) | crate::content::Content::Blob(_) => false,
        },
        Part::Thinking { .. } | Part::ToolUse(_) | Part::ToolResult { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aside_is_said_with_the_next_request_and_calls_for_none() {
        let text = |text: &str| Part::Text { text: text.into() };
        let mut transcript = Transcript::default();
        transcript.note(text("the task"));
        transcript.seal();
        transcript.answer(vec![text("done")]);
        transcript.aside(text("target/ did not come along"));
        assert!(!transcript.has_notes());
        transcript.note(text("the tests failed"));
        let next = transcript.conversation(None);
        assert_eq!(
            next.get(2).expect("a third message").message.parts,
            [text("target/ did not come along"), text("the tests failed")]
        );
        transcript.seal();
        assert_eq!(transcript.conversation(None), next);
    }

    #[test]
    fn the_digest_is_that_of_the_whole_conversation_however_it_grew() {
        let text = |text: &str| Part::Text { text: text.into() };
        let grown = |words: &[&str]| {
            let mut transcript = Transcript::default();
            for (nth, word) in words.iter().enumerate() {
                if nth % 2 == 0 {
                    transcript.note(text(word));
                    transcript.seal();
                } else {
                    transcript.answer(vec![text(word)]);
                }
            }
            transcript
        };
        let mut transcript = grown(&["a", "b", "c"]);
        let before = transcript.conversation(None);
        transcript.note(text("d"));
        let longer = transcript.conversation(None);
        transcript.seal();
        assert_eq!((before.len(), longer.len()), (3, 3));
        assert_eq!(longer, transcript.conversation(None));
        assert_ne!(longer, before, "what was taken before stays what it was");
        assert_ne!(grown(&["a", "b"]).conversation(None), grown(&["x", "b"]).conversation(None));
        assert_eq!(grown(&["a", "b"]).conversation(None), grown(&["a", "b"]).conversation(None));
        let mut short = grown(&["a", "b", "c", "d"]);
        short.compact(3, text("s"));
        assert_eq!(short.conversation(None), grown(&["s", "d"]).conversation(None));
    }
}
