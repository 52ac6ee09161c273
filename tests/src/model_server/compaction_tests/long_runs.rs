//! Long simulated runs: which information survives whatever summaries say, and how rarely compaction occurs.

use super::*;

fn simulated_call(tool: &'static str, bytes: usize) -> SimulatedCall {
    SimulatedCall { tool, path: 0, bytes, fails: false, lines: FULL_FILE }
}

fn simulated_turn(says: String, calls: Vec<SimulatedCall>, summary: u8) -> SimulatedTurn {
    SimulatedTurn {
        thinks: false,
        says: says.leak(),
        calls,
        has_user_message: false,
        reports_usage: true,
        summary,
    }
}

fn deciding_turn(n: usize, summary: u8) -> SimulatedTurn {
    simulated_turn(
        format!("DECISION{n}: value {} holds.", n * 7),
        vec![simulated_call("run_command", 4000)],
        summary,
    )
}

/// All text that the model reads.
fn conversation_text(talk: &SimulatedRun) -> String {
    talk.messages().iter().map(|message| format!("{message:?}\n")).collect()
}

#[test]
fn decisions_are_kept_regardless_of_summaries() {
    // An empty summary, a failed one, a truncated one: each after a good one, and without.
    for bad in 1..4 {
        for good in [false, true] {
            let mut talk = SimulatedRun::new(12_000);
            let mut first = usize::MAX;
            for n in 0..60 {
                let summary = if good && first == usize::MAX { 0 } else { bad };
                talk.run_turn(&deciding_turn(n, summary)).expect("holds");
                if talk.summaries > 0 && first == usize::MAX {
                    first = n;
                }
            }
            assert!(talk.summaries >= 2, "{} summaries", talk.summaries);
            let all = conversation_text(&talk);
            let from = if good { first } else { 0 };
            for n in from..60 {
                assert!(all.contains(&format!("DECISION{n}: ")), "{bad} {good}: {n} is forgotten\n{all}");
            }
            assert_eq!(all.contains("Much was done."), good, "{bad}: {all}");
            assert!(!all.contains("Much w\""), "what was cut is no summary: {all}");
            let summary = talk.state.transcript.summary_text().expect("one");
            assert!(!summary.contains("You gave no plan"), "nobody said that: {summary}");
            assert!(!summary.contains("it began: [run_command"), "quoted twice: {summary}");
            assert!(summary.contains("- called run_command `make`: done, "), "{summary}");
        }
    }
}

#[test]
fn text_next_to_a_removed_step_is_kept() {
    let mut talk = SimulatedRun::new(12_000);
    for n in 0..40 {
        // A search without results, then a decision.
        let calls = vec![simulated_call("search_codebase", 100)];
        talk.run_turn(&simulated_turn(format!("DECISION{n}: {}", "since so it is ".repeat(12)), calls, 0))
            .expect("holds");
        talk.run_turn(&simulated_turn(String::new(), vec![simulated_call("run_command", 1000)], 0))
            .expect("holds");
        if talk.summaries > 0 {
            break;
        }
        let all = conversation_text(&talk);
        for decided in 0..=n {
            assert!(all.contains(&format!("DECISION{decided}: ")), "{n}: {decided} is forgotten: {all}");
        }
    }
    assert!(talk.dropped > 0, "no step was fruitless");
}

#[test]
fn repeated_rule_based_summaries_are_bounded() {
    let mut talk = SimulatedRun::new(8000);
    for n in 0..300 {
        let says = format!("DECISION{n}: {}", "words and more words ".repeat(20));
        talk.run_turn(&simulated_turn(says, vec![simulated_call("run_command", 3000)], 2)).expect("holds");
    }
    let summary = talk.state.transcript.summary_text().expect("one");
    assert!(summary.len() <= 4096, "{}", summary.len());
    assert!(summary.contains(" older lines are left out]"), "{summary}");
    assert!(summary.contains("DECISION28"), "the latest stand there: {summary}");
}

#[test]
fn later_summary_is_asked_to_keep_the_earlier_one() {
    let mut talk = SimulatedRun::new(12_000);
    let mut asked = Vec::new();
    for n in 0..60 {
        let summaries = talk.summaries;
        let state = talk.state.clone();
        talk.run_turn(&deciding_turn(n, 0)).expect("holds");
        if talk.summaries > summaries {
            asked.push(state.transcript.summary_text().is_some());
        }
    }
    assert!(asked.len() >= 2 && !asked[0] && asked[1], "{asked:?}");
    let again = talk.merged_summaries;
    assert_eq!(again, asked.iter().filter(|again| **again).count());
}

#[test]
fn long_run_is_compacted_rarely_and_substantially() {
    let usual = || {
        vec![
            simulated_call("run_command", 4400),
            simulated_call("edit_file", 600),
            simulated_call("run_command", 200),
        ]
    };
    let large = || vec![simulated_call("run_command", 20_000)];
    let small = || vec![simulated_call("run_command", 300)];
    type CallsFn = fn() -> Vec<SimulatedCall>;
    let runs: [(u64, CallsFn, usize, usize); 4] = [
        (32_768, large, 25, 13),
        (14_000, usual, 60, 40),
        (14_000, small, 120, 12),
        (100_000, usual, 100, 8),
    ];
    for (whole, calls, turns, most) in runs {
        for summary in [0, 2] {
            let mut talk = SimulatedRun::new(whole);
            for n in 0..turns {
                talk.run_turn(&simulated_turn(format!("Step {n}."), calls(), summary)).expect("holds");
            }
            let count = talk.shortened.len();
            assert!(count >= 2 && count <= most, "{whole}: {count} times in {turns} turns");
            assert!(talk.summaries <= count, "{whole}: {} summaries, {count}", talk.summaries);
            // A quarter of the window is reserved for the reply; three bytes count as one token.
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
