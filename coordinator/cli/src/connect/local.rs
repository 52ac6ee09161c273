//! The parts of docket that run in this process: store, coordinator, supervisor, and the two kinds of
//! process that docket starts itself as.

use std::{net::SocketAddr, path::Path, process::ExitCode, sync::Arc};

use docket_coordinator::{
    archive::{ArchiveDies, ArchiveSettings, Retention},
    clock::Clock,
    http::{AnswerLost, ApiToken, Rates, Role},
    notify::Notifier,
    past::Past,
    server::{self, Exposure, Notices, Running, ServeError, ServerConfig, TlsIdentity},
    store::{SqlStore, Store, StoreError, postgres, sqlite},
};

use crate::{
    commands::admin::notify::Targets,
    config::CONNECTIONS_MAX,
    connect::logging,
    context::Context,
    history::looker::Looker,
    output::fail::{Exit, FailWith as _, Outcome},
};

/// Providers and the variables their keys come in.
pub(crate) const KEYS: [(&str, &str); 2] = [("anthropic", "ANTHROPIC_API_KEY"), ("openai", "OPENAI_API_KEY")];

/// How long requests in hand may take when the coordinator ends.
const SHUTDOWN_GRACE_MS: u64 = 5000;

/// How a coordinator in this process is reached.
pub(crate) struct Listening {
    /// Where.
    pub(crate) at: String,
    /// By whom.
    pub(crate) exposure: Exposure,
    /// With TLS.
    pub(crate) tls: Option<TlsIdentity>,
    /// Tests only: where it dies.
    pub(crate) answers_lost: Vec<AnswerLost>,
    /// Tests only: where it dies while it archives.
    pub(crate) archive_dies: Option<ArchiveDies>,
    /// What it archives by itself.
    pub(crate) retention: Retention,
    /// Whether it tells people and programs elsewhere.
    pub(crate) notices: Notices,
}

impl Listening {
    /// For a command of this machine, while it lasts.
    pub(crate) fn for_a_moment() -> Self {
        let at = "127.0.0.1:0".to_owned();
        let ArchiveSettings { retention, .. } = ArchiveSettings::default();
        Self {
            at,
            exposure: Exposure::Loopback,
            tls: None,
            answers_lost: Vec::new(),
            archive_dies: None,
            retention,
            notices: Notices::Shown,
        }
    }

    /// Checks that it could be listened so now.
    pub(crate) async fn check(&self) -> Outcome<()> {
        match server::check_listen(bind_of(&self.at)?, self.exposure, self.tls.as_ref()).await {
            Ok(()) => Ok(()),
            Err(error) => cannot_serve(error),
        }
    }
}

fn bind_of(at: &str) -> Outcome<SocketAddr> {
    at.parse().fail_with(Exit::Usage, || format!("`{at}` is no address; it must look like 127.0.0.1:7117"))
}

fn cannot_serve<T>(error: ServeError) -> Outcome<T> {
    let exit = match error {
        ServeError::NotLoopback(_) | ServeError::Times { .. } => Exit::Usage,
        ServeError::PortInUse(_)
        | ServeError::Bind { .. }
        | ServeError::Store(_)
        | ServeError::Tokens(_)
        | ServeError::Notifications(_)
        | ServeError::Limits(_) => Exit::Failed,
    };
    Err(error).fail_as(exit)
}

/// A coordinator in this process, and the store under it.
pub(crate) struct Local {
    running: Running,
    store: Arc<dyn Store>,
    address: String,
}

impl Local {
    /// Opens the store and serves it.
    pub(crate) async fn start(cx: &Context, listening: Listening) -> Outcome<Self> {
        let Listening { at, exposure, tls, answers_lost, archive_dies, retention, notices } = listening;
        let bind = bind_of(&at)?;
        let settings = &cx.config.server;
        let token = cx.home.token()?;
        let targets = Targets::new(cx, notices)?;
        let store = open_store(cx).await?;
        let looker = Arc::new(Looker::new(cx)?);
        let config = ServerConfig {
            bind,
            exposure,
            tls,
            hosts: settings.hosts.clone(),
            lease_ms: settings.lease_ms,
            heartbeat_ms: settings.lease_ms / 3,
            connections_max: CONNECTIONS_MAX,
            connections_per_peer: settings.connections_per_peer,
            rates: Rates {
                requests_per_second: settings.requests_per_second,
                auth_failures_per_minute: settings.auth_failures_per_minute,
            },
            shutdown_grace_ms: SHUTDOWN_GRACE_MS,
            redactor: cx.config.redactor(),
            archive: ArchiveSettings {
                to: cx.config.archive.to.clone(),
                retention,
                scratch: cx.home.folder("scratch")?,
                dies: archive_dies,
                ..ArchiveSettings::default()
            },
            past: Some(Arc::clone(&looker) as Arc<dyn Past>),
            notifier: Some(Arc::new(targets) as Arc<dyn Notifier>),
            notices,
            answers_lost,
            ..ServerConfig::loopback(0, vec![ApiToken::of(user(), Role::Admin, token.expose())])
        };
        let running = match server::start(Arc::clone(&store), config, Arc::new(Clock::new())).await {
            Ok(running) => running,
            Err(error) => {
                store.close().await;
                return cannot_serve(error);
            }
        };
        let address = running.url();
        looker.reaches(&address, cx.home.token()?)?;
        Ok(Self { running, store, address })
    }

    /// Where it answers with TLS, if it does.
    pub(crate) fn tls_address(&self) -> Option<String> {
        self.running.tls_url()
    }

    /// Where it answers whoever is on this machine.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// The store under it.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        Arc::clone(&self.store)
    }

    /// Ends it.
    pub(crate) async fn stop(self) {
        self.running.shutdown().await;
        self.store.close().await;
    }
}

/// Who stands in the log for what this home's token does. Where nobody has a name (a service, a container), the
/// machine's tells two coordinators of one store apart.
pub(crate) fn user() -> String {
    std::env::var("USER").ok().filter(|name| !name.is_empty()).unwrap_or_else(|| {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        host.map_or_else(|| "local".to_owned(), |host| format!("local@{host}"))
    })
}

/// Opens the store that the settings name: the home's own database, or another.
pub(crate) async fn open_store(cx: &Context) -> Outcome<Arc<dyn Store>> {
    let store = match cx.config.store.as_deref() {
        None => sqlite_at(&cx.home.database()).await?,
        Some(address) => match address.strip_prefix("sqlite:") {
            Some(path) => sqlite_at(Path::new(path.trim_start_matches("//"))).await?,
            None => postgres_at(address).await?,
        },
    };
    Ok(match cx.config.blobs.outside() {
        Some(outside) => Arc::new(store.with_blobs(outside)),
        None => Arc::new(store),
    })
}

async fn postgres_at(address: &str) -> Outcome<SqlStore> {
    match postgres::open(address).await {
        // A server that has answered says itself what is wrong.
        Err(error @ StoreError::Unavailable { .. }) if !error.is_from_database() => {
            // What stands before the last @ may hold a password.
            let place = address.split_once("://").map_or(address, |(_, place)| place);
            let place = place.rsplit_once('@').map_or(place, |(_, place)| place);
            let place = place.split('?').next().unwrap_or_default();
            Err(error).fail_with(Exit::Unreachable, || {
                format!(
                    "no PostgreSQL answers at {place}; is it running, and is DATABASE_URL (or --store) right?"
                )
            })
        }
        Err(error @ (StoreError::Unavailable { .. } | StoreError::ReadOnly { .. })) => {
            let why = std::error::Error::source(&error).map_or_else(String::new, |why| format!(" ({why})"));
            let message = format!("{error}{why}");
            Err(error).fail_with(Exit::Unreachable, || message)
        }
        opened => opened.fail_as(Exit::Unreachable),
    }
}

async fn sqlite_at(path: &Path) -> Outcome<SqlStore> {
    match sqlite::open(path).await {
        Err(error @ StoreError::Unavailable { .. }) => Err(error).fail_with(Exit::Unreachable, || {
            format!(
                "cannot open the database {}; is its folder there, may you write to it, and is DATABASE_URL (or \
                 --store) right?",
                path.display()
            )
        }),
        opened => opened.fail_as(Exit::Unreachable),
    }
}

/// The life of a run process. What it says goes to its log, whose end its supervisor passes on.
pub(crate) fn run_process() -> ExitCode {
    // Its supervisor was started with the same variables, and refused them where they are wrong.
    if let Err(failure) = logging::start(0) {
        return ExitCode::from(failure.exit.code());
    }
    let status = docket_worker::run::run_process_main();
    ExitCode::from(u8::try_from(status).unwrap_or(u8::MAX))
}
