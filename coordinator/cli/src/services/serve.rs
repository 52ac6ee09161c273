//! `docket serve`: a coordinator alone.

use std::path::{Path, PathBuf};

use docket_coordinator::{
    archive::ArchiveFailpoint,
    http::LostReply,
    server::{ListenExposure, NotificationMode, TlsIdentity},
};
use docket_schema::ids::BlobHash;
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::{
        local_coordinator::{ListenOptions, LocalCoordinator},
        logging,
    },
    context::CliContext,
    home::{HomeLock, HomeOwnership, OwnerCommand, worker_registry},
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
    },
    services::trace_export::TraceExporter,
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
pub(crate) struct ServeArgs {
    #[command(flatten)]
    pub(crate) server: ServerArgs,
}

fn parse_listen_address(text: &str) -> Result<std::net::SocketAddr, String> {
    text.parse().map_err(|_| {
        "it must be an address and a port, as 127.0.0.1:7117 or [::1]:0; a name is none".to_owned()
    })
}

/// Flags of a coordinator, for `serve` and `up`.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ServerArgs {
    /// Where to listen; port 0 takes a free one [default: `server.listen` of docket.toml, 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
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
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, value_parser = crate::config::values::parse_store_address)]
    store: Option<String>,
    /// Tests only: appends after whose commit the coordinator dies unanswered, as SEQ@EPOCH
    #[arg(long, hide = true, env = "DOCKET_ANSWERS_LOST", hide_env_values = true, value_delimiter = ',')]
    answers_lost: Vec<LostReply>,
    /// Tests only: where the coordinator dies while it archives: copied, removed
    #[arg(long, hide = true, env = "DOCKET_ARCHIVE_DIES", hide_env_values = true)]
    archive_dies: Option<ArchiveFailpoint>,
}

/// A coordinator that owns the home and says so.
pub(crate) struct HomeCoordinator {
    local: LocalCoordinator,
    lock: HomeLock,
}

impl HomeCoordinator {
    /// Takes the home and starts to serve.
    pub(crate) async fn start(
        cx: &mut CliContext,
        args: &ServerArgs,
        command: OwnerCommand,
    ) -> CliResult<Self> {
        apply_server_args(cx, args)?;
        let lock = lock_home(cx)?;
        Self::start_with_lock(cx, args, command, lock).await
    }

    /// Starts to serve a home whose lock this process has. The settings must have the flags laid over them.
    pub(crate) async fn start_with_lock(
        cx: &mut CliContext,
        args: &ServerArgs,
        command: OwnerCommand,
        mut lock: HomeLock,
    ) -> CliResult<Self> {
        docket_coordinator::server::raise_descriptors();
        let local = LocalCoordinator::start(cx, listen_options(cx, args)?).await?;
        cx.home.warn_if_readable_by_others()?;
        lock.announce_service(local.address().to_owned(), command, store_fingerprint(cx))?;
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
fn listen_options(cx: &CliContext, args: &ServerArgs) -> CliResult<ListenOptions> {
    let server = &cx.config.server;
    let tls = match (&server.tls_cert, &server.tls_key) {
        (Some(cert), Some(key)) => Some(TlsIdentity::load(cert, key).fail_as(ExitKind::Usage)?),
        _ => None,
    };
    Ok(ListenOptions {
        address: server.listen.clone(),
        exposure: if args.insecure { ListenExposure::Open } else { ListenExposure::Loopback },
        tls,
        lost_replies: args.answers_lost.clone(),
        archive_crash: args.archive_dies,
        retention: cx.config.archive.retention.clone(),
        notices: NotificationMode::Deliver,
    })
}

/// Checks that this process could listen where it is told to. The settings must have the flags laid over them.
pub(crate) async fn check_listen(cx: &CliContext, args: &ServerArgs) -> CliResult<()> {
    listen_options(cx, args)?.check_can_listen().await
}

/// Starts to serve, which may wait for a database; `None` where a signal ends it before it serves.
pub(crate) async fn start_unless_stopped(
    cx: &mut CliContext,
    args: &ServerArgs,
    command: OwnerCommand,
    stop: &StopSignals,
) -> CliResult<Option<HomeCoordinator>> {
    tokio::select! {
        served = Box::pin(HomeCoordinator::start(cx, args, command)) => served.map(Some),
        () = stop.drain.cancelled() => {
            display::print_note(STOPPED_EARLY);
            Ok(None)
        }
    }
}

/// Lays the flags over the settings.
pub(crate) fn apply_server_args(cx: &mut CliContext, args: &ServerArgs) -> CliResult<()> {
    if let Some(listen) = args.listen {
        cx.config.server.listen = listen.to_string();
    }
    cx.config.store = args.store.clone().or(cx.config.store.take());
    let server = &mut cx.config.server;
    server.tls_cert = args.tls_cert.clone().or(server.tls_cert.take());
    server.tls_key = args.tls_key.clone().or(server.tls_key.take());
    server.validate()
}

/// Tells whether two processes would serve the same store. A hash, for the address may hold a password.
pub(crate) fn store_fingerprint(cx: &CliContext) -> String {
    fingerprint_store(cx.config.store.as_deref(), &cx.home.database_path())
}

/// The mark of a store, or of the home's own database where none is named. A database file has one mark, by whichever
/// path it is named.
fn fingerprint_store(store: Option<&str>, database: &Path) -> String {
    let file = match store {
        None => Some(database),
        Some(address) => address.strip_prefix("sqlite:").map(|path| Path::new(path.trim_start_matches("//"))),
    };
    match (file, store) {
        (Some(file), _) => {
            BlobHash::of(format!("sqlite:{}", canonicalize_lenient(file).display()).as_bytes()).to_string()
        }
        (None, store) => BlobHash::of(store.unwrap_or_default().as_bytes()).to_string(),
    }
}

/// The path without links, also where the file itself is not there yet.
fn canonicalize_lenient(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let in_folder = || Some(std::fs::canonicalize(whole.parent()?).ok()?.join(whole.file_name()?));
    std::fs::canonicalize(&whole).ok().or_else(in_folder).unwrap_or(whole)
}

/// Takes the home's lock, or says who has it.
pub(crate) fn lock_home(cx: &CliContext) -> CliResult<HomeLock> {
    match cx.home.lock()? {
        Some(lock) => Ok(lock),
        None => Err(already_served_error(cx)?),
    }
}

/// The refusal that names the process that has the home.
pub(crate) fn already_served_error(cx: &CliContext) -> CliResult<CliError> {
    let home = cx.home.path().display();
    let message = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => {
            let at = owner.address.map_or_else(String::new, |address| format!(" at {address}"));
            let command = owner.command.map_or_else(String::new, |command| format!(" ({command})"));
            format!(
                "process {}{command} serves {home}{at} already; end it, or name another home with --home",
                owner.pid
            )
        }
        HomeOwnership::Starting | HomeOwnership::Free => {
            format!("another docket is about to serve {home}; end it, or name another home with --home")
        }
    };
    Ok(CliError::new(ExitKind::Refused, message))
}

/// Says that this process serves the home, to people or programs.
pub(crate) fn announce_serving(cx: &CliContext, address: &str, tls: Option<String>, workers: u32) {
    if cx.is_json() {
        let mut said = serde_json::json!({
            "address": address,
            "dashboard": format!("{address}/ui/"),
            "pid": std::process::id(),
            "slots": workers,
        });
        if let Some(tls) = tls {
            said["tls_address"] = tls.into();
        }
        display::print_json(&said);
        return;
    }
    let dashboard = tls.as_deref().unwrap_or(address).to_owned();
    let address = tls.map_or_else(|| address.to_owned(), |tls| format!("{tls} (here {address})"));
    let slots = if workers == 0 { String::new() } else { format!(", up to {workers} runs at once") };
    display::print_line(&format!(
        "docket serves {} at {address}{slots}; Ctrl-C ends it in order",
        cx.home.path().display()
    ));
    display::print_line(&format!("the dashboard is {dashboard}/ui/; `docket dashboard` opens it signed in"));
}

/// Serves until told to stop.
pub(crate) async fn run_serve(mut cx: CliContext, args: ServeArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let stop = StopSignals::listen()?;
    let served = start_unless_stopped(&mut cx, &args.server, OwnerCommand::Serve, &stop).await?;
    let Some(served) = served else { return Ok(ExitKind::Ok) };
    announce_serving(&cx, served.address(), served.tls_address(), 0);
    let client = CoordinatorClient::new(served.address(), cx.home.load_or_create_token()?)?;
    let telemetry = TraceExporter::start(&cx, &client)?;
    stop.drain.run_until_cancelled(worker_registry::watch_for_dead_workers(&cx.home, &client)).await;
    if let Some(telemetry) = telemetry {
        telemetry.stop().await;
    }
    tokio::select! {
        () = served.stop() => {}
        () = stop.abort.cancelled() => {}
    }
    Ok(ExitKind::Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn store_fingerprint_ignores_the_path_spelling() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = folder.path().join("home");
        std::fs::create_dir(&home).expect("makes");
        std::os::unix::fs::symlink(&home, folder.path().join("link")).expect("links");
        let named = format!("sqlite:{}", folder.path().join("link/docket.db").display());
        let of_home = || fingerprint_store(None, &home.join("docket.db"));
        for _ in 0..2 {
            assert_eq!(fingerprint_store(Some(&named), Path::new("elsewhere.db")), of_home());
            // The same once the file is there.
            std::fs::write(home.join("docket.db"), "").expect("writes");
        }
        assert_ne!(fingerprint_store(Some("postgres://db/docket"), &home.join("docket.db")), of_home());
        assert_ne!(fingerprint_store(None, &folder.path().join("other.db")), of_home());
    }
}
