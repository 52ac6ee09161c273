//! `docket up`: coordinator and workers on this machine.

use docket_worker::client::Client;
use tokio_util::sync::CancellationToken;

use crate::{
    context::Context,
    deliverer, display,
    fail::{Exit, Outcome},
    logging, predecessor,
    serve::{self, ServerArgs},
    signals::Stop,
    supervise,
    telemetry::Telemetry,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ctrl-C lets each run finish its turn, gives it back and ends; a second Ctrl-C ends at once. What was
given back goes on at the next `docket up`. Drained from elsewhere (`docket workers drain`), it goes on as a coordinator alone.

Examples:
  docket up
  docket up --slots 4
  DATABASE_URL=postgres://docket@localhost/docket docket up"
)]
pub(crate) struct Args {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    worker: supervise::WorkerArgs,
}

/// Serves and works until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose)?;
    let stop = Stop::listen()?;
    args.worker.lay_over(&mut cx.config);
    let Some(served) = serve::start_unless_stopped(&mut cx, &args.server, &stop).await? else {
        return Ok(Exit::Ok);
    };
    let token = cx.home.token()?;
    let job =
        supervise::Job::new(served.address(), token, args.worker.name()).dying_at(args.worker.failpoints());
    let client = Client::new(served.address(), cx.home.token()?)?;
    predecessor::take_back(&cx.home, &client, job.incarnation()).await;
    let worker = supervise::start(&cx, job, &stop)?;
    serve::announce(&cx, &served, cx.config.slots);
    let deliveries = CancellationToken::new();
    let (until, at) = (deliveries.clone(), cx.clone());
    let telemetry = Telemetry::start(&cx, &client)?;
    let deliverer = tokio::spawn(async move { deliverer::run(&at, &client, until).await });
    let ended = worker.await;
    if ended.is_ok() && !stop.drain.is_cancelled() {
        display::note(
            "the worker has ended: somebody drained it (`docket workers drain`). This goes on as a coordinator \
             without one; Ctrl-C ends it, and `docket worker` starts a worker for it",
        );
        stop.drain.cancelled().await;
    }
    deliveries.cancel();
    if let Err(error) = deliverer.await {
        tracing::error!(%error, "the deliverer ended badly; `docket apply` makes branches by hand");
    }
    if let Some(telemetry) = telemetry {
        telemetry.stop().await;
    }
    tokio::select! {
        () = served.stop() => {}
        () = stop.now.cancelled() => {}
    }
    ended.map(|()| Exit::Ok)
}
