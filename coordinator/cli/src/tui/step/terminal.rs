//! Takes over the terminal (raw mode and alternate screen) while the stepper runs.
//!
//! It is restored on every exit: normal, by an error, by a panic. A panic message is printed after that, so
//! that it is visible.

use std::io::{IsTerminal as _, Write as _};

use ratatui::{
    Terminal,
    backend::{Backend as _, CrosstermBackend},
    buffer::Buffer,
    crossterm::{
        cursor::{Hide, Show},
        event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers},
        execute,
        style::{ResetColor, force_color_output},
        terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
    },
    layout::Rect,
};

use super::keys::KeyPress;
use crate::output::error::{CliError, CliResult, ExitKind};

/// Restores the terminal when dropped.
pub(crate) struct TerminalGuard {
    terminal: Terminal<CrosstermBackend<std::io::Stdout>>,
}

/// Whether a person is at the terminal: both input and output must be terminals.
pub(crate) fn is_interactive() -> bool {
    std::io::stdin().is_terminal() && std::io::stdout().is_terminal()
}

/// Columns and rows.
pub(crate) fn terminal_size() -> Option<(u16, u16)> {
    ratatui::crossterm::terminal::size().ok().filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

fn restore_terminal() {
    // Nothing can be done for a terminal that is gone.
    drop(disable_raw_mode());
    drop(execute!(std::io::stdout(), ResetColor, LeaveAlternateScreen, Show));
    drop(std::io::stdout().flush());
}

fn enter_raw_screen() -> std::io::Result<()> {
    enable_raw_mode()?;
    execute!(std::io::stdout(), EnterAlternateScreen, Hide)
}

impl TerminalGuard {
    /// Takes over the terminal.
    pub(crate) fn acquire() -> CliResult<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore_terminal();
            before(panic);
        }));
        // Colors are controlled by `view::ColorPalette` alone.
        force_color_output(true);
        let made = enter_raw_screen().and_then(|()| Terminal::new(CrosstermBackend::new(std::io::stdout())));
        match made {
            Ok(terminal) => Ok(Self { terminal }),
            Err(error) => {
                restore_terminal();
                let message = "cannot use the terminal; `docket replay RUN` prints the same without one";
                Err(CliError { exit: ExitKind::Failed, error: anyhow::Error::from(error).context(message) })
            }
        }
    }

    /// Draws a screen; only changed cells are sent.
    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> CliResult<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// Forces a full redraw next time.
    pub(crate) fn clear(&mut self) -> CliResult<()> {
        // The library's own `clear` queries the cursor position and fails if no reply comes; the reply would
        // arrive among the keys, which another thread reads.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))?;
        Ok(())
    }

    /// Columns and rows.
    pub(crate) fn size(&self) -> (u16, u16) {
        self.terminal.backend().size().map_or((80, 24), |size| (size.width, size.height))
    }

    /// Returns the terminal to the shell until the process is continued.
    pub(crate) fn suspend(&mut self) -> CliResult<()> {
        restore_terminal();
        // A shell without job control does not stop the process; then it continues at once.
        let _ = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP);
        enter_raw_screen()?;
        self.clear()
    }
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore_terminal();
    }
}

/// Input from the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalInput {
    Key(KeyPress),
    Resized(u16, u16),
}

/// Converts a terminal event to input, if it is relevant.
pub(crate) fn to_terminal_input(event: &Event) -> Option<TerminalInput> {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => to_key_press(*key).map(TerminalInput::Key),
        Event::Resize(columns, rows) => Some(TerminalInput::Resized(*columns, *rows)),
        _ => None,
    }
}

fn to_key_press(event: KeyEvent) -> Option<KeyPress> {
    let ctrl = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char(c) if ctrl => KeyPress::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) => KeyPress::Char(c),
        KeyCode::Up => KeyPress::Up,
        KeyCode::Down => KeyPress::Down,
        KeyCode::Left => KeyPress::Left,
        KeyCode::Right => KeyPress::Right,
        KeyCode::PageUp => KeyPress::PageUp,
        KeyCode::PageDown => KeyPress::PageDown,
        KeyCode::Home => KeyPress::Home,
        KeyCode::End => KeyPress::End,
        KeyCode::Enter => KeyPress::Enter,
        KeyCode::Esc => KeyPress::Esc,
        KeyCode::Tab => KeyPress::Tab,
        KeyCode::BackTab => KeyPress::BackTab,
        KeyCode::Backspace => KeyPress::Backspace,
        _ => return None,
    })
}
