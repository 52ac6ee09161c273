//! Tests of the keys.

use std::sync::Arc;

use docket_schema::{
    history::{CallOutcome, FoldedRun, TurnOutcome, TurnSummary},
    ids::Turn,
};

use super::{
    super::{
        keys::KeyPress,
        page::PaneKind,
        run::Run,
        state::{KeyFocus, RunAction, ScreenOverlay, StepperEffect, StepperState},
    },
    fixtures::{command_run, edited_run, failing_run, load_all, long_run, succeeding_run, truncated_run},
};

fn open_loaded(run: Run) -> StepperState {
    let mut model = StepperState::new(Arc::new(run), (80, 24));
    load_all(&mut model);
    model
}

/// Presses keys; with `fed`, missing content is loaded after each, as by a fast fetcher.
fn type_keys(model: &mut StepperState, keys: &str) {
    for c in keys.chars() {
        let key = match c {
            '\n' => KeyPress::Enter,
            '\u{1b}' => KeyPress::Esc,
            '\t' => KeyPress::Tab,
            c => KeyPress::Char(c),
        };
        assert_eq!(model.press(key), None, "{c:?}");
        load_all(model);
    }
}

fn page_text(model: &StepperState) -> String {
    model.page.doc.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// The visible lines of the page.
fn visible_text(model: &StepperState) -> String {
    let rows = model.page.rows.iter().skip(model.scroll).take(usize::from(model.layout().pane));
    rows.map(|row| &model.page.doc.lines[row.line].text[row.from..row.to]).collect::<Vec<_>>().join("\n")
}

fn message_text(model: &StepperState) -> &str {
    model.message.as_ref().map_or("", |(_, text)| text)
}

#[test]
fn turn_outcomes_and_tools_are_derived_from_events() {
    let run = failing_run();
    let outcomes: Vec<TurnOutcome> = run.turns().iter().map(|row| row.outcome).collect();
    let expected = [
        TurnOutcome::Ok,
        TurnOutcome::Ok,
        TurnOutcome::ToolFailed(CallOutcome::Failed),
        TurnOutcome::Ok,
        TurnOutcome::CheckFailed,
        TurnOutcome::CheckFailed,
    ];
    assert_eq!(outcomes, expected);
    assert_eq!(run.turns()[2].tools, [("edit_file".to_owned(), 1), ("run_tests".to_owned(), 1)]);
    assert_eq!(run.turns()[5].cost_so_far.nusd, 3_000_000 * 15 + 750_000 * 5);
    assert_eq!(succeeding_run().turns().last().expect("rows").outcome, TurnOutcome::Ended("succeeded"));
}

/// The fast reading of the timeline must agree with the full fold that resume and fork use.
#[test]
fn timeline_rows_match_turns_of_the_folded_run() {
    for run in [failing_run(), succeeding_run(), truncated_run(6), long_run(40)] {
        let folded = FoldedRun::from_events(run.events().to_vec()).expect("folds");
        let lean = |turn: &TurnSummary| {
            let mut turn = turn.clone();
            turn.end = None;
            turn
        };
        assert!(folded.turns().iter().map(lean).eq(run.turns().iter().map(lean)));
        let totals = folded.state().totals;
        let last = run.turns().last().expect("rows");
        assert_eq!((last.cost_so_far.usage, last.cost_so_far.nusd), (totals.usage, totals.cost_nusd));
    }
}

#[test]
fn initial_position_is_the_failure_or_the_last_turn() {
    let model = open_loaded(failing_run());
    assert_eq!((model.row, model.pane), (5, PaneKind::Calls));
    assert!(message_text(&model).contains("it went wrong at turn 5: the last with a failed final check"));
    assert_eq!(open_loaded(succeeding_run()).row, 1);
    let going = open_loaded(truncated_run(5));
    assert_eq!(going.row, 1);
    assert!(message_text(&going).contains("has not ended"));
    assert_eq!(open_loaded(long_run(30)).row, 30);
}

#[test]
fn keys_move_between_turns_and_stop_at_both_ends() {
    let mut model = open_loaded(failing_run());
    for (key, row) in [
        (KeyPress::Home, 0),
        (KeyPress::Up, 0),
        (KeyPress::Char('j'), 1),
        (KeyPress::Down, 2),
        (KeyPress::Char('k'), 1),
        (KeyPress::End, 5),
        (KeyPress::Char('j'), 5),
        (KeyPress::PageUp, 0),
        (KeyPress::PageDown, 5),
        (KeyPress::Char('g'), 0),
        (KeyPress::Char(']'), 1),
        (KeyPress::Char('['), 0),
        (KeyPress::Char('G'), 5),
    ] {
        model.press(key);
        assert_eq!(model.row, row, "{key:?}");
    }
    let mut long = open_loaded(long_run(500));
    for row in [500, 494, 488] {
        assert_eq!(long.row, row);
        assert!((long.timeline_top..long.timeline_top + 6).contains(&long.row));
        long.press(KeyPress::PageUp);
    }
}

#[test]
fn failure_keys_jump_in_both_directions() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "ge");
    assert_eq!((model.row, model.pane), (2, PaneKind::Calls));
    assert!(visible_text(&model).contains("run_tests: failed"), "{}", visible_text(&model));
    type_keys(&mut model, "ee");
    assert_eq!(model.row, 5);
    type_keys(&mut model, "e");
    assert_eq!((model.row, message_text(&model)), (5, "no failure after this turn"));
    type_keys(&mut model, "EEE");
    assert_eq!((model.row, message_text(&model)), (2, "no failure before this turn"));
}

#[test]
fn failed_commands_and_tests_count_as_failures() {
    let mut model = open_loaded(command_run());
    let fates: Vec<String> = model.run.turns().iter().map(|row| row.outcome.label().into_owned()).collect();
    assert_eq!(fates, ["ok", "ok", "exit 7", "ok", "3 failed", "ok"]);
    type_keys(&mut model, "ge");
    assert_eq!((model.row, model.pane), (2, PaneKind::Calls));
    assert!(visible_text(&model).contains("t2-0 run_command: exit 7 in 31ms"), "{}", visible_text(&model));
    type_keys(&mut model, "e");
    assert_eq!(model.row, 4);
    assert!(visible_text(&model).contains("t4-0 run_tests: 3 failed"), "{}", visible_text(&model));
    type_keys(&mut model, "e");
    assert_eq!((model.row, message_text(&model)), (4, "no failure after this turn"));
    type_keys(&mut model, "E");
    assert_eq!(model.row, 2);
}

#[test]
fn each_pane_shows_its_content() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "gjj1");
    assert!(
        page_text(&model).contains("result of t1-0 read_file: ok\n  1  fn parse() {}"),
        "{}",
        page_text(&model)
    );
    type_keys(&mut model, "2");
    assert!(page_text(&model).contains("The edit goes here."));
    assert!(
        page_text(&model).contains("t2-0 edit_file\n  path: src/lib.rs\n  replace:\n    fn parse() { todo }")
    );
    type_keys(&mut model, "3");
    assert!(page_text(&model).contains("test case_000 ... ok"), "the full output, not what the model read");
    assert!(!page_text(&model).contains("… cut …"));
    type_keys(&mut model, "4");
    assert!(page_text(&model).contains("changed src/lib.rs"));
    type_keys(&mut model, "5");
    assert!(page_text(&model).contains("4 files after turn 2"));
    assert!(page_text(&model).lines().any(|line| line.starts_with('M') && line.ends_with("src/lib.rs")));
    type_keys(&mut model, "6");
    for part in
        ["2000 in, 50 out", "3000 in, 100 out", "$0.0067", "$0.0105", "ModelRequested", "7 to 14 of run/"]
    {
        assert!(page_text(&model).contains(part), "{part}: {}", page_text(&model));
    }
    type_keys(&mut model, "7");
    assert!(page_text(&model).contains("no other run is loaded"));
    type_keys(&mut model, "1k");
    assert_eq!(model.row, 1);
    assert!(page_text(&model).contains("Mend the failing test."), "the task is what turn 1 was newly told");
}

#[test]
fn tab_cycles_through_panes() {
    let mut model = open_loaded(succeeding_run());
    let mut panes = Vec::new();
    for _ in 0..7 {
        type_keys(&mut model, "\t");
        panes.push(model.pane.name());
    }
    assert_eq!(panes, ["calls", "diff", "tree", "ledger", "prompt", "decision", "calls"]);
    model.press(KeyPress::BackTab);
    model.press(KeyPress::Left);
    assert_eq!(model.pane, PaneKind::Prompt);
    model.press(KeyPress::Right);
    assert_eq!(model.pane, PaneKind::Decision);
}

#[test]
fn exact_request_is_shown_and_its_hash_verified() {
    let mut model = open_loaded(succeeding_run());
    type_keys(&mut model, "x");
    assert_eq!(model.pane, PaneKind::Prompt);
    assert!(page_text(&model).contains("their hash matches the recorded one"));
    assert!(page_text(&model).contains(r#"      "content": "Mend, \"quoted\"""#), "{}", page_text(&model));
    assert!(page_text(&model).contains(r#""tools": []"#));
    type_keys(&mut model, "x");
    assert!(!model.shows_request);
}

#[test]
fn pane_can_be_entered_scrolled_and_left() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "gjj3\n");
    assert_eq!(model.focus, KeyFocus::Pane);
    type_keys(&mut model, "jjj");
    assert_eq!((model.cursor, model.row), (3, 2));
    model.press(KeyPress::End);
    assert_eq!(model.cursor, model.page.rows.len() - 1);
    assert!(visible_text(&model).contains("needle_in_the_output"));
    model.press(KeyPress::PageUp);
    assert!(model.cursor < model.page.rows.len() - 10);
    model.press(KeyPress::Home);
    assert_eq!((model.cursor, model.scroll), (0, 0));
    type_keys(&mut model, "\u{1b}j");
    assert_eq!((model.focus, model.row), (KeyFocus::Timeline, 3));
    type_keys(&mut model, "k J");
    assert!(model.scroll > 1, "a pane is scrolled without being entered");
    type_keys(&mut model, "bK");
    assert_eq!(model.scroll, 0);
    type_keys(&mut model, "z");
    assert!(model.zoomed && model.layout().pane == 19);
}

#[test]
fn search_covers_texts_outputs_and_paths_of_all_turns() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "g/needle_in\n");
    assert_eq!((model.row, model.pane), (2, PaneKind::Calls), "in an output that lies out of line");
    assert!(visible_text(&model).contains("needle_in_the_output"));
    type_keys(&mut model, "n");
    assert_eq!((model.row, model.pane), (4, PaneKind::Calls), "what the model was told again is passed over");
    type_keys(&mut model, "n");
    assert_eq!(model.row, 5);
    type_keys(&mut model, "n");
    assert_eq!((model.row, message_text(&model)), (2, "the search wrapped around"));
    type_keys(&mut model, "N");
    assert_eq!(model.row, 5);
    type_keys(&mut model, "g/EDIT_FILE\n");
    assert_eq!((model.row, message_text(&model)), (0, "not found: EDIT_FILE"), "capitals are meant");
    type_keys(&mut model, "/evil\n");
    assert_eq!((model.row, model.pane), (2, PaneKind::Diff), "a path that a turn changed");
    type_keys(&mut model, "\u{1b}\u{1b}n");
    assert!(message_text(&model).contains("no search"));
}

#[test]
fn manual_changes_are_shown_separately_and_are_searchable() {
    let mut model = open_loaded(edited_run());
    type_keys(&mut model, "g/person changed\n");
    assert_eq!((model.row, model.pane), (4, PaneKind::Prompt));
    assert!(visible_text(&model).contains("Changed: src/main.rs"), "{}", visible_text(&model));
    type_keys(&mut model, "\u{1b}\u{1b}k4");
    let page = page_text(&model);
    let (own, hand) = page.split_once("by hand: ann").expect("both are there");
    // The trees of both diffs: up to the person's edit, and from there.
    assert!(own.contains("+fn parse() { 19 }") && hand.contains("-fn parse() { 19 }"), "{page}");
    assert!(hand.contains("+fn parse() { 21 }"), "{page}");
    type_keys(&mut model, "5");
    let tree = super::state::page_text(&model);
    assert!(tree.contains("\nM        13  src/lib.rs\nH        14  src/main.rs"), "{tree}");
}

#[test]
fn search_visits_matches_on_the_current_page_first() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "gjj3/case_00\n");
    let first = model.cursor;
    type_keys(&mut model, "nn");
    assert_eq!((model.cursor, model.row), (first + 2, 2));
    type_keys(&mut model, "N");
    assert_eq!(model.cursor, first + 1);
}

#[test]
fn opened_file_follows_the_selected_turn() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "gjj5\njj");
    type_keys(&mut model, "\n");
    assert!(page_text(&model).starts_with("evil") || model.file.is_some(), "{}", page_text(&model));
    type_keys(&mut model, "\u{1b}olib.rs\n");
    assert_eq!(page_text(&model).lines().next(), Some("src/lib.rs after 14 events"));
    type_keys(&mut model, "]");
    assert_eq!(page_text(&model).lines().next(), Some("src/lib.rs after 19 events"));
    type_keys(&mut model, "/after\n");
    assert_eq!((model.row, model.search.match_line), (3, Some(0)), "a search in a file stays in it");
    type_keys(&mut model, "q");
    assert_eq!(model.file, None);
    type_keys(&mut model, "osrc\n");
    assert_eq!((model.pane, model.focus), (PaneKind::Tree, KeyFocus::Pane));
    assert!(message_text(&model).contains("2 names match"));
    type_keys(&mut model, "n\n");
    assert!(page_text(&model).starts_with("src/main.rs after"));
    type_keys(&mut model, "\u{1b}onowhere\n");
    assert!(message_text(&model).contains("no file name contains `nowhere`"));
}

#[test]
fn turns_are_compared_in_either_order() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "c");
    assert!(message_text(&model).contains("mark a turn with m first"));
    type_keys(&mut model, "gjmjjc");
    assert_eq!((model.row, model.pane, model.mark), (3, PaneKind::Diff, Some(1)));
    assert!(
        page_text(&model).starts_with("from the end of turn 1 to the end of turn 3"),
        "{}",
        page_text(&model)
    );
    type_keys(&mut model, "gmGc");
    type_keys(&mut model, "mgc");
    assert!(page_text(&model).starts_with("from the end of turn 0 to the end of turn 5"));
    type_keys(&mut model, "c");
    assert!(!model.comparing);
    type_keys(&mut model, "Gm");
    assert_eq!((model.mark, message_text(&model)), (None, "mark removed"));
}

#[test]
fn runs_are_compared_turn_by_turn() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "d");
    assert!(message_text(&model).contains("no other run"));
    assert_eq!(model.press(KeyPress::Char('w')), None);
    for key in "600d".chars() {
        model.press(KeyPress::Char(key));
    }
    assert_eq!(model.press(KeyPress::Enter), Some(StepperEffect::LoadOther("600d".to_owned())));
    model.set_other_run(Arc::new(succeeding_run()));
    load_all(&mut model);
    assert_eq!(model.pane, PaneKind::Runs);
    type_keys(&mut model, "gj");
    assert!(page_text(&model).contains("the runs diverge at turn 4"), "{}", page_text(&model));
    assert!(
        page_text(&model).contains("turn 1: the same decision and the same results"),
        "{}",
        page_text(&model)
    );
    type_keys(&mut model, "d");
    assert_eq!(model.row, 4);
    assert!(page_text(&model).contains("turn 4: the model decided differently"));
    assert!(page_text(&model).contains("It is done, really."));
    assert!(page_text(&model).contains("the other run's files after turn 4"));
    type_keys(&mut model, "d");
    assert!(page_text(&model).contains("turn 5: only one of the runs has this turn"));
    type_keys(&mut model, "D");
    assert_eq!(model.row, 4);
}

#[test]
fn fork_and_resume_need_confirmation_and_an_ended_turn() {
    let mut model = open_loaded(failing_run());
    type_keys(&mut model, "Gf");
    assert_eq!(model.overlay, ScreenOverlay::Confirm(RunAction::Fork(Turn(5))));
    assert_eq!(model.press(KeyPress::Char('y')), None, "turn 5 never came to its end");
    assert!(matches!(model.overlay, ScreenOverlay::Confirm(_)));
    type_keys(&mut model, "nkf");
    assert_eq!(model.press(KeyPress::Char('y')), Some(StepperEffect::Perform(RunAction::Fork(Turn(4)))));
    type_keys(&mut model, "r\u{1b}r");
    assert_eq!(model.press(KeyPress::Char('y')), Some(StepperEffect::Perform(RunAction::Resume(Turn(4)))));
    assert_eq!(model.overlay, ScreenOverlay::None);
}

#[test]
fn actions_wait_until_the_turn_end_is_known() {
    let mut model = open_loaded(failing_run());
    model.press(KeyPress::Home);
    model.press(KeyPress::Char('r'));
    assert_eq!(model.press(KeyPress::Char('y')), None);
    assert!(matches!(model.overlay, ScreenOverlay::Confirm(_)));
}

#[test]
fn growing_run_is_followed_only_from_its_last_turn() {
    let whole = failing_run();
    let mut model = open_loaded(truncated_run(5));
    assert_eq!(model.row, 1);
    model.append_events(whole.events()[5..15].to_vec());
    load_all(&mut model);
    assert_eq!((model.row, model.run.turns().len()), (3, 4));
    type_keys(&mut model, "k");
    model.append_events(whole.events()[15..].to_vec());
    assert_eq!((model.row, model.run.turns().len()), (2, 6), "who looks elsewhere is left there");
    assert_eq!(model.press(KeyPress::Char('u')), Some(StepperEffect::Reload));
    model.replace_run(Arc::new(whole));
    assert_eq!((model.row, message_text(&model)), (2, "reloaded: 0 new events"));
}

#[test]
fn only_q_and_ctrl_c_quit() {
    let mut model = open_loaded(failing_run());
    assert_eq!(model.press(KeyPress::Char('q')), Some(StepperEffect::Quit));
    type_keys(&mut model, "?");
    assert!(matches!(model.overlay, ScreenOverlay::Help { .. }));
    type_keys(&mut model, "jjq");
    assert_eq!(model.overlay, ScreenOverlay::None, "in the help, q only closes it");
    type_keys(&mut model, "/q");
    assert!(matches!(model.overlay, ScreenOverlay::Prompt(_)), "typed text is no command");
    assert_eq!(model.press(KeyPress::Ctrl('c')), Some(StepperEffect::Quit));
    assert_eq!(model.press(KeyPress::Ctrl('z')), Some(StepperEffect::Suspend));
    assert_eq!(model.press(KeyPress::Ctrl('l')), Some(StepperEffect::Redraw));
}

#[test]
fn unstarted_run_accepts_every_key() {
    let mut model = StepperState::new(Arc::new(Run::new(failing_run().id)), (80, 24));
    for key in "jkgG1234567ezxmcfrnNdD[]J/x\n\t? ".chars() {
        model.press(if key == '\n' { KeyPress::Enter } else { KeyPress::Char(key) });
    }
    assert!(model.run.turns().is_empty());
}
