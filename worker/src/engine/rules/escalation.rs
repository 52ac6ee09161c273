//! Escalation (A13): when a run asks a person because it does not get on. Pure.
//!
//! Three thresholds, each a pinned setting; 0 = never, and so in logs from before there were any:
//! - the same error in so many turns (`same_error_max`);
//! - so many turns in which a write to the same file failed, none succeeding (`failed_edits_max`);
//! - more failures in all than (`failures_max`), of those that were not made good: calls that failed or were
//!   refused, and each repetition of a look that finds nothing or of a command or tests that do not pass. A red
//!   test before the fix and a missing file count nothing.
//!
//! What succeeds later about the same thing takes its failures back (`docket_schema::run::Troubles`), and what a
//! person says is given a turn first.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    content::Content,
    ids::Turn,
    run::{RunSettings, RunState, Trouble, TroubleKind},
};

/// Characters of what a tool said that a question repeats, from its head and from its end.
const HEAD_CHARS: usize = 300;
const END_CHARS: usize = 500;
/// Characters of a command line or a path in a question.
const SUBJECT_CHARS: usize = 160;
/// Failures that a question lists.
const LISTED_MAX: usize = 8;

/// What the run cannot get over by itself, put as a question; `None` while no threshold is passed.
pub(in crate::engine) fn question(run: &RunState, settings: &RunSettings) -> Option<Content> {
    let is_new = run.troubles.iter().any(|trouble| trouble.turns.contains(&run.turn));
    if !is_new || run.transcript.has_notes() {
        return None;
    }
    let told = failed_edits(run, settings.failed_edits_max)
        .or_else(|| same_error(run, settings.same_error_max, settings.trouble_rules))
        .or_else(|| failures(run, settings.failures_max))?;
    let question = format!(
        "{told}\n\nWhat shall the run do? Say another way, or what you mended; it goes on from here with your words, \
         and counts anew."
    );
    Some(Content::Text(question))
}

fn failed_edits(run: &RunState, max: u32) -> Option<String> {
    let writes = run.troubles.iter().filter(|trouble| trouble.kind == TroubleKind::Write);
    let (path, turns, last) = repeated(writes.map(|trouble| (trouble.subject.as_str(), trouble)), max)?;
    let told = format!("{} attempts to change `{}` failed, {}.", turns.len(), cut(path), in_turns(&turns));
    Some(format!("{told} The last one said:\n{}", said(last)))
}

/// That something is not there is no trouble by itself: only to look for the same thing again is the same error.
fn error_of(trouble: &Trouble, rules: u32) -> (&str, &str) {
    match trouble.kind {
        TroubleKind::Look if rules > 0 => (&trouble.signature, &trouble.subject),
        TroubleKind::Look | TroubleKind::Ended | TroubleKind::Write | TroubleKind::Refused => trouble.error(),
    }
}

fn same_error(run: &RunState, max: u32, rules: u32) -> Option<String> {
    let errors = run.troubles.iter().map(|trouble| (error_of(trouble, rules), trouble));
    let (_, turns, last) = repeated(errors, max)?;
    let told = format!("The same error came {} times, {}.", turns.len(), in_turns(&turns));
    Some(format!("{told} The last time, `{}` said:\n{}", name(last), said(last)))
}

fn failures(run: &RunState, max: u32) -> Option<String> {
    let count: usize = run.troubles.iter().map(Trouble::failures).sum();
    if max == 0 || count <= max as usize {
        return None;
    }
    let counted = || run.troubles.iter().filter(|trouble| trouble.failures() > 0);
    let mut told = format!("{count} calls failed and were not made good since:");
    for trouble in counted().take(LISTED_MAX) {
        let first = said(trouble).lines().next().unwrap_or_default().to_owned();
        told.push_str(&format!("\n- {} times `{}`: {}", trouble.failures(), name(trouble), cut(&first)));
    }
    if let Some(more) = counted().count().checked_sub(LISTED_MAX).filter(|more| *more > 0) {
        told.push_str(&format!("\n- and {more} others"));
    }
    Some(told)
}

/// The first key whose troubles came in `max` turns or more, in which turns, and the last of these troubles.
fn repeated<'a, K: Ord + Copy>(
    troubles: impl Iterator<Item = (K, &'a Trouble)>,
    max: u32,
) -> Option<(K, BTreeSet<Turn>, &'a Trouble)> {
    let mut by_key: BTreeMap<K, (BTreeSet<Turn>, &Trouble)> = BTreeMap::new();
    for (key, trouble) in troubles {
        let (turns, last) = by_key.entry(key).or_insert_with(|| (BTreeSet::new(), trouble));
        turns.extend(&trouble.turns);
        *last = trouble;
    }
    let passed = by_key.into_iter().find(|(_, (turns, _))| max > 0 && turns.len() >= max as usize);
    passed.map(|(key, (turns, last))| (key, turns, last))
}

fn in_turns(turns: &BTreeSet<Turn>) -> String {
    let turns: Vec<String> = turns.iter().map(ToString::to_string).collect();
    match turns.split_last() {
        Some((last, [])) => format!("in turn {last}"),
        Some((last, before)) => format!("in turns {} and {last}", before.join(", ")),
        None => String::new(),
    }
}

/// The call, in short.
pub(in crate::engine) fn name(trouble: &Trouble) -> String {
    format!("{} {}", trouble.tool, cut(&trouble.subject)).trim_end().to_owned()
}

fn said(trouble: &Trouble) -> String {
    let Content::Text(text) = &trouble.text else { return trouble.signature.clone() };
    let text = text.trim();
    let count = text.chars().count();
    if count <= HEAD_CHARS + END_CHARS {
        return text.to_owned();
    }
    let head: String = text.chars().take(HEAD_CHARS).collect();
    let end: String = text.chars().skip(count - END_CHARS).collect();
    format!("{head}\n…\n{end}")
}

/// The first line, within its limit.
pub(in crate::engine) fn cut(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(SUBJECT_CHARS).collect();
    if short.len() < text.trim_end().len() {
        short.push('…');
    }
    short
}
