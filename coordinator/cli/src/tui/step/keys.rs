//! What a key does: one press, one change of the [`Model`]. Pure. The list for people is [`HELP`].

use super::{
    model::{Act, Effect, Focus, Input, Model, Overlay, What},
    page::Pane,
    travel::Way,
};

/// A key, free of any terminal library's type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// A character.
    Char(char),
    /// A character with Ctrl.
    Ctrl(char),
    /// Arrow.
    Up,
    /// Arrow.
    Down,
    /// Arrow.
    Left,
    /// Arrow.
    Right,
    /// A page back.
    PageUp,
    /// A page on.
    PageDown,
    /// To the first.
    Home,
    /// To the last.
    End,
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and tab.
    BackTab,
    /// Backspace.
    Backspace,
}

/// The keys, for people: a heading where there is no second text.
pub(super) const HELP: [(&str, &str); 36] = [
    ("Turns", ""),
    ("j k  ↓ ↑", "next, previous turn (in a pane: line)"),
    ("PgDn PgUp", "a page on, back"),
    ("Home End  g G", "first, last"),
    ("[ ]", "previous, next turn from within a pane"),
    ("e E", "next, previous failure"),
    ("Panes", ""),
    ("Tab ⇧Tab  h l  ← →", "next, previous pane"),
    ("1 … 7", "prompt decision calls diff tree ledger runs"),
    ("Enter", "go into the pane; there: open the file of the line"),
    ("Esc", "back"),
    ("Space b", "scroll the pane by a page"),
    ("J K", "scroll the pane by a line"),
    ("z", "the pane over the whole screen, and back"),
    ("x", "the exact request, byte for byte, and back"),
    ("o", "open a file by its name, as it was after the turn"),
    ("Search", ""),
    ("/", "search texts, calls, outputs and paths of all turns"),
    ("n N", "next, previous match"),
    ("Compare", ""),
    ("m", "mark this turn, or take the mark away"),
    ("c", "what differs between the marked turn and this one"),
    ("w", "another run beside this one"),
    ("d D", "next, previous turn in which the runs differ"),
    ("Go on", ""),
    ("f", "fork after this turn; asks first"),
    ("r", "resume from this turn; asks first"),
    ("u", "read the run again"),
    ("Ctrl-L", "draw the screen again"),
    ("Ctrl-Z", "suspend"),
    ("q  Ctrl-C", "quit"),
    ("Marks", ""),
    (">", "the turn that is shown"),
    ("*", "the marked turn"),
    ("= ≠ +", "beside another run: same, different, only here"),
    ("M D", "in the tree: the turn changed or removed it"),
];

impl Model {
    /// What a key does to the screen, and what it asks of the shell.
    pub(super) fn press(&mut self, key: Key) -> Option<Effect> {
        self.message = None;
        let effect = match key {
            Key::Ctrl('c') => Some(Effect::Quit),
            Key::Ctrl('l') => Some(Effect::Redraw),
            Key::Ctrl('z') => Some(Effect::Suspend),
            key => match std::mem::replace(&mut self.overlay, Overlay::None) {
                Overlay::None => self.press_plain(key),
                Overlay::Help { top } => self.press_help(key, top),
                Overlay::Asking(input) => self.press_input(key, input),
                Overlay::Confirming(act) => self.press_confirm(key, act),
            },
        };
        self.settle();
        effect
    }

    fn press_help(&mut self, key: Key, top: usize) -> Option<Effect> {
        let last = HELP.len().saturating_sub(self.help_rows());
        let top = match key {
            Key::Down | Key::Char('j') => top + 1,
            Key::Up | Key::Char('k') => top.saturating_sub(1),
            Key::PageDown | Key::Char(' ') => top + self.help_rows(),
            Key::PageUp | Key::Char('b') => top.saturating_sub(self.help_rows()),
            Key::Home => 0,
            Key::End => last,
            _ => return None,
        };
        self.overlay = Overlay::Help { top: top.min(last) };
        None
    }

    fn press_input(&mut self, key: Key, mut input: Input) -> Option<Effect> {
        match key {
            Key::Esc => return None,
            Key::Enter => return self.answer(input),
            Key::Backspace => {
                input.text.pop()?;
            }
            Key::Ctrl('u') => input.text.clear(),
            Key::Char(c) if input.text.len() < INPUT_BYTES_MAX => input.text.push(c),
            _ => {}
        }
        self.overlay = Overlay::Asking(input);
        None
    }

    fn press_confirm(&mut self, key: Key, act: Act) -> Option<Effect> {
        match key {
            Key::Char('y' | 'Y') if self.may(act) == Some(true) => Some(Effect::Act(act)),
            Key::Char('n' | 'N' | 'q') | Key::Esc => None,
            _ => {
                self.overlay = Overlay::Confirming(act);
                None
            }
        }
    }

    fn press_plain(&mut self, key: Key) -> Option<Effect> {
        match key {
            Key::Char('q') if self.file.is_none() => return Some(Effect::Quit),
            Key::Char('q') | Key::Esc => self.back(),
            Key::Char('?') => self.overlay = Overlay::Help { top: 0 },
            Key::Char('/') => self.ask(What::Search),
            Key::Char('o') => self.ask(What::Open),
            Key::Char('w') => self.ask(What::Beside),
            Key::Char('n') => self.again(Way::On),
            Key::Char('N') => self.again(Way::Back),
            Key::Char('e') => self.go_to_failure(Way::On),
            Key::Char('E') => self.go_to_failure(Way::Back),
            Key::Char('d') => self.go_to_difference(Way::On),
            Key::Char('D') => self.go_to_difference(Way::Back),
            Key::Char('m') => self.mark_here(),
            Key::Char('c') => self.compare(),
            Key::Char('z') => self.zoomed = !self.zoomed,
            Key::Char('x') => self.toggle_request(),
            Key::Char('f') => self.confirm(Act::Fork),
            Key::Char('r') => self.confirm(Act::Resume),
            Key::Char('u') => return Some(Effect::Reload),
            Key::Char(digit @ '1'..='7') => {
                let nth = usize::from(digit as u8 - b'1');
                self.go_to_pane(Pane::ALL[nth]);
            }
            Key::Tab | Key::Right | Key::Char('l') => self.turn_pane(Way::On),
            Key::BackTab | Key::Left | Key::Char('h') => self.turn_pane(Way::Back),
            key => self.press_move(key),
        }
        None
    }

    fn press_move(&mut self, key: Key) {
        let page = self.page_rows();
        match key {
            Key::Char(']') => self.go_to_row(self.row.saturating_add(1)),
            Key::Char('[') => self.go_to_row(self.row.saturating_sub(1)),
            Key::Char('J') => self.scroll_by(1),
            Key::Char('K') => self.scroll_by(-1),
            Key::Char(' ') => self.scroll_by(page),
            Key::Char('b') => self.scroll_by(-page),
            Key::Enter => self.enter(),
            key => match self.focus {
                Focus::Timeline => self.press_timeline(key),
                Focus::Pane => self.press_pane(key),
            },
        }
    }

    fn press_timeline(&mut self, key: Key) {
        let page = usize::from(self.layout().timeline);
        match key {
            Key::Down | Key::Char('j') => self.go_to_row(self.row.saturating_add(1)),
            Key::Up | Key::Char('k') => self.go_to_row(self.row.saturating_sub(1)),
            Key::PageDown => self.go_to_row(self.row.saturating_add(page)),
            Key::PageUp => self.go_to_row(self.row.saturating_sub(page)),
            Key::Home | Key::Char('g') => self.go_to_row(0),
            Key::End | Key::Char('G') => self.go_to_row(usize::MAX),
            _ => {}
        }
    }

    fn press_pane(&mut self, key: Key) {
        let page = self.page_rows();
        match key {
            Key::Down | Key::Char('j') => self.move_cursor(1),
            Key::Up | Key::Char('k') => self.move_cursor(-1),
            Key::PageDown => self.move_cursor(page),
            Key::PageUp => self.move_cursor(-page),
            Key::Home | Key::Char('g') => self.move_cursor(isize::MIN),
            Key::End | Key::Char('G') => self.move_cursor(isize::MAX),
            _ => {}
        }
    }
}

/// Longest text that is typed: ids, names and search texts are shorter.
const INPUT_BYTES_MAX: usize = 1024;
