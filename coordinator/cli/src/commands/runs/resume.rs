//! `docket resume`, and which turn of a run can be gone on from.

use docket_schema::{
    history::{FoldedRun, NoSuchTurn},
    ids::Turn,
    wire::{ResumeRequest, ResumeResponse},
};

use crate::{
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    output::{
        display,
        fail::{Exit, Failure, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A new run of the same task goes on from the end of that turn, and shares the history before it; the
workspace is restored to what it was there, byte for byte, and the setup commands are run again. Any run
can be resumed: one that ended, failed, was cancelled or discarded, one that is blocked, and one that
still runs: that one is stopped and ends as superseded. `docket fork` leaves the run and its task alone.

Examples:
  docket resume 3f9c01ab
  docket resume 3f9c01ab --turn 7
  docket resume 3f9c01ab --hint \"The tests live in spec/.\""
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// The last turn that is kept [default: the last one that ended]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// Words for the model, as a person's
    #[arg(long, value_name = "TEXT")]
    hint: Option<String>,
}

/// The turn at whose end something is wanted: `asked`, or the last one that ended.
pub(crate) fn turn_of(history: &FoldedRun, asked: Option<u32>) -> Outcome<Turn> {
    let asked = asked.map(Turn);
    let found = asked.map_or(Ok(()), |asked| history.turn(asked).map(|_| ()));
    let found = found.and_then(|()| history.end_of(asked).map(|(_, turn)| turn));
    found.map_err(|error| {
        let exit = match error {
            NoSuchTurn::NotThere { .. } => Exit::NotFound,
            NoSuchTurn::NoneEnded | NoSuchTurn::NotEnded { .. } => Exit::Refused,
        };
        Failure::new(exit, error)
    })
}

/// Says which run goes on, and from where.
pub(crate) fn say(cx: &Context, made: &ResumeResponse) {
    if cx.json() {
        display::say_json(made);
        return;
    }
    display::say(&format!(
        "task {}: run {} goes on from turn {} of run {}",
        made.task.short(),
        made.run.short(),
        made.turn,
        made.parent.run.short()
    ));
}

/// Resumes it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let request = ResumeRequest { turn: args.turn, edit: None, hint: args.hint };
    let made = access.client.resume_with(run, &request).await?;
    if cx.json() {
        display::say_json(&crate::output::task_rows::Row::of(&access.client.task(made.task).await?.task));
    } else {
        say(&cx, &made);
    }
    if access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(Exit::Ok)
}
