//! The conversation as it grows: messages that were sent or answered, and what waits to be said.
//!
//! Invariant: roles alternate, and every tool use of an assistant message has its one result in the
//! user message after it, in call order. Whatever order events come in, [`Transcript::conversation`]
//! is a request that every provider takes.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use crate::run::events::compacted::{Cleared, Compacted};
use crate::{
    content::Content,
    message::{CallId, Message, Part, Role, ToolUse},
};

/// A message of a conversation, and once somebody asked, the seal of the conversation up to and with it. A seal is
/// computed once, from the one before it: a decision over five hundred messages hashes one digest, not a
/// megabyte. A log that is only folded computes none.
#[derive(Debug, Clone)]
pub struct Said {
    /// The message.
    pub message: Message,
    seal: OnceLock<Seal>,
}

/// What a conversation is, and how large.
#[derive(Debug, Clone, Copy, Default)]
struct Seal {
    /// BLAKE3 of the digest before it (none for the first) and of its last message's JSON.
    digest: [u8; 32],
    /// Bytes: of its JSON, and of what that has out of line.
    bytes: u64,
}

impl Seal {
    fn after(before: Option<Self>, message: &Message) -> Self {
        let json = serde_json::to_vec(message).expect("messages have string keys only");
        let mut hasher = blake3::Hasher::new();
        if let Some(before) = before {
            hasher.update(&before.digest);
        }
        hasher.update(&json);
        let bytes = json.len() as u64 + message.parts.iter().map(bytes_out_of_line).sum::<u64>();
        let bytes = bytes.saturating_add(before.unwrap_or_default().bytes);
        Self { digest: *hasher.finalize().as_bytes(), bytes }
    }
}

impl Said {
    fn new(message: Message) -> Arc<Self> {
        Arc::new(Self { message, seal: OnceLock::new() })
    }
}

impl PartialEq for Said {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
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
        self.seal().digest
    }

    /// Bytes of it all: of its JSON, and of what that has out of line.
    pub fn bytes(&self) -> u64 {
        self.seal().bytes
    }

    /// The digest of the first `messages`, as [`Self::digest`].
    pub fn digest_of(&self, messages: usize) -> [u8; 32] {
        self.seal_of(messages).digest
    }

    fn seal(&self) -> Seal {
        self.seal_of(self.len())
    }

    /// A message is in one conversation only, and in what is taken from that: its seal is the same in each.
    fn seal_of(&self, messages: usize) -> Seal {
        let sealed = |place: usize| self.get(place).and_then(|said| said.seal.get().copied());
        let known = (0..messages).rev().find_map(|place| Some((place + 1, sealed(place)?)));
        let (from, mut seal) = known.map_or((0, None), |(from, seal)| (from, Some(seal)));
        for said in self.since(from).take(messages.saturating_sub(from)) {
            seal = Some(*said.seal.get_or_init(|| Seal::after(seal, &said.message)));
        }
        seal.unwrap_or_default()
    }
}

impl FromIterator<Message> for Conversation {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        let sealed: Arc<Vec<Arc<Said>>> = Arc::new(messages.into_iter().map(Said::new).collect());
        Self { shared: sealed.len(), sealed, last: None }
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
    /// What the first message was before the first compaction that kept it; empty before that.
    task: Vec<Part>,
    /// What stands for messages that were replaced since then.
    summary: Option<Part>,
    /// Answers of the model that were dropped or replaced.
    answers_left_out: u32,
    /// Results that compactions took away or made shorter, as they were: whoever asks for them has them.
    put_aside: BTreeMap<CallId, Content>,
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
        let said = Said::new(Message { role: Role::Assistant, parts });
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

    /// Bytes of the first `messages` of what was sent or answered, as [`Conversation::bytes`] counts them.
    pub fn bytes_of(&self, messages: usize) -> u64 {
        self.sealed_conversation().seal_of(messages).bytes
    }

    /// What the first message held before anything was put behind it.
    pub fn task(&self) -> &[Part] {
        if self.task.is_empty() {
            self.sealed.first().map_or(&[], |said| &said.message.parts)
        } else {
            &self.task
        }
    }

    /// What stands for messages that were replaced behind the task.
    pub fn summary(&self) -> Option<&str> {
        match &self.summary {
            Some(Part::Text { text: Content::Text(text) }) => Some(text),
            Some(_) | None => None,
        }
    }

    /// Answers of the model that no longer stand here.
    pub const fn answers_left_out(&self) -> u32 {
        self.answers_left_out
    }

    /// A result as it was before a compaction made it shorter, or took it away.
    pub fn put_aside(&self, call: &CallId) -> Option<&Content> {
        self.put_aside.get(call)
    }

    fn put_aside_what_went(&mut self, before: Vec<(CallId, Content)>) {
        let now: BTreeMap<CallId, Content> = self.contents().into_iter().collect();
        for (call, content) in before.into_iter().filter(|(call, content)| now.get(call) != Some(content)) {
            // What was made shorter twice was whole before the first time.
            self.put_aside.entry(call).or_insert(content);
        }
    }

    fn contents(&self) -> Vec<(CallId, Content)> {
        let sealed = self.sealed.iter().flat_map(|said| &said.message.parts);
        let parts = sealed.chain(self.results.iter().map(|(_, part)| part));
        let contents = parts.filter_map(|part| match part {
            Part::ToolResult { call, content, .. } => Some((call.clone(), content.clone())),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) => None,
        });
        contents.collect()
    }

    /// Calls whose results stand here, sent or about to be.
    pub(in crate::run) fn results_of(&self) -> BTreeSet<&CallId> {
        let parts = self.sealed.iter().flat_map(|said| &said.message.parts);
        let sealed = parts.filter_map(|part| match part {
            Part::ToolResult { call, .. } => Some(call),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) => None,
        });
        sealed.chain(self.results.iter().map(|(call, _)| call)).collect()
    }

    /// Does what a recorded compaction says. Of what waits to be said, only results that it names are touched.
    ///
    /// # Errors
    /// What it says would leave a call without its result, a result without its call, or two messages of
    /// one side in a row.
    pub fn compact(&mut self, event: Compacted) -> Result<(), String> {
        let before = self.contents();
        self.compact_as_said(event)?;
        self.put_aside_what_went(before);
        Ok(())
    }

    fn compact_as_said(&mut self, event: Compacted) -> Result<(), String> {
        let count = event.messages as usize;
        let messages: Vec<Message> = self.sealed.iter().map(|said| said.message.clone()).collect();
        let summary = Part::Text { text: event.summary };
        if !event.keeps_task {
            let (left_out, kept) = messages.split_at(count.min(messages.len()));
            self.answers_left_out += answers(left_out);
            (self.task, self.summary) = (Vec::new(), None);
            let first = Message { role: Role::User, parts: vec![summary] };
            self.sealed = renewed(std::iter::once(first).chain(kept.iter().cloned()));
            return Ok(());
        }
        let mut messages = messages.into_iter();
        let Some(first) = messages.next().filter(|first| first.role == Role::User) else {
            return Err(": no message of the user's begins the conversation".to_owned());
        };
        let mut rest: Vec<Message> = messages.collect();
        self.answers_left_out += without(&mut rest, &event.dropped.into_iter().collect())?;
        let parts = rest.iter_mut().flat_map(|message| &mut message.parts);
        let waiting = self.results.iter_mut().map(|(_, part)| part);
        clear(parts.chain(waiting), event.cleared);
        if count > 0 {
            if rest.get(count).is_none_or(|next| next.role != Role::Assistant) {
                return Err(format!(": no answer of the model follows message {count}"));
            }
            self.answers_left_out += answers(&rest[..count]);
            rest.drain(..count);
        }
        if count > 0 || !is_empty_text(&summary) {
            self.summary = Some(summary);
        }
        if self.task.is_empty() {
            self.task = first.parts;
        }
        let ledger = event.ledger.map(|text| Part::Text { text });
        let parts = self.task.iter().chain(&self.summary).cloned().chain(ledger).collect();
        let first = Message { role: Role::User, parts };
        self.sealed = renewed(std::iter::once(first).chain(rest));
        Ok(())
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
        Some(Pending { after, said: Said::new(Message { role: Role::User, parts }) })
    }
}

/// The seals of all that follows a change are others: messages are new ones.
fn renewed(messages: impl Iterator<Item = Message>) -> Arc<Vec<Arc<Said>>> {
    Arc::new(messages.map(Said::new).collect())
}

fn answers(messages: &[Message]) -> u32 {
    let answers = messages.iter().filter(|message| message.role == Role::Assistant).count();
    u32::try_from(answers).unwrap_or(u32::MAX)
}

/// Drops the answers that made these calls, with the messages that hold their results. How many.
fn without(messages: &mut Vec<Message>, dropped: &BTreeSet<CallId>) -> Result<u32, String> {
    if dropped.is_empty() {
        return Ok(0);
    }
    let mut kept = Vec::with_capacity(messages.len());
    let mut count = 0;
    let mut all = std::mem::take(messages).into_iter().peekable();
    while let Some(message) = all.next() {
        let goes = |part: &Part| match part {
            Part::ToolUse(tool) => dropped.contains(&tool.call),
            Part::ToolResult { .. } | Part::Text { .. } | Part::Thinking { .. } => false,
        };
        if !message.parts.iter().any(goes) {
            kept.push(message);
            continue;
        }
        if let Some(tool) = calls_of(&message.parts).find(|tool| !dropped.contains(&tool.call)) {
            return Err(format!(": {} is a call of an answer that is dropped", tool.call));
        }
        let only_results = |message: &Message| {
            message.role == Role::User
                && message.parts.iter().all(|part| matches!(part, Part::ToolResult { .. }))
        };
        if all.next_if(only_results).is_none() {
            return Err(": results and nothing else must follow an answer that is dropped".to_owned());
        }
        count += 1;
    }
    *messages = kept;
    Ok(count)
}

fn clear<'a>(parts: impl Iterator<Item = &'a mut Part>, cleared: Vec<Cleared>) {
    let mut cleared: BTreeMap<CallId, String> =
        cleared.into_iter().map(|cleared| (cleared.call, cleared.line)).collect();
    for part in parts {
        if let Part::ToolResult { call, content, .. } = part
            && let Some(line) = cleared.remove(call)
        {
            *content = Content::Text(line);
        }
    }
}

fn bytes_out_of_line(part: &Part) -> u64 {
    match part {
        Part::Text { text: content } | Part::ToolResult { content, .. } => {
            content.blob().map_or(0, |blob| blob.bytes)
        }
        Part::Thinking { .. } | Part::ToolUse(_) => 0,
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
            Content::Text(text) => text.trim().is_empty(),
            Content::B64(_) | Content::Blob(_) => false,
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
        let of_old = Compacted { messages: 3, summary: "s".into(), ..Compacted::default() };
        short.compact(of_old).expect("legal");
        assert_eq!(short.conversation(None), grown(&["s", "d"]).conversation(None));
    }
}
