//! `docket worker`: a worker for a coordinator elsewhere, or for this home's.

use docket_worker::{client::home_address, secret::Secret};

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
    let coordinator = find_coordinator(&cx)?;
    let (address, token, name) = (coordinator.address, coordinator.token, args.worker.name());
    let job = match coordinator.of_home {
        Some(home) => supervise::Job::of_home(&home, token, name),
        None => supervise::Job::new(&address, token, name),
    };
    let job = job.dying_at(args.worker.failpoints());
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

/// Whom a worker works for.
struct FoundCoordinator {
    /// Where it answers now.
    address: String,
    token: Secret,
    /// The address of this home, where the coordinator is this home's: the worker stays with the home when another
    /// process serves it.
    of_home: Option<String>,
}

fn find_coordinator(cx: &Context) -> Outcome<FoundCoordinator> {
    let given = std::env::var("DOCKET_TOKEN").ok().as_deref().and_then(Secret::new);
    if let Some(url) = &cx.url {
        let token = given.ok_or_else(|| {
            let message = "DOCKET_TOKEN is not set; it is in the file `token` of the coordinator's home";
            Failure::new(Exit::Refused, message)
        })?;
        return Ok(FoundCoordinator { address: url.trim_end_matches('/').to_owned(), token, of_home: None });
    }
    match cx.home.ownership()? {
        Ownership::Owned(owner) => match owner.address {
            Some(address) => {
                let (token, of_home) = (cx.home.token()?, home_address(&cx.home.lock_path()));
                Ok(FoundCoordinator { address, token, of_home })
            }
            None => Err(no_coordinator()),
        },
        Ownership::Starting | Ownership::Free => Err(no_coordinator()),
    }
}

fn no_coordinator() -> Failure {
    let message = "no coordinator serves this home; start `docket serve` or `docket up`, or set DOCKET_URL";
    Failure::new(Exit::Unreachable, message)
}
