//! The edit engine alone: a typical edit, and one found by similarity in a file of 20,000 lines.

use std::time::Instant;

use anyhow::{Context as _, ensure};
use docket_edit::{Edit, EditHint, apply_edits};
use docket_schema::tool::EditLevel;

use crate::report::{BenchReport, EffortLevel, Samples};

/// Lines of a typical source file.
const USUAL_FILE_LINES: usize = 300;
/// Lines of a large file.
const LARGE_FILE_LINES: usize = 20_000;
/// Lines that an edit quotes.
const QUOTED_LINES: usize = 5;

pub(crate) async fn measure(effort: EffortLevel, report: &mut BenchReport) -> anyhow::Result<()> {
    // Long CPU-bound work, kept off the runtime's threads.
    let (usual, large) = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        Ok((time_usual_edits(effort.edits())?, time_large_edits(effort.large_edits())?))
    })
    .await??;
    report.set_percentile("edit_us_p50", &usual, 50);
    report.set_percentile("edit_20k_lines_fuzzy_ms", &large, 50);
    Ok(())
}

/// Measures edits as models make them, in microseconds: most quote the file exactly, some differ in
/// whitespace or one letter.
fn time_usual_edits(edits: usize) -> anyhow::Result<Samples> {
    let lines = source_lines(USUAL_FILE_LINES);
    let mut samples = Samples::default();
    for round in 0..edits {
        let at = round * 37 % (USUAL_FILE_LINES - QUOTED_LINES);
        let (slip, level) = match round % 8 {
            0..5 => (QuoteError::None, EditLevel::Exact),
            5 | 6 => (QuoteError::Indent, EditLevel::Indentation),
            _ => (QuoteError::Letters, EditLevel::Fuzzy),
        };
        samples.push(time_edit(&lines, at, slip, level)? * 1e6);
    }
    Ok(samples)
}

/// Measures edits that are found by similarity only, in milliseconds.
fn time_large_edits(edits: usize) -> anyhow::Result<Samples> {
    let lines = source_lines(LARGE_FILE_LINES);
    let mut samples = Samples::default();
    for round in 0..edits {
        let at = (round * 7919 + 4001) % (LARGE_FILE_LINES - QUOTED_LINES);
        samples.push(time_edit(&lines, at, QuoteError::Letters, EditLevel::Fuzzy)? * 1e3);
    }
    Ok(samples)
}

/// The mistake in a quote.
#[derive(Debug, Clone, Copy)]
enum QuoteError {
    None,
    Indent,
    Letters,
}

/// Returns the seconds of one edit at line `at`; the result is checked.
fn time_edit(lines: &[String], at: usize, slip: QuoteError, level: EditLevel) -> anyhow::Result<f64> {
    let before = format!("{}\n", lines.join("\n"));
    let quoted = lines[at..at + QUOTED_LINES].join("\n");
    let search = match slip {
        QuoteError::None => quoted.clone(),
        QuoteError::Indent => quoted.replace("\n    ", "\n  ").trim_start().to_owned(),
        QuoteError::Letters => quoted.replacen("request", "reqeust", 1),
    };
    let replace = format!("{search}\n    # changed");
    let edits = [Edit { search, replace, hint: EditHint::default() }];
    let started = Instant::now();
    let applied = apply_edits(before.as_bytes(), &edits);
    let took = started.elapsed().as_secs_f64();
    let applied = applied.with_context(|| format!("the edit at line {} is refused", at + 1))?;
    ensure!(
        applied.loosest_level() == level,
        "line {}: found at level {:?}, not {level:?}",
        at + 1,
        applied.loosest_level()
    );
    ensure!(applied.after.len() > before.len(), "the edit at line {} changed nothing", at + 1);
    Ok(took)
}

const WORDS: [&str; 16] = [
    "account", "balance", "cursor", "deadline", "envelope", "fraction", "gateway", "header", "invoice",
    "journal", "keyring", "ledger", "mailbox", "notice", "outcome", "payload",
];

/// Picks a word that differs for nearly every line.
fn pick_word(line: usize, salt: usize) -> &'static str {
    let mixed = (line.wrapping_mul(0x9E37_79B9) ^ salt.wrapping_mul(0x85EB_CA6B)).wrapping_mul(0xC2B2_AE35);
    WORDS[(mixed >> 16) % WORDS.len()]
}

/// Generates source text in which no two places are alike. Every line has the word that a mistake
/// is made in.
fn source_lines(lines: usize) -> Vec<String> {
    let line = |at: usize| {
        let (a, b, c) = (pick_word(at, 1), pick_word(at, 2), pick_word(at, 3));
        match at % 5 {
            0 => format!("def {a}_{b}(request, {c}):"),
            1 => format!("    {a} = request.{b}.get(\"{c}_{at}\")"),
            2 => format!("    if request.{a} and {b} not in {c}:"),
            3 => format!("        raise {a}Error(request, \"{b} has no {c}\")"),
            _ => format!("    return {a}(request, {b}={c}, limit={at})"),
        }
    };
    (0..lines).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_of_every_kind_are_applied() {
        time_usual_edits(16).expect("usual edits");
    }

    #[test]
    fn edit_of_a_large_file_is_found_by_similarity() {
        time_large_edits(1).expect("a large file");
    }
}
