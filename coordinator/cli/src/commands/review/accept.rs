//! `docket accept`: a person takes a result, and what the task was to give is delivered.

use docket_schema::task::Delivery;

use crate::{
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    delivery::{self, Ask},
    output::{
        display,
        fail::{Exit, Outcome},
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
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// A word about it, for the log
    #[arg(long, value_name = "TEXT", default_value = "")]
    comment: String,
}

/// Accepts it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let before = access.client.task(access.client.run(run).await?.task).await?.task;
    let task = access.client.accept(run, &args.comment).await?;
    if !cx.json() {
        display::say(&format!("task {}: run {} is accepted", task.id.short(), run.short()));
    }
    let source = delivery::source_of(&task);
    let wanted = task.spec.delivery();
    match (wanted, source) {
        // Settled by whoever said so.
        _ if before.is_undelivered() => {}
        (Delivery::Patch, _) => {}
        (Delivery::Branch | Delivery::Push, Some(repository)) => {
            let push = (wanted == Delivery::Push).then_some(cx.config.delivery.remote.as_str());
            let ask = Ask { push, ..Ask::of(&task, run, &repository) };
            let done = delivery::deliver_now(&cx, &access.client, &ask).await?;
            if !cx.json() {
                delivery::say(&cx, &ask, &done);
            }
        }
        (Delivery::Branch | Delivery::Push, None) => {
            display::note("its repository is not on this machine; `docket apply` delivers where it is");
        }
    }
    if cx.json() {
        display::say_json(&crate::output::task_rows::Row::of(&access.client.task(task.id).await?.task));
    }
    access.close().await?;
    Ok(Exit::Ok)
}
