//! Long made-up runs: what a run keeps in mind however its summaries come out, and how rarely it is made shorter.

use super::*;

fn called(tool: &'static str, bytes: usize) -> Called {
    Called { tool, path: 0, bytes, fails: false, lines: WHOLE }
}

fn brought(says: String, calls: Vec<Called>, summary: u8) -> Brought {
    Brought { thinks: false, says: says.leak(), calls, told: false, counted: true, summary }
}

fn decides(n: usize, summary: u8) -> Brought {
    brought(format!("DECISION{n}: value {} holds.", n * 7), vec![called("run_command", 4000)], summary)
}

/// All that a model reads.
fn all_of(talk: &Talk) -> String {
    talk.said().iter().map(|message| format!("{message:?}\n")).collect()
}

#[test]
fn whatever_becomes_of_a_summary_what_was_decided_is_kept() {
    // An empty one, one that fails, one that is cut: and each after a good one, and without.
    for bad in 1..4 {
        for good in [false, true] {
            let mut talk = Talk::new(12_000);
            let mut first = usize::MAX;
            for n in 0..60 {
                let summary = if good && first == usize::MAX { 0 } else { bad };
                talk.turn(&decides(n, summary)).expect("holds");
                if talk.summaries > 0 && first == usize::MAX {
                    first = n;
                }
            }
            assert!(talk.summaries >= 2, "{} summaries", talk.summaries);
            let all = all_of(&talk);
            let from = if good { first } else { 0 };
            for n in from..60 {
                assert!(all.contains(&format!("DECISION{n}: ")), "{bad} {good}: {n} is forgotten\n{all}");
            }
            assert_eq!(all.contains("Much was done."), good, "{bad}: {all}");
            assert!(!all.contains("Much w\""), "what was cut is no summary: {all}");
            let summary = talk.state.transcript.summary().expect("one");
            assert!(!summary.contains("You gave no plan"), "nobody said that: {summary}");
            assert!(!summary.contains("it began: [run_command"), "quoted twice: {summary}");
            assert!(summary.contains("- called run_command `make`: done, "), "{summary}");
        }
    }
}

#[test]
fn what_was_said_beside_a_step_that_goes_is_kept() {
    let mut talk = Talk::new(12_000);
    for n in 0..40 {
        // Nothing is found, and something is decided.
        let calls = vec![called("search_codebase", 100)];
        talk.turn(&brought(format!("DECISION{n}: {}", "since so it is ".repeat(12)), calls, 0))
            .expect("holds");
        talk.turn(&brought(String::new(), vec![called("run_command", 1000)], 0)).expect("holds");
        if talk.summaries > 0 {
            break;
        }
        let all = all_of(&talk);
        for decided in 0..=n {
            assert!(all.contains(&format!("DECISION{decided}: ")), "{n}: {decided} is forgotten: {all}");
        }
    }
    assert!(talk.dropped > 0, "no step was fruitless");
}

#[test]
fn a_summary_that_is_made_by_rule_again_and_again_has_a_bound() {
    let mut talk = Talk::new(8000);
    for n in 0..300 {
        let says = format!("DECISION{n}: {}", "words and more words ".repeat(20));
        talk.turn(&brought(says, vec![called("run_command", 3000)], 2)).expect("holds");
    }
    let summary = talk.state.transcript.summary().expect("one");
    assert!(summary.len() <= 4096, "{}", summary.len());
    assert!(summary.contains(" older lines are left out]"), "{summary}");
    assert!(summary.contains("DECISION28"), "the latest stand there: {summary}");
}

#[test]
fn a_summary_that_follows_another_is_asked_to_keep_it() {
    let mut talk = Talk::new(12_000);
    let mut asked = Vec::new();
    for n in 0..60 {
        let summaries = talk.summaries;
        let state = talk.state.clone();
        talk.turn(&decides(n, 0)).expect("holds");
        if talk.summaries > summaries {
            asked.push(state.transcript.summary().is_some());
        }
    }
    assert!(asked.len() >= 2 && !asked[0] && asked[1], "{asked:?}");
    let again = talk.asked_again;
    assert_eq!(again, asked.iter().filter(|again| **again).count());
}

#[test]
fn a_long_run_is_made_shorter_rarely_and_by_much() {
    let usual = || vec![called("run_command", 4400), called("edit_file", 600), called("run_command", 200)];
    let large = || vec![called("run_command", 20_000)];
    let small = || vec![called("run_command", 300)];
    type Made = fn() -> Vec<Called>;
    let runs: [(u64, Made, usize, usize); 4] = [
        (32_768, large, 25, 13),
        (14_000, usual, 60, 40),
        (14_000, small, 120, 12),
        (100_000, usual, 100, 8),
    ];
    for (whole, calls, turns, most) in runs {
        for summary in [0, 2] {
            let mut talk = Talk::new(whole);
            for n in 0..turns {
                talk.turn(&brought(format!("Step {n}."), calls(), summary)).expect("holds");
            }
            let count = talk.shortened.len();
            assert!(count >= 2 && count <= most, "{whole}: {count} times in {turns} turns");
            assert!(talk.summaries <= count, "{whole}: {} summaries, {count}", talk.summaries);
            // A quarter of the window is the answer's; three bytes are a token.
            let window = whole / 4 * 3 * 3;
            for (before, after) in &talk.shortened {
                let gained = before.saturating_sub(*after);
                assert!(
                    gained >= window / 5 || *before >= window,
                    "{whole}: {before} to {after} bytes of {window}: {:?}",
                    talk.shortened
                );
            }
        }
    }
}
