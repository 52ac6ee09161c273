//! Escalation (A13): decides when a run without progress asks a person. Pure.
//!
//! Three thresholds, each a pinned setting; 0 = never, and so in logs from before they existed:
//! - the same error in this many turns (`same_error_max`);
//! - this many turns in which a write to the same file failed, none succeeding (`failed_edits_max`);
//! - more unresolved failures in total than this (`failures_max`): calls that failed or were refused, and each
//!   repetition of a search that finds nothing or of a command or tests that do not pass. A failing test before the
//!   fix and a missing file do not count.
//!
//! A later success on the same subject cancels its failures (`docket_schema::run::UnresolvedFailures`), and a message
//! from a person gets a turn first.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    ids::Turn,
    run::{FailureCategory, RunSettings, RunState, UnresolvedFailure},
};

/// Characters of a tool's output repeated in a question, from its beginning and its end.
const HEAD_CHARS: usize = 300;
const TAIL_CHARS: usize = 500;
/// Characters of a command line or a path in a question.
const SUBJECT_CHARS: usize = 160;
/// Failures that a question lists.
const FAILURES_LISTED_MAX: usize = 8;

/// Returns the question about what the run cannot overcome by itself; `None` while no threshold is exceeded.
pub(in crate::engine) fn escalation_question(run: &RunState, settings: &RunSettings) -> Option<Content> {
    let is_new = run.unresolved_failures.iter().any(|trouble| trouble.turns.contains(&run.turn));
    if !is_new || run.transcript.has_notes() {
        return None;
    }
    let told = repeated_failed_edits(run, settings.failed_edits_max)
        .or_else(|| repeated_error(run, settings.same_error_max, settings.trouble_rules))
        .or_else(|| too_many_failures(run, settings.failures_max))?;
    let question = format!(
        "{told}\n\nWhat shall the run do? Say another way, or what you mended; it goes on from here with your words, \
         and counts anew."
    );
    Some(Content::Text(question))
}

fn repeated_failed_edits(run: &RunState, max: u32) -> Option<String> {
    let writes =
        run.unresolved_failures.iter().filter(|trouble| trouble.kind == FailureCategory::WriteFailed);
    let (path, turns, last) = find_repeated(writes.map(|trouble| (trouble.subject.as_str(), trouble)), max)?;
    let told = format!(
        "{} attempts to change `{}` failed, {}.",
        turns.len(),
        excerpt_first_line(path),
        format_turns(&turns)
    );
    Some(format!("{told} The last one said:\n{}", excerpt_text(last)))
}

/// A missing file is not a failure by itself: only looking for the same one again is the same error.
fn error_key(trouble: &UnresolvedFailure, rules: u32) -> (&str, &str) {
    match trouble.kind {
        FailureCategory::NotFound if rules > 0 => (&trouble.signature, &trouble.subject),
        FailureCategory::NotFound
        | FailureCategory::CommandFailed
        | FailureCategory::WriteFailed
        | FailureCategory::CallFailed => trouble.error_key(),
    }
}

fn repeated_error(run: &RunState, max: u32, rules: u32) -> Option<String> {
    let errors = run.unresolved_failures.iter().map(|trouble| (error_key(trouble, rules), trouble));
    let (_, turns, last) = find_repeated(errors, max)?;
    let told = format!("The same error came {} times, {}.", turns.len(), format_turns(&turns));
    Some(format!("{told} The last time, `{}` said:\n{}", format_call_name(last), excerpt_text(last)))
}

fn too_many_failures(run: &RunState, max: u32) -> Option<String> {
    let count: usize = run.unresolved_failures.iter().map(UnresolvedFailure::counted_failures).sum();
    if max == 0 || count <= max as usize {
        return None;
    }
    let counted = || run.unresolved_failures.iter().filter(|trouble| trouble.counted_failures() > 0);
    let mut told = format!("{count} calls failed and were not made good since:");
    for trouble in counted().take(FAILURES_LISTED_MAX) {
        let first = excerpt_text(trouble).lines().next().unwrap_or_default().to_owned();
        told.push_str(&format!(
            "\n- {} times `{}`: {}",
            trouble.counted_failures(),
            format_call_name(trouble),
            excerpt_first_line(&first)
        ));
    }
    if let Some(more) = counted().count().checked_sub(FAILURES_LISTED_MAX).filter(|more| *more > 0) {
        told.push_str(&format!("\n- and {more} others"));
    }
    Some(told)
}

/// Returns the first key with failures in at least `max` turns, those turns, and the last of these failures.
fn find_repeated<'a, K: Ord + Copy>(
    troubles: impl Iterator<Item = (K, &'a UnresolvedFailure)>,
    max: u32,
) -> Option<(K, BTreeSet<Turn>, &'a UnresolvedFailure)> {
    let mut by_key: BTreeMap<K, (BTreeSet<Turn>, &UnresolvedFailure)> = BTreeMap::new();
    for (key, trouble) in troubles {
        let (turns, last) = by_key.entry(key).or_insert_with(|| (BTreeSet::new(), trouble));
        turns.extend(&trouble.turns);
        *last = trouble;
    }
    let passed = by_key.into_iter().find(|(_, (turns, _))| max > 0 && turns.len() >= max as usize);
    passed.map(|(key, (turns, last))| (key, turns, last))
}

fn format_turns(turns: &BTreeSet<Turn>) -> String {
    let turns: Vec<String> = turns.iter().map(ToString::to_string).collect();
    match turns.split_last() {
        Some((last, [])) => format!("in turn {last}"),
        Some((last, before)) => format!("in turns {} and {last}", before.join(", ")),
        None => String::new(),
    }
}

/// Formats the call in short form.
pub(in crate::engine) fn format_call_name(trouble: &UnresolvedFailure) -> String {
    format!("{} {}", trouble.tool, excerpt_first_line(&trouble.subject)).trim_end().to_owned()
}

fn excerpt_text(trouble: &UnresolvedFailure) -> String {
    let Content::Text(text) = &trouble.text else { return trouble.signature.clone() };
    let text = text.trim();
    let count = text.chars().count();
    if count <= HEAD_CHARS + TAIL_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(HEAD_CHARS).collect();
    let end: String = text.chars().skip(count - TAIL_CHARS).collect();
    format!("{head}\n…\n{end}")
}

/// Returns the first line, within its limit.
pub(in crate::engine) fn excerpt_first_line(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(SUBJECT_CHARS).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}
