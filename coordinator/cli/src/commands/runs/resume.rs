//! `docket resume`: continues a run from one of its turns.

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

/// Command-line arguments of `docket resume`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A new run of the same task continues from the end of that turn and shares the history before it.
The workspace is restored exactly as it was then, and the setup commands run again. Any run can be
resumed: one that ended, failed, was cancelled or discarded, one that is blocked, and one that is
still running, which is stopped and ends as superseded. To leave the run and its task alone, use
`docket fork`.

Examples:
  docket resume 3f9c01ab
  docket resume 3f9c01ab --turn 7
  docket resume 3f9c01ab --hint \"The tests live in spec/.\""
)]
pub(crate) struct ResumeArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Last turn to keep [default: the last completed turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// Message to the model, sent as yours
    #[arg(long, value_name = "TEXT")]
    hint: Option<String>,
}

/// Returns the turn to continue from: `asked`, or the last completed one.
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

/// Prints the new run and its starting point.
pub(crate) fn print_resumed(cx: &CliContext, made: &ResumeResponse) {
    if cx.is_json() {
        display::print_json(made);
        return;
    }
    display::print_line(&format!(
        "task {}: run {} continues from turn {} of run {}",
        made.task.short(),
        made.run.short(),
        made.turn,
        made.parent.run.short()
    ));
}

/// Resumes the run.
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
        display::print_note("no workers are running; start them with `docket up`");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}
