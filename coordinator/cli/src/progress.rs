//! Progress of long work, where a person sees it: how much is done, of how much, how fast, how long the rest takes.
//! One look for all commands.
//!
//! Invariants: it stands on standard error alone; nothing of it is written for programs (`--json`), into a pipe or a
//! file, or to a terminal that cannot go back in its line; and nothing of it stays, for a value that is dropped, by an error
//! too, clears its line.

use std::{fmt::Write, io::IsTerminal as _, time::Duration};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::{context::CliContext, output::display};

/// How often it moves while nothing comes.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// What it moves through; the last one is never seen.
const SPINNER_CHARS: &str = "|/-\\ ";
/// Columns of all else of a line of the longest names, rates and rests.
const RESERVED_COLUMNS: usize = 48;
/// Columns of the bar itself.
const BAR_COLUMNS: (usize, usize) = (6, 30);

/// See the module.
pub(crate) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    /// None at all: of what others show.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// Work whose parts nobody can count: that it goes on, and for how long.
    pub(crate) fn spinner(cx: &CliContext) -> Self {
        Self::with_template(cx, ProgressBar::new_spinner(), "{spinner} {elapsed:>4} {wide_msg}")
    }

    /// Work that is counted in `what`, and nobody knows how much there is.
    pub(crate) fn counter(cx: &CliContext, what: &str) -> Self {
        let style = format!("{{spinner}} {{elapsed:>4}} {{pos}} {what}  {{rate}}  {{wide_msg}}");
        Self::with_template(cx, ProgressBar::new_spinner(), &style)
    }

    /// Work of so much, counted in `what`.
    pub(crate) fn bar(cx: &CliContext, total: u64, what: &str) -> Self {
        let bar = bar_columns();
        let style = format!(
            "{{spinner}} {{elapsed:>4}} {{bar:{bar}}} {{pos}}/{{len}} {what}  {{rate}}  {{rest}}  {{wide_msg}}"
        );
        Self::with_template(cx, ProgressBar::new(total), &style)
    }

    /// Work that is counted in bytes.
    pub(crate) fn byte_bar(cx: &CliContext, total: u64) -> Self {
        let bar = bar_columns();
        let style = format!(
            "{{spinner}} {{elapsed:>4}} {{bar:{bar}}} {{bytes}}/{{total_bytes}}  {{bytes_per_sec}}  {{rest}}"
        );
        Self::with_template(cx, ProgressBar::new(total), &style)
    }

    fn with_template(cx: &CliContext, bar: ProgressBar, template: &str) -> Self {
        if !can_show_progress(cx) {
            return Self::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let style =
            style.tick_chars(SPINNER_CHARS).with_key("rate", format_rate).with_key("rest", format_remaining);
        bar.set_style(style);
        bar.enable_steady_tick(TICK_INTERVAL);
        bar.force_draw();
        Self(bar)
    }

    /// Whether anybody sees it: what is counted for it alone need not be counted else.
    pub(crate) fn is_visible(&self) -> bool {
        !self.0.is_hidden()
    }

    /// So much more is done.
    pub(crate) fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    /// So much is done by now.
    pub(crate) fn set_position(&self, count: u64) {
        self.0.set_position(count);
    }

    /// So much is to be done in all.
    pub(crate) fn set_total(&self, count: u64) {
        self.0.set_length(count);
    }

    /// What goes on just now. The text must be harmless already.
    pub(crate) fn set_message(&self, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.0.set_message(text);
    }

    /// A line for the person that stays, above it; a note where nothing moves.
    pub(crate) fn print_note(&self, text: &str) {
        if self.0.is_hidden() { display::print_note(text) } else { self.0.println(text) }
    }

    /// Prints something else beside it.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Another hold on it, for a thread that does the work. Whoever drops it first clears the line.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whether a person sees what is drawn on standard error.
fn can_show_progress(cx: &CliContext) -> bool {
    !cx.is_json()
        && std::io::stderr().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// What a line has room for, so that it stays one.
fn bar_columns() -> usize {
    let columns = usize::from(console::Term::stderr().size().1);
    columns.saturating_sub(RESERVED_COLUMNS).clamp(BAR_COLUMNS.0, BAR_COLUMNS.1)
}

fn format_rate(state: &ProgressState, out: &mut dyn Write) {
    let rate = state.per_sec();
    // Nothing is known of the first moments; a word that cannot be written is drawn again.
    let _ = match rate {
        _ if state.pos() == 0 || !rate.is_finite() => Ok(()),
        10.0.. => write!(out, "{rate:.0}/s"),
        _ => write!(out, "{rate:.1}/s"),
    };
}

fn format_remaining(state: &ProgressState, out: &mut dyn Write) {
    if state.pos() > 0 && state.len().is_some_and(|len| len > state.pos()) {
        let _ = write!(out, "{:#} left", HumanDuration(state.eta()));
    }
}
