//! `docket answer`: answers the question of a blocked run; also formats how to answer for other
//! commands.

use crate::output::task_rows;
use std::path::PathBuf;

use docket_schema::task::TaskBlockedReason;
use docket_worker::client::ClientError;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Command-line arguments of `docket answer`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A run that needs a person releases its slot and waits. After your answer the same run continues;
the model reads the question and the answer before its next decision. If the model's provider
stopped the run (credit used up, an invalid key), fix the cause and answer anything, such as
\"continue\". If worker faults stopped the task 20 times in a row, answer without
text, because no run is waiting for one. `docket retry` starts a new run instead, and
`docket cancel` gives up the task. If a policy asks whether a call may run, answer yes, always, or
no followed by words for the model; anything else is refused and the question stays open.

A run whose work is done but whose final checks did not run is unverified, and asks whether to
accept it as is. `accept` completes it as unverified, `again` runs the checks once more, and any
other answer goes to the model.

Examples:
  docket answer 3f9c01ab \"Port 8080; the tests use it as well.\"
  docket answer 3f9c01ab no, use the mirror
  docket answer 3f9c01ab --file answer.md
  git log -5 --stat | docket answer 3f9c01ab -
  docket ps --json | jq -r 'select(.blocked_why == \"person\") | [.id, .message] | @tsv'"
)]
pub(crate) struct AnswerArgs {
    /// Task ID, or the ID of one of its runs
    id: String,
    /// Answer text; `-` reads it from standard input
    #[arg(num_args = 0.., value_name = "TEXT", conflicts_with = "file")]
    text: Vec<String>,
    /// File with the answer
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

impl AnswerArgs {
    fn read_text(&self) -> CliResult<String> {
        match (&self.file, self.text.as_slice()) {
            (Some(file), _) if file.as_os_str() != "-" => std::fs::read_to_string(file)
                .fail_with(ExitKind::Usage, || {
                    format!("cannot read the answer from {}; it must be UTF-8 text", file.display())
                }),
            (None, words) if words != ["-"] => Ok(words.join(" ")),
            (Some(_) | None, _) => std::io::read_to_string(std::io::stdin().lock())
                .fail_with(ExitKind::Usage, || {
                    "cannot read the answer from standard input; it must be UTF-8".to_owned()
                }),
        }
    }
}

pub(crate) async fn run_answer(cx: CliContext, args: AnswerArgs) -> CliResult {
    let text = args.read_text()?;
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let task = resolve::resolve_task(&access.client, &args.id).await?;
    let asked = access.client.get_task(task).await?.task;
    let now = access.client.answer_task(task, &text).await.map_err(answer_error)?;
    if cx.is_json() {
        display::print_json(&task_rows::TaskRow::from_task(&now));
    } else {
        if let (Some(TaskBlockedReason::Person), Some(question)) = (asked.blocked_why, &asked.message) {
            let question = display::collapse_whitespace(question);
            display::print_line(&display::sanitize_line(&format!("task {} asked: {question}", task.short())));
        }
        display::print_line(&format!("answered; task {} is {}", task.short(), task_rows::state_label(&now)));
    }
    if access.is_local() {
        display::print_note("no workers are running; start them with `docket up`");
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

/// Reports an answer that the question does not allow as a usage error.
fn answer_error(error: ClientError) -> CliError {
    let is_of_words = error.problem().is_some_and(|problem| problem.field.as_deref() == Some("text"));
    let failure = CliError::from(error);
    if is_of_words { CliError { exit: ExitKind::Usage, ..failure } } else { failure }
}
