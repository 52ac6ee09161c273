//! `docket step`: a run on the screen, turn by turn. The *view* kind of replay: nothing is asked of a
//! model, nothing is run, no workspace is touched; all of it comes from the log and its blobs.
//!
//! `model` and its neighbours are pure: a key in, another state out. `view` draws a state into a buffer.
//! `shell` reads keys, fetches what the screen lacks and performs what was confirmed.

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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows each turn's prompt, decision, tool calls with their whole outputs, what it changed, the files as
they were, and its figures: from the log alone, without a model, without touching a file. A run that
failed opens at the turn where it went wrong. Forks and resumes from the turn that is shown, after
asking. ? shows the keys. Works in 80 columns and 24 rows, over ssh, without a mouse.

Examples:
  docket step 3f9c01ab
  docket step 3f9c01ab --with 77b2d0e4"
)]
pub(crate) struct StepArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// Another run, or task, beside it: where they part, and what differs
    #[arg(long, value_name = "OTHER")]
    with: Option<String>,
    /// Print the first screen as text and end: what `docket-bench` measures
    #[arg(long, hide = true)]
    first_frame: bool,
}

/// Steps through it.
pub(crate) async fn run_step(cx: CliContext, args: StepArgs) -> CliResult {
    if cx.is_json() {
        let message = "`docket step` is for people; for programs there is `docket replay RUN --json`";
        return Err(CliError::new(ExitKind::Usage, message));
    }
    if !args.first_frame && !terminal::is_interactive() {
        let message = "`docket step` needs a terminal; `docket replay RUN` prints the same anywhere";
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

/// The screen where there is none: what every terminal has.
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
