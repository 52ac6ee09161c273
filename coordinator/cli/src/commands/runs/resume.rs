//! `docket resume`, and which turn of a run can be gone on from.

use docket_schema::{
    api::{ResumeRequest, ResumeResponse},
    history::{FoldedRun, NoSuchTurn},
    ids::Turn,
};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
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
pub(crate) struct ResumeArgs {
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
pub(crate) fn resolve_turn(history: &FoldedRun, asked: Option<u32>) -> CliResult<Turn> {
    let asked = asked.map(Turn);
    let found = asked.map_or(Ok(()), |asked| history.turn(asked).map(|_| ()));
    let found = found.and_then(|()| history.turn_end(asked).map(|(_, turn)| turn));
    found.map_err(|error| {
        let exit = match error {
            NoSuchTurn::NotFound { .. } => ExitKind::NotFound,
            NoSuchTurn::NoneEnded | NoSuchTurn::NotEnded { .. } => ExitKind::Refused,
        };
        CliError::new(exit, error)
    })
}

/// Says which run goes on, and from where.
pub(crate) fn print_resumed(cx: &CliContext, made: &ResumeResponse) {
    if cx.is_json() {
        display::print_json(made);
        return;
    }
    display::print_line(&format!(
        "task {}: run {} goes on from turn {} of run {}",
        made.task.short(),
        made.run.short(),
        made.turn,
        made.parent.run.short()
    ));
}

/// Resumes it.
pub(crate) async fn run_resume(cx: CliContext, args: ResumeArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let request = ResumeRequest { turn: args.turn, edit: None, hint: args.hint };
    let made = access.client.resume_with(run, &request).await?;
    if cx.is_json() {
        display::print_json(&crate::output::task_rows::TaskRow::from_task(
            &access.client.get_task(made.task).await?.task,
        ));
    } else {
        print_resumed(&cx, &made);
    }
    if access.is_local() {
        display::print_note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}
