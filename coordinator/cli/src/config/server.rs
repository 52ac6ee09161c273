//! Settings of a coordinator, and of clients of a remote one.

use std::path::PathBuf;

use super::{SettingKey, parse_number_into};
use crate::output::error::{CliError, CliResult, ExitKind};

/// Maximum number of connections at once; each run process keeps a few open.
pub(crate) const CONNECTIONS_MAX: u32 = 4096;

/// Server settings of `serve` and `up`.
#[derive(Debug, Clone)]
pub(crate) struct ServerSettings {
    /// The address to listen on.
    pub(crate) listen: String,
    /// How long a lease lasts without a heartbeat.
    pub(crate) lease_ms: u64,
    /// Host names accepted for the coordinator, in addition to its addresses.
    pub(crate) hosts: Vec<String>,
    /// The public URL of the dashboard, used in links.
    pub(crate) public_url: Option<String>,
    /// The TLS certificate, in PEM.
    pub(crate) tls_cert: Option<PathBuf>,
    /// The TLS private key, in PEM.
    pub(crate) tls_key: Option<PathBuf>,
    /// Requests per second allowed for one token.
    pub(crate) requests_per_second: u32,
    /// Failed authentications per minute allowed for one address.
    pub(crate) auth_failures_per_minute: u32,
    /// Connections allowed from one remote address.
    pub(crate) connections_per_peer: u32,
}

impl Default for ServerSettings {
    fn default() -> Self {
        let rates = docket_coordinator::http::RateLimits::default();
        Self {
            listen: "127.0.0.1:7117".to_owned(),
            lease_ms: 30_000,
            hosts: Vec::new(),
            public_url: None,
            tls_cert: None,
            tls_key: None,
            requests_per_second: rates.requests_per_second,
            auth_failures_per_minute: rates.auth_failures_per_minute,
            connections_per_peer: CONNECTIONS_MAX / 4,
        }
    }
}

impl ServerSettings {
    /// Requires the TLS certificate and key to be set together.
    pub(crate) fn validate(&self) -> CliResult<()> {
        if self.tls_cert.is_some() == self.tls_key.is_some() {
            return Ok(());
        }
        let message = "the TLS certificate and key must be set together: give --tls-cert and --tls-key, or set \
                       server.tls_cert and server.tls_key";
        Err(CliError::new(ExitKind::Usage, message))
    }
}

/// Whether `text` is the address of a store.
pub(crate) fn is_store_address(text: &str) -> bool {
    ["sqlite:", "postgres://", "postgresql://"].iter().any(|scheme| text.starts_with(scheme))
}

/// Parses a comma-separated list of host names.
fn parse_hosts(text: &str) -> Option<Vec<String>> {
    let names: Vec<&str> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    let legal = |name: &&str| {
        name.len() <= 253
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_'))
    };
    names.iter().all(legal).then(|| names.iter().map(ToString::to_string).collect())
}

fn parse_absolute_path(text: &str) -> Option<PathBuf> {
    let path = PathBuf::from(text);
    path.is_absolute().then_some(path)
}

/// Parses a URL without path details or user information.
fn parse_public_url(text: &str) -> Option<String> {
    let url = url::Url::parse(text).ok()?;
    let good = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    good.then(|| text.trim_end_matches('/').to_owned())
}

pub(super) static SERVER_KEYS: [SettingKey; 11] = [
    SettingKey {
        name: "server.listen",
        env: "DOCKET_LISTEN",
        allowed: "ADDRESS:PORT, such as 127.0.0.1:7117; port 0 picks a free one",
        set: |c, t| t.parse::<std::net::SocketAddr>().ok().map(|_| t.clone_into(&mut c.server.listen)),
    },
    SettingKey {
        name: "server.store",
        env: "DATABASE_URL",
        allowed: "sqlite:PATH or postgres://USER:PASSWORD@HOST/DATABASE",
        set: |c, t| is_store_address(t).then(|| c.store = Some(t.to_owned())),
    },
    SettingKey {
        name: "server.lease_ms",
        env: "DOCKET_LEASE_MS",
        allowed: "milliseconds from 200 to 3600000",
        set: |c, t| {
            parse_number_into(t, 200..=docket_coordinator::store::LEASE_MS_MAX, &mut c.server.lease_ms)
        },
    },
    SettingKey {
        name: "server.hosts",
        env: "DOCKET_HOSTS",
        allowed: "host names without a port; comma-separated in the environment",
        set: |c, t| parse_hosts(t).map(|names| c.server.hosts = names),
    },
    SettingKey {
        name: "server.public_url",
        env: "DOCKET_PUBLIC_URL",
        allowed: "an address like https://docket.example",
        set: |c, t| parse_public_url(t).map(|url| c.server.public_url = Some(url)),
    },
    SettingKey {
        name: "server.tls_cert",
        env: "DOCKET_TLS_CERT",
        allowed: "the absolute path of a PEM file of certificates, the server's own first",
        set: |c, t| parse_absolute_path(t).map(|path| c.server.tls_cert = Some(path)),
    },
    SettingKey {
        name: "server.tls_key",
        env: "DOCKET_TLS_KEY",
        allowed: "the absolute path of a PEM private key that others cannot read",
        set: |c, t| parse_absolute_path(t).map(|path| c.server.tls_key = Some(path)),
    },
    SettingKey {
        name: "server.requests_per_second",
        env: "DOCKET_REQUESTS_PER_SECOND",
        allowed: "a whole number from 1 to 1000000",
        set: |c, t| parse_number_into(t, 1..=1_000_000, &mut c.server.requests_per_second),
    },
    SettingKey {
        name: "server.auth_failures_per_minute",
        env: "DOCKET_AUTH_FAILURES_PER_MINUTE",
        allowed: "a whole number from 1 to 1000000",
        set: |c, t| parse_number_into(t, 1..=1_000_000, &mut c.server.auth_failures_per_minute),
    },
    SettingKey {
        name: "server.connections_per_peer",
        env: "DOCKET_CONNECTIONS_PER_PEER",
        allowed: "a whole number from 1 to 4096",
        set: |c, t| parse_number_into(t, 1..=u64::from(CONNECTIONS_MAX), &mut c.server.connections_per_peer),
    },
    SettingKey {
        name: "client.ca",
        env: "DOCKET_CA",
        allowed: "the absolute path of a PEM file of certificates",
        set: |c, t| parse_absolute_path(t).map(|path| c.ca_file = Some(path)),
    },
];
