//! `docket serve`: a coordinator alone.

use docket_coordinator::{http::AnswerLost, server::Exposure};

use crate::{
    context::Context,
    display,
    fail::{Exit, Failure, Outcome},
    home::{Lock, Ownership},
    local::Local,
    logging,
    signals::Stop,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Workers reach it with DOCKET_URL and DOCKET_TOKEN; the token is the file `token` in the home.
With --store postgres://... any number of coordinators may serve the same backlog.

Examples:
  docket serve
  docket serve --store postgres://docket@db/docket --listen 10.0.0.5:7117 --insecure"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

/// Flags of a coordinator, for `serve` and `up`.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ServerArgs {
    /// Where to listen; port 0 takes a free one [default: `server.listen` of docket.toml, 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<std::net::SocketAddr>,
    /// Listen beyond this machine without encryption: for networks you trust, or behind a proxy with TLS
    #[arg(long)]
    insecure: bool,
    /// The store [default: `server.store` of docket.toml, the home's own SQLite database]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, value_parser = crate::db::store)]
    store: Option<String>,
    /// Tests only: appends after whose commit the coordinator dies unanswered, as SEQ@EPOCH
    #[arg(long, hide = true, env = "DOCKET_ANSWERS_LOST", hide_env_values = true, value_delimiter = ',')]
    answers_lost: Vec<AnswerLost>,
}

/// A coordinator that owns the home and says so.
pub(crate) struct Served {
    local: Local,
    lock: Lock,
}

impl Served {
    /// Takes the home and starts to serve.
    pub(crate) async fn start(cx: &mut Context, args: &ServerArgs) -> Outcome<Self> {
        if let Some(listen) = args.listen {
            cx.config.listen = listen.to_string();
        }
        cx.config.store = args.store.clone().or(cx.config.store.take());
        let exposure = if args.insecure { Exposure::Open } else { Exposure::Loopback };
        let mut lock = own(cx)?;
        let local = Local::start(cx, &cx.config.listen, exposure, args.answers_lost.clone()).await?;
        cx.home.tell_if_open_to_others()?;
        lock.announce(Some(local.address().to_owned()))?;
        Ok(Self { local, lock })
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> &str {
        self.local.address()
    }

    /// Ends it, then gives the home back.
    pub(crate) async fn stop(self) {
        self.local.stop().await;
        drop(self.lock);
    }
}

/// Takes the home's lock, or says who has it.
pub(crate) fn own(cx: &Context) -> Outcome<Lock> {
    if let Some(lock) = cx.home.try_lock()? {
        return Ok(lock);
    }
    let home = cx.home.path().display();
    let message = match cx.home.ownership()? {
        Ownership::Owned(owner) => {
            let at = owner.address.map_or_else(String::new, |address| format!(" at {address}"));
            format!(
                "process {} serves {home}{at} already; end it, or name another home with --home",
                owner.pid
            )
        }
        Ownership::Starting | Ownership::Free => {
            format!("another docket is about to serve {home}; end it, or name another home with --home")
        }
    };
    Err(Failure::new(Exit::Refused, message))
}

/// Says that it serves, to people or programs.
pub(crate) fn announce(cx: &Context, address: &str, workers: u32) {
    if cx.json() {
        display::say_json(
            &serde_json::json!({ "address": address, "pid": std::process::id(), "slots": workers }),
        );
        return;
    }
    let slots = if workers == 0 { String::new() } else { format!(", up to {workers} runs at once") };
    display::say(&format!(
        "docket serves {} at {address}{slots}; Ctrl-C ends it in order",
        cx.home.path().display()
    ));
}

/// Serves until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose);
    let stop = Stop::listen()?;
    let served = Served::start(&mut cx, &args.server).await?;
    announce(&cx, served.address(), 0);
    stop.drain.cancelled().await;
    tokio::select! {
        () = served.stop() => {}
        () = stop.now.cancelled() => {}
    }
    Ok(Exit::Ok)
}
