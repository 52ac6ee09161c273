//! Progress display of long operations: how much is done, the total, the rate, and the remaining time.
//!
//! Invariants: it is only written to standard error; nothing is written for programs (`--json`), into a pipe or
//! a file, or to a terminal that cannot redraw a line; and it is erased when dropped, on errors too.

use std::{fmt::Write, io::IsTerminal as _, time::Duration};

use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};

use crate::{context::CliContext, output::display};

/// Refresh interval while nothing happens.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Spinner frames; the last one is never visible.
const SPINNER_CHARS: &str = "|/-\\ ";
/// Columns of the rest of the line, with the longest names, rates and times.
const RESERVED_COLUMNS: usize = 48;
/// Minimum and maximum columns of the bar.
const BAR_COLUMNS: (usize, usize) = (6, 30);

/// A progress display.
pub(crate) struct ProgressDisplay(ProgressBar);

impl ProgressDisplay {
    /// An invisible display, for work that another display shows.
    pub(crate) fn hidden() -> Self {
        Self(ProgressBar::hidden())
    }

    /// A spinner for work that cannot be counted; it shows the elapsed time.
    pub(crate) fn spinner(cx: &CliContext) -> Self {
        Self::with_template(cx, ProgressBar::new_spinner(), "{spinner} {elapsed:>4} {wide_msg}")
    }

    /// A counter for work counted in `what` whose total is unknown.
    pub(crate) fn counter(cx: &CliContext, what: &str) -> Self {
        let style = format!("{{spinner}} {{elapsed:>4}} {{pos}} {what}  {{rate}}  {{wide_msg}}");
        Self::with_template(cx, ProgressBar::new_spinner(), &style)
    }

    /// A bar for work counted in `what` with a known total.
    pub(crate) fn bar(cx: &CliContext, total: u64, what: &str) -> Self {
        let bar = bar_columns();
        let style = format!(
            "{{spinner}} {{elapsed:>4}} {{bar:{bar}}} {{pos}}/{{len}} {what}  {{rate}}  {{rest}}  {{wide_msg}}"
        );
        Self::with_template(cx, ProgressBar::new(total), &style)
    }

    /// A bar for work counted in bytes.
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

    /// Whether it is visible: counts needed only for it can be skipped otherwise.
    pub(crate) fn is_visible(&self) -> bool {
        !self.0.is_hidden()
    }

    /// Advances by `count`.
    pub(crate) fn advance(&self, count: u64) {
        self.0.inc(count);
    }

    pub(crate) fn set_position(&self, count: u64) {
        self.0.set_position(count);
    }

    pub(crate) fn set_total(&self, count: u64) {
        self.0.set_length(count);
    }

    /// Sets the current activity. The text must already be sanitized.
    pub(crate) fn set_message(&self, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.0.set_message(text);
    }

    /// Prints a permanent line above it; a note if the display is hidden.
    pub(crate) fn print_note(&self, text: &str) {
        if self.0.is_hidden() { display::print_note(text) } else { self.0.println(text) }
    }

    /// Hides it while something else is printed.
    pub(crate) fn suspend<T>(&self, print: impl FnOnce() -> T) -> T {
        self.0.suspend(print)
    }

    /// Returns another handle for a worker thread. The first handle dropped clears the line.
    pub(crate) fn share(&self) -> Self {
        Self(self.0.clone())
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Whether progress on standard error is visible to a person.
fn can_show_progress(cx: &CliContext) -> bool {
    !cx.is_json()
        && std::io::stderr().is_terminal()
        && std::env::var_os("TERM").is_none_or(|term| term != "dumb")
}

/// The columns available for the bar, so that the display stays on one line.
fn bar_columns() -> usize {
    let columns = usize::from(console::Term::stderr().size().1);
    columns.saturating_sub(RESERVED_COLUMNS).clamp(BAR_COLUMNS.0, BAR_COLUMNS.1)
}

fn format_rate(state: &ProgressState, out: &mut dyn Write) {
    let rate = state.per_sec();
    // The rate is unknown at first; a template error just draws the line again.
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
