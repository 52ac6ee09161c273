//! `docket up`: coordinator and workers on this machine.

use crate::{
    context::Context,
    fail::{Exit, Outcome},
    logging,
    serve::{self, ServerArgs, Served},
    signals::Stop,
    supervise,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Ctrl-C lets each run finish its turn, gives it back and ends; a second Ctrl-C ends at once. What was
given back goes on at the next `docket up`.

Examples:
  docket up
  docket up --slots 4
  DATABASE_URL=postgres://docket@localhost/docket docket up")]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    worker: supervise::WorkerArgs,
}

/// Serves and works until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose);
    let stop = Stop::listen()?;
    args.worker.lay_over(&mut cx.config);
    let served = Served::start(&mut cx, &args.server).await?;
    let token = cx.home.token()?;
    let job = supervise::Job::new(served.address(), token, args.worker.name()).dying_at(args.worker.failpoints());
    let worker = supervise::start(&cx, job, &stop)?;
    serve::announce(&cx, served.address(), cx.config.slots);
    let ended = worker.await;
    tokio::select! {
        () = served.stop() => {}
        () = stop.now.cancelled() => {}
    }
    ended.map(|()| Exit::Ok)
}
