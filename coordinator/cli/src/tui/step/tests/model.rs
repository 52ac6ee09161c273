//! Keys and what they do.

use std::sync::Arc;

use docket_schema::{
    history::{CallOutcome, FoldedRun, TurnOutcome, TurnSummary},
    ids::Turn,
};

use super::{
    super::{
        keys::Key,
        model::{Act, Effect, Focus, Model, Overlay},
        page::Pane,
        run::Run,
    },
    made_up::{commands, cut, edited, failing, fed, long, succeeding},
};

fn opened(run: Run) -> Model {
    let mut model = Model::new(Arc::new(run), (80, 24));
    fed(&mut model);
    model
}

/// Presses what is typed; `fed` after each, as a fetcher that is quick would.
fn typed(model: &mut Model, keys: &str) {
    for c in keys.chars() {
        let key = match c {
            '\n' => Key::Enter,
            '\u{1b}' => Key::Esc,
            '\t' => Key::Tab,
            c => Key::Char(c),
        };
        assert_eq!(model.press(key), None, "{c:?}");
        fed(model);
    }
}

fn page(model: &Model) -> String {
    model.page.doc.lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
}

/// The lines of the page that are on the screen.
fn seen(model: &Model) -> String {
    let rows = model.page.rows.iter().skip(model.scroll).take(usize::from(model.layout().pane));
    rows.map(|row| &model.page.doc.lines[row.line].text[row.from..row.to]).collect::<Vec<_>>().join("\n")
}

fn message(model: &Model) -> &str {
    model.message.as_ref().map_or("", |(_, text)| text)
}

#[test]
fn a_turn_is_what_happened_in_it() {
    let run = failing();
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
    assert_eq!(succeeding().turns().last().expect("rows").outcome, TurnOutcome::Ended("succeeded"));
}

/// The lean reading of the timeline and the cut that resume and fork stand on must agree.
#[test]
fn rows_are_the_turns_of_the_folded_run() {
    for run in [failing(), succeeding(), cut(6), long(40)] {
        let folded = FoldedRun::read(run.events().to_vec()).expect("folds");
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
fn it_opens_where_somebody_wants_to_look() {
    let model = opened(failing());
    assert_eq!((model.row, model.pane), (5, Pane::Calls));
    assert!(message(&model).contains("it went wrong at turn 5: the last with a failed final check"));
    assert_eq!(opened(succeeding()).row, 1);
    let going = opened(cut(5));
    assert_eq!(going.row, 1);
    assert!(message(&going).contains("has not ended"));
    assert_eq!(opened(long(30)).row, 30);
}

#[test]
fn keys_go_from_turn_to_turn_and_stop_at_both_ends() {
    let mut model = opened(failing());
    for (key, row) in [
        (Key::Home, 0),
        (Key::Up, 0),
        (Key::Char('j'), 1),
        (Key::Down, 2),
        (Key::Char('k'), 1),
        (Key::End, 5),
        (Key::Char('j'), 5),
        (Key::PageUp, 0),
        (Key::PageDown, 5),
        (Key::Char('g'), 0),
        (Key::Char(']'), 1),
        (Key::Char('['), 0),
        (Key::Char('G'), 5),
    ] {
        model.press(key);
        assert_eq!(model.row, row, "{key:?}");
    }
    let mut long = opened(long(500));
    for row in [500, 494, 488] {
        assert_eq!(long.row, row);
        assert!((long.timeline_top..long.timeline_top + 6).contains(&long.row));
        long.press(Key::PageUp);
    }
}

#[test]
fn failures_are_gone_to_in_both_directions() {
    let mut model = opened(failing());
    typed(&mut model, "ge");
    assert_eq!((model.row, model.pane), (2, Pane::Calls));
    assert!(seen(&model).contains("run_tests: failed"), "{}", seen(&model));
    typed(&mut model, "ee");
    assert_eq!(model.row, 5);
    typed(&mut model, "e");
    assert_eq!((model.row, message(&model)), (5, "no failure after this turn"));
    typed(&mut model, "EEE");
    assert_eq!((model.row, message(&model)), (2, "no failure before this turn"));
}

#[test]
fn a_command_that_ended_badly_and_tests_that_failed_are_failures_and_are_gone_to() {
    let mut model = opened(commands());
    let fates: Vec<String> = model.run.turns().iter().map(|row| row.outcome.label().into_owned()).collect();
    assert_eq!(fates, ["ok", "ok", "exit 7", "ok", "3 failed", "ok"]);
    typed(&mut model, "ge");
    assert_eq!((model.row, model.pane), (2, Pane::Calls));
    assert!(seen(&model).contains("t2-0 run_command: exit 7 in 31ms"), "{}", seen(&model));
    typed(&mut model, "e");
    assert_eq!(model.row, 4);
    assert!(seen(&model).contains("t4-0 run_tests: 3 failed"), "{}", seen(&model));
    typed(&mut model, "e");
    assert_eq!((model.row, message(&model)), (4, "no failure after this turn"));
    typed(&mut model, "E");
    assert_eq!(model.row, 2);
}

#[test]
fn panes_show_what_they_are_named_for() {
    let mut model = opened(failing());
    typed(&mut model, "gjj1");
    assert!(page(&model).contains("result of t1-0 read_file: ok\n  1  fn parse() {}"), "{}", page(&model));
    typed(&mut model, "2");
    assert!(page(&model).contains("The edit goes here."));
    assert!(page(&model).contains("t2-0 edit_file\n  path: src/lib.rs\n  replace:\n    fn parse() { todo }"));
    typed(&mut model, "3");
    assert!(page(&model).contains("test case_000 ... ok"), "the whole output, not what the model read");
    assert!(!page(&model).contains("… cut …"));
    typed(&mut model, "4");
    assert!(page(&model).contains("changed src/lib.rs"));
    typed(&mut model, "5");
    assert!(page(&model).contains("4 files after turn 2"));
    assert!(page(&model).lines().any(|line| line.starts_with('M') && line.ends_with("src/lib.rs")));
    typed(&mut model, "6");
    for part in
        ["2000 in, 50 out", "3000 in, 100 out", "$0.0067", "$0.0105", "ModelRequested", "7 to 14 of run/"]
    {
        assert!(page(&model).contains(part), "{part}: {}", page(&model));
    }
    typed(&mut model, "7");
    assert!(page(&model).contains("no other run is loaded"));
    typed(&mut model, "1k");
    assert_eq!(model.row, 1);
    assert!(page(&model).contains("Mend the failing test."), "the task is what turn 1 was newly told");
}

#[test]
fn tab_goes_round_the_panes() {
    let mut model = opened(succeeding());
    let mut panes = Vec::new();
    for _ in 0..7 {
        typed(&mut model, "\t");
        panes.push(model.pane.name());
    }
    assert_eq!(panes, ["calls", "diff", "tree", "ledger", "prompt", "decision", "calls"]);
    model.press(Key::BackTab);
    model.press(Key::Left);
    assert_eq!(model.pane, Pane::Prompt);
    model.press(Key::Right);
    assert_eq!(model.pane, Pane::Decision);
}

#[test]
fn the_exact_request_is_shown_and_its_bytes_are_proven() {
    let mut model = opened(succeeding());
    typed(&mut model, "x");
    assert_eq!(model.pane, Pane::Prompt);
    assert!(page(&model).contains("their hash is the recorded one"));
    assert!(page(&model).contains(r#"      "content": "Mend, \"quoted\"""#), "{}", page(&model));
    assert!(page(&model).contains(r#""tools": []"#));
    typed(&mut model, "x");
    assert!(!model.request);
}

#[test]
fn a_pane_is_entered_scrolled_and_left() {
    let mut model = opened(failing());
    typed(&mut model, "gjj3\n");
    assert_eq!(model.focus, Focus::Pane);
    typed(&mut model, "jjj");
    assert_eq!((model.cursor, model.row), (3, 2));
    model.press(Key::End);
    assert_eq!(model.cursor, model.page.rows.len() - 1);
    assert!(seen(&model).contains("needle_in_the_output"));
    model.press(Key::PageUp);
    assert!(model.cursor < model.page.rows.len() - 10);
    model.press(Key::Home);
    assert_eq!((model.cursor, model.scroll), (0, 0));
    typed(&mut model, "\u{1b}j");
    assert_eq!((model.focus, model.row), (Focus::Timeline, 3));
    typed(&mut model, "k J");
    assert!(model.scroll > 1, "a pane is scrolled without being entered");
    typed(&mut model, "bK");
    assert_eq!(model.scroll, 0);
    typed(&mut model, "z");
    assert!(model.zoomed && model.layout().pane == 19);
}

#[test]
fn a_search_finds_texts_outputs_and_paths_of_all_turns() {
    let mut model = opened(failing());
    typed(&mut model, "g/needle_in\n");
    assert_eq!((model.row, model.pane), (2, Pane::Calls), "in an output that lies out of line");
    assert!(seen(&model).contains("needle_in_the_output"));
    typed(&mut model, "n");
    assert_eq!((model.row, model.pane), (4, Pane::Calls), "what the model was told again is passed over");
    typed(&mut model, "n");
    assert_eq!(model.row, 5);
    typed(&mut model, "n");
    assert_eq!((model.row, message(&model)), (2, "the search went round"));
    typed(&mut model, "N");
    assert_eq!(model.row, 5);
    typed(&mut model, "g/EDIT_FILE\n");
    assert_eq!((model.row, message(&model)), (0, "not found: EDIT_FILE"), "capitals are meant");
    typed(&mut model, "/evil\n");
    assert_eq!((model.row, model.pane), (2, Pane::Diff), "a path that a turn changed");
    typed(&mut model, "\u{1b}\u{1b}n");
    assert!(message(&model).contains("nothing is searched"));
}

#[test]
fn what_a_person_changed_by_hand_is_told_apart_and_what_the_model_read_of_it_is_found() {
    let mut model = opened(edited());
    typed(&mut model, "g/person changed\n");
    assert_eq!((model.row, model.pane), (4, Pane::Prompt));
    assert!(seen(&model).contains("Changed: src/main.rs"), "{}", seen(&model));
    typed(&mut model, "\u{1b}\u{1b}k4");
    let page = page(&model);
    let (own, hand) = page.split_once("by hand: ann").expect("both are there");
    // The trees on whose difference each stands: up to the person's edit, and from there.
    assert!(own.contains("+fn parse() { 19 }") && hand.contains("-fn parse() { 19 }"), "{page}");
    assert!(hand.contains("+fn parse() { 21 }"), "{page}");
    typed(&mut model, "5");
    let tree = super::model::page(&model);
    assert!(tree.contains("\nM        13  src/lib.rs\nH        14  src/main.rs"), "{tree}");
}

#[test]
fn matches_within_a_page_come_first() {
    let mut model = opened(failing());
    typed(&mut model, "gjj3/case_00\n");
    let first = model.cursor;
    typed(&mut model, "nn");
    assert_eq!((model.cursor, model.row), (first + 2, 2));
    typed(&mut model, "N");
    assert_eq!(model.cursor, first + 1);
}

#[test]
fn a_file_is_opened_as_it_was_and_followed_from_turn_to_turn() {
    let mut model = opened(failing());
    typed(&mut model, "gjj5\njj");
    typed(&mut model, "\n");
    assert!(page(&model).starts_with("evil") || model.file.is_some(), "{}", page(&model));
    typed(&mut model, "\u{1b}olib.rs\n");
    assert_eq!(page(&model).lines().next(), Some("src/lib.rs after 14 events"));
    typed(&mut model, "]");
    assert_eq!(page(&model).lines().next(), Some("src/lib.rs after 19 events"));
    typed(&mut model, "/after\n");
    assert_eq!((model.row, model.hunt.found), (3, Some(0)), "a search in a file stays in it");
    typed(&mut model, "q");
    assert_eq!(model.file, None);
    typed(&mut model, "osrc\n");
    assert_eq!((model.pane, model.focus), (Pane::Tree, Focus::Pane));
    assert!(message(&model).contains("2 names hold that"));
    typed(&mut model, "n\n");
    assert!(page(&model).starts_with("src/main.rs after"));
    typed(&mut model, "\u{1b}onowhere\n");
    assert!(message(&model).contains("no file's name holds `nowhere`"));
}

#[test]
fn two_turns_are_compared_whichever_is_marked() {
    let mut model = opened(failing());
    typed(&mut model, "c");
    assert!(message(&model).contains("mark a turn with m first"));
    typed(&mut model, "gjmjjc");
    assert_eq!((model.row, model.pane, model.mark), (3, Pane::Diff, Some(1)));
    assert!(page(&model).starts_with("from the end of turn 1 to the end of turn 3"), "{}", page(&model));
    typed(&mut model, "gmGc");
    typed(&mut model, "mgc");
    assert!(page(&model).starts_with("from the end of turn 0 to the end of turn 5"));
    typed(&mut model, "c");
    assert!(!model.comparing);
    typed(&mut model, "Gm");
    assert_eq!((model.mark, message(&model)), (None, "the mark is gone"));
}

#[test]
fn two_runs_are_compared_turn_by_turn() {
    let mut model = opened(failing());
    typed(&mut model, "d");
    assert!(message(&model).contains("no other run"));
    assert_eq!(model.press(Key::Char('w')), None);
    for key in "600d".chars() {
        model.press(Key::Char(key));
    }
    assert_eq!(model.press(Key::Enter), Some(Effect::Beside("600d".to_owned())));
    model.beside(Arc::new(succeeding()));
    fed(&mut model);
    assert_eq!(model.pane, Pane::Runs);
    typed(&mut model, "gj");
    assert!(page(&model).contains("they part at turn 4"), "{}", page(&model));
    assert!(page(&model).contains("turn 1: the same decision and the same results"), "{}", page(&model));
    typed(&mut model, "d");
    assert_eq!(model.row, 4);
    assert!(page(&model).contains("turn 4: the model decided otherwise"));
    assert!(page(&model).contains("It is done, really."));
    assert!(page(&model).contains("the other run's files after turn 4"));
    typed(&mut model, "d");
    assert!(page(&model).contains("turn 5: only one of the runs has this turn"));
    typed(&mut model, "D");
    assert_eq!(model.row, 4);
}

#[test]
fn going_on_asks_first_and_only_where_a_turn_has_ended() {
    let mut model = opened(failing());
    typed(&mut model, "Gf");
    assert_eq!(model.overlay, Overlay::Confirming(Act::Fork(Turn(5))));
    assert_eq!(model.press(Key::Char('y')), None, "turn 5 never came to its end");
    assert!(matches!(model.overlay, Overlay::Confirming(_)));
    typed(&mut model, "nkf");
    assert_eq!(model.press(Key::Char('y')), Some(Effect::Act(Act::Fork(Turn(4)))));
    typed(&mut model, "r\u{1b}r");
    assert_eq!(model.press(Key::Char('y')), Some(Effect::Act(Act::Resume(Turn(4)))));
    assert_eq!(model.overlay, Overlay::None);
}

#[test]
fn nothing_is_done_before_it_is_known_that_the_turn_ended() {
    let mut model = opened(failing());
    model.press(Key::Home);
    model.press(Key::Char('r'));
    assert_eq!(model.press(Key::Char('y')), None);
    assert!(matches!(model.overlay, Overlay::Confirming(_)));
}

#[test]
fn a_run_that_goes_on_is_followed_by_who_looks_at_its_end() {
    let whole = failing();
    let mut model = opened(cut(5));
    assert_eq!(model.row, 1);
    model.grew(whole.events()[5..15].to_vec());
    fed(&mut model);
    assert_eq!((model.row, model.run.turns().len()), (3, 4));
    typed(&mut model, "k");
    model.grew(whole.events()[15..].to_vec());
    assert_eq!((model.row, model.run.turns().len()), (2, 6), "who looks elsewhere is left there");
    assert_eq!(model.press(Key::Char('u')), Some(Effect::Reload));
    model.reloaded(Arc::new(whole));
    assert_eq!((model.row, message(&model)), (2, "read again: 0 new events"));
}

#[test]
fn it_is_left_by_q_and_ctrl_c_only() {
    let mut model = opened(failing());
    assert_eq!(model.press(Key::Char('q')), Some(Effect::Quit));
    typed(&mut model, "?");
    assert!(matches!(model.overlay, Overlay::Help { .. }));
    typed(&mut model, "jjq");
    assert_eq!(model.overlay, Overlay::None, "in the help, q only closes it");
    typed(&mut model, "/q");
    assert!(matches!(model.overlay, Overlay::Asking(_)), "typed text is no command");
    assert_eq!(model.press(Key::Ctrl('c')), Some(Effect::Quit));
    assert_eq!(model.press(Key::Ctrl('z')), Some(Effect::Suspend));
    assert_eq!(model.press(Key::Ctrl('l')), Some(Effect::Redraw));
}

#[test]
fn a_run_that_has_not_started_is_no_mistake() {
    let mut model = Model::new(Arc::new(Run::new(failing().id)), (80, 24));
    for key in "jkgG1234567ezxmcfrnNdD[]J/x\n\t? ".chars() {
        model.press(if key == '\n' { Key::Enter } else { Key::Char(key) });
    }
    assert!(model.run.turns().is_empty());
}
