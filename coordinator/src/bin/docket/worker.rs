//! `docket worker`: a worker for a coordinator elsewhere, or for this home's.

use docket_worker::secret::Secret;

use crate::{
    context::Context,
    display,
    fail::{Exit, Failure, Outcome},
    home::Ownership,
    logging,
    signals::Stop,
    supervise,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The coordinator is DOCKET_URL (or --url) with DOCKET_TOKEN, or the one that serves this home. SIGTERM
lets each run finish its turn and gives it back; a second one ends at once.

Examples:
  DOCKET_URL=https://docket.example.org DOCKET_TOKEN=... docket worker --slots 8
  docket worker --queues slow,nightly"
)]
pub(crate) struct Args {
    #[command(flatten)]
    worker: supervise::WorkerArgs,
}

/// Works until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose)?;
    let stop = Stop::listen()?;
    args.worker.lay_over(&mut cx.config);
    let (address, token) = coordinator(&cx)?;
    let job = supervise::Job::new(&address, token, args.worker.name()).dying_at(args.worker.failpoints());
    let worker = supervise::start(&cx, job, &stop)?;
    if cx.json() {
        let slots = cx.config.slots;
        display::say_json(
            &serde_json::json!({ "coordinator": address, "pid": std::process::id(), "slots": slots }),
        );
    } else {
        display::say(&format!(
            "working for {address}, up to {} runs at once; Ctrl-C ends it in order",
            cx.config.slots
        ));
    }
    worker.await?;
    if !stop.drain.is_cancelled() {
        display::note("ended: somebody drained this worker (`docket workers drain`)");
    }
    Ok(Exit::Ok)
}

fn coordinator(cx: &Context) -> Outcome<(String, Secret)> {
    let given = std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new);
    if let Some(url) = &cx.url {
        let token = given.ok_or_else(|| {
            let message = "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home";
            Failure::new(Exit::Refused, message)
        })?;
        return Ok((url.trim_end_matches('/').to_owned(), token));
    }
    match cx.home.ownership()? {
        Ownership::Owned(owner) => match owner.address {
            Some(address) => Ok((address, cx.home.token()?)),
            None => Err(nobody()),
        },
        Ownership::Starting | Ownership::Free => Err(nobody()),
    }
}

fn nobody() -> Failure {
    let message = "no coordinator serves this home; start `docket serve` or `docket up`, or set DOCKET_URL";
    Failure::new(Exit::Unreachable, message)
}
