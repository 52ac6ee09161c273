//! Turns, their ends and outcomes, from any prefix of a log.

use super::*;
use crate::{
    api::TimelineTurn,
    event::Envelope,
    ids::{TreeHash, Turn},
    message::CallId,
    run::{
        ModelFailed, PhaseChanged, RunEnded, RunEvent, RunOutcome, RunPhase, SnapshotTaken, ToolStatus,
        WorkspaceEdited,
        tests::{
            model_answered, model_requested, run_started, to_log, tool_finished, tool_requested, user_message,
        },
    },
    tool::{TestCounts, ToolFacts},
};

#[test]
fn failing_commands_and_tests_count_as_failures() {
    let tests = |failed, errors| Some(TestCounts { passed: 4, failed, errors, skipped: 0 });
    for (status, exit, counts, timed_out, label) in [
        (ToolStatus::Ok, None, None, false, "ok"),
        (ToolStatus::Ok, Some(0), None, false, "ok"),
        (ToolStatus::Ok, Some(7), None, false, "exit 7"),
        (ToolStatus::Ok, Some(101), tests(3, 1), false, "3 failed"),
        (ToolStatus::Ok, Some(101), tests(0, 2), false, "2 errors"),
        (ToolStatus::Ok, Some(1), tests(0, 0), false, "exit 1"),
        (ToolStatus::Ok, Some(0), tests(0, 0), false, "ok"),
        (ToolStatus::Error, None, None, true, "timed out"),
        (ToolStatus::Error, None, None, false, "failed"),
        (ToolStatus::Refused, None, None, false, "refused"),
        (ToolStatus::Unknown, None, None, false, "unknown"),
    ] {
        let outcome = CallOutcome::from_facts(status, exit, counts, timed_out);
        assert_eq!(outcome.label(), label);
        assert_eq!(outcome.is_ok(), label == "ok", "{label}");
    }
}

fn snapshot_taken() -> RunEvent {
    SnapshotTaken {
        changes: vec![],
        git_changes: vec![],
        tree: TreeHash([4; 32]),
        left_out: vec![],
        more: false,
    }
    .into()
}

fn run_ended() -> RunEvent {
    RunEnded { result: RunOutcome::Succeeded, summary: None, tree: None, unverified: None, decision: None }
        .into()
}

/// Two turns with calls, one without, and the end.
fn full_run() -> Vec<Envelope> {
    let exit = |exit| ToolFacts { exit: Some(exit), ..ToolFacts::default() };
    to_log(vec![
        (0, run_started()),
        (1, model_requested(1, 1)),
        (1, model_answered(1, "I look.", 2)),
        (1, PhaseChanged { phase: RunPhase::Editing }.into()),
        (1, tool_requested(1, 0)),
        (1, tool_requested(1, 1)),
        (0, user_message("be quick")),
        (1, tool_finished(1, 0, exit(0))),
        (1, tool_finished(1, 1, exit(7))),
        (1, snapshot_taken()),
        (2, model_requested(2, 1)),
        (2, model_answered(2, "Again.", 1)),
        (2, tool_requested(2, 0)),
        (2, tool_finished(2, 0, exit(0))),
        (2, snapshot_taken()),
        (3, model_requested(3, 1)),
        (3, model_answered(3, "Done.", 0)),
        (3, run_ended()),
    ])
}

#[test]
fn summaries_show_each_turns_outcome() {
    let run = FoldedRun::from_events(full_run()).unwrap();
    let lines: Vec<String> = run
        .turns()
        .iter()
        .map(|turn| format!("{} {} {}", turn.turn, turn.outcome.label(), turn.has_snapshot))
        .collect();
    assert_eq!(lines, ["0 ok false", "1 exit 7 true", "2 ok true", "3 succeeded false"]);
    let totals = run.state().totals;
    let last = run.turns().last().unwrap();
    assert_eq!(last.cost_so_far, ModelCost { usage: totals.usage, nusd: totals.cost_nusd });
    let first = run.history().turn_detail(&run.turns()[1]);
    assert_eq!(
        (first.turn, first.calls.len(), first.model_calls[0].outcome()),
        (Turn(1), 2, Some("answered"))
    );
    assert_eq!(first.messages[0].from, MessageSource::Person("a person".into()));
}

/// A run folded incrementally must equal a full read.
#[test]
fn incremental_history_equals_a_full_read() {
    let events = full_run();
    let (mut grown, mut skimmed, mut rows) =
        (FoldedRun::default(), RunHistory::default(), TimelineRows::default());
    let mut known: Vec<Vec<TimelineTurn>> = vec![Vec::new()];
    for (place, event) in events.iter().enumerate() {
        grown.push(event.clone()).unwrap();
        skimmed.push(SkimmedEvent::parse(event.clone()).unwrap());
        rows.update(&grown);
        let whole = FoldedRun::from_events(events[..=place].to_vec()).unwrap();
        assert_eq!(grown.turns(), whole.turns());
        let lean = |turn: &TurnSummary| TurnSummary { end: None, ..turn.clone() };
        let (left, right) = (skimmed.turns().iter().map(lean), whole.turns().iter().map(lean));
        assert!(left.eq(right), "after {place}");
        let mut fresh = TimelineRows::default();
        fresh.update(&whole);
        let fresh = fresh.rows_since(&whole, 0).to_vec();
        assert_eq!(rows.rows_since(&grown, 0), fresh);
        // Rows known at any earlier event are complete with those that changed since.
        for (count, lines) in known.iter().enumerate() {
            let news = rows.rows_since(&grown, count.saturating_sub(1));
            let mut lines = lines.clone();
            lines.retain(|line| line.turn < news[0].turn);
            lines.extend_from_slice(news);
            assert_eq!(lines, fresh, "from {count} events to {}", place + 1);
        }
        known.push(fresh);
    }
    assert_eq!(known.len(), events.len() + 1);
    assert_eq!(known.last().map(Vec::len), Some(4));
}

#[test]
fn changes_are_attributed_to_run_or_person() {
    let edited = |by: &str| RunEvent::from(WorkspaceEdited { by: by.into() });
    let told = || user_message("go on");
    let changes = |events: Vec<RunEvent>| -> Vec<(Option<String>, usize)> {
        let events = to_log(events.into_iter().map(|event| (1, event)).collect());
        let detail = TurnDetail::from_events(Turn(1), 0, &events);
        detail.changes.into_iter().map(|change| (change.by, change.end_index)).collect()
    };
    assert_eq!(changes(vec![told(), snapshot_taken(), told(), snapshot_taken(), told()]), [(None, 4)]);
    assert_eq!(
        changes(vec![
            snapshot_taken(),
            edited("me"),
            snapshot_taken(),
            snapshot_taken(),
            told(),
            snapshot_taken()
        ]),
        [(None, 1), (Some("me".into()), 4), (None, 6)]
    );
    assert_eq!(
        changes(vec![edited("me"), snapshot_taken(), edited("you"), snapshot_taken()]),
        [(Some("me".into()), 2), (Some("you".into()), 4)]
    );
    assert_eq!(changes(vec![told(), edited("me")]), []);
}

fn assert_turn_end(events: Vec<(u32, RunEvent)>, turn: Option<u32>, wanted: Result<(u64, u32), &str>) {
    let history = FoldedRun::from_events(to_log(events)).unwrap();
    let found = history.turn_end(turn.map(Turn));
    let found = found.map(|(event, turn)| (event.seq.0, turn.0)).map_err(|error| error.to_string());
    assert_eq!(found, wanted.map_err(str::to_owned));
}

#[test]
fn turns_end_before_the_next_request_or_at_rest() {
    let two = || {
        vec![
            (0, run_started()),
            (1, model_requested(1, 1)),
            (1, model_answered(1, "a", 0)),
            (2, model_requested(2, 1)),
            (2, model_answered(2, "b", 0)),
        ]
    };
    let middle = || two()[..4].to_vec();
    let failure = || {
        ModelFailed {
            call: CallId::for_model(Turn(2), 1),
            error: "overloaded".into(),
            message: "m".into(),
            retry_in_ms: Some(1),
            retry_after_ms: None,
            needs_person: false,
            duration_ms: 0,
        }
        .into()
    };
    let ended = RunEnded {
        result: RunOutcome::Succeeded,
        summary: None,
        tree: None,
        unverified: None,
        decision: None,
    };
    let over = || [two(), vec![(2, ended.clone().into())]].concat();
    assert_turn_end(vec![(0, run_started())], None, Ok((1, 0)));
    assert_turn_end(two(), Some(0), Ok((1, 0)));
    assert_turn_end(two(), Some(1), Ok((3, 1)));
    assert_turn_end(two(), None, Ok((5, 2)));
    assert_turn_end(over(), None, Ok((5, 2)));
    assert_turn_end(over(), Some(2), Ok((5, 2)));
    assert_turn_end(over(), Some(3), Err("turn 3 has not ended: the last finished turn is 2"));
    // In the middle of a turn, and after a failed attempt, the previous turn is the last that ended.
    assert_turn_end(middle(), None, Ok((3, 1)));
    assert_turn_end([middle(), vec![(2, failure())]].concat(), None, Ok((3, 1)));
    assert_turn_end(
        vec![],
        None,
        Err("the run has not ended a turn yet; wait for its first, or retry its task"),
    );
    assert!(FoldedRun::from_events(to_log(vec![(1, model_requested(1, 1))])).is_err());
}

#[test]
fn history_returns_the_state_after_each_turn() {
    let events = vec![
        (0, run_started()),
        (1, model_requested(1, 1)),
        (1, model_answered(1, "a", 0)),
        (0, user_message("words")),
        (2, model_requested(2, 1)),
    ];
    let history = FoldedRun::from_events(to_log(events)).unwrap();
    let spans: Vec<_> =
        history.turns().iter().map(|span| (span.turn.0, span.events.clone(), span.end)).collect();
    assert_eq!(spans, [(0, 0..1, Some(0)), (1, 1..4, Some(3)), (2, 4..5, None)]);
    let after = |turn| history.state_after(Turn(turn)).map(|state| (state.seq.0, state.turn.0));
    assert_eq!([after(0), after(1), after(2)], [Ok((1, 0)), Ok((4, 1)), Ok((5, 2))]);
    assert_eq!(after(3), Err(NoSuchTurn::NotFound { asked: Turn(3), last: Turn(2) }));
}
