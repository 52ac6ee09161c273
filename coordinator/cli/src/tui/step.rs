//! `docket step`: a run on the screen, turn by turn. The *view* kind of replay: nothing is asked of a
//! model, nothing is run, no workspace is touched; all of it comes from the log and its blobs.
//!
//! `model` and its neighbours are pure: a key in, another state out. `view` draws a state into a buffer.
//! `shell` reads keys, fetches what the screen lacks and performs what was confirmed.

mod act;
mod compare;
mod doc;
mod fetch;
mod files;
mod find;
mod keys;
mod layout;
mod ledger;
mod load;
mod model;
mod page;
mod remarks;
mod run;
mod shelf;
mod shell;
mod terminal;
#[cfg(test)]
mod tests;
mod travel;
mod view;

pub(crate) use keys::Key;
pub(crate) use shell::keys as keys_of_terminal;
pub(crate) use terminal::{Heard, Taken, is_there};

use ratatui::{buffer::Buffer, layout::Rect};

use crate::{
    connect::access::Access,
    context::Context,
    output::{
        display,
        fail::{Exit, Failure, Outcome},
    },
    tui::step::{shell::Stepper, view::Palette},
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
pub(crate) struct Args {
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
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    if cx.json() {
        let message = "`docket step` is for people; for programs there is `docket replay RUN --json`";
        return Err(Failure::new(Exit::Usage, message));
    }
    if !args.first_frame && !terminal::is_there() {
        let message = "`docket step` needs a terminal; `docket replay RUN` prints the same anywhere";
        return Err(Failure::new(Exit::Usage, message));
    }
    let access = Access::to_read(&cx, &args.id).await?;
    let loaded = load::named(&access.client, &access.source(), &args.id).await?;
    let size = terminal::size().filter(|_| terminal::is_there()).unwrap_or(SIZE);
    let mut stepper = Stepper::new(cx, &access, loaded, size)?;
    if let Some(other) = &args.with {
        stepper.beside(load::named(&access.client, &access.source(), other).await?);
    }
    if args.first_frame {
        first_frame(&stepper);
        return Ok(Exit::Ok);
    }
    let outcome = stepper.run().await;
    access.close().await?;
    outcome
}

/// The screen where there is none: what every terminal has.
const SIZE: (u16, u16) = (80, 24);

fn first_frame(stepper: &Stepper) {
    let (width, height) = stepper.model().size;
    let mut buffer = Buffer::empty(Rect { x: 0, y: 0, width, height });
    view::draw(stepper.model(), Palette::Plain, &mut buffer);
    let cells: Vec<&str> = buffer.content.iter().map(ratatui::buffer::Cell::symbol).collect();
    for row in cells.chunks(usize::from(width).max(1)) {
        display::say(row.concat().trim_end());
    }
}
