//! Compaction (A18): when a conversation no longer fits its model's window, what of it becomes shorter.
//!
//! In rare large steps, for a provider's cache lives on a prefix that stays: nothing is touched below the
//! high mark, and above it as much goes as reaches the low one. Levels 1 and 2 are one event: verbose results
//! become a line, fruitless steps go. Where that is not enough the oldest messages are summarized by a model
//! call of its own, or by rule where that fails. After each the runtime's ledger is put back.
//!
//! The task, what people said, the last calls with their results and whatever still failed stay. Pure: all of
//! it follows from the recorded state. What the fold makes of it is [`docket_schema::run::Compacted`].

mod steps;

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    message::{CallId, Message, ModelRef, Part, Role},
    run::{
        Cleared, Compacted, Conversation, ModelFailed, ModelTerms, Pointer, Purpose, RunStarted, RunState,
        Summary, calls_of,
    },
};

use super::{Act, Decision, ModelCall, answer_tokens_max, models};
use steps::{Levels, Steps, line_of};

use crate::model::{LEFT_OUT_MARK, SUMMARY_MARK};

/// Bytes that are counted as one token where no model has counted: code has three to four, other scripts
/// fewer; a request that is too long costs more than one that was shortened early.
const BYTES_PER_TOKEN: u64 = 3;
/// The window where none is known: that of the price table's unknown models.
const WINDOW_TOKENS_UNKNOWN: u64 = 32_768;
/// Share of the window, in percent, that a compaction aims at.
const LOW_PERCENT: u64 = 50;
/// Answers of the model that stay as they are, with the results of their calls, the last ones.
const KEPT_STEPS: usize = 5;
/// Fewer, in this order, where what they hold does not fit by itself.
const KEPT_STEPS_IN_NEED: [usize; 2] = [3, 1];
/// Largest summary that is asked for.
const SUMMARY_TOKENS_MAX: u32 = 2048;
/// Bytes of a summary that are put in place.
const SUMMARY_BYTES_MAX: usize = 16 * 1024;
/// Bytes of the ledger, and its share of the window between them.
const LEDGER_BYTES_MIN: u64 = 2 * 1024;
const LEDGER_BYTES_MAX: u64 = 24 * 1024;
const LEDGER_PERCENT: u64 = 12;

/// What is asked for, behind [`SUMMARY_MARK`].
const SUMMARIZE: &str = ", which will no longer be seen after this. Write down what whoever goes \
on must know: what was found out and where (paths, names, lines), what was decided and why, what was tried and \
failed, what is still to be done. Facts only, in at most 600 words, no greeting. Do not call a tool and do not go on \
with the task now.";

/// What is next where the conversation has become too long, or is being made shorter.
pub(super) fn due(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    let marks = Marks::of(run, pins);
    let now = marks.tokens(marks.bytes);
    let refused = run.last_failure.as_ref().is_some_and(is_too_long);
    (now >= marks.high || refused).then(|| shorter(run, pins, &marks, refused)).flatten()
}

/// Whether a model refused a request for its length.
pub(super) fn is_too_long(failure: &ModelFailed) -> bool {
    failure.error == "context_too_long"
}

/// Whether what is asked next is below the mark of a model with these terms.
pub(super) fn fits(run: &RunState, pins: &RunStarted, terms: &ModelTerms) -> bool {
    let marks = Marks::with(run, pins, terms);
    marks.tokens(marks.bytes) < marks.high
}

/// Tokens of what is asked next, as well as they are known.
pub(super) fn tokens_now(run: &RunState, pins: &RunStarted) -> u64 {
    let marks = Marks::of(run, pins);
    marks.tokens(marks.bytes)
}

/// Tokens of what no model has counted.
pub(super) const fn tokens_by_rule(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The next step of a compaction that has begun.
pub(super) fn under_way(run: &RunState, pins: &RunStarted) -> Option<Decision> {
    match &run.summary {
        Summary::NotWanted => None,
        Summary::Wanted => Some(match summary_call(run, pins) {
            Some(call) => asks(run, call),
            None => replaced(run, pins, by_rule(&Steps::of(run, KEPT_STEPS))),
        }),
        Summary::Given(text) => {
            let text = format!("Summary of the work before this:\n{}", cut(text, SUMMARY_BYTES_MAX));
            Some(replaced(run, pins, text))
        }
        Summary::Failed => Some(replaced(run, pins, by_rule(&Steps::of(run, KEPT_STEPS)))),
    }
}

fn shorter(run: &RunState, pins: &RunStarted, marks: &Marks, refused: bool) -> Option<Decision> {
    let steps = Steps::of(run, KEPT_STEPS);
    let (mut compacted, gained) = steps.shortened(Levels::ClearAndDrop);
    let left = marks.tokens(marks.bytes.saturating_sub(gained));
    let follows = left > marks.low && steps.can_be_summarized(&compacted);
    if !compacted.cleared.is_empty() || !compacted.dropped.is_empty() {
        compacted.summary_follows = follows;
        return Some(with_ledger(run, pins, compacted));
    }
    if follows && let Some(call) = summary_call(run, pins) {
        return Some(asks(run, call));
    }
    if marks.tokens(marks.bytes) < marks.window && !refused {
        return None;
    }
    KEPT_STEPS_IN_NEED.into_iter().find_map(|kept| {
        let (compacted, _) = Steps::of(run, kept).shortened(Levels::Clear);
        (!compacted.cleared.is_empty()).then(|| with_ledger(run, pins, compacted))
    })
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
    let window = Marks::of(run, pins).window;
    let room = window.saturating_mul(BYTES_PER_TOKEN * LEDGER_PERCENT) / 100;
    let room = room.clamp(LEDGER_BYTES_MIN, LEDGER_BYTES_MAX);
    let unhinged = unhinged(run, &steps, &compacted);
    let ledger = format!(
        "{}{left_out}.\nWhat the runtime keeps of this run for you; rely on it:\n{}",
        LEFT_OUT_MARK,
        run.ledger.text(usize::try_from(room).unwrap_or(usize::MAX)),
    );
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

/// The call that asks for a summary of the oldest messages; none where there is nothing old.
///
/// Its conversation is one message that quotes them: providers take no calls and results without the tools
/// they are of, and nobody is to use a tool here.
pub(crate) fn summary_call(run: &RunState, pins: &RunStarted) -> Option<ModelCall> {
    let steps = Steps::of(run, KEPT_STEPS);
    if steps.old.is_empty() {
        return None;
    }
    let mut parts = vec![text("The task, and what was kept before:")];
    parts.extend(run.transcript.sealed().first().into_iter().flat_map(|said| said.message.parts.clone()));
    parts.push(text("The oldest part of the work on it:"));
    parts.extend(steps.old.iter().flat_map(|said| quoted(&said.message)));
    parts.push(text(&format!("{SUMMARY_MARK}{SUMMARIZE}")));
    let (model, terms) = summarizer(run, pins);
    Some(ModelCall {
        call: CallId::summary(run.summaries + 1),
        purpose: Purpose::Compact,
        turn: run.turn,
        attempt: 1,
        model: model.clone(),
        system: pins.prompts.system,
        tools: pins.prompts.tools,
        messages: Conversation::from_iter([Message { role: Role::User, parts }]),
        nudge: None,
        output_tokens_max: summary_tokens_max(pins, terms),
        wait_ms: 0,
    })
}

/// The model that summarizes: the cheap one, where it can take what the main one can.
fn summarizer<'a>(run: &RunState, pins: &'a RunStarted) -> (&'a ModelRef, &'a ModelTerms) {
    let chosen = models::chosen(run, pins);
    match &pins.models.explore {
        Some(explore) if explore.terms.context_tokens >= chosen.terms.context_tokens => {
            (&explore.model, &explore.terms)
        }
        Some(_) | None => (chosen.model, chosen.terms),
    }
}

/// The largest summary that is asked for where no budget makes it shorter.
pub(crate) fn summary_tokens_max(pins: &RunStarted, terms: &ModelTerms) -> u32 {
    answer_tokens_max(pins, terms).min(SUMMARY_TOKENS_MAX)
}

fn quoted(message: &Message) -> Vec<Part> {
    let mut parts = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text: said } => {
                let who = if message.role == Role::Assistant { "You said:" } else { "You were told:" };
                parts.extend([text(who), Part::Text { text: said.clone() }]);
            }
            Part::ToolUse(tool) => {
                parts.push(text(&format!("You called {} {}", tool.name, cut(&tool.args.to_string(), 1000))));
            }
            Part::ToolResult { content, is_error, .. } => {
                let word = if *is_error { "It failed:" } else { "Its result:" };
                parts.extend([text(word), Part::Text { text: content.clone() }]);
            }
            Part::Thinking { .. } => {}
        }
    }
    parts
}

/// A summary without a model: what was said, and one line for each call.
fn by_rule(steps: &Steps<'_>) -> String {
    let mut lines: Vec<String> = Vec::new();
    let results = steps.results();
    for said in &steps.old {
        for part in &said.message.parts {
            match part {
                Part::Text { text: Content::Text(text) } => {
                    let who = if said.message.role == Role::Assistant { "you said" } else { "you were told" };
                    lines.push(format!("- {who}: {}", cut(&first_lines(text), 300)));
                }
                Part::ToolUse(tool) => {
                    let (content, is_error) = results.get(&tool.call).copied().unzip();
                    lines.push(format!("- {}", line_of(tool, content, is_error.unwrap_or(false))));
                }
                Part::Text { .. } | Part::ToolResult { .. } | Part::Thinking { .. } => {}
            }
        }
    }
    let mut bytes = 0;
    let fit = lines.iter().rev().take_while(|line| {
        bytes += line.len() + 1;
        bytes <= SUMMARY_BYTES_MAX
    });
    let from = lines.len() - fit.count();
    let begin = if from > 0 { format!("- [{from} older lines are left out]\n") } else { String::new() };
    format!("What was done before this, in order:\n{begin}{}", lines[from..].join("\n"))
}

/// How large a request is and may be.
struct Marks {
    bytes: u64,
    /// Tokens and bytes of what the model counted last.
    measured: Option<(u64, u64)>,
    /// Tokens that a request may have at most: the window without the answer's part.
    window: u64,
    high: u64,
    low: u64,
}

impl Marks {
    /// Of the model that is asked next.
    fn of(run: &RunState, pins: &RunStarted) -> Self {
        Self::with(run, pins, models::chosen(run, pins).terms)
    }

    fn with(run: &RunState, pins: &RunStarted, terms: &ModelTerms) -> Self {
        let whole = match terms.context_tokens {
            0 => WINDOW_TOKENS_UNKNOWN,
            known => known,
        };
        let window = whole - u64::from(answer_tokens_max(pins, terms)).min(whole / 4);
        let percent = u64::from(pins.settings.compaction_percent);
        Self {
            bytes: run.prompt_bytes().saturating_add(run.transcript.conversation(None).bytes()),
            measured: run.measured.map(|seen| (seen.tokens, run.bytes_of(seen))),
            window,
            high: window.saturating_mul(percent) / 100,
            low: window.saturating_mul(LOW_PERCENT.min(percent)) / 100,
        }
    }

    /// Tokens of a request of this many bytes: what the model counted, and what came since by rule; where it
    /// was made shorter since, its share of what was counted.
    fn tokens(&self, bytes: u64) -> u64 {
        match self.measured {
            None => tokens_by_rule(bytes),
            Some((tokens, seen)) if bytes >= seen => {
                tokens.saturating_add((bytes - seen).div_ceil(BYTES_PER_TOKEN))
            }
            Some((tokens, seen)) => {
                let share = u128::from(tokens) * u128::from(bytes) / u128::from(seen.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}

fn text(words: &str) -> Part {
    Part::Text { text: words.into() }
}

fn first_lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect::<Vec<_>>().join(" / ")
}

fn cut(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}…", &text[..text.floor_char_boundary(bytes_max)])
}
