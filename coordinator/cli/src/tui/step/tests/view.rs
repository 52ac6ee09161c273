//! Screens.

use std::sync::Arc;

use ratatui::{Terminal, backend::TestBackend, buffer::Buffer, style::Color};

use super::{
    super::{
        keys::Key,
        model::Model,
        run::Run,
        view::{self, Palette},
    },
    made_up::{failing, fed, long, succeeding},
};

fn drawn(model: &Model, palette: Palette) -> Buffer {
    let (columns, rows) = model.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).expect("a terminal of cells");
    terminal.draw(|frame| view::draw(model, palette, frame.buffer_mut())).expect("draws");
    terminal.backend().buffer().clone()
}

fn screen(model: &Model) -> String {
    let buffer = drawn(model, Palette::Plain);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    let rows = cells.chunks(usize::from(model.size.0));
    rows.map(|row| row.concat().trim_end().to_owned()).collect::<Vec<_>>().join("\n")
}

fn at(run: Run, size: (u16, u16), keys: &str) -> Model {
    let mut model = Model::new(Arc::new(run), size);
    fed(&mut model);
    for key in keys.chars() {
        model.press(if key == '\n' { Key::Enter } else { Key::Char(key) });
        fed(&mut model);
    }
    model
}

const SMALL: (u16, u16) = (80, 24);
const LARGE: (u16, u16) = (120, 40);

#[test]
fn each_pane_in_80_by_24() {
    let mut beside = at(failing(), SMALL, "");
    beside.beside(Arc::new(succeeding()));
    fed(&mut beside);
    beside.press(Key::Char('k'));
    fed(&mut beside);
    for (name, model) in [
        ("opened_at_the_failure", at(failing(), SMALL, "")),
        ("prompt", at(failing(), SMALL, "gjj1")),
        ("request", at(failing(), SMALL, "gjjx")),
        ("decision", at(failing(), SMALL, "gjj2")),
        ("calls", at(failing(), SMALL, "gjj3")),
        ("diff", at(failing(), SMALL, "gjj4")),
        ("compared", at(failing(), SMALL, "gjmjjc")),
        ("tree", at(failing(), SMALL, "gjj5\nj")),
        ("file", at(failing(), SMALL, "gjjolib.rs\n")),
        ("ledger", at(failing(), SMALL, "gjj6")),
        ("runs", beside),
        ("searched", at(failing(), SMALL, "g/needle_in\n")),
        ("asking", at(failing(), SMALL, "/what")),
        ("help", at(failing(), SMALL, "?")),
        ("resume", at(failing(), SMALL, "gjr")),
        ("fork", at(failing(), SMALL, "Gf")),
        ("zoomed", at(failing(), SMALL, "gjj3z")),
    ] {
        insta::assert_snapshot!(name, screen(&model));
    }
}

#[test]
fn a_larger_screen_shows_more() {
    insta::assert_snapshot!("large_calls", screen(&at(failing(), LARGE, "gjj3")));
    insta::assert_snapshot!("large_help", screen(&at(long(60), LARGE, "?")));
}

#[test]
fn nothing_that_a_terminal_would_obey_is_drawn() {
    for keys in ["gjj1", "gjj2", "gjj3", "gjj3\nG", "gjj4", "gjj5", "gjj6", "gjjolib.rs\n", "G1"] {
        let model = at(failing(), SMALL, keys);
        for cell in &drawn(&model, Palette::Colors).content {
            let bad = cell.symbol().chars().find(|c| {
                c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            });
            assert_eq!(bad, None, "{keys}: {:?}", cell.symbol());
        }
    }
    let shown = screen(&at(failing(), SMALL, "gjj2"));
    assert!(shown.contains(r"The edit goes here.\e[2J\e]0;owned\u{7}\u{202e}txt.exe\u{9b}31m"), "{shown}");
    let input = screen(&at(failing(), SMALL, "/a\u{202e}b"));
    assert!(input.contains(r"search: a\u{202e}b"), "{input}");
}

#[test]
fn without_colours_no_cell_has_one() {
    for keys in ["", "gjj4", "?", "gjr"] {
        let model = at(failing(), SMALL, keys);
        let colored = |palette| {
            let of = |cell: &ratatui::buffer::Cell| cell.fg != Color::Reset || cell.bg != Color::Reset;
            drawn(&model, palette).content.iter().any(of)
        };
        assert!(!colored(Palette::Plain), "{keys}");
        assert!(colored(Palette::Colors), "{keys}: the control");
    }
}

/// Any size, any page: nothing is drawn outside, nothing panics.
#[test]
fn every_size_is_drawn() {
    for columns in [1, 2, 10, 39, 40, 41, 60, 80, 133, 300] {
        for rows in [1, 2, 9, 10, 11, 24, 60] {
            for keys in ["", "gjj1", "gjj3\nG", "gjj4z", "gjj5", "gjj6", "?", "Gf", "/abc"] {
                let model = at(failing(), (columns, rows), keys);
                let text = screen(&model);
                assert!(
                    columns < 40 || rows < 10 || text.contains("OUTCOME") || "?Gf".contains(keys),
                    "{columns}×{rows} {keys}"
                );
            }
        }
    }
}
