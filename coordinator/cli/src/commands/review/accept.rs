//! `docket accept`: a person takes a result, and what the task was to give is delivered.

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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The log says who took it. What the task was submitted to give (--branch, --push) is delivered where its
repository is on this machine and that is not done yet. Of a task that is undelivered it says that this is
settled: merged by hand, say.

Examples:
  docket accept 3f9c01ab
  docket accept 3f9c01ab --comment \"merged by hand\""
)]
pub(crate) struct AcceptArgs {
    /// A run, or a task whose last run is meant
    id: String,
    /// A word about it, for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
}

/// Accepts it.
pub(crate) async fn run_accept(cx: CliContext, args: AcceptArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let before = access.client.get_task(access.client.get_run(run).await?.task).await?.task;
    let task = access.client.accept(run, &args.comment).await?;
    if !cx.is_json() {
        display::print_line(&format!("task {}: run {} is accepted", task.id.short(), run.short()));
    }
    let source = delivery::local_source_folder(&task);
    let wanted = task.spec.delivery_mode();
    match (wanted, source) {
        // Settled by whoever said so.
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
            display::print_note("its repository is not on this machine; `docket apply` delivers where it is");
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
