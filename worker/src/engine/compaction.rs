//! Compaction (A18): shortens a conversation that no longer fits its model's window.
//!
//! It happens in rare, large steps, because a provider's cache depends on a stable prefix: nothing changes below the
//! high mark, and above it as much is removed as needed to reach the low one. Levels 1 and 2 are one event: verbose
//! results become one line, fruitless steps are dropped. If that is not enough, the oldest messages are summarized by
//! a separate model call, or by rule if that fails. After each step the runtime's ledger is added again.
//!
//! The task, messages from people, the last calls with their results and all unresolved failures stay. If those
//! results are so large that the low mark is not reached, fewer of them stay, but always the last batch's. Pure:
//! everything follows from the recorded state. The fold applies it as [`docket_schema::run::Compacted`].

mod pruning;
mod result_line;
mod steps;
mod summary;

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    message::{CallId, MessagePart, MessageRole},
    run::{ClearedResult, Compacted, ReadReference, RunStarted, RunState, SummaryState, tool_uses},
};

use self::{
    pruning::RETAINED_STEPS,
    steps::{CompactionLevel, ConversationSteps},
};
use super::core::{
    decision::{Action, Decision, ModelCall},
    model_choice,
    request_size::{RequestSize, is_context_too_long},
};

pub(crate) use self::summary::summary_call;

use crate::model::OMITTED_REPLIES_MARK;

/// How many of the retained replies keep their full results: reduced, in this order, until the low mark is reached.
const FULL_RESULT_STEPS: [usize; 3] = [RETAINED_STEPS, 3, 1];
/// Minimum size of an inserted summary in bytes, and its share of the window.
const SUMMARY_BYTES_MIN: u64 = 4 * 1024;
const SUMMARY_BYTES_MAX: u64 = 16 * 1024;
const SUMMARY_PERCENT: u64 = 15;
/// Minimum size of the ledger in bytes, and its share of the window.
const LEDGER_BYTES_MIN: u64 = 2 * 1024;
const LEDGER_BYTES_MAX: u64 = 24 * 1024;
const LEDGER_PERCENT: u64 = 12;

/// Returns the next compaction step if the conversation has become too long or is being shortened.
pub(super) fn next_compaction(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let size = model_choice::request_size(run, pins);
    let now = size.current_tokens();
    let refused = run.last_failure.as_ref().is_some_and(is_context_too_long);
    (now >= size.high_mark || refused).then(|| shorten_conversation(run, pins, &size, refused)).flatten()
}

/// Returns the next step of a compaction that has begun.
pub(super) fn continue_compaction(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let bytes_max = summary_bytes_max(&model_choice::request_size(run, pins));
    let by_rule = || {
        let lines = summary::summary_lines(&ConversationSteps::from_run(run, RETAINED_STEPS));
        let text = summary::format_rule_summary(lines, run.transcript.summary_text(), bytes_max);
        replace_with_summary(run, pins, text)
    };
    match &run.summary {
        SummaryState::NotNeeded => None,
        SummaryState::Requested => {
            Some(summary_call(run, pins).map_or_else(by_rule, |call| request_summary(run, call)))
        }
        SummaryState::Ready(text) => {
            Some(replace_with_summary(run, pins, summary::format_model_summary(text, bytes_max)))
        }
        SummaryState::Failed => Some(by_rule()),
    }
}

/// A way to shorten the conversation.
struct CompactionPlan {
    compacted: Compacted,
    needs_summary: bool,
    /// Bytes saved, as estimated in advance.
    bytes_saved: u64,
}

fn shorten_conversation(
    run: &RunState,
    pins: &RunStarted,
    size: &RequestSize,
    refused: bool,
) -> Option<Decision> {
    let in_need = refused || size.current_tokens() >= size.window;
    let CompactionPlan { mut compacted, needs_summary: summary, bytes_saved: gained } =
        plan_compaction(run, size, refused);
    // Steps are fruitless because of their calls; the text next to them may be a decision.
    let words =
        summary::text_lines_with_calls(&ConversationSteps::from_run(run, RETAINED_STEPS), &compacted.dropped);
    if !words.is_empty() {
        let text =
            summary::format_rule_summary(words, run.transcript.summary_text(), summary_bytes_max(size));
        compacted.summary = Content::Text(text);
    }
    let growth = ledger_growth(run, size) + summary_growth(run, &compacted);
    let gained = size.tokens_saved(gained.saturating_sub(growth));
    if gained == 0 || (gained < size.min_useful_tokens() && !in_need) {
        return None;
    }
    if compacted.cleared.is_empty() && compacted.dropped.is_empty() {
        // Only a summary can save anything here.
        return summary_call(run, pins).map(|call| request_summary(run, call));
    }
    compacted.summary_follows = summary;
    Some(compact_with_ledger(run, pins, compacted))
}

/// Returns the cheapest plan that reaches the low mark, or else the one that comes closest.
fn plan_compaction(run: &RunState, size: &RequestSize, refused: bool) -> CompactionPlan {
    let now = size.current_tokens();
    // A refused request is longer than estimated, or its window is smaller than known.
    let low = if refused { size.low_mark.min(now / 2) } else { size.low_mark };
    let whole = pruning::pruning_strategy(run).full_result_steps();
    if whole > RETAINED_STEPS {
        let (compacted, gained) =
            ConversationSteps::from_run(run, whole).reduce_old_steps(CompactionLevel::ClearAndDrop);
        let saved = size.tokens_saved(gained);
        if saved >= size.min_useful_tokens() && now.saturating_sub(saved) < size.high_mark && !refused {
            return CompactionPlan { compacted, needs_summary: false, bytes_saved: gained };
        }
    }
    let steps = ConversationSteps::from_run(run, RETAINED_STEPS);
    let (done, done_bytes) = steps.reduce_old_steps(CompactionLevel::ClearAndDrop);
    let summary_bytes = summary_savings(run, size, &steps, &done, done_bytes);
    let mut nearest =
        CompactionPlan { compacted: done.clone(), needs_summary: false, bytes_saved: done_bytes };
    for kept in FULL_RESULT_STEPS {
        let (more, more_bytes) =
            ConversationSteps::from_run(run, kept).additional_clears(&done, CompactionLevel::Clear);
        for summary in [false, true] {
            if summary && size.tokens_saved(summary_bytes) < size.min_useful_tokens() {
                continue;
            }
            let mut compacted = done.clone();
            compacted.cleared.extend(more.iter().cloned());
            let gained = done_bytes + more_bytes + if summary { summary_bytes } else { 0 };
            let plan = CompactionPlan { compacted, needs_summary: summary, bytes_saved: gained };
            if now.saturating_sub(size.tokens_saved(gained)) <= low {
                return plan;
            }
            if plan.bytes_saved > nearest.bytes_saved {
                nearest = plan;
            }
        }
    }
    let left = now.saturating_sub(size.tokens_saved(nearest.bytes_saved));
    if refused || left >= size.window {
        // Whatever else can be saved.
        let (more, more_bytes) = ConversationSteps::from_run(run, 1)
            .additional_clears(&nearest.compacted, CompactionLevel::ClearAll);
        nearest.compacted.cleared.extend(more);
        nearest.bytes_saved += more_bytes + if nearest.needs_summary { 0 } else { summary_bytes };
        nearest.needs_summary |= summary_bytes > 0;
    }
    nearest
}

/// Returns the bytes that a summary of the old part saves after this plan.
fn summary_savings(
    run: &RunState,
    size: &RequestSize,
    steps: &ConversationSteps<'_>,
    done: &Compacted,
    done_bytes: u64,
) -> u64 {
    if !steps.can_be_summarized(done) {
        return 0;
    }
    let (first, old) = (run.transcript.prefix_bytes(1), run.transcript.prefix_bytes(1 + steps.old.len()));
    let earlier = run.transcript.summary_text().map_or(0, str::len) as u64;
    // The next summary replaces the earlier one.
    (old - first + earlier).saturating_sub(done_bytes + summary_bytes_max(size) as u64)
}

/// Returns the bytes by which the summary is longer than the existing one.
fn summary_growth(run: &RunState, compacted: &Compacted) -> u64 {
    let stands = run.transcript.summary_text().map_or(0, str::len);
    result_line::content_bytes(&compacted.summary).saturating_sub(stands) as u64
}

fn summary_bytes_max(size: &RequestSize) -> usize {
    let room = size.window_bytes(SUMMARY_PERCENT);
    usize::try_from(room.clamp(SUMMARY_BYTES_MIN, SUMMARY_BYTES_MAX)).unwrap_or(usize::MAX)
}

/// Returns the bytes by which the ledger is longer than the existing one.
fn ledger_growth(run: &RunState, size: &RequestSize) -> u64 {
    let first = run.transcript.sealed_entries().first().into_iter().flat_map(|said| &said.message.parts);
    let texts = first.filter_map(|part| match part {
        MessagePart::Text { text: Content::Text(text) } => Some(text),
        MessagePart::Text { .. }
        | MessagePart::Thinking { .. }
        | MessagePart::ToolUse(_)
        | MessagePart::ToolResult { .. } => None,
    });
    let stands: usize = texts.filter(|text| text.starts_with(OMITTED_REPLIES_MARK)).map(String::len).sum();
    (ledger_text(run, size, 0).len() as u64).saturating_sub(stands as u64)
}

fn ledger_text(run: &RunState, size: &RequestSize, left_out: usize) -> String {
    let room = size.window_bytes(LEDGER_PERCENT);
    let room = room.clamp(LEDGER_BYTES_MIN, LEDGER_BYTES_MAX);
    format!(
        "{}{left_out}.\nWhat the runtime keeps of this run for you; rely on it:\n{}",
        OMITTED_REPLIES_MARK,
        run.ledger.render(usize::try_from(room).unwrap_or(usize::MAX)),
    )
}

fn request_summary(run: &RunState, call: ModelCall) -> Decision {
    Decision { phase: run.phase, act: Action::CallModel(Box::new(call)) }
}

fn replace_with_summary(run: &RunState, pins: &RunStarted, text: String) -> Decision {
    let steps = ConversationSteps::from_run(run, RETAINED_STEPS);
    let messages = u32::try_from(steps.old.len()).unwrap_or(u32::MAX);
    let summary = if messages > 0 { Content::Text(text) } else { Content::default() };
    compact_with_ledger(run, pins, Compacted { messages, summary, ..Compacted::default() })
}

fn compact_with_ledger(run: &RunState, pins: &RunStarted, compacted: Compacted) -> Decision {
    let steps = ConversationSteps::from_run(run, RETAINED_STEPS);
    let replaced = steps.old.iter().take(compacted.messages as usize);
    let answers = replaced.filter(|said| said.message.role == MessageRole::Assistant).count();
    let dropped = steps.count_answers_with_calls(&compacted.dropped);
    let left_out = run.transcript.omitted_answers() as usize + answers + dropped;
    let unhinged = clear_dangling_pointers(run, &steps, &compacted);
    let ledger = ledger_text(run, &model_choice::request_size(run, pins), left_out);
    let mut event = Compacted { keeps_task: true, ledger: Some(ledger.into()), ..compacted };
    event.cleared.extend(unhinged);
    Decision { phase: run.phase, act: Action::Compact(Box::new(event)) }
}

/// Clears retained results that refer to a removed one: they say so from then on, and the file can be read again.
fn clear_dangling_pointers(
    run: &RunState,
    steps: &ConversationSteps<'_>,
    compacted: &Compacted,
) -> Vec<ClearedResult> {
    let replaced = steps.old.iter().take(compacted.messages as usize);
    let replaced = replaced.flat_map(|said| tool_uses(&said.message.parts)).map(|tool| &tool.call);
    let gone: BTreeSet<&CallId> = compacted.dropped.iter().chain(replaced).collect();
    let cleared: BTreeSet<&CallId> = compacted.cleared.iter().map(|cleared| &cleared.call).collect();
    let is_whole = |call: &CallId| !gone.contains(call) && !cleared.contains(call);
    let lost = run
        .read_index
        .references()
        .iter()
        .filter(|pointer| is_whole(&pointer.call) && !is_whole(&pointer.target_call));
    let line = |pointer: &ReadReference| {
        format!(
            "[read_file `{}`: it was unchanged; what showed it was left out of this conversation since: read it again where you need it]",
            pointer.path
        )
    };
    lost.map(|pointer| ClearedResult { call: pointer.call.clone(), line: line(pointer) }).collect()
}
