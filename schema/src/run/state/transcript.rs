//! The conversation of a run: messages that were sent or received, and parts waiting for the next request.
//!
//! Invariant: roles alternate, and every tool use of an assistant message has exactly one result in the
//! following user message, in call order. In whatever order events arrive, [`Transcript::conversation`] is a
//! request that every provider accepts.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, OnceLock},
};

use crate::run::events::compaction::{ClearedResult, Compacted};
use crate::{
    content::Content,
    message::{CallId, Message, MessagePart, MessageRole, ToolUse},
};

/// A message of a conversation, with the lazily computed digest of the conversation up to and including it. A
/// digest is computed once, from the previous one, so a decision over five hundred messages hashes one digest
/// instead of a megabyte. Folding a log computes none.
#[derive(Debug, Clone)]
pub struct TranscriptEntry {
    /// The message.
    pub message: Message,
    digest: OnceLock<EntryDigest>,
}

/// Digest and size of a conversation.
#[derive(Debug, Clone, Copy, Default)]
struct EntryDigest {
    /// BLAKE3 hash of the previous digest (none for the first) and the last message's JSON.
    digest: [u8; 32],
    /// Size in bytes: of the JSON, and of blobs it refers to.
    bytes: u64,
}

impl EntryDigest {
    fn from_previous(before: Option<Self>, message: &Message) -> Self {
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

impl TranscriptEntry {
    fn new(message: Message) -> Arc<Self> {
        Arc::new(Self { message, digest: OnceLock::new() })
    }
}

impl PartialEq for TranscriptEntry {
    fn eq(&self, other: &Self) -> bool {
        self.message == other.message
    }
}

/// A conversation as sent in a request: the sealed messages, shared with their transcript, and the pending
/// ones that sending would seal.
#[derive(Debug, Clone, Default)]
pub struct Conversation {
    entries: Arc<Vec<Arc<TranscriptEntry>>>,
    /// How many of `sealed` belong to it.
    shared_len: usize,
    last: Option<Arc<TranscriptEntry>>,
}

impl Conversation {
    /// Returns the number of messages.
    pub fn len(&self) -> usize {
        self.shared_len + usize::from(self.last.is_some())
    }

    /// Whether there are no messages.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the message at index `place`.
    pub fn get(&self, place: usize) -> Option<&Arc<TranscriptEntry>> {
        if place < self.shared_len {
            self.entries.get(place)
        } else {
            self.last.as_ref().filter(|_| place == self.shared_len)
        }
    }

    /// Returns the messages from index `place` onward.
    pub fn entries_from(&self, place: usize) -> impl Iterator<Item = &Arc<TranscriptEntry>> {
        (place..self.len()).filter_map(|place| self.get(place))
    }

    /// Returns all messages.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<TranscriptEntry>> {
        self.entries_from(0)
    }

    /// Returns the digest of all messages; zeros if there are none.
    pub fn digest(&self) -> [u8; 32] {
        self.full_entry_digest().digest
    }

    /// Returns the size of all messages in bytes: of their JSON, and of blobs they refer to.
    pub fn bytes(&self) -> u64 {
        self.full_entry_digest().bytes
    }

    /// Returns the digest of the first `messages`, as for [`Self::digest`].
    pub fn prefix_digest(&self, messages: usize) -> [u8; 32] {
        self.prefix_entry_digest(messages).digest
    }

    fn full_entry_digest(&self) -> EntryDigest {
        self.prefix_entry_digest(self.len())
    }

    /// A message belongs to one conversation and its prefixes only, so its digest is the same in each.
    fn prefix_entry_digest(&self, messages: usize) -> EntryDigest {
        let sealed = |place: usize| self.get(place).and_then(|said| said.digest.get().copied());
        let known = (0..messages).rev().find_map(|place| Some((place + 1, sealed(place)?)));
        let (from, mut seal) = known.map_or((0, None), |(from, seal)| (from, Some(seal)));
        for said in self.entries_from(from).take(messages.saturating_sub(from)) {
            seal = Some(*said.digest.get_or_init(|| EntryDigest::from_previous(seal, &said.message)));
        }
        seal.unwrap_or_default()
    }
}

impl FromIterator<Message> for Conversation {
    fn from_iter<T: IntoIterator<Item = Message>>(messages: T) -> Self {
        let sealed: Arc<Vec<Arc<TranscriptEntry>>> =
            Arc::new(messages.into_iter().map(TranscriptEntry::new).collect());
        Self { shared_len: sealed.len(), entries: sealed, last: None }
    }
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.digest() == other.digest()
    }
}

/// Transcript of a run. See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// Shared with the conversations created from it, so that creating one copies nothing.
    sealed: Arc<Vec<Arc<TranscriptEntry>>>,
    /// Calls of the last assistant message whose results are being collected, in order.
    calls: Vec<CallId>,
    results: Vec<(CallId, MessagePart)>,
    notes: Vec<MessagePart>,
    /// Parts that are sent with the next request but do not trigger one.
    asides: Vec<MessagePart>,
    /// The original first message, since the first compaction that kept it; empty before.
    task: Vec<MessagePart>,
    /// The summary of messages replaced since then.
    summary: Option<MessagePart>,
    /// Number of the model's answers that were dropped or replaced.
    omitted_answers: u32,
    /// Original results that compactions removed or shortened, for tools that return them on request.
    original_results: BTreeMap<CallId, Content>,
}

impl Transcript {
    /// Returns the messages already sent or received.
    pub fn sealed_entries(&self) -> &[Arc<TranscriptEntry>] {
        &self.sealed
    }

    /// Adds a text for the model to the next request, after any tool results.
    pub fn add_note(&mut self, part: MessagePart) {
        self.notes.push(part);
    }

    /// Adds a text that is sent with the next request but does not trigger one: a run at its end still ends.
    pub fn add_aside(&mut self, part: MessagePart) {
        self.asides.push(part);
    }

    /// Whether a pending part requires an answer.
    pub fn has_notes(&self) -> bool {
        !self.notes.is_empty()
    }

    /// Adds the model's answer. An empty answer is not added, because providers refuse empty messages.
    pub fn add_answer(&mut self, parts: Vec<MessagePart>) {
        let parts: Vec<MessagePart> = parts.into_iter().filter(|part| !is_empty_text(part)).collect();
        let speaks = |part: &MessagePart| !matches!(part, MessagePart::Thinking { .. });
        if !parts.iter().any(speaks) {
            return;
        }
        self.calls = tool_uses(&parts).map(|tool| tool.call.clone()).collect();
        let said = TranscriptEntry::new(Message { role: MessageRole::Assistant, parts });
        Arc::make_mut(&mut self.sealed).push(said);
    }

    /// Adds the result of a call of the last answer.
    pub fn add_result(&mut self, call: &CallId, part: MessagePart) {
        self.results.push((call.clone(), part));
    }

    /// Seals the pending parts into a user message. Called when a request that contains them is being sent.
    pub fn seal_pending(&mut self) {
        if let Some(next) = self.pending_message(None) {
            self.calls.clear();
            self.results.clear();
            self.notes.clear();
            self.asides.clear();
            let sealed = Arc::make_mut(&mut self.sealed);
            sealed.truncate(next.sealed_count);
            sealed.push(next.entry);
        }
    }

    /// Returns the complete conversation with the pending parts at its end, followed by `nudge`: what a
    /// request with this reminder would send.
    pub fn conversation(&self, nudge: Option<&str>) -> Conversation {
        let sealed = Arc::clone(&self.sealed);
        match self.pending_message(nudge) {
            None => Conversation { shared_len: sealed.len(), entries: sealed, last: None },
            Some(next) => {
                Conversation { shared_len: next.sealed_count, entries: sealed, last: Some(next.entry) }
            }
        }
    }

    /// Returns the messages already sent or received, as sent in a request for an answer to them.
    pub fn sealed_conversation(&self) -> Conversation {
        Conversation { shared_len: self.sealed.len(), entries: Arc::clone(&self.sealed), last: None }
    }

    /// Returns the size in bytes of the first `messages` sent or received, as counted by
    /// [`Conversation::bytes`].
    pub fn prefix_bytes(&self, messages: usize) -> u64 {
        self.sealed_conversation().prefix_entry_digest(messages).bytes
    }

    /// Returns the original parts of the first message.
    pub fn task_parts(&self) -> &[MessagePart] {
        if self.task.is_empty() {
            self.sealed.first().map_or(&[], |said| &said.message.parts)
        } else {
            &self.task
        }
    }

    /// Returns the summary of messages replaced after the task.
    pub fn summary_text(&self) -> Option<&str> {
        match &self.summary {
            Some(MessagePart::Text { text: Content::Text(text) }) => Some(text),
            Some(_) | None => None,
        }
    }

    /// Returns the number of the model's answers that were removed.
    pub const fn omitted_answers(&self) -> u32 {
        self.omitted_answers
    }

    /// Returns a result as it was before a compaction shortened or removed it.
    pub fn original_result(&self, call: &CallId) -> Option<&Content> {
        self.original_results.get(call)
    }

    fn keep_originals(&mut self, before: Vec<(CallId, Content)>) {
        let now: BTreeMap<CallId, Content> = self.result_contents().into_iter().collect();
        for (call, content) in before.into_iter().filter(|(call, content)| now.get(call) != Some(content)) {
            // If shortened twice, keep the original from before the first time.
            self.original_results.entry(call).or_insert(content);
        }
    }

    fn result_contents(&self) -> Vec<(CallId, Content)> {
        let sealed = self.sealed.iter().flat_map(|said| &said.message.parts);
        let parts = sealed.chain(self.results.iter().map(|(_, part)| part));
        let contents = parts.filter_map(|part| match part {
            MessagePart::ToolResult { call, content, .. } => Some((call.clone(), content.clone())),
            MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => None,
        });
        contents.collect()
    }

    /// Returns the calls whose results are in the conversation, sent or pending.
    pub(in crate::run) fn result_calls(&self) -> BTreeSet<&CallId> {
        let parts = self.sealed.iter().flat_map(|said| &said.message.parts);
        let sealed = parts.filter_map(|part| match part {
            MessagePart::ToolResult { call, .. } => Some(call),
            MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => None,
        });
        sealed.chain(self.results.iter().map(|(call, _)| call)).collect()
    }

    /// Applies a recorded compaction. Of the pending parts, it only affects results that it lists.
    ///
    /// # Errors
    ///
    /// Fails if it would leave a call without its result, a result without its call, or two consecutive
    /// messages with the same role.
    pub fn compact(&mut self, event: Compacted) -> Result<(), String> {
        let before = self.result_contents();
        self.apply_compaction(event)?;
        self.keep_originals(before);
        Ok(())
    }

    fn apply_compaction(&mut self, event: Compacted) -> Result<(), String> {
        let count = event.messages as usize;
        let messages: Vec<Message> = self.sealed.iter().map(|said| said.message.clone()).collect();
        let summary = MessagePart::Text { text: event.summary };
        if !event.keeps_task {
            let (left_out, kept) = messages.split_at(count.min(messages.len()));
            self.omitted_answers += count_answers(left_out);
            (self.task, self.summary) = (Vec::new(), None);
            let first = Message { role: MessageRole::User, parts: vec![summary] };
            self.sealed = reseal_messages(std::iter::once(first).chain(kept.iter().cloned()));
            return Ok(());
        }
        let mut messages = messages.into_iter();
        let Some(first) = messages.next().filter(|first| first.role == MessageRole::User) else {
            return Err(": no message of the user's begins the conversation".to_owned());
        };
        let mut rest: Vec<Message> = messages.collect();
        self.omitted_answers += drop_calls(&mut rest, &event.dropped.into_iter().collect())?;
        let parts = rest.iter_mut().flat_map(|message| &mut message.parts);
        let waiting = self.results.iter_mut().map(|(_, part)| part);
        clear_tool_results(parts.chain(waiting), event.cleared);
        if count > 0 {
            if rest.get(count).is_none_or(|next| next.role != MessageRole::Assistant) {
                return Err(format!(": no answer of the model follows message {count}"));
            }
            self.omitted_answers += count_answers(&rest[..count]);
            rest.drain(..count);
        }
        if count > 0 || !is_empty_text(&summary) {
            self.summary = Some(summary);
        }
        if self.task.is_empty() {
            self.task = first.parts;
        }
        let ledger = event.ledger.map(|text| MessagePart::Text { text });
        let parts = self.task.iter().chain(&self.summary).cloned().chain(ledger).collect();
        let first = Message { role: MessageRole::User, parts };
        self.sealed = reseal_messages(std::iter::once(first).chain(rest));
        Ok(())
    }

    fn pending_message(&self, nudge: Option<&str>) -> Option<PendingMessage> {
        let mut parts: Vec<MessagePart> = Vec::with_capacity(self.results.len() + self.notes.len());
        for call in &self.calls {
            let result = self.results.iter().find(|(of, _)| of == call);
            parts.extend(result.map(|(_, part)| part.clone()));
        }
        parts.extend(self.asides.iter().chain(&self.notes).cloned());
        parts.extend(nudge.map(|text| MessagePart::Text { text: text.into() }));
        if parts.is_empty() {
            return None;
        }
        // Providers refuse two consecutive user messages, so the last one is extended.
        let after = match self.sealed.last() {
            Some(last) if last.message.role == MessageRole::User => {
                parts.splice(..0, last.message.parts.iter().cloned());
                self.sealed.len() - 1
            }
            Some(_) | None => self.sealed.len(),
        };
        Some(PendingMessage {
            sealed_count: after,
            entry: TranscriptEntry::new(Message { role: MessageRole::User, parts }),
        })
    }
}

/// Creates new messages, because the digests after a change differ.
fn reseal_messages(messages: impl Iterator<Item = Message>) -> Arc<Vec<Arc<TranscriptEntry>>> {
    Arc::new(messages.map(TranscriptEntry::new).collect())
}

fn count_answers(messages: &[Message]) -> u32 {
    let answers = messages.iter().filter(|message| message.role == MessageRole::Assistant).count();
    u32::try_from(answers).unwrap_or(u32::MAX)
}

/// Drops the answers that made these calls, and the messages with their results. Returns the number of
/// answers.
fn drop_calls(messages: &mut Vec<Message>, dropped: &BTreeSet<CallId>) -> Result<u32, String> {
    if dropped.is_empty() {
        return Ok(0);
    }
    let mut kept = Vec::with_capacity(messages.len());
    let mut count = 0;
    let mut all = std::mem::take(messages).into_iter().peekable();
    while let Some(message) = all.next() {
        let goes = |part: &MessagePart| match part {
            MessagePart::ToolUse(tool) => dropped.contains(&tool.call),
            MessagePart::ToolResult { .. } | MessagePart::Text { .. } | MessagePart::Thinking { .. } => false,
        };
        if !message.parts.iter().any(goes) {
            kept.push(message);
            continue;
        }
        if let Some(tool) = tool_uses(&message.parts).find(|tool| !dropped.contains(&tool.call)) {
            return Err(format!(": {} is a call of an answer that is dropped", tool.call));
        }
        let only_results = |message: &Message| {
            message.role == MessageRole::User
                && message.parts.iter().all(|part| matches!(part, MessagePart::ToolResult { .. }))
        };
        if all.next_if(only_results).is_none() {
            return Err(": results and nothing else must follow an answer that is dropped".to_owned());
        }
        count += 1;
    }
    *messages = kept;
    Ok(count)
}

fn clear_tool_results<'a>(parts: impl Iterator<Item = &'a mut MessagePart>, cleared: Vec<ClearedResult>) {
    let mut cleared: BTreeMap<CallId, String> =
        cleared.into_iter().map(|cleared| (cleared.call, cleared.line)).collect();
    for part in parts {
        if let MessagePart::ToolResult { call, content, .. } = part
            && let Some(line) = cleared.remove(call)
        {
            *content = Content::Text(line);
        }
    }
}

fn bytes_out_of_line(part: &MessagePart) -> u64 {
    match part {
        MessagePart::Text { text: content } | MessagePart::ToolResult { content, .. } => {
            content.blob_ref().map_or(0, |blob| blob.bytes)
        }
        MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => 0,
    }
}

/// The next user message.
struct PendingMessage {
    /// Number of sealed messages before it, without the last one if it continues that.
    sealed_count: usize,
    entry: Arc<TranscriptEntry>,
}

/// Returns the tool calls among `parts`, in order.
pub fn tool_uses(parts: &[MessagePart]) -> impl Iterator<Item = &ToolUse> {
    parts.iter().filter_map(|part| match part {
        MessagePart::ToolUse(tool) => Some(tool),
        MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolResult { .. } => None,
    })
}

fn is_empty_text(part: &MessagePart) -> bool {
    match part {
        MessagePart::Text { text } => match text {
            Content::Text(text) => text.trim().is_empty(),
            Content::B64(_) | Content::Blob(_) => false,
        },
        MessagePart::Thinking { .. } | MessagePart::ToolUse(_) | MessagePart::ToolResult { .. } => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aside_goes_with_the_next_request_but_triggers_none() {
        let text = |text: &str| MessagePart::Text { text: text.into() };
        let mut transcript = Transcript::default();
        transcript.add_note(text("the task"));
        transcript.seal_pending();
        transcript.add_answer(vec![text("done")]);
        transcript.add_aside(text("target/ did not come along"));
        assert!(!transcript.has_notes());
        transcript.add_note(text("the tests failed"));
        let next = transcript.conversation(None);
        assert_eq!(
            next.get(2).expect("a third message").message.parts,
            [text("target/ did not come along"), text("the tests failed")]
        );
        transcript.seal_pending();
        assert_eq!(transcript.conversation(None), next);
    }

    #[test]
    fn digest_is_independent_of_how_the_conversation_grew() {
        let text = |text: &str| MessagePart::Text { text: text.into() };
        let grown = |words: &[&str]| {
            let mut transcript = Transcript::default();
            for (nth, word) in words.iter().enumerate() {
                if nth % 2 == 0 {
                    transcript.add_note(text(word));
                    transcript.seal_pending();
                } else {
                    transcript.add_answer(vec![text(word)]);
                }
            }
            transcript
        };
        let mut transcript = grown(&["a", "b", "c"]);
        let before = transcript.conversation(None);
        transcript.add_note(text("d"));
        let longer = transcript.conversation(None);
        transcript.seal_pending();
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
