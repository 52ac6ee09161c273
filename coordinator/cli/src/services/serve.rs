//! `docket serve`: a coordinator alone.

use std::path::{Path, PathBuf};

use docket_coordinator::{
    archive::ArchiveDies,
    http::AnswerLost,
    server::{Exposure, Notices, TlsIdentity},
};
use docket_schema::ids::BlobHash;
use docket_worker::client::Client;

use crate::{
    connect::{
        local::{Listening, Local},
        logging,
    },
    context::Context,
    home::{Lock, OwnerCommand, Ownership, worker_registry},
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
        signals::Stop,
    },
    services::telemetry::Telemetry,
};

/// What a person is told who ends a process before it serves.
pub(crate) const STOPPED_EARLY: &str = "stopped before it served; nothing was started";

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Workers reach it with DOCKET_URL and DOCKET_TOKEN, and DOCKET_CA where its certificate is signed by a CA of
yours. The file `token` in the home is an administrator's; `docket token create` makes others. By a name it is
called only if `server.hosts` has it.
With --store postgres://... any number of coordinators may serve the same backlog.

Examples:
  docket serve
  docket serve --store postgres://docket@db/docket --listen 10.0.0.5:7117 --insecure
  docket serve --listen 0.0.0.0:7117 --tls-cert /etc/docket/cert.pem --tls-key /etc/docket/key.pem
  docket token create --name builder --role worker   # for a worker on another machine"
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn place(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        "it must be an address and a port, as 127.0.0.1:7117 or [::1]:0; a name is none".to_owned()
    })
}

/// Flags of a coordinator, for `serve` and `up`.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ServerArgs {
    /// Where to listen; port 0 takes a free one [default: `server.listen` of docket.toml, 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = place)]
    listen: Option<std::net::SocketAddr>,
    /// Speak TLS with this certificate, the server's own first in PEM [default: `server.tls_cert`]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Its private key [default: `server.tls_key`]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Listen beyond this machine without encryption: for networks you trust, or behind a proxy with TLS
    #[arg(long)]
    insecure: bool,
    /// The store [default: `server.store` of docket.toml, the home's own SQLite database]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, value_parser = crate::config::values::store)]
    store: Option<String>,
    /// Tests only: appends after whose commit the coordinator dies unanswered, as SEQ@EPOCH
    #[arg(long, hide = true, env = "DOCKET_ANSWERS_LOST", hide_env_values = true, value_delimiter = ',')]
    answers_lost: Vec<AnswerLost>,
    /// Tests only: where the coordinator dies while it archives: copied, removed
    #[arg(long, hide = true, env = "DOCKET_ARCHIVE_DIES", hide_env_values = true)]
    archive_dies: Option<ArchiveDies>,
}

/// A coordinator that owns the home and says so.
pub(crate) struct Served {
    local: Local,
    lock: Lock,
}

impl Served {
    /// Takes the home and starts to serve.
    pub(crate) async fn start(cx: &mut Context, args: &ServerArgs, command: OwnerCommand) -> Outcome<Self> {
        lay_over(cx, args)?;
        let lock = own(cx)?;
        Self::start_with(cx, args, command, lock).await
    }

    /// Starts to serve a home whose lock this process has. The settings must have the flags laid over them.
    pub(crate) async fn start_with(
        cx: &mut Context,
        args: &ServerArgs,
        command: OwnerCommand,
        mut lock: Lock,
    ) -> Outcome<Self> {
        docket_coordinator::server::raise_descriptors();
        let local = Local::start(cx, listening(cx, args)?).await?;
        cx.home.tell_if_open_to_others()?;
        lock.announce_service(local.address().to_owned(), command, store_mark(cx))?;
        Ok(Self { local, lock })
    }

    /// Where it answers.
    pub(crate) fn address(&self) -> &str {
        self.local.address()
    }

    /// Where it answers others, where that is somewhere else.
    pub(crate) fn tls_address(&self) -> Option<String> {
        self.local.tls_address()
    }

    /// Ends it, then gives the home back.
    pub(crate) async fn stop(self) {
        self.local.stop().await;
        drop(self.lock);
    }
}

/// How a coordinator is reached whose settings have the flags laid over them.
fn listening(cx: &Context, args: &ServerArgs) -> Outcome<Listening> {
    let server = &cx.config.server;
    let tls = match (&server.tls_cert, &server.tls_key) {
        (Some(cert), Some(key)) => Some(TlsIdentity::read(cert, key).fail_as(Exit::Usage)?),
        _ => None,
    };
    Ok(Listening {
        at: server.listen.clone(),
        exposure: if args.insecure { Exposure::Open } else { Exposure::Loopback },
        tls,
        answers_lost: args.answers_lost.clone(),
        archive_dies: args.archive_dies,
        retention: cx.config.archive.retention.clone(),
        notices: Notices::Told,
    })
}

/// Checks that this process could listen where it is told to. The settings must have the flags laid over them.
pub(crate) async fn check_listen(cx: &Context, args: &ServerArgs) -> Outcome<()> {
    listening(cx, args)?.check().await
}

/// Starts to serve, which may wait for a database; `None` where a signal ends it before it serves.
pub(crate) async fn start_unless_stopped(
    cx: &mut Context,
    args: &ServerArgs,
    command: OwnerCommand,
    stop: &Stop,
) -> Outcome<Option<Served>> {
    tokio::select! {
        served = Box::pin(Served::start(cx, args, command)) => served.map(Some),
        () = stop.drain.cancelled() => {
            display::note(STOPPED_EARLY);
            Ok(None)
        }
    }
}

/// Lays the flags over the settings.
pub(crate) fn lay_over(cx: &mut Context, args: &ServerArgs) -> Outcome<()> {
    if let Some(listen) = args.listen {
        cx.config.server.listen = listen.to_string();
    }
    cx.config.store = args.store.clone().or(cx.config.store.take());
    let server = &mut cx.config.server;
    server.tls_cert = args.tls_cert.clone().or(server.tls_cert.take());
    server.tls_key = args.tls_key.clone().or(server.tls_key.take());
    server.check()
}

/// Tells whether two processes would serve the same store. A hash, for the address may hold a password.
pub(crate) fn store_mark(cx: &Context) -> String {
    mark_of(cx.config.store.as_deref(), &cx.home.database())
}

/// The mark of a store, or of the home's own database where none is named. A database file has one mark, by whichever
/// path it is named.
fn mark_of(store: Option<&str>, database: &Path) -> String {
    let file = match store {
        None => Some(database),
        Some(address) => address.strip_prefix("sqlite:").map(|path| Path::new(path.trim_start_matches("//"))),
    };
    match (file, store) {
        (Some(file), _) => {
            BlobHash::of(format!("sqlite:{}", canonical(file).display()).as_bytes()).to_string()
        }
        (None, store) => BlobHash::of(store.unwrap_or_default().as_bytes()).to_string(),
    }
}

/// The path without links, also where the file itself is not there yet.
fn canonical(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let in_folder = || Some(std::fs::canonicalize(whole.parent()?).ok()?.join(whole.file_name()?));
    std::fs::canonicalize(&whole).ok().or_else(in_folder).unwrap_or(whole)
}

/// Takes the home's lock, or says who has it.
pub(crate) fn own(cx: &Context) -> Outcome<Lock> {
    match cx.home.lock()? {
        Some(lock) => Ok(lock),
        None => Err(owned_by_another(cx)?),
    }
}

/// The refusal that names the process that has the home.
pub(crate) fn owned_by_another(cx: &Context) -> Outcome<Failure> {
    let home = cx.home.path().display();
    let message = match cx.home.ownership()? {
        Ownership::Owned(owner) => {
            let at = owner.address.map_or_else(String::new, |address| format!(" at {address}"));
            let command = owner.command.map_or_else(String::new, |command| format!(" ({command})"));
            format!(
                "process {}{command} serves {home}{at} already; end it, or name another home with --home",
                owner.pid
            )
        }
        Ownership::Starting | Ownership::Free => {
            format!("another docket is about to serve {home}; end it, or name another home with --home")
        }
    };
    Ok(Failure::new(Exit::Refused, message))
}

/// Says that this process serves the home, to people or programs.
pub(crate) fn announce(cx: &Context, address: &str, tls: Option<String>, workers: u32) {
    if cx.json() {
        let mut said = serde_json::json!({
            "address": address,
            "dashboard": format!("{address}/ui/"),
            "pid": std::process::id(),
            "slots": workers,
        });
        if let Some(tls) = tls {
            said["tls_address"] = tls.into();
        }
        display::say_json(&said);
        return;
    }
    let dashboard = tls.as_deref().unwrap_or(address).to_owned();
    let address = tls.map_or_else(|| address.to_owned(), |tls| format!("{tls} (here {address})"));
    let slots = if workers == 0 { String::new() } else { format!(", up to {workers} runs at once") };
    display::say(&format!(
        "docket serves {} at {address}{slots}; Ctrl-C ends it in order",
        cx.home.path().display()
    ));
    display::say(&format!("the dashboard is {dashboard}/ui/; `docket dashboard` opens it signed in"));
}

/// Serves until told to stop.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    logging::start(cx.verbose)?;
    let stop = Stop::listen()?;
    let served = start_unless_stopped(&mut cx, &args.server, OwnerCommand::Serve, &stop).await?;
    let Some(served) = served else { return Ok(Exit::Ok) };
    announce(&cx, served.address(), served.tls_address(), 0);
    let client = Client::new(served.address(), cx.home.token()?)?;
    let telemetry = Telemetry::start(&cx, &client)?;
    stop.drain.run_until_cancelled(worker_registry::watch_for_dead_workers(&cx.home, &client)).await;
    if let Some(telemetry) = telemetry {
        telemetry.stop().await;
    }
    tokio::select! {
        () = served.stop() => {}
        () = stop.now.cancelled() => {}
    }
    Ok(Exit::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_is_of_the_database_and_not_of_the_path_that_names_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("makes");
        std::os::unix::fs::symlink(&home, folder.path().join("link")).expect("links");
        let named = format!("sqlite:{}", folder.path().join("link/docket.db").display());
        let of_home = || mark_of(None, &home.join("docket.db"));
        for _ in 0..2 {
            assert_eq!(mark_of(Some(&named), Path::new("elsewhere.db")), of_home());
            // The same once the file is there.
            std::fs::write(home.join("docket.db"), "").expect("writes");
        }
        assert_ne!(mark_of(Some("postgres://db/docket"), &home.join("docket.db")), of_home());
        assert_ne!(mark_of(None, &folder.path().join("other.db")), of_home());
    }
}
