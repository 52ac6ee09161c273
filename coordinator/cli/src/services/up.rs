//! `docket up`: runs a coordinator and workers on this machine.

use docket_worker::client::CoordinatorClient;
use tokio_util::sync::CancellationToken;

use crate::{
    connect::logging,
    context::CliContext,
    delivery::deliverer,
    home::{HomeOwnership, OwnerCommand, handover::UpClaim},
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
        signals::StopSignals,
    },
    services::{
        home_member::{HomeMember, MemberKind, MemberRole},
        serve::{self, ServerArgs},
        trace_export::TraceExporter,
        worker_supervisor,
    },
};

/// Arguments of `docket up`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ctrl-C lets each run finish its turn, releases it and exits; a second Ctrl-C exits at once.
Released runs continue at the next `docket up`. If its worker is drained (`docket workers drain`),
it continues as a coordinator only.

Any number of `docket run` and one `docket up` share a home. A `docket run` that serves the home
hands it over to `docket up`, which then listens on its configured address, and continues to run.
`docket up` also continues the task of a `docket run` that was stopped or killed.

Examples:
  docket up
  docket up --slots 4
  DATABASE_URL=postgres://docket@localhost/docket docket up"
)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    worker: worker_supervisor::WorkerArgs,
}

/// Serves and works until stopped.
pub(crate) async fn run_up(mut cx: CliContext, args: UpArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let stop = StopSignals::listen()?;
    args.worker.apply_to(&mut cx.config);
    let claim = claim_up(&cx)?;
    // It may wait for a database.
    let member = tokio::select! {
        member = Box::pin(HomeMember::join(&cx, args.server, MemberKind::Up(claim))) => member?,
        () = stop.drain.cancelled() => {
            display::print_note(serve::STOPPED_EARLY);
            return Ok(ExitKind::Ok);
        }
    };
    let ended = run_until_stopped(&cx, &member, &args.worker, &stop).await;
    tokio::select! {
        () = member.leave() => {}
        () = stop.abort.cancelled() => {}
    }
    ended.map(|()| ExitKind::Ok)
}

async fn run_until_stopped(
    cx: &CliContext,
    member: &HomeMember,
    args: &worker_supervisor::WorkerArgs,
    stop: &StopSignals,
) -> CliResult<()> {
    let token = cx.home.load_or_create_token()?;
    let client = CoordinatorClient::new(member.address(), token.clone())?;
    let job = worker_supervisor::WorkerSpec::for_home(member.address(), token, args.name())
        .with_failpoints(args.failpoints());
    let job = job.suppress_key_note(worker_supervisor::all_tasks_need_no_key(cx, &client).await);
    let worker = worker_supervisor::start_supervisor(cx, job, stop)?;
    let announcing = tokio::spawn(announce_roles(cx.clone(), member.role()));
    let deliveries = CancellationToken::new();
    let (until, at) = (deliveries.clone(), cx.clone());
    let telemetry = TraceExporter::start(cx, &client)?;
    let deliverer = tokio::spawn(async move { deliverer::run_deliverer(&at, &client, until).await });
    let ended = worker.await;
    if ended.is_ok() && !stop.drain.is_cancelled() {
        display::print_note(
            "the worker has stopped because it was drained (`docket workers drain`). This process continues as a coordinator \
             only; Ctrl-C stops it, and `docket worker` starts a new worker",
        );
        stop.drain.cancelled().await;
    }
    announcing.abort();
    deliveries.cancel();
    if let Err(error) = deliverer.await {
        tracing::error!(%error, "the deliverer failed; use `docket apply` to create branches manually");
    }
    if let Some(telemetry) = telemetry {
        telemetry.stop().await;
    }
    ended
}

/// Claims to be the single `docket up` of the home.
fn claim_up(cx: &CliContext) -> CliResult<UpClaim> {
    if let Some(lock) = cx.home.lock_for_up()? {
        return Ok(UpClaim::new(lock));
    }
    match cx.home.ownership()? {
        HomeOwnership::Owned(owner) if owner.command == Some(OwnerCommand::Up) => {
            Err(serve::already_served_error(cx)?)
        }
        HomeOwnership::Owned(_) | HomeOwnership::Starting | HomeOwnership::Free => Err(CliError::new(
            ExitKind::Refused,
            format!(
                "another `docket up` already runs in {}; stop it, or use another home with --home",
                cx.home.path().display()
            ),
        )),
    }
}

/// Prints who serves the home, now and after each change.
async fn announce_roles(cx: CliContext, mut role: tokio::sync::watch::Receiver<MemberRole>) {
    loop {
        let now = role.borrow_and_update().clone();
        match now {
            MemberRole::Serves { address, tls_address } => {
                serve::announce_serving(&cx, &address, tls_address, cx.config.slots);
            }
            MemberRole::Joined(owner) => {
                let address = owner.address.unwrap_or_default();
                let command =
                    owner.command.map_or_else(|| "docket".to_owned(), |command| command.to_string());
                if cx.is_json() {
                    display::print_json(&serde_json::json!({
                        "address": address,
                        "dashboard": format!("{address}/ui/"),
                        "pid": std::process::id(),
                        "slots": cx.config.slots,
                        "served_by": owner.pid,
                    }));
                } else {
                    display::print_line(&format!(
                        "`{command}` (process {}) serves {} at {address}; this process works for it, up to {} concurrent runs, and \
                         takes over when it ends; press Ctrl-C to stop",
                        owner.pid,
                        cx.home.path().display(),
                        cx.config.slots
                    ));
                }
            }
        }
        if role.changed().await.is_err() {
            return;
        }
    }
}
