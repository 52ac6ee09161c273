//! A conversation in two parts, what may go and what stays, and what levels 1 and 2 make of the first.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    message::{CallId, Message, Part, Role, ToolUse},
    run::{Cleared, Compacted, RunState, Said, Transcript, calls_of},
};
use serde_json::Value;

use super::{
    pruning::{OneLine, Pruning, pruning_of},
    result_line::{bytes_of, cleared_line},
};
use crate::tools;

/// Results up to this size stay: a line in their place would be no shorter.
const VERBOSE_BYTES: usize = 400;
/// Calls that one event names at most: an event has a largest size, and what is left waits for the next.
const NAMED_MAX: usize = 500;

/// A conversation in two parts.
pub(super) struct Steps<'a> {
    /// What may go: all between the first message and the answers that stay.
    pub(super) old: Vec<&'a Said>,
    /// From the first answer that stays.
    pub(super) kept: Vec<&'a Said>,
    pub(super) transcript: &'a Transcript,
    /// Results that point to others, by their calls.
    pub(super) pointers: BTreeMap<&'a CallId, &'a CallId>,
    /// What old results are made.
    pub(super) pruning: &'static dyn Pruning,
}

/// How far the pure levels go.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Levels {
    /// Results go even where the answers that stay point to them.
    ClearAll,
    Clear,
    ClearAndDrop,
}

/// What a call came to, as the model read it.
type Result<'a> = (&'a Content, bool);

impl<'a> Steps<'a> {
    pub(super) fn of(run: &'a RunState, kept: usize) -> Self {
        let sealed = run.transcript.sealed();
        let answers = sealed.iter().enumerate().filter(|(_, said)| said.message.role == Role::Assistant);
        let answers: Vec<usize> = answers.map(|(place, _)| place).collect();
        let from = answers.len().checked_sub(kept.max(1)).and_then(|nth| answers.get(nth)).copied();
        let from = from.unwrap_or(1).clamp(1, sealed.len().max(1));
        let all = |range: &'a [std::sync::Arc<Said>]| range.iter().map(|said| &**said).collect();
        Self {
            old: all(sealed.get(1..from).unwrap_or_default()),
            kept: all(sealed.get(from..).unwrap_or_default()),
            transcript: &run.transcript,
            pointers: run.reads.pointers().iter().map(|pointer| (&pointer.call, &pointer.to)).collect(),
            pruning: pruning_of(run),
        }
    }

    pub(super) fn results(&self) -> BTreeMap<&'a CallId, Result<'a>> {
        let parts = self.old.iter().chain(&self.kept).flat_map(|said| &said.message.parts);
        let result = |part: &'a Part| match part {
            Part::ToolResult { call, content, is_error } => Some((call, (content, *is_error))),
            Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) => None,
        };
        parts.filter_map(result).collect()
    }

    /// What levels 1 and 2 do, and how many bytes they gain.
    pub(super) fn shortened(&self, levels: Levels) -> (Compacted, u64) {
        let results = self.results();
        let done = Done::of(self, &results);
        let relied_on = self.relied_on(levels);
        let mut compacted = Compacted::default();
        let mut gained = 0;
        for (nth, said) in self.old.iter().enumerate() {
            if compacted.cleared.len() + compacted.dropped.len() >= NAMED_MAX {
                break;
            }
            let calls: Vec<(usize, &ToolUse)> =
                calls_of(&said.message.parts).map(|tool| (nth, tool)).collect();
            let fruitless = |(nth, tool): &(usize, &ToolUse)| {
                !relied_on.contains(&tool.call) && done.is_fruitless(*nth, tool, &results)
            };
            let after = self.old.get(nth + 1).is_some_and(|after| has_only_results(&after.message));
            let goes = levels == Levels::ClearAndDrop && !calls.is_empty() && calls.iter().all(fruitless);
            if goes && after {
                // The first message stands before all of these.
                let (from, to) = (self.transcript.bytes_of(nth + 1), self.transcript.bytes_of(nth + 3));
                gained += to.saturating_sub(from);
                compacted.dropped.extend(calls.into_iter().map(|(_, tool)| tool.call.clone()));
                continue;
            }
            for (_, tool) in calls {
                let Some((content, is_error)) = results.get(&tool.call).copied() else { continue };
                let pruning = if levels == Levels::ClearAll { &OneLine } else { self.pruning };
                let (bytes, line) = (bytes_of(content), pruning.pruned(tool, content, is_error));
                let is_line = cleared_line(tool, content).is_some();
                if bytes > VERBOSE_BYTES && bytes > line.len() && !is_line && !relied_on.contains(&tool.call)
                {
                    gained += (bytes - line.len()) as u64;
                    compacted.cleared.push(Cleared { call: tool.call.clone(), line });
                }
            }
        }
        (compacted, gained)
    }

    /// What is cleared beside `done` where only the answers that stay keep their results whole, and how many bytes
    /// that gains.
    pub(super) fn cleared_beside(&self, done: &Compacted, levels: Levels) -> (Vec<Cleared>, u64) {
        let results = self.results();
        let named: BTreeSet<&CallId> =
            done.cleared.iter().map(|cleared| &cleared.call).chain(&done.dropped).collect();
        let mut more = self.shortened(levels).0.cleared;
        more.retain(|cleared| !named.contains(&cleared.call));
        let gain = |cleared: &Cleared| {
            let bytes = results.get(&cleared.call).map_or(0, |(content, _)| bytes_of(content));
            bytes.saturating_sub(cleared.line.len()) as u64
        };
        let gained = more.iter().map(gain).sum();
        (more, gained)
    }

    /// Calls whose results the answers that stay point to: their model wanted to see them now. Where room is in
    /// need they go all the same.
    fn relied_on(&self, levels: Levels) -> BTreeSet<&'a CallId> {
        if levels == Levels::ClearAll {
            return BTreeSet::new();
        }
        let kept = self.kept.iter().flat_map(|said| calls_of(&said.message.parts));
        kept.filter_map(|tool| self.pointers.get(&tool.call).copied()).collect()
    }

    /// How many answers made these calls.
    pub(super) fn answers_of(&self, calls: &[CallId]) -> usize {
        let made = |said: &&&Said| calls_of(&said.message.parts).any(|tool| calls.contains(&tool.call));
        self.old.iter().filter(made).count()
    }

    /// Whether anything old stays once this is done.
    pub(super) fn can_be_summarized(&self, done: &Compacted) -> bool {
        let answers = self.old.iter().filter(|said| said.message.role == Role::Assistant).count();
        answers > self.answers_of(&done.dropped)
    }
}

/// What later steps made of earlier ones: the last place where each path was read whole, and changed.
struct Done<'a> {
    pointers: BTreeSet<&'a CallId>,
    reads: BTreeMap<&'a str, Vec<(usize, Span)>>,
    changes: BTreeMap<&'a str, usize>,
}

/// Lines that a read asked for.
#[derive(Clone, Copy)]
struct Span {
    first: u64,
    last: u64,
}

impl Span {
    fn of(tool: &ToolUse) -> Self {
        let line = |name: &str| tool.args.get(name).and_then(Value::as_u64);
        Self { first: line("start_line").unwrap_or(1), last: line("end_line").unwrap_or(u64::MAX) }
    }

    const fn covers(self, other: Self) -> bool {
        self.first <= other.first && self.last >= other.last
    }
}

fn path_of(tool: &ToolUse) -> Option<&str> {
    tool.args.get("path").and_then(Value::as_str)
}

impl<'a> Done<'a> {
    fn of(steps: &Steps<'a>, results: &BTreeMap<&CallId, Result<'_>>) -> Self {
        let pointers = steps.pointers.keys().copied().collect();
        let mut done = Self { pointers, reads: BTreeMap::new(), changes: BTreeMap::new() };
        for (nth, said) in steps.old.iter().chain(&steps.kept).enumerate() {
            for tool in calls_of(&said.message.parts) {
                let well = results.get(&tool.call).is_some_and(|(_, is_error)| !is_error);
                let Some(path) = path_of(tool).filter(|_| well) else { continue };
                match tool.name.as_str() {
                    // What only points repeats nothing.
                    "read_file" if done.pointers.contains(&tool.call) => {}
                    "read_file" => done.reads.entry(path).or_default().push((nth, Span::of(tool))),
                    "edit_file" | "create_file" => drop(done.changes.insert(path, nth)),
                    _ => {}
                }
            }
        }
        done
    }

    /// Nothing follows from it any more: a read that was repeated, a failed change that was mended, a search
    /// that found nothing.
    fn is_fruitless(&self, nth: usize, tool: &ToolUse, results: &BTreeMap<&CallId, Result<'_>>) -> bool {
        let Some((content, is_error)) = results.get(&tool.call).copied() else { return false };
        let path = path_of(tool).unwrap_or_default();
        match (tool.name.as_str(), is_error) {
            ("read_file", false) if self.pointers.contains(&tool.call) => true,
            ("read_file", false) => self.reads.get(path).is_some_and(|reads| {
                reads.iter().any(|(later, span)| *later > nth && span.covers(Span::of(tool)))
            }),
            ("edit_file" | "create_file", true) => self.changes.get(path).is_some_and(|later| *later > nth),
            ("search_codebase", false) => match content {
                Content::Text(text) => text.starts_with(tools::NO_HITS),
                Content::B64(_) | Content::Blob(_) => false,
            },
            _ => false,
        }
    }
}

pub(super) fn has_only_results(message: &Message) -> bool {
    message.role == Role::User && message.parts.iter().all(|part| matches!(part, Part::ToolResult { .. }))
}
