//! `docket step`: browses a run turn by turn in a full-screen interface. A read-only replay: no model is
//! called, nothing is executed and no workspace is touched; everything comes from the log and its blobs.
//!
//! `state` and its neighbors are pure: a key goes in, a new state comes out. `view` draws a state into a
//! buffer. `stepper` reads keys, fetches missing content and performs confirmed actions.

mod actions;
mod comparison;
mod content_cache;
mod fetcher;
mod files;
mod keys;
mod layout;
mod ledger;
mod load_run;
mod navigation;
mod page;
mod pane_text;
mod run;
mod search;
mod state;
mod stepper;
mod terminal;
#[cfg(test)]
mod tests;
mod turn_messages;
mod view;

pub(crate) use keys::KeyPress;
pub(crate) use stepper::spawn_key_reader as keys_of_terminal;
pub(crate) use terminal::{TerminalGuard, TerminalInput, is_interactive};

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    connect::coordinator::Coordinator,
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
    tui::step::{stepper::RunStepper, view::ColorPalette},
};

/// Arguments of `docket step`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows each turn's prompt, decision, tool calls with their full output, changes, files and figures,
from the log alone: no model is called and no file is touched. A failed run opens at the turn
in which the failure began. Can fork or resume from the current turn, after confirmation. Press ? for the
keys. Works in 80 columns and 24 rows, over ssh, without a mouse.

Examples:
  docket step 3f9c01ab
  docket step 3f9c01ab --with 77b2d0e4"
)]
pub(crate) struct StepArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Another run or task to compare with: where they diverge, and what differs
    #[arg(long, value_name = "OTHER")]
    with: Option<String>,
    /// Print the first screen as text and exit, as measured by `docket-bench`
    #[arg(long, hide = true)]
    first_frame: bool,
}

/// Runs the stepper.
pub(crate) async fn run_step(cx: CliContext, args: StepArgs) -> CliResult {
    if cx.is_json() {
        let message = "`docket step` is interactive; programs can use `docket replay RUN --json`";
        return Err(CliError::new(ExitKind::Usage, message));
    }
    if !args.first_frame && !terminal::is_interactive() {
        let message = "`docket step` needs a terminal; `docket replay RUN` works without one";
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let loaded = load_run::load_by_id(&access.client, &access.history_source(), &args.id).await?;
    let size = terminal::terminal_size().filter(|_| terminal::is_interactive()).unwrap_or(FALLBACK_SIZE);
    let mut stepper = RunStepper::new(cx, &access, loaded, size)?;
    if let Some(other) = &args.with {
        stepper.set_other_run(load_run::load_by_id(&access.client, &access.history_source(), other).await?);
    }
    if args.first_frame {
        print_first_frame(&stepper);
        return Ok(ExitKind::Ok);
    }
    let outcome = stepper.run_loop().await;
    access.close().await?;
    outcome
}

/// The size without a terminal: what every terminal supports.
const FALLBACK_SIZE: (u16, u16) = (80, 24);

fn print_first_frame(stepper: &RunStepper) {
    let (width, height) = stepper.state().size;
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
    view::draw_screen(stepper.state(), ColorPalette::Plain, &mut buffer);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    for row in cells.chunks(usize::from(width).max(1)) {
        display::print_line(row.concat().trim_end());
    }
}
