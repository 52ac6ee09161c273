//! Splits a conversation into an old and a retained part, and applies levels 1 and 2 to the old one.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    message::{CallId, Message, MessagePart, MessageRole, ToolUse},
    run::{ClearedResult, Compacted, RunState, Transcript, TranscriptEntry, tool_uses},
};
use serde_json::Value;

use super::{
    pruning::{OneLinePruning, PruningStrategy, pruning_strategy},
    result_line::{cleared_line, content_bytes},
};
use crate::tools;

/// Results up to this size stay: a line in their place would not be shorter.
const VERBOSE_RESULT_BYTES: usize = 400;
/// Calls named by one event: event size is limited, and the rest waits for the next one.
const CALLS_PER_EVENT_MAX: usize = 500;

/// A conversation in two parts.
pub(super) struct ConversationSteps<'a> {
    /// Removable entries: everything between the first message and the retained replies.
    pub(super) old: Vec<&'a TranscriptEntry>,
    /// Everything from the first retained reply on.
    pub(super) retained: Vec<&'a TranscriptEntry>,
    pub(super) transcript: &'a Transcript,
    /// Calls whose results refer to another call's result.
    pub(super) pointers: BTreeMap<&'a CallId, &'a CallId>,
    /// How old results are shortened.
    pub(super) pruning: &'static dyn PruningStrategy,
}

/// How far the pure levels go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CompactionLevel {
    /// Results are cleared even if retained replies refer to them.
    ClearAll,
    Clear,
    ClearAndDrop,
}

/// The result of a call, as the model read it.
type CallResult<'a> = (&'a Content, bool);

impl<'a> ConversationSteps<'a> {
    pub(super) fn from_run(run: &'a RunState, kept: usize) -> Self {
        let sealed = run.transcript.sealed_entries();
        let answers =
            sealed.iter().enumerate().filter(|(_, said)| said.message.role == MessageRole::Assistant);
        let answers: Vec<usize> = answers.map(|(place, _)| place).collect();
        let from = answers.len().checked_sub(kept.max(1)).and_then(|nth| answers.get(nth)).copied();
        let from = from.unwrap_or(1).clamp(1, sealed.len().max(1));
        let all = |range: &'a [std::sync::Arc<TranscriptEntry>]| range.iter().map(|said| &**said).collect();
        Self {
            old: all(sealed.get(1..from).unwrap_or_default()),
            retained: all(sealed.get(from..).unwrap_or_default()),
            transcript: &run.transcript,
            pointers: run
                .read_index
                .references()
                .iter()
                .map(|pointer| (&pointer.call, &pointer.target_call))
                .collect(),
            pruning: pruning_strategy(run),
        }
    }

    pub(super) fn results_by_call(&self) -> BTreeMap<&'a CallId, CallResult<'a>> {
        let parts = self.old.iter().chain(&self.retained).flat_map(|said| &said.message.parts);
        let result = |part: &'a MessagePart| match part {
            MessagePart::ToolResult { call, content, is_error } => Some((call, (content, *is_error))),
            MessagePart::Text { .. } | MessagePart::Thinking { .. } | MessagePart::ToolUse(_) => None,
        };
        parts.filter_map(result).collect()
    }

    /// Applies levels 1 and 2, and returns how many bytes they save.
    pub(super) fn reduce_old_steps(&self, levels: CompactionLevel) -> (Compacted, u64) {
        let results = self.results_by_call();
        let done = PathUsage::from_steps(self, &results);
        let relied_on = self.referenced_calls(levels);
        let mut compacted = Compacted::default();
        let mut gained = 0;
        for (nth, said) in self.old.iter().enumerate() {
            if compacted.cleared.len() + compacted.dropped.len() >= CALLS_PER_EVENT_MAX {
                break;
            }
            let calls: Vec<(usize, &ToolUse)> =
                tool_uses(&said.message.parts).map(|tool| (nth, tool)).collect();
            let fruitless = |(nth, tool): &(usize, &ToolUse)| {
                !relied_on.contains(&tool.call) && done.is_obsolete(*nth, tool, &results)
            };
            let after = self.old.get(nth + 1).is_some_and(|after| has_only_results(&after.message));
            let goes =
                levels == CompactionLevel::ClearAndDrop && !calls.is_empty() && calls.iter().all(fruitless);
            if goes && after {
                // The first message comes before all of these.
                let (from, to) =
                    (self.transcript.prefix_bytes(nth + 1), self.transcript.prefix_bytes(nth + 3));
                gained += to.saturating_sub(from);
                compacted.dropped.extend(calls.into_iter().map(|(_, tool)| tool.call.clone()));
                continue;
            }
            for (_, tool) in calls {
                let Some((content, is_error)) = results.get(&tool.call).copied() else { continue };
                let pruning =
                    if levels == CompactionLevel::ClearAll { &OneLinePruning } else { self.pruning };
                let (bytes, line) = (content_bytes(content), pruning.prune_result(tool, content, is_error));
                let is_line = cleared_line(tool, content).is_some();
                if bytes > VERBOSE_RESULT_BYTES
                    && bytes > line.len()
                    && !is_line
                    && !relied_on.contains(&tool.call)
                {
                    gained += (bytes - line.len()) as u64;
                    compacted.cleared.push(ClearedResult { call: tool.call.clone(), line });
                }
            }
        }
        (compacted, gained)
    }

    /// Returns the results cleared in addition to `done` if only the retained replies keep their full results, and
    /// the number of bytes that saves.
    pub(super) fn additional_clears(
        &self,
        done: &Compacted,
        levels: CompactionLevel,
    ) -> (Vec<ClearedResult>, u64) {
        let results = self.results_by_call();
        let named: BTreeSet<&CallId> =
            done.cleared.iter().map(|cleared| &cleared.call).chain(&done.dropped).collect();
        let mut more = self.reduce_old_steps(levels).0.cleared;
        more.retain(|cleared| !named.contains(&cleared.call));
        let gain = |cleared: &ClearedResult| {
            let bytes = results.get(&cleared.call).map_or(0, |(content, _)| content_bytes(content));
            bytes.saturating_sub(cleared.line.len()) as u64
        };
        let gained = more.iter().map(gain).sum();
        (more, gained)
    }

    /// Returns the calls whose results the retained replies refer to, because their model wanted to see them now. If
    /// space is short, they are cleared anyway.
    fn referenced_calls(&self, levels: CompactionLevel) -> BTreeSet<&'a CallId> {
        if levels == CompactionLevel::ClearAll {
            return BTreeSet::new();
        }
        let kept = self.retained.iter().flat_map(|said| tool_uses(&said.message.parts));
        kept.filter_map(|tool| self.pointers.get(&tool.call).copied()).collect()
    }

    /// Counts the replies that made these calls.
    pub(super) fn count_answers_with_calls(&self, calls: &[CallId]) -> usize {
        let made =
            |said: &&&TranscriptEntry| tool_uses(&said.message.parts).any(|tool| calls.contains(&tool.call));
        self.old.iter().filter(made).count()
    }

    /// Whether any old entry remains after this.
    pub(super) fn can_be_summarized(&self, done: &Compacted) -> bool {
        let answers = self.old.iter().filter(|said| said.message.role == MessageRole::Assistant).count();
        answers > self.count_answers_with_calls(&done.dropped)
    }
}

/// How later steps supersede earlier ones: the last position where each path was read in full, and changed.
struct PathUsage<'a> {
    pointers: BTreeSet<&'a CallId>,
    reads: BTreeMap<&'a str, Vec<(usize, ReadSpan)>>,
    changes: BTreeMap<&'a str, usize>,
}

/// The line range of a read.
#[derive(Clone, Copy)]
struct ReadSpan {
    first: u64,
    last: u64,
}

impl ReadSpan {
    fn from_call(tool: &ToolUse) -> Self {
        let line = |name: &str| tool.args.get(name).and_then(Value::as_u64);
        Self { first: line("start_line").unwrap_or(1), last: line("end_line").unwrap_or(u64::MAX) }
    }

    const fn covers(self, other: Self) -> bool {
        self.first <= other.first && self.last >= other.last
    }
}

fn path_argument(tool: &ToolUse) -> Option<&str> {
    tool.args.get("path").and_then(Value::as_str)
}

impl<'a> PathUsage<'a> {
    fn from_steps(steps: &ConversationSteps<'a>, results: &BTreeMap<&CallId, CallResult<'_>>) -> Self {
        let pointers = steps.pointers.keys().copied().collect();
        let mut done = Self { pointers, reads: BTreeMap::new(), changes: BTreeMap::new() };
        for (nth, said) in steps.old.iter().chain(&steps.retained).enumerate() {
            for tool in tool_uses(&said.message.parts) {
                let well = results.get(&tool.call).is_some_and(|(_, is_error)| !is_error);
                let Some(path) = path_argument(tool).filter(|_| well) else { continue };
                match tool.name.as_str() {
                    // A reference repeats nothing.
                    "read_file" if done.pointers.contains(&tool.call) => {}
                    "read_file" => done.reads.entry(path).or_default().push((nth, ReadSpan::from_call(tool))),
                    "edit_file" | "create_file" => drop(done.changes.insert(path, nth)),
                    _ => {}
                }
            }
        }
        done
    }

    /// Whether nothing depends on the call any more: a read that was repeated, a failed change that was fixed, a
    /// search that found nothing.
    fn is_obsolete(&self, nth: usize, tool: &ToolUse, results: &BTreeMap<&CallId, CallResult<'_>>) -> bool {
        let Some((content, is_error)) = results.get(&tool.call).copied() else { return false };
        let path = path_argument(tool).unwrap_or_default();
        match (tool.name.as_str(), is_error) {
            ("read_file", false) if self.pointers.contains(&tool.call) => true,
            ("read_file", false) => self.reads.get(path).is_some_and(|reads| {
                reads.iter().any(|(later, span)| *later > nth && span.covers(ReadSpan::from_call(tool)))
            }),
            ("edit_file" | "create_file", true) => self.changes.get(path).is_some_and(|later| *later > nth),
            ("search_codebase", false) => match content {
                Content::Text(text) => text.starts_with(tools::NO_MATCHES),
                Content::B64(_) | Content::Blob(_) => false,
            },
            _ => false,
        }
    }
}

pub(super) fn has_only_results(message: &Message) -> bool {
    message.role == MessageRole::User
        && message.parts.iter().all(|part| matches!(part, MessagePart::ToolResult { .. }))
}
