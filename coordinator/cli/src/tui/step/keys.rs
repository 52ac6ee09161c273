//! Key bindings: each key press changes the [`StepperState`] once. Pure. The help shows [`KEY_HELP`].

use super::{
    navigation::Direction,
    page::PaneKind,
    state::{KeyFocus, PromptInput, PromptKind, RunAction, ScreenOverlay, StepperEffect, StepperState},
};

/// A key, independent of any terminal library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyPress {
    /// A character.
    Char(char),
    /// A character with Ctrl.
    Ctrl(char),
    Up,
    Down,
    Left,
    Right,
    PageUp,
    PageDown,
    Home,
    End,
    Enter,
    Esc,
    Tab,
    /// Shift and Tab.
    BackTab,
    Backspace,
}

/// The keys shown in the help; an entry without a second text is a heading.
pub(super) const KEY_HELP: [(&str, &str); 36] = [
    ("Turns", ""),
    ("j k  ↓ ↑", "next, previous turn (in a pane: line)"),
    ("PgDn PgUp", "a page down, up"),
    ("Home End  g G", "first, last"),
    ("[ ]", "previous, next turn from within a pane"),
    ("e E", "next, previous failure"),
    ("Panes", ""),
    ("Tab ⇧Tab  h l  ← →", "next, previous pane"),
    ("1 … 7", "prompt decision calls diff tree ledger runs"),
    ("Enter", "enter the pane; in it, open the file of the line"),
    ("Esc", "back"),
    ("Space b", "scroll the pane by a page"),
    ("J K", "scroll the pane by a line"),
    ("z", "toggle the pane between full screen and normal"),
    ("x", "toggle the exact request, byte for byte"),
    ("o", "open a file by name, as it was after the turn"),
    ("Search", ""),
    ("/", "search texts, calls, outputs and paths of all turns"),
    ("n N", "next, previous match"),
    ("Compare", ""),
    ("m", "mark or unmark this turn"),
    ("c", "compare the marked turn with this one"),
    ("w", "compare with another run"),
    ("d D", "next, previous turn in which the runs differ"),
    ("Continue", ""),
    ("f", "fork after this turn; asks first"),
    ("r", "resume from this turn; asks first"),
    ("u", "reload the run"),
    ("Ctrl-L", "redraw the screen"),
    ("Ctrl-Z", "suspend"),
    ("q  Ctrl-C", "quit"),
    ("Marks", ""),
    (">", "the current turn"),
    ("*", "the marked turn"),
    ("= ≠ +", "compared with another run: same, different, new"),
    ("M D", "in the tree: the turn changed or removed it"),
];

impl StepperState {
    /// Applies a key to the state; returns an effect for the stepper to perform.
    pub(super) fn press(&mut self, key: KeyPress) -> Option<StepperEffect> {
        self.message = None;
        let effect = match key {
            KeyPress::Ctrl('c') => Some(StepperEffect::Quit),
            KeyPress::Ctrl('l') => Some(StepperEffect::Redraw),
            KeyPress::Ctrl('z') => Some(StepperEffect::Suspend),
            key => match std::mem::replace(&mut self.overlay, ScreenOverlay::None) {
                ScreenOverlay::None => self.press_plain(key),
                ScreenOverlay::Help { top } => self.press_help(key, top),
                ScreenOverlay::Prompt(input) => self.press_input(key, input),
                ScreenOverlay::Confirm(act) => self.press_confirm(key, act),
            },
        };
        self.refresh();
        effect
    }

    fn press_help(&mut self, key: KeyPress, top: usize) -> Option<StepperEffect> {
        let last = KEY_HELP.len().saturating_sub(self.help_height());
        let top = match key {
            KeyPress::Down | KeyPress::Char('j') => top + 1,
            KeyPress::Up | KeyPress::Char('k') => top.saturating_sub(1),
            KeyPress::PageDown | KeyPress::Char(' ') => top + self.help_height(),
            KeyPress::PageUp | KeyPress::Char('b') => top.saturating_sub(self.help_height()),
            KeyPress::Home => 0,
            KeyPress::End => last,
            _ => return None,
        };
        self.overlay = ScreenOverlay::Help { top: top.min(last) };
        None
    }

    fn press_input(&mut self, key: KeyPress, mut input: PromptInput) -> Option<StepperEffect> {
        match key {
            KeyPress::Esc => return None,
            KeyPress::Enter => return self.submit_prompt(input),
            KeyPress::Backspace => {
                input.text.pop()?;
            }
            KeyPress::Ctrl('u') => input.text.clear(),
            KeyPress::Char(c) if input.text.len() < INPUT_BYTES_MAX => input.text.push(c),
            _ => {}
        }
        self.overlay = ScreenOverlay::Prompt(input);
        None
    }

    fn press_confirm(&mut self, key: KeyPress, act: RunAction) -> Option<StepperEffect> {
        match key {
            KeyPress::Char('y' | 'Y') if self.can_perform(act) == Some(true) => {
                Some(StepperEffect::Perform(act))
            }
            KeyPress::Char('n' | 'N' | 'q') | KeyPress::Esc => None,
            _ => {
                self.overlay = ScreenOverlay::Confirm(act);
                None
            }
        }
    }

    fn press_plain(&mut self, key: KeyPress) -> Option<StepperEffect> {
        match key {
            KeyPress::Char('q') if self.file.is_none() => return Some(StepperEffect::Quit),
            KeyPress::Char('q') | KeyPress::Esc => self.go_back(),
            KeyPress::Char('?') => self.overlay = ScreenOverlay::Help { top: 0 },
            KeyPress::Char('/') => self.open_prompt(PromptKind::Search),
            KeyPress::Char('o') => self.open_prompt(PromptKind::Open),
            KeyPress::Char('w') => self.open_prompt(PromptKind::OtherRun),
            KeyPress::Char('n') => self.repeat_search(Direction::Forward),
            KeyPress::Char('N') => self.repeat_search(Direction::Back),
            KeyPress::Char('e') => self.go_to_failure(Direction::Forward),
            KeyPress::Char('E') => self.go_to_failure(Direction::Back),
            KeyPress::Char('d') => self.go_to_difference(Direction::Forward),
            KeyPress::Char('D') => self.go_to_difference(Direction::Back),
            KeyPress::Char('m') => self.mark_here(),
            KeyPress::Char('c') => self.toggle_comparison(),
            KeyPress::Char('z') => self.zoomed = !self.zoomed,
            KeyPress::Char('x') => self.toggle_request(),
            KeyPress::Char('f') => self.ask_confirmation(RunAction::Fork),
            KeyPress::Char('r') => self.ask_confirmation(RunAction::Resume),
            KeyPress::Char('u') => return Some(StepperEffect::Reload),
            KeyPress::Char(digit @ '1'..='7') => {
                let nth = usize::from(digit as u8 - b'1');
                self.go_to_pane(PaneKind::ALL[nth]);
            }
            KeyPress::Tab | KeyPress::Right | KeyPress::Char('l') => self.cycle_pane(Direction::Forward),
            KeyPress::BackTab | KeyPress::Left | KeyPress::Char('h') => self.cycle_pane(Direction::Back),
            key => self.press_move(key),
        }
        None
    }

    fn press_move(&mut self, key: KeyPress) {
        let page = self.page_height();
        match key {
            KeyPress::Char(']') => self.go_to_row(self.row.saturating_add(1)),
            KeyPress::Char('[') => self.go_to_row(self.row.saturating_sub(1)),
            KeyPress::Char('J') => self.scroll_by(1),
            KeyPress::Char('K') => self.scroll_by(-1),
            KeyPress::Char(' ') => self.scroll_by(page),
            KeyPress::Char('b') => self.scroll_by(-page),
            KeyPress::Enter => self.enter_pane(),
            key => match self.focus {
                KeyFocus::Timeline => self.press_timeline(key),
                KeyFocus::Pane => self.press_pane(key),
            },
        }
    }

    fn press_timeline(&mut self, key: KeyPress) {
        let page = usize::from(self.layout().timeline);
        match key {
            KeyPress::Down | KeyPress::Char('j') => self.go_to_row(self.row.saturating_add(1)),
            KeyPress::Up | KeyPress::Char('k') => self.go_to_row(self.row.saturating_sub(1)),
            KeyPress::PageDown => self.go_to_row(self.row.saturating_add(page)),
            KeyPress::PageUp => self.go_to_row(self.row.saturating_sub(page)),
            KeyPress::Home | KeyPress::Char('g') => self.go_to_row(0),
            KeyPress::End | KeyPress::Char('G') => self.go_to_row(usize::MAX),
            _ => {}
        }
    }

    fn press_pane(&mut self, key: KeyPress) {
        let page = self.page_height();
        match key {
            KeyPress::Down | KeyPress::Char('j') => self.move_cursor(1),
            KeyPress::Up | KeyPress::Char('k') => self.move_cursor(-1),
            KeyPress::PageDown => self.move_cursor(page),
            KeyPress::PageUp => self.move_cursor(-page),
            KeyPress::Home | KeyPress::Char('g') => self.move_cursor(isize::MIN),
            KeyPress::End | KeyPress::Char('G') => self.move_cursor(isize::MAX),
            _ => {}
        }
    }
}

/// Maximum length of typed text: ids, names and search texts are shorter.
const INPUT_BYTES_MAX: usize = 1024;
