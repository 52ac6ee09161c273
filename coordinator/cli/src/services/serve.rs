//! `docket serve`: runs only a coordinator.

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

/// Printed when a process is stopped before it serves.
pub(crate) const STOPPED_EARLY: &str = "stopped before serving; nothing was started";

/// Arguments of `docket serve`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Workers connect with DOCKET_URL and DOCKET_TOKEN, and DOCKET_CA if its certificate is signed by
your own CA. The file `token` in the home contains an administrator token; `docket token create`
creates others. Requests by host name are accepted only for names in `server.hosts`. With --store
postgres://... any number of coordinators may serve the same backlog.

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
        "it must be an address and a port, such as 127.0.0.1:7117 or [::1]:0; host names are not accepted"
            .to_owned()
    })
}

/// Flags of a coordinator, for `serve` and `up`.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ServerArgs {
    /// Address to listen on; port 0 picks a free one [default: `server.listen` of docket.toml, 127.0.0.1:7117]
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = parse_listen_address)]
    listen: Option<std::net::SocketAddr>,
    /// Serve TLS with this PEM certificate chain, the server's own certificate first [default:
    /// `server.tls_cert`]
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate [default: `server.tls_key`]
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,
    /// Listen on other than local addresses without encryption: for trusted networks, or behind a TLS proxy
    #[arg(long)]
    insecure: bool,
    /// The store [default: `server.store` of docket.toml, the home's own SQLite database]
    #[arg(long, value_name = "URL", env = "DATABASE_URL", hide_env_values = true, value_parser = crate::config::values::parse_store_address)]
    store: Option<String>,
    /// Tests only: appends after whose commit the coordinator exits without replying, as SEQ@EPOCH
    #[arg(long, hide = true, env = "DOCKET_ANSWERS_LOST", hide_env_values = true, value_delimiter = ',')]
    answers_lost: Vec<LostReply>,
    /// Tests only: where the coordinator exits while it archives: copied, removed
    #[arg(long, hide = true, env = "DOCKET_ARCHIVE_DIES", hide_env_values = true)]
    archive_dies: Option<ArchiveFailpoint>,
}

/// A coordinator that owns the home and has announced itself.
pub(crate) struct HomeCoordinator {
    local: LocalCoordinator,
    lock: HomeLock,
}

impl HomeCoordinator {
    /// Takes the home's lock and starts serving.
    pub(crate) async fn start(
        cx: &mut CliContext,
        args: &ServerArgs,
        command: OwnerCommand,
    ) -> CliResult<Self> {
        apply_server_args(cx, args)?;
        let lock = lock_home(cx)?;
        Self::start_with_lock(cx, args, command, lock).await
    }

    /// Starts serving a home whose lock this process holds. The flags must already be applied to the settings.
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

    pub(crate) fn address(&self) -> &str {
        self.local.address()
    }

    /// The address for other clients, if different.
    pub(crate) fn tls_address(&self) -> Option<String> {
        self.local.tls_address()
    }

    /// Stops serving, then releases the home.
    pub(crate) async fn stop(self) {
        self.local.stop().await;
        drop(self.lock);
    }
}

/// Determines how the coordinator listens. The flags must already be applied to the settings.
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

/// Checks that this process could listen on its address. The flags must already be applied to the settings.
pub(crate) async fn check_listen(cx: &CliContext, args: &ServerArgs) -> CliResult<()> {
    listen_options(cx, args)?.check_can_listen().await
}

/// Starts serving, which may wait for a database; `None` = a signal stopped it first.
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

/// Applies the flags to the settings.
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

/// Returns a fingerprint that tells whether two processes would serve the same store. It is a hash because the
/// address may contain a password.
pub(crate) fn store_fingerprint(cx: &CliContext) -> String {
    fingerprint_store(cx.config.store.as_deref(), &cx.home.database_path())
}

/// Fingerprints a store, or the home's own database if none is given. A database file has one fingerprint,
/// whatever path leads to it.
fn fingerprint_store(store: Option<&str>, database: &Path) -> String {
    let file = match store {
        None => Some(database),
        Some(address) => address.strip_prefix("sqlite:").map(|path| Path::new(path.trim_start_matches("//"))),
    };
    match (file, store) {
        (Some(file), _) => {
            BlobHash::hash_bytes(format!("sqlite:{}", canonicalize_lenient(file).display()).as_bytes())
                .to_string()
        }
        (None, store) => BlobHash::hash_bytes(store.unwrap_or_default().as_bytes()).to_string(),
    }
}

/// Canonicalizes a path even if the file itself does not exist.
fn canonicalize_lenient(file: &Path) -> PathBuf {
    let whole = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    let in_folder = || Some(std::fs::canonicalize(whole.parent()?).ok()?.join(whole.file_name()?));
    std::fs::canonicalize(&whole).ok().or_else(in_folder).unwrap_or(whole)
}

/// Takes the home's lock, or reports its owner.
pub(crate) fn lock_home(cx: &CliContext) -> CliResult<HomeLock> {
    match cx.home.lock()? {
        Some(lock) => Ok(lock),
        None => Err(already_served_error(cx)?),
    }
}

/// Builds the error that names the process that owns the home.
pub(crate) fn already_served_error(cx: &CliContext) -> CliResult<CliError> {
    let home = cx.home.path().display();
    let message = match cx.home.ownership()? {
        HomeOwnership::Owned(owner) => {
            let at = owner.address.map_or_else(String::new, |address| format!(" at {address}"));
            let command = owner.command.map_or_else(String::new, |command| format!(" ({command})"));
            format!(
                "process {}{command} already serves {home}{at}; stop it, or use another home with --home",
                owner.pid
            )
        }
        HomeOwnership::Starting | HomeOwnership::Free => {
            format!(
                "another docket process is starting to serve {home}; stop it, or use another home with --home"
            )
        }
    };
    Ok(CliError::new(ExitKind::Refused, message))
}

/// Announces that this process serves the home, to people or programs.
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
    let slots = if workers == 0 { String::new() } else { format!(", up to {workers} concurrent runs") };
    display::print_line(&format!(
        "docket serves {} at {address}{slots}; press Ctrl-C to stop",
        cx.home.path().display()
    ));
    display::print_line(&format!("dashboard: {dashboard}/ui/; `docket dashboard` opens it signed in"));
}

/// Serves until stopped.
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
            // The same once the file exists.
            std::fs::write(home.join("docket.db"), "").expect("writes");
        }
        assert_ne!(fingerprint_store(Some("postgres://db/docket"), &home.join("docket.db")), of_home());
        assert_ne!(fingerprint_store(None, &folder.path().join("other.db")), of_home());
    }
}
