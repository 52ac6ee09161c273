//! The parts of docket that run in this process: store, coordinator, supervisor, and the two kinds of child
//! process that docket starts from its own binary.

use std::{net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use docket_coordinator::{
    archive::{ArchiveFailpoint, ArchiveSettings, RetentionPolicy},
    clock::Clock,
    history_provider::HistoryProvider,
    http::{ApiToken, LostReply, RateLimits, TokenRole},
    notify::Notifier,
    server::{self, ListenExposure, NotificationMode, RunningServer, ServeError, ServerConfig, TlsIdentity},
    store::{SqlStore, Store, StoreError, postgres, sqlite},
};

use crate::{
    commands::admin::notify::NotifyTargets,
    config::CONNECTIONS_MAX,
    connect::logging,
    context::CliContext,
    history::run_history::RunHistoryService,
    output::error::{CliResult, ExitKind, FailWith as _},
};

/// Providers and the environment variables of their API keys.
pub(crate) const PROVIDER_KEY_VARS: [(&str, &str); 2] =
    [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")];

/// Grace period for requests in progress at shutdown.
const SHUTDOWN_GRACE_MS: u64 = 5000;

/// How a coordinator in this process listens.
pub(crate) struct ListenOptions {
    /// The address.
    pub(crate) address: String,
    /// Who may connect.
    pub(crate) exposure: ListenExposure,
    pub(crate) tls: Option<TlsIdentity>,
    /// Tests only: the replies that it loses.
    pub(crate) lost_replies: Vec<LostReply>,
    /// Tests only: the step of archiving at which it crashes.
    pub(crate) archive_crash: Option<ArchiveFailpoint>,
    /// What it archives automatically.
    pub(crate) retention: RetentionPolicy,
    /// Whether it sends notifications.
    pub(crate) notices: NotificationMode,
}

impl ListenOptions {
    /// For a command on this machine, while it runs.
    pub(crate) fn ephemeral() -> Self {
        let at = "127.0.0.1:0".to_owned();
        let ArchiveSettings { retention, .. } = ArchiveSettings::default();
        Self {
            address: at,
            exposure: ListenExposure::Loopback,
            tls: None,
            lost_replies: Vec::new(),
            archive_crash: None,
            retention,
            notices: NotificationMode::ShowOnly,
        }
    }

    /// Checks that the address can be bound now.
    pub(crate) async fn check_can_listen(&self) -> CliResult<()> {
        match server::check_listen(parse_bind_address(&self.address)?, self.exposure, self.tls.as_ref()).await
        {
            Ok(()) => Ok(()),
            Err(error) => serve_failure(error),
        }
    }
}

fn parse_bind_address(at: &str) -> CliResult<SocketAddr> {
    at.parse()
        .fail_with(ExitKind::Usage, || format!("`{at}` is not an address; it must look like 127.0.0.1:7117"))
}

fn serve_failure<T>(error: ServeError) -> CliResult<T> {
    let exit = match error {
        ServeError::NotLoopback(_) | ServeError::InvalidLeaseTimes { .. } => ExitKind::Usage,
        ServeError::PortInUse(_)
        | ServeError::Bind { .. }
        | ServeError::Store(_)
        | ServeError::Tokens(_)
        | ServeError::Notifications(_)
        | ServeError::Limits(_) => ExitKind::Failed,
    };
    Err(error).fail_as(exit)
}

/// A coordinator in this process, with its store.
pub(crate) struct LocalCoordinator {
    running: RunningServer,
    store: Arc<dyn Store>,
    address: String,
}

impl LocalCoordinator {
    /// Opens the store and serves it.
    pub(crate) async fn start(cx: &CliContext, listening: ListenOptions) -> CliResult<Self> {
        let ListenOptions {
            address: at,
            exposure,
            tls,
            lost_replies: answers_lost,
            archive_crash: archive_dies,
            retention,
            notices,
        } = listening;
        let bind = parse_bind_address(&at)?;
        let settings = &cx.config.server;
        let token = cx.home.load_or_create_token()?;
        let targets = NotifyTargets::new(cx, notices)?;
        let store = open_store(cx).await?;
        let looker = Arc::new(RunHistoryService::new(cx)?);
        let config = ServerConfig {
            bind,
            exposure,
            tls,
            hosts: settings.hosts.clone(),
            lease_ms: settings.lease_ms,
            heartbeat_ms: settings.lease_ms / 3,
            connections_max: CONNECTIONS_MAX,
            connections_per_peer: settings.connections_per_peer,
            rate_limits: RateLimits {
                requests_per_second: settings.requests_per_second,
                auth_failures_per_minute: settings.auth_failures_per_minute,
            },
            shutdown_grace_ms: SHUTDOWN_GRACE_MS,
            redactor: cx.config.redactor(),
            archive: ArchiveSettings {
                url: cx.config.archive.destination.clone(),
                retention,
                scratch_folder: cx.home.ensure_folder("scratch")?,
                failpoint: archive_dies,
                ..ArchiveSettings::default()
            },
            history_provider: Some(Arc::clone(&looker) as Arc<dyn HistoryProvider>),
            notifier: Some(Arc::new(targets) as Arc<dyn Notifier>),
            notification_mode: notices,
            reply_failpoints: answers_lost,
            ..ServerConfig::loopback(
                0,
                vec![ApiToken::from_token(local_user_name(), TokenRole::Admin, token.expose())],
            )
        };
        let running = match server::start_server(Arc::clone(&store), config, Arc::new(Clock::new())).await {
            Ok(running) => running,
            Err(error) => {
                store.close().await;
                return serve_failure(error);
            }
        };
        let address = running.url();
        looker.set_coordinator(&address, cx.home.load_or_create_token()?)?;
        Ok(Self { running, store, address })
    }

    /// The TLS address, if it serves TLS.
    pub(crate) fn tls_address(&self) -> Option<String> {
        self.running.tls_url()
    }

    /// The address for clients on this machine.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Shuts it down.
    pub(crate) async fn stop(self) {
        self.running.shutdown().await;
        self.store.close().await;
    }
}

/// The actor recorded in the log for what this home's token does. If no user name is known (a service, a
/// container), the host name distinguishes two coordinators of one store.
pub(crate) fn local_user_name() -> String {
    std::env::var("USER").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        host.map_or_else(|| "local".to_owned(), |host| format!("local@{host}"))
    })
}

/// Opens the store from the settings: the home's own database, or another.
pub(crate) async fn open_store(cx: &CliContext) -> CliResult<Arc<dyn Store>> {
    let store = match cx.config.store.as_deref() {
        None => open_sqlite(&cx.home.database_path()).await?,
        Some(address) => match address.strip_prefix("sqlite:") {
            Some(path) => open_sqlite(Path::new(path.trim_start_matches("//"))).await?,
            None => open_postgres(address).await?,
        },
    };
    Ok(match cx.config.blobs.external_blobs() {
        Some(outside) => Arc::new(store.with_external_blobs(outside)),
        None => Arc::new(store),
    })
}

async fn open_postgres(address: &str) -> CliResult<SqlStore> {
    match postgres::open(address).await {
        // A server that answered reports the problem itself.
        Err(error @ StoreError::Unavailable { .. }) if !error.is_from_database() => {
            // The part before the last @ may contain a password.
            let place = address.split_once("://").map_or(address, |(_, place)| place);
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            let place = place.split('?').next().unwrap_or_default();
            Err(error).fail_with(ExitKind::Unreachable, || {
                format!(
                    "no PostgreSQL server answers at {place}; is it running, and is DATABASE_URL (or --store) correct?"
                )
            })
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::ReadOnly { .. })) => {
            let why = std::error::Error::source(&error).map_or_else(String::new, |why| format!(" ({why})"));
            let message = format!("{error}{why}");
            Err(error).fail_with(ExitKind::Unreachable, || message)
        }
        opened => opened.fail_as(ExitKind::Unreachable),
    }
}

async fn open_sqlite(path: &Path) -> CliResult<SqlStore> {
    match sqlite::open(path).await {
        Err(error @ StoreError::Unavailable { .. }) => Err(error).fail_with(ExitKind::Unreachable, || {
            format!(
                "cannot open the database {}; does its folder exist, is it writable, and is DATABASE_URL (or \
                 --store) correct?",
                path.display()
            )
        }),
        opened => opened.fail_as(ExitKind::Unreachable),
    }
}

/// Entry point of a run process. Its output goes to its log; the supervisor forwards the end of it.
pub(crate) fn run_process_main() -> ExitCode {
    // The supervisor has the same variables and has already rejected invalid ones.
    if let Err(failure) = logging::init_logging(0) {
        return ExitCode::from(failure.exit.code());
    }
    let status = docket_worker::run::run_process_main();
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
