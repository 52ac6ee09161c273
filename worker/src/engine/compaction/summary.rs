//! What stands for the oldest messages once they go: the call that asks a model for it, and the text that is made
//! by rule where none comes. Pure.
//!
//! The rule adds to the summary that stands there already and never replaces it: one call that failed must not
//! cost what ten that went well have kept. What does not fit is made shorter from its oldest end, calls first: what
//! was said and decided is in nothing else that stays.

use std::collections::BTreeSet;

use docket_schema::{
    content::Content,
    message::{CallId, Message, ModelRef, Part, Role},
    run::{Conversation, ModelTerms, Purpose, RunStarted, RunState, Said, calls_of},
};

use super::{
    super::core::{
        call_options::{manner_of, role_of, summary_tokens_max, texts_of},
        decision::ModelCall,
        models, nudges,
    },
    pruning::KEPT_STEPS,
    result_line::{cut, line_of},
    steps::Steps,
};
use crate::model::SUMMARY_MARK;

/// What is asked for, behind [`SUMMARY_MARK`].
const SUMMARIZE: &str = ", which will no longer be seen after this. Write down what whoever goes \
on must know: what was found out and where (paths, names, lines), what was decided and why, what was tried and \
failed, what is still to be done. Facts only, in at most 600 words, no greeting. Do not call a tool and do not go on \
with the task now.";
/// And this, where a summary stands there already.
const SUMMARIZE_AGAIN: &str = " What you write takes the place of the earlier summary behind the task as well: write \
down again all of it that still holds, its decisions above all.";

/// What a model's summary begins with.
const HEAD_MODEL: &str = "Summary of the work before this:";
/// What one begins with that was made by rule, or that part of it which stands behind a model's.
const HEAD_RULE: &str = "What was done before this, in order:";
const HEAD_AFTER: &str = "What was done after that, in order:";
/// What a call's line begins with.
const CALLED: &str = "- called ";
/// Bytes of what was said, in its line.
const SAID_BYTES_MAX: usize = 300;
/// Bytes of the line that says how many others are left out.
const LEFT_OUT_BYTES: usize = 48;

/// How lines are made fewer and shorter until they fit, one round after the other, each from the oldest on.
const ROUNDS: [Round; 7] = [
    Round::Calls { kept: 10 },
    Round::Cut { to: 600 },
    Round::Cut { to: SAID_BYTES_MAX },
    Round::Calls { kept: 0 },
    Round::Cut { to: 150 },
    Round::Cut { to: 80 },
    Round::Words,
];

enum Round {
    /// Lines of calls go, but the last ones.
    Calls { kept: usize },
    /// What is longer is cut.
    Cut { to: usize },
    /// Whatever there is goes.
    Words,
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
    let again = if run.transcript.summary().is_some() { SUMMARIZE_AGAIN } else { "" };
    parts.push(text(&format!("{SUMMARY_MARK}{SUMMARIZE}{again}")));
    let (model, terms) = summarizer(run, pins);
    let (system, tools) = texts_of(run, pins);
    let role = role_of(run, pins);
    Some(ModelCall {
        call: CallId::summary(run.summaries + 1),
        purpose: Purpose::Compact,
        turn: run.turn,
        attempt: 1,
        model: model.clone(),
        role: run.work.role.clone(),
        system,
        tools,
        messages: Conversation::from_iter([Message { role: Role::User, parts }]),
        nudge: None,
        output_tokens_max: summary_tokens_max(pins, terms),
        wait_ms: 0,
        manner: manner_of((pins, role), Purpose::Compact, model, &Conversation::default()),
    })
}

/// The model that summarizes: the cheap one, where it can take what the main one can.
fn summarizer<'a>(run: &RunState, pins: &'a RunStarted) -> (&'a ModelRef, &'a ModelTerms) {
    let chosen = models::chosen(run, pins);
    match &pins.models.explore {
        Some(explore)
            if explore.terms.context_tokens >= chosen.terms.context_tokens
                && !models::is_refused(run, pins, &explore.model) =>
        {
            (&explore.model, &explore.terms)
        }
        Some(_) | None => (chosen.model, chosen.terms),
    }
}

fn text(words: &str) -> Part {
    Part::Text { text: words.into() }
}

fn quoted(message: &Message) -> Vec<Part> {
    let mut parts = Vec::new();
    for part in &message.parts {
        match part {
            Part::Text { text: said } if is_reminder(said) => {}
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

fn is_reminder(said: &Content) -> bool {
    matches!(said, Content::Text(said) if nudges::ALL.contains(&said.as_str()))
}

/// What a model wrote, as it is put in place.
pub(super) fn by_model(written: &str, bytes_max: usize) -> String {
    format!("{HEAD_MODEL}\n{}", cut(written, bytes_max.saturating_sub(HEAD_MODEL.len() + 1)))
}

/// A summary without a model: the one that stands there, and behind it these lines.
pub(super) fn by_rule(more: Vec<String>, earlier: Option<&str>, bytes_max: usize) -> String {
    let mut left_out = 0;
    let mut lines: Vec<String> = Vec::new();
    for line in earlier.unwrap_or(HEAD_RULE).lines().filter(|line| !line.trim().is_empty()) {
        match count_left_out(line) {
            Some(count) => left_out += count,
            None => lines.push(line.to_owned()),
        }
    }
    if !lines.iter().any(|line| line == HEAD_RULE || line == HEAD_AFTER) {
        lines.push(HEAD_AFTER.to_owned());
    }
    lines.extend(more);
    left_out += fit(&mut lines, bytes_max.saturating_sub(LEFT_OUT_BYTES));
    if left_out > 0 {
        lines.insert(1.min(lines.len()), format!("- [{left_out} older lines are left out]"));
    }
    lines.join("\n")
}

fn count_left_out(line: &str) -> Option<usize> {
    line.strip_prefix("- [")?.strip_suffix(" older lines are left out]")?.parse().ok()
}

/// What was said in the steps that may go, and a line for each call.
pub(super) fn lines_of(steps: &Steps<'_>) -> Vec<String> {
    let results = steps.results();
    let mut lines = Vec::new();
    for said in &steps.old {
        for part in &said.message.parts {
            if let Part::ToolUse(tool) = part {
                let (content, is_error) = results.get(&tool.call).copied().unzip();
                lines.push(format!("{CALLED}{}", line_of(tool, content, is_error.unwrap_or(false))));
            } else {
                lines.extend(words(part, said.message.role));
            }
        }
    }
    lines
}

/// What was said beside these calls.
pub(super) fn words_of(steps: &Steps<'_>, calls: &[CallId]) -> Vec<String> {
    let gone: BTreeSet<&CallId> = calls.iter().collect();
    let made = |said: &&&Said| calls_of(&said.message.parts).any(|tool| gone.contains(&tool.call));
    let parts = steps.old.iter().filter(made).flat_map(|said| &said.message.parts);
    parts.filter_map(|part| words(part, Role::Assistant)).collect()
}

fn words(part: &Part, role: Role) -> Option<String> {
    match part {
        Part::Text { text: Content::Text(text) } if !nudges::ALL.contains(&text.as_str()) => {
            let who = if role == Role::Assistant { "you said" } else { "you were told" };
            Some(format!("- {who}: {}", cut(&first_lines(text), SAID_BYTES_MAX)))
        }
        Part::Text { .. } | Part::ToolUse(_) | Part::ToolResult { .. } | Part::Thinking { .. } => None,
    }
}

fn first_lines(text: &str) -> String {
    text.lines().map(str::trim).filter(|line| !line.is_empty()).take(4).collect::<Vec<_>>().join(" / ")
}

/// Makes lines fewer and shorter until they fit in `room` bytes. How many went.
fn fit(lines: &mut Vec<String>, room: usize) -> usize {
    let is_head = |line: &str| [HEAD_MODEL, HEAD_RULE, HEAD_AFTER].contains(&line);
    let mut over = lines.iter().map(|line| line.len() + 1).sum::<usize>().saturating_sub(room);
    let before = lines.len();
    for round in ROUNDS {
        let calls = lines.iter().filter(|line| line.starts_with(CALLED)).count();
        let mut nth = 0;
        lines.retain_mut(|line| {
            let is_call = line.starts_with(CALLED);
            nth += usize::from(is_call);
            if over == 0 || is_head(line) {
                return true;
            }
            let was = line.len() + 1;
            let stays = match round {
                Round::Calls { kept } => !is_call || nth + kept > calls,
                Round::Cut { to } => {
                    // The mark of a cut is longer than nothing: what was cut to this length is left as it is.
                    if line.len() > to + '…'.len_utf8() {
                        *line = cut(line, to);
                    }
                    true
                }
                Round::Words => false,
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

    fn said(from: usize, to: usize) -> Vec<String> {
        (from..to)
            .flat_map(|n| {
                let words = "words that explain it ".repeat(12);
                [
                    format!("- you said: DECISION{n}: {words}"),
                    format!("{CALLED}read_file `f{n}`: done, 4000 bytes"),
                ]
            })
            .collect()
    }

    #[test]
    fn calls_go_before_words_and_words_are_cut_before_they_go() {
        let mut lines = vec![HEAD_RULE.to_owned()];
        lines.extend(said(0, 30));
        let whole = lines.clone();
        let bytes = |lines: &[String]| lines.iter().map(|line| line.len() + 1).sum::<usize>();
        assert_eq!(fit(&mut lines, bytes(&whole)), 0, "what fits stays as it is");
        assert_eq!(lines, whole);
        for (room, calls, words) in [(8800, 10, 30), (8000, 0, 30), (4000, 0, 30), (1000, 0, 11)] {
            let mut lines = whole.clone();
            let left_out = fit(&mut lines, room);
            let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin)).count();
            assert!(bytes(&lines) <= room, "{room}: {lines:#?}");
            assert_eq!(lines[0], HEAD_RULE);
            assert_eq!(left_out, whole.len() - lines.len());
            assert!(count(CALLED) <= calls || room == 8800, "{room}: {} calls", count(CALLED));
            assert_eq!(count("- you said"), words, "{room}");
            assert!(lines.iter().any(|line| line.contains("DECISION29")), "{room}");
        }
    }
}
