//! Summaries that replace the oldest messages: the call that requests one from a model, and the text built by rule if
//! none arrives. Pure.
//!
//! The rule appends to the existing summary and never replaces it: one failed call must not cost the content of ten
//! successful ones. If it does not fit, it is shortened from its oldest end, calls first: statements and decisions
//! exist nowhere else.

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    message::{CallId, Message, MessagePart, MessageRole, ModelRef},
    run::{CallPurpose, Conversation, ModelTerms, RunStarted, RunState, TranscriptEntry, tool_uses},
};

use super::{
    super::core::{
        call_options::{current_role, prompt_and_tools, sampling_options, summary_tokens_max},
        decision::ModelCall,
        model_choice, nudges,
    },
    pruning::RETAINED_STEPS,
    result_line::{format_result_line, truncate_bytes},
    steps::ConversationSteps,
};
use crate::model::SUMMARY_REQUEST_MARK;

/// The instructions, after [`SUMMARY_REQUEST_MARK`].
const SUMMARY_INSTRUCTIONS: &str = ", which will no longer be seen after this. Write down what whoever goes \
on must know: what was found out and where (paths, names, lines), what was decided and why, what was tried and \
failed, what is still to be done. Facts only, in at most 600 words, no greeting. Do not call a tool and do not go on \
with the task now.";
/// Added if there already is a summary.
const RESUMMARY_INSTRUCTIONS: &str = " What you write takes the place of the earlier summary behind the task as well: write \
down again all of it that still holds, its decisions above all.";

/// Heading of a model's summary.
const MODEL_SUMMARY_HEADING: &str = "Summary of the work before this:";
/// Heading of a summary built by rule, or of the part of it that follows a model's.
const RULE_SUMMARY_HEADING: &str = "What was done before this, in order:";
const LATER_WORK_HEADING: &str = "What was done after that, in order:";
/// Prefix of a call's line.
const CALL_LINE_PREFIX: &str = "- called ";
/// Bytes of a message in its line.
const TEXT_LINE_BYTES_MAX: usize = 300;
/// Bytes of the line that counts the lines left out.
const LEFT_OUT_BYTES: usize = 48;

/// How lines are dropped and shortened until they fit, one round after the other, each from the oldest on.
const FITTING_ROUNDS: [FittingRound; 7] = [
    FittingRound::DropCalls { keep: 10 },
    FittingRound::Truncate { to: 600 },
    FittingRound::Truncate { to: TEXT_LINE_BYTES_MAX },
    FittingRound::DropCalls { keep: 0 },
    FittingRound::Truncate { to: 150 },
    FittingRound::Truncate { to: 80 },
    FittingRound::DropRest,
];

enum FittingRound {
    /// Drops lines of calls except the last ones.
    DropCalls { keep: usize },
    /// Cuts longer lines.
    Truncate { to: usize },
    /// Drops whatever is left.
    DropRest,
}

/// Returns the call that requests a summary of the oldest messages; `None` if there are none.
///
/// Its conversation is one message that quotes them: providers reject calls and results without their tools, and no
/// tool may be used here.
pub(crate) fn summary_call(run: &RunState, pins: &RunStarted) -> Option<ModelCall> {
    let steps = ConversationSteps::from_run(run, RETAINED_STEPS);
    if steps.old.is_empty() {
        return None;
    }
    let mut parts = vec![text_part("The task, and what was kept before:")];
    parts.extend(
        run.transcript.sealed_entries().first().into_iter().flat_map(|said| said.message.parts.clone()),
    );
    parts.push(text_part("The oldest part of the work on it:"));
    parts.extend(steps.old.iter().flat_map(|said| quote_message(&said.message)));
    let again = if run.transcript.summary_text().is_some() { RESUMMARY_INSTRUCTIONS } else { "" };
    parts.push(text_part(&format!("{SUMMARY_REQUEST_MARK}{SUMMARY_INSTRUCTIONS}{again}")));
    let (model, terms) = summary_model(run, pins);
    let (system, tools) = prompt_and_tools(run, pins);
    let role = current_role(run, pins);
    Some(ModelCall {
        call: CallId::for_summary(run.summaries_requested + 1),
        purpose: CallPurpose::Compact,
        turn: run.turn,
        attempt: 1,
        model: model.clone(),
        role: run.engine_state.role.clone(),
        system,
        tools,
        messages: Conversation::from_iter([Message { role: MessageRole::User, parts }]),
        nudge: None,
        output_tokens_max: summary_tokens_max(pins, terms),
        wait_ms: 0,
        manner: sampling_options((pins, role), CallPurpose::Compact, model, &Conversation::default()),
    })
}

/// Returns the summarizing model: the cheap one if its window is as large as the main one's.
fn summary_model<'a>(run: &RunState, pins: &'a RunStarted) -> (&'a ModelRef, &'a ModelTerms) {
    let chosen = model_choice::choose_model(run, pins);
    match &pins.models.explore {
        Some(explore)
            if explore.terms.context_tokens >= chosen.terms.context_tokens
                && !model_choice::is_model_refused(run, pins, &explore.model) =>
        {
            (&explore.model, &explore.terms)
        }
        Some(_) | None => (chosen.model, chosen.terms),
    }
}

fn text_part(words: &str) -> MessagePart {
    MessagePart::Text { text: words.into() }
}

fn quote_message(message: &Message) -> Vec<MessagePart> {
    let mut parts = Vec::new();
    for part in &message.parts {
        match part {
            MessagePart::Text { text: said } if is_reminder(said) => {}
            MessagePart::Text { text: said } => {
                let who = if message.role == MessageRole::Assistant { "You said:" } else { "You were told:" };
                parts.extend([text_part(who), MessagePart::Text { text: said.clone() }]);
            }
            MessagePart::ToolUse(tool) => {
                parts.push(text_part(&format!(
                    "You called {} {}",
                    tool.name,
                    truncate_bytes(&tool.args.to_string(), 1000)
                )));
            }
            MessagePart::ToolResult { content, is_error, .. } => {
                let word = if *is_error { "It failed:" } else { "Its result:" };
                parts.extend([text_part(word), MessagePart::Text { text: content.clone() }]);
            }
            MessagePart::Thinking { .. } => {}
        }
    }
    parts
}

fn is_reminder(said: &Content) -> bool {
    matches!(said, Content::Text(said) if nudges::ALL.contains(&said.as_str()))
}

/// Formats a model's text as it is inserted.
pub(super) fn format_model_summary(written: &str, bytes_max: usize) -> String {
    format!(
        "{MODEL_SUMMARY_HEADING}\n{}",
        truncate_bytes(written, bytes_max.saturating_sub(MODEL_SUMMARY_HEADING.len() + 1))
    )
}

/// Builds a summary without a model: the existing one, followed by these lines.
pub(super) fn format_rule_summary(more: Vec<String>, earlier: Option<&str>, bytes_max: usize) -> String {
    let mut left_out = 0;
    let mut lines: Vec<String> = Vec::new();
    for line in earlier.unwrap_or(RULE_SUMMARY_HEADING).lines().filter(|line| !line.trim().is_empty()) {
        match parse_left_out_count(line) {
            Some(count) => left_out += count,
            None => lines.push(line.to_owned()),
        }
    }
    if !lines.iter().any(|line| line == RULE_SUMMARY_HEADING || line == LATER_WORK_HEADING) {
        lines.push(LATER_WORK_HEADING.to_owned());
    }
    lines.extend(more);
    left_out += fit_lines(&mut lines, bytes_max.saturating_sub(LEFT_OUT_BYTES));
    if left_out > 0 {
        lines.insert(1.min(lines.len()), format!("- [{left_out} older lines are left out]"));
    }
    lines.join("\n")
}

fn parse_left_out_count(line: &str) -> Option<usize> {
    line.strip_prefix("- [")?.strip_suffix(" older lines are left out]")?.parse().ok()
}

/// Returns the messages of the removable steps, and a line for each call.
pub(super) fn summary_lines(steps: &ConversationSteps<'_>) -> Vec<String> {
    let results = steps.results_by_call();
    let mut lines = Vec::new();
    for said in &steps.old {
        for part in &said.message.parts {
            if let MessagePart::ToolUse(tool) = part {
                let (content, is_error) = results.get(&tool.call).copied().unzip();
                lines.push(format!(
                    "{CALL_LINE_PREFIX}{}",
                    format_result_line(tool, content, is_error.unwrap_or(false))
                ));
            } else {
                lines.extend(format_text_line(part, said.message.role));
            }
        }
    }
    lines
}

/// Returns the messages that accompanied these calls.
pub(super) fn text_lines_with_calls(steps: &ConversationSteps<'_>, calls: &[CallId]) -> Vec<String> {
    let gone: BTreeSet<&CallId> = calls.iter().collect();
    let made =
        |said: &&&TranscriptEntry| tool_uses(&said.message.parts).any(|tool| gone.contains(&tool.call));
    let parts = steps.old.iter().filter(made).flat_map(|said| &said.message.parts);
    parts.filter_map(|part| format_text_line(part, MessageRole::Assistant)).collect()
}

fn format_text_line(part: &MessagePart, role: MessageRole) -> Option<String> {
    match part {
        MessagePart::Text { text: Content::Text(text) } if !nudges::ALL.contains(&text.as_str()) => {
            let who = if role == MessageRole::Assistant { "you said" } else { "you were told" };
            Some(format!("- {who}: {}", truncate_bytes(&first_lines(text), TEXT_LINE_BYTES_MAX)))
        }
        MessagePart::Text { .. }
        | MessagePart::ToolUse(_)
        | MessagePart::ToolResult { .. }
        | MessagePart::Thinking { .. } => None,
    }
}

fn first_lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect::<Vec<_>>().join(" / ")
}

/// Drops and shortens lines until they fit in `room` bytes. Returns how many were dropped.
fn fit_lines(lines: &mut Vec<String>, room: usize) -> usize {
    let is_head =
        |line: &str| [MODEL_SUMMARY_HEADING, RULE_SUMMARY_HEADING, LATER_WORK_HEADING].contains(&line);
    let mut over = lines.iter().map(|line| line.len() + 1).sum::<usize>().saturating_sub(room);
    let before = lines.len();
    for round in FITTING_ROUNDS {
        let calls = lines.iter().filter(|line| line.starts_with(CALL_LINE_PREFIX)).count();
        let mut nth = 0;
        lines.retain_mut(|line| {
            let is_call = line.starts_with(CALL_LINE_PREFIX);
            nth += usize::from(is_call);
            if over == 0 || is_head(line) {
                return true;
            }
            let was = line.len() + 1;
            let stays = match round {
                FittingRound::DropCalls { keep: kept } => !is_call || nth + kept > calls,
                FittingRound::Truncate { to } => {
                    // The cut mark itself takes bytes: a line that was cut to this length before is left alone.
                    if line.len() > to + '…'.len_utf8() {
                        *line = truncate_bytes(line, to);
                    }
                    true
                }
                FittingRound::DropRest => false,
            };
            over = over.saturating_sub(if stays { was - line.len() - 1 } else { was });
            stays
        });
    }
    before - lines.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample_lines(from: usize, to: usize) -> Vec<String> {
        (from..to)
            .flat_map(|n| {
                let words = "words that explain it ".repeat(12);
                [
                    format!("- you said: DECISION{n}: {words}"),
                    format!("{CALL_LINE_PREFIX}read_file `f{n}`: done, 4000 bytes"),
                ]
            })
            .collect()
    }

    #[test]
    fn call_lines_are_dropped_before_text_lines_are_truncated() {
        let mut lines = vec![RULE_SUMMARY_HEADING.to_owned()];
        lines.extend(sample_lines(0, 30));
        let whole = lines.clone();
        let bytes = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
        assert_eq!(fit_lines(&mut lines, bytes(&whole)), 0, "what fits stays as it is");
        assert_eq!(lines, whole);
        for (room, calls, words) in [(8800, 10, 30), (8000, 0, 30), (4000, 0, 30), (1000, 0, 11)] {
            let mut lines = whole.clone();
            let left_out = fit_lines(&mut lines, room);
            let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin)).count();
            assert!(bytes(&lines) <= room, "{room}: {lines:#?}");
            assert_eq!(lines[0], RULE_SUMMARY_HEADING);
            assert_eq!(left_out, whole.len() - lines.len());
            assert!(
                count(CALL_LINE_PREFIX) <= calls || room == 8800,
                "{room}: {} calls",
                count(CALL_LINE_PREFIX)
            );
            assert_eq!(count("- you said"), words, "{room}");
            assert!(lines.iter().any(|line| line.contains("DECISION29")), "{room}");
        }
    }
}
