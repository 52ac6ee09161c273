//! Tests of the screens.

use std::sync::Arc;

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};

use super::{
    super::{
        keys::KeyPress,
        run::Run,
        state::StepperState,
        view::{self, ColorPalette},
    },
    fixtures::{failing_run, load_all, long_run, succeeding_run},
};

fn draw_buffer(model: &StepperState, palette: ColorPalette) -> Buffer {
    let (columns, rows) = model.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal of cells");
    terminal.draw(|frame| view::draw_screen(model, palette, frame.buffer_mut())).expect("draws");
    terminal.backend().buffer().clone()
}

fn screen_text(model: &StepperState) -> String {
    let buffer = draw_buffer(model, ColorPalette::Plain);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    let rows = cells.chunks(usize::from(model.size.0));
    rows.map(|row| row.concat().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn state_after_keys(run: Run, size: (u16, u16), keys: &str) -> StepperState {
    let mut model = StepperState::new(Arc::new(run), size);
    load_all(&mut model);
    for key in keys.chars() {
        model.press(if key == '\n' { KeyPress::Enter } else { KeyPress::Char(key) });
        load_all(&mut model);
    }
    model
}

const SMALL_SCREEN: (u16, u16) = (80, 24);
const LARGE_SCREEN: (u16, u16) = (120, 40);

#[test]
fn every_pane_matches_its_80_by_24_snapshot() {
    let mut beside = state_after_keys(failing_run(), SMALL_SCREEN, "");
    beside.set_other_run(Arc::new(succeeding_run()));
    load_all(&mut beside);
    beside.press(KeyPress::Char('k'));
    load_all(&mut beside);
    for (name, model) in [
        ("opened_at_the_failure", state_after_keys(failing_run(), SMALL_SCREEN, "")),
        ("prompt", state_after_keys(failing_run(), SMALL_SCREEN, "gjj1")),
        ("request", state_after_keys(failing_run(), SMALL_SCREEN, "gjjx")),
        ("decision", state_after_keys(failing_run(), SMALL_SCREEN, "gjj2")),
        ("calls", state_after_keys(failing_run(), SMALL_SCREEN, "gjj3")),
        ("diff", state_after_keys(failing_run(), SMALL_SCREEN, "gjj4")),
        ("compared", state_after_keys(failing_run(), SMALL_SCREEN, "gjmjjc")),
        ("tree", state_after_keys(failing_run(), SMALL_SCREEN, "gjj5\nj")),
        ("file", state_after_keys(failing_run(), SMALL_SCREEN, "gjjolib.rs\n")),
        ("ledger", state_after_keys(failing_run(), SMALL_SCREEN, "gjj6")),
        ("runs", beside),
        ("searched", state_after_keys(failing_run(), SMALL_SCREEN, "g/needle_in\n")),
        ("asking", state_after_keys(failing_run(), SMALL_SCREEN, "/what")),
        ("help", state_after_keys(failing_run(), SMALL_SCREEN, "?")),
        ("resume", state_after_keys(failing_run(), SMALL_SCREEN, "gjr")),
        ("fork", state_after_keys(failing_run(), SMALL_SCREEN, "Gf")),
        ("zoomed", state_after_keys(failing_run(), SMALL_SCREEN, "gjj3z")),
    ] {
        insta::assert_snapshot!(name, screen_text(&model));
    }
}

#[test]
fn larger_screen_shows_more_rows() {
    insta::assert_snapshot!(
        "large_calls",
        screen_text(&state_after_keys(failing_run(), LARGE_SCREEN, "gjj3"))
    );
    insta::assert_snapshot!("large_help", screen_text(&state_after_keys(long_run(60), LARGE_SCREEN, "?")));
}

#[test]
fn no_control_characters_are_drawn() {
    for keys in ["gjj1", "gjj2", "gjj3", "gjj3\nG", "gjj4", "gjj5", "gjj6", "gjjolib.rs\n", "G1"] {
        let model = state_after_keys(failing_run(), SMALL_SCREEN, keys);
        for cell in &draw_buffer(&model, ColorPalette::Colors).content {
            let bad = cell.symbol().chars().find(|c| {
                c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            });
            assert_eq!(bad, None, "{keys}: {:?}", cell.symbol());
        }
    }
    let shown = screen_text(&state_after_keys(failing_run(), SMALL_SCREEN, "gjj2"));
    assert!(shown.contains(r"The edit goes here.\e[2J\e]0;owned\u{7}\u{202e}txt.exe\u{9b}31m"), "{shown}");
    let input = screen_text(&state_after_keys(failing_run(), SMALL_SCREEN, "/a\u{202e}b"));
    assert!(input.contains(r"search: a\u{202e}b"), "{input}");
}

#[test]
fn plain_palette_uses_no_colors() {
    for keys in ["", "gjj4", "?", "gjr"] {
        let model = state_after_keys(failing_run(), SMALL_SCREEN, keys);
        let colored = |palette| {
            let of = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
            draw_buffer(&model, palette).content.iter().any(of)
        };
        assert!(!colored(ColorPalette::Plain), "{keys}");
        assert!(colored(ColorPalette::Colors), "{keys}: the control");
    }
}

/// Any page at any size: nothing is drawn outside of the screen, and nothing panics.
#[test]
fn every_screen_size_draws_without_panic() {
    for columns in [1, 2, 10, 39, 40, 41, 60, 80, 133, 300] {
        for rows in [1, 2, 9, 10, 11, 24, 60] {
            for keys in ["", "gjj1", "gjj3\nG", "gjj4z", "gjj5", "gjj6", "?", "Gf", "/abc"] {
                let model = state_after_keys(failing_run(), (columns, rows), keys);
                let text = screen_text(&model);
                assert!(
                    columns < 40 || rows < 10 || text.contains("OUTCOME") || "?Gf".contains(keys),
                    "{columns}×{rows} {keys}"
                );
            }
        }
    }
}
