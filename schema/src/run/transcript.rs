//! The conversation as it grows: messages that were sent or answered, and what waits to be said.
//!
//! Invariant: roles alternate, and every tool use of an assistant message has its one result in the
//! user message after it, in call order. Whatever order events come in, [`Transcript::conversation`]
//! is a request that every provider takes.

use std::sync::Arc;

use crate::message::{CallId, Message, Part, Role, ToolUse};

/// A message and the digest of its canonical JSON, computed once: a decision over five hundred
/// messages hashes five hundred digests, not a megabyte.
#[derive(Debug, Clone, PartialEq)]
pub struct Said {
    /// The message.
    pub message: Message,
    /// BLAKE3 of its JSON.
    pub digest: [u8; 32],
}

impl Said {
    /// Seals a message.
    pub fn new(message: Message) -> Arc<Self> {
        let json = serde_json::to_vec(&message).expect("messages have string keys only");
        Arc::new(Self { digest: *blake3::hash(&json).as_bytes(), message })
    }
}

/// See the module.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    sealed: Vec<Arc<Said>>,
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
        self.sealed.push(Said::new(Message { role: Role::Assistant, parts }));
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
            match next {
                Pending::Message(message) => self.sealed.push(message),
                Pending::Continues(message) => {
                    self.sealed.pop();
                    self.sealed.push(message);
                }
            }
        }
    }

    /// The whole conversation, with what waits to be said at its end, and then `nudge`: what a
    /// request that adds these words would carry.
    pub fn conversation(&self, nudge: Option<&str>) -> Vec<Arc<Said>> {
        let mut messages = self.sealed.clone();
        match self.pending(nudge) {
            None => {}
            Some(Pending::Message(message)) => messages.push(message),
            Some(Pending::Continues(message)) => {
                messages.pop();
                messages.push(message);
            }
        }
        messages
    }

    /// Replaces the first `count` messages by one user message, as a recorded compaction says.
    /// The message after the replaced ones must be the model's.
    pub fn compact(&mut self, count: usize, summary: Part) {
        let count = count.min(self.sealed.len());
        let message = Said::new(Message { role: Role::User, parts: vec![summary] });
        self.sealed.splice(..count, [message]);
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
        match self.sealed.last() {
            Some(last) if last.message.role == Role::User => {
                let mut whole = last.message.parts.clone();
                whole.extend(parts);
                Some(Pending::Continues(Said::new(Message { role: Role::User, parts: whole })))
            }
            Some(_) | None => Some(Pending::Message(Said::new(Message { role: Role::User, parts }))),
        }
    }
}

enum Pending {
    Message(Arc<Said>),
    /// The last sealed message, longer: two user messages in a row are refused by providers.
    Continues(Arc<Said>),
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
        assert_eq!(next[2].message.parts, [text("target/ did not come along"), text("the tests failed")]);
        transcript.seal();
        assert_eq!(transcript.conversation(None), next);
    }
}
