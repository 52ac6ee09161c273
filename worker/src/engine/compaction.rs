//! Compaction (A18): when a conversation no longer fits its model's window, what of it becomes shorter.
//!
//! In rare large steps, for a provider's cache lives on a prefix that stays: nothing is touched below the
//! high mark, and above it as much goes as reaches the low one. Levels 1 and 2 are one event: verbose results
//! become a line, fruitless steps go. Where that is not enough the oldest messages are summarized by a model
//! call of its own, or by rule where that fails. After each the runtime's ledger is put back.
//!
//! The task, what people said, the last calls with their results and whatever still failed stay; where those results
//! are so large that the low mark is not reached, fewer of them, and the last batch's always. Pure: all of it follows
//! from the recorded state. What the fold makes of it is [`docket_schema::run::Compacted`].

mod pruning;
mod result_line;
mod steps;
mod summary;

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    message::{CallId, Part, Role},
    run::{Cleared, Compacted, Pointer, RunStarted, RunState, Summary, calls_of},
};

use self::{
    pruning::KEPT_STEPS,
    steps::{Levels, Steps},
};
use super::core::{
    decision::{Act, Decision, ModelCall},
    models,
    request_size::{RequestSize, is_too_long},
};

pub(crate) use self::summary::summary_call;

use crate::model::LEFT_OUT_MARK;

/// Of the answers that stay, how many keep their results whole: fewer, in this order, where the low mark is not reached else.
const KEPT_WHOLE: [usize; 3] = [KEPT_STEPS, 3, 1];
/// Bytes of a summary that are put in place, and its share of the window between them.
const SUMMARY_BYTES_MIN: u64 = 4 * 1024;
const SUMMARY_BYTES_MAX: u64 = 16 * 1024;
const SUMMARY_PERCENT: u64 = 15;
/// Bytes of the ledger, and its share of the window between them.
const LEDGER_BYTES_MIN: u64 = 2 * 1024;
const LEDGER_BYTES_MAX: u64 = 24 * 1024;
const LEDGER_PERCENT: u64 = 12;

/// What is next where the conversation has become too long, or is being made shorter.
pub(super) fn due(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let size = models::request_size(run, pins);
    let now = size.now();
    let refused = run.last_failure.as_ref().is_some_and(is_too_long);
    (now >= size.high || refused).then(|| shorter(run, pins, &size, refused)).flatten()
}

/// The next step of a compaction that has begun.
pub(super) fn under_way(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let bytes_max = summary_bytes_max(&models::request_size(run, pins));
    let by_rule = || {
        let lines = summary::lines_of(&Steps::of(run, KEPT_STEPS));
        let text = summary::by_rule(lines, run.transcript.summary(), bytes_max);
        replaced(run, pins, text)
    };
    match &run.summary {
        Summary::NotWanted => None,
        Summary::Wanted => Some(summary_call(run, pins).map_or_else(by_rule, |call| asks(run, call))),
        Summary::Given(text) => Some(replaced(run, pins, summary::by_model(text, bytes_max))),
        Summary::Failed => Some(by_rule()),
    }
}

/// A way to make the conversation shorter.
struct Plan {
    compacted: Compacted,
    summary: bool,
    /// Bytes, as well as they are known before it is done.
    gained: u64,
}

fn shorter(run: &RunState, pins: &RunStarted, size: &RequestSize, refused: bool) -> Option<Decision> {
    let in_need = refused || size.now() >= size.window;
    let Plan { mut compacted, summary, gained } = plan(run, size, refused);
    // Steps are fruitless for what they did: what was said beside it may be a decision.
    let words = summary::words_of(&Steps::of(run, KEPT_STEPS), &compacted.dropped);
    if !words.is_empty() {
        let text = summary::by_rule(words, run.transcript.summary(), summary_bytes_max(size));
        compacted.summary = Content::Text(text);
    }
    let growth = ledger_growth(run, size) + summary_growth(run, &compacted);
    let gained = size.saved(gained.saturating_sub(growth));
    if gained == 0 || (gained < size.useful() && !in_need) {
        return None;
    }
    if compacted.cleared.is_empty() && compacted.dropped.is_empty() {
        // Whatever is gained comes of a summary, then.
        return summary_call(run, pins).map(|call| asks(run, call));
    }
    compacted.summary_follows = summary;
    Some(with_ledger(run, pins, compacted))
}

/// The way that costs least of those that reach the low mark; where none does, the one that comes nearest.
fn plan(run: &RunState, size: &RequestSize, refused: bool) -> Plan {
    let now = size.now();
    // What was refused is longer than it was counted, or its window smaller than is known.
    let low = if refused { size.low.min(now / 2) } else { size.low };
    let whole = pruning::pruning_of(run).whole();
    if whole > KEPT_STEPS {
        let (compacted, gained) = Steps::of(run, whole).shortened(Levels::ClearAndDrop);
        let saved = size.saved(gained);
        if saved >= size.useful() && now.saturating_sub(saved) < size.high && !refused {
            return Plan { compacted, summary: false, gained };
        }
    }
    let steps = Steps::of(run, KEPT_STEPS);
    let (done, done_bytes) = steps.shortened(Levels::ClearAndDrop);
    let summary_bytes = summary_gain(run, size, &steps, &done, done_bytes);
    let mut nearest = Plan { compacted: done.clone(), summary: false, gained: done_bytes };
    for kept in KEPT_WHOLE {
        let (more, more_bytes) = Steps::of(run, kept).cleared_beside(&done, Levels::Clear);
        for summary in [false, true] {
            if summary && size.saved(summary_bytes) < size.useful() {
                continue;
            }
            let mut compacted = done.clone();
            compacted.cleared.extend(more.iter().cloned());
            let gained = done_bytes + more_bytes + if summary { summary_bytes } else { 0 };
            let plan = Plan { compacted, summary, gained };
            if now.saturating_sub(size.saved(gained)) <= low {
                return plan;
            }
            if plan.gained > nearest.gained {
                nearest = plan;
            }
        }
    }
    let left = now.saturating_sub(size.saved(nearest.gained));
    if refused || left >= size.window {
        // Whatever is left to gain.
        let (more, more_bytes) = Steps::of(run, 1).cleared_beside(&nearest.compacted, Levels::ClearAll);
        nearest.compacted.cleared.extend(more);
        nearest.gained += more_bytes + if nearest.summary { 0 } else { summary_bytes };
        nearest.summary |= summary_bytes > 0;
    }
    nearest
}

/// Bytes that a summary of what is old gains once this is done.
fn summary_gain(
    run: &RunState,
    size: &RequestSize,
    steps: &Steps<'_>,
    done: &Compacted,
    done_bytes: u64,
) -> u64 {
    if !steps.can_be_summarized(done) {
        return 0;
    }
    let (first, old) = (run.transcript.bytes_of(1), run.transcript.bytes_of(1 + steps.old.len()));
    let earlier = run.transcript.summary().map_or(0, str::len) as u64;
    // The one that follows stands in the earlier one's place.
    (old - first + earlier).saturating_sub(done_bytes + summary_bytes_max(size) as u64)
}

/// Bytes that the summary is longer than the one that stands there.
fn summary_growth(run: &RunState, compacted: &Compacted) -> u64 {
    let stands = run.transcript.summary().map_or(0, str::len);
    result_line::bytes_of(&compacted.summary).saturating_sub(stands) as u64
}

fn summary_bytes_max(size: &RequestSize) -> usize {
    let room = size.window_bytes(SUMMARY_PERCENT);
    usize::try_from(room.clamp(SUMMARY_BYTES_MIN, SUMMARY_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// Bytes that the ledger is longer than the one that stands there.
fn ledger_growth(run: &RunState, size: &RequestSize) -> u64 {
    let first = run.transcript.sealed().first().into_iter().flat_map(|said| &said.message.parts);
    let texts = first.filter_map(|part| match part {
        Part::Text { text: Content::Text(text) } => Some(text),
        Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) | Part::ToolResult { .. } => None,
    });
    let stands: usize = texts.filter(|text| text.starts_with(LEFT_OUT_MARK)).map(String::len).sum();
    (ledger_text(run, size, 0).len() as u64).saturating_sub(stands as u64)
}

fn ledger_text(run: &RunState, size: &RequestSize, left_out: usize) -> String {
    let room = size.window_bytes(LEDGER_PERCENT);
    let room = room.clamp(LEDGER_BYTES_MIN, LEDGER_BYTES_MAX);
    format!(
        "{}{left_out}.\nWhat the runtime keeps of this run for you; rely on it:\n{}",
        LEFT_OUT_MARK,
        run.ledger.text(usize::try_from(room).unwrap_or(usize::MAX)),
    )
}

fn asks(run: &RunState, call: ModelCall) -> Decision {
    Decision { phase: run.phase, act: Act::CallModel(Box::new(call)) }
}

fn replaced(run: &RunState, pins: &RunStarted, text: String) -> Decision {
    let steps = Steps::of(run, KEPT_STEPS);
    let messages = u32::try_from(steps.old.len()).unwrap_or(u32::MAX);
    let summary = if messages > 0 { Content::Text(text) } else { Content::default() };
    with_ledger(run, pins, Compacted { messages, summary, ..Compacted::default() })
}

fn with_ledger(run: &RunState, pins: &RunStarted, compacted: Compacted) -> Decision {
    let steps = Steps::of(run, KEPT_STEPS);
    let replaced = steps.old.iter().take(compacted.messages as usize);
    let answers = replaced.filter(|said| said.message.role == Role::Assistant).count();
    let dropped = steps.answers_of(&compacted.dropped);
    let left_out = run.transcript.answers_left_out() as usize + answers + dropped;
    let unhinged = unhinged(run, &steps, &compacted);
    let ledger = ledger_text(run, &models::request_size(run, pins), left_out);
    let mut event = Compacted { keeps_task: true, ledger: Some(ledger.into()), ..compacted };
    event.cleared.extend(unhinged);
    Decision { phase: run.phase, act: Act::Compact(Box::new(event)) }
}

/// Results that stay and point to one that goes: they say so from then on, and the file can be read again.
fn unhinged(run: &RunState, steps: &Steps<'_>, compacted: &Compacted) -> Vec<Cleared> {
    let replaced = steps.old.iter().take(compacted.messages as usize);
    let replaced = replaced.flat_map(|said| calls_of(&said.message.parts)).map(|tool| &tool.call);
    let gone: BTreeSet<&CallId> = compacted.dropped.iter().chain(replaced).collect();
    let cleared: BTreeSet<&CallId> = compacted.cleared.iter().map(|cleared| &cleared.call).collect();
    let is_whole = |call: &CallId| !gone.contains(call) && !cleared.contains(call);
    let lost =
        run.reads.pointers().iter().filter(|pointer| is_whole(&pointer.call) && !is_whole(&pointer.to));
    let line = |pointer: &Pointer| {
        format!(
            "[read_file `{}`: it was unchanged; what showed it was left out of this conversation since: read it again where you need it]",
            pointer.path
        )
    };
    lost.map(|pointer| Cleared { call: pointer.call.clone(), line: line(pointer) }).collect()
}
