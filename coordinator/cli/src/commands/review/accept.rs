//! `docket accept`: accepts a result and delivers it.

use docket_schema::task::DeliveryMode;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    delivery::{self, DeliveryRequest},
    output::{
        display,
        error::{CliResult, ExitKind},
    },
};

/// Command-line arguments of `docket accept`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The log records who accepted the result. If the task was submitted with --branch or --push and its
repository is on this machine, the result is delivered unless that is already done. Accepting an
undelivered task marks its delivery as settled, for example because you merged it manually.

Examples:
  docket accept 3f9c01ab
  docket accept 3f9c01ab --comment \"merged by hand\""
)]
pub(crate) struct AcceptArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Comment to record in the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
}

pub(crate) async fn run_accept(cx: CliContext, args: AcceptArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let before = access.client.get_task(access.client.get_run(run).await?.task).await?.task;
    let task = access.client.accept(run, &args.comment).await?;
    if !cx.is_json() {
        display::print_line(&format!("task {}: accepted run {}", task.id.short(), run.short()));
    }
    let source = delivery::local_source_folder(&task);
    let wanted = task.spec.delivery_mode();
    match (wanted, source) {
        // Accepting an undelivered result settles its delivery.
        _ if before.is_undelivered() => {}
        (DeliveryMode::Patch, _) => {}
        (DeliveryMode::Branch | DeliveryMode::Push, Some(repository)) => {
            let push = (wanted == DeliveryMode::Push).then_some(cx.config.delivery.remote.as_str());
            let ask = DeliveryRequest { push, ..DeliveryRequest::new(&task, run, &repository) };
            let done = delivery::deliver_or_wait(&cx, &access.client, &ask).await?;
            if !cx.is_json() {
                delivery::print_delivery(&cx, &ask, &done);
            }
        }
        (DeliveryMode::Branch | DeliveryMode::Push, None) => {
            display::print_note(
                "the repository is not on this machine; run `docket apply` on the machine that has it",
            );
        }
    }
    if cx.is_json() {
        display::print_json(&crate::output::task_rows::TaskRow::from_task(
            &access.client.get_task(task.id).await?.task,
        ));
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}
