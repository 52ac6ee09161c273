//! Decides which model servers a worker contacts, and which of them receive its key. A task names a server,
//! but its submitter is not necessarily the worker's owner, so the owner lists servers (`worker.base_urls`).
//! Pure.
//!
//! Invariant: a key is sent only to its provider's own address and to listed servers.

use docket_schema::message::ModelRef;
use reqwest::Url;

use super::{
    ModelProvider,
    client::{is_loopback, is_on_local_server},
    error::ModelError,
};

/// The trust in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServerTrust {
    /// The provider itself or a listed server: it receives the key, and its error messages are shown.
    Full,
    /// An unlisted server on this machine, such as a local model without a key. It receives no key, and only
    /// the status of its errors is shown, because it may not be a model server at all.
    Keyless,
}

/// An entry of the list: scheme, host and port are significant.
#[derive(Debug)]
struct AllowedServer {
    url: Url,
    any_port: bool,
}

impl AllowedServer {
    /// Parses `http://127.0.0.1:11434`, optionally followed by a path; `:*` means any port.
    fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.trim().split_once("://")?;
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (host, any_port) = match authority.strip_suffix(":*") {
            Some(host) => (host, true),
            None => (authority, false),
        };
        let url = Url::parse(&format!("{scheme}://{host}/")).ok()?;
        let is_bare = url.username().is_empty() && url.password().is_none();
        let legal = matches!(url.scheme(), "http" | "https") && url.has_host() && is_bare;
        legal.then_some(Self { url, any_port })
    }

    fn matches(&self, url: &Url) -> bool {
        self.url.scheme() == url.scheme()
            && self.url.host() == url.host()
            && (self.any_port || self.url.port_or_known_default() == url.port_or_known_default())
    }
}

/// Whether `text` is valid in `worker.base_urls`.
#[must_use]
pub fn is_valid_allowlist_entry(text: &str) -> bool {
    AllowedServer::parse(text).is_some()
}

/// Whether a provider's key is sent only to servers on this machine in a run with these models: all listed
/// servers are local, and no model uses the provider's own address. `key_name` is
/// [`ModelProvider::key_name`]. Unknown cases count as no: the key is then treated as a secret even if it is
/// short.
pub(crate) fn is_key_used_only_locally(key_name: &str, models: &[ModelRef], listed: &[String]) -> bool {
    let is_of_key =
        |model: &&ModelRef| ModelProvider::for_model(model).is_ok_and(|one| one.key_name() == key_name);
    let mut asked = models.iter().filter(is_of_key).peekable();
    let is_asked = asked.peek().is_some();
    is_asked
        && asked.all(is_on_local_server)
        && !listed.is_empty()
        && listed.iter().all(|text| AllowedServer::parse(text).is_some_and(|listed| is_loopback(&listed.url)))
}

/// Returns the trust in the server of `model` at `url`, if the provider's own address is `own`; `None` if it
/// must not be contacted.
pub(super) fn server_trust(
    (model, own): (&ModelRef, &str),
    url: &Url,
    listed: &[String],
) -> Option<ServerTrust> {
    if model.base_url.is_none() {
        return Some(ServerTrust::Full);
    }
    let mut known = listed.iter().map(String::as_str).chain([own]).filter_map(AllowedServer::parse);
    if known.any(|known| known.matches(url)) {
        return Some(ServerTrust::Full);
    }
    is_loopback(url).then_some(ServerTrust::Keyless)
}

/// Removes the message of an unlisted server from an error.
pub(super) fn redact_server_message(error: ModelError, status: u16) -> ModelError {
    let said = || {
        format!(
            "status {status}; its worker does not list this server in worker.base_urls, so it gets no key and its words are \
             not repeated"
        )
    };
    match error {
        ModelError::SpendLimit { .. } => ModelError::SpendLimit { message: said() },
        ModelError::Unauthorized { .. } => ModelError::KeyWithheld { status },
        ModelError::Forbidden { .. } => ModelError::Forbidden { message: said() },
        ModelError::InvalidRequest { .. } => ModelError::InvalidRequest { message: said() },
        ModelError::ContextTooLong { .. } => ModelError::ContextTooLong { message: said() },
        ModelError::Protocol { .. } => ModelError::Protocol { detail: said() },
        error @ (ModelError::RateLimited { .. }
        | ModelError::Overloaded { .. }
        | ModelError::Server { .. }
        | ModelError::NoKey { .. }
        | ModelError::KeyWithheld { .. }
        | ModelError::CutStream
        | ModelError::Timeout { .. }
        | ModelError::Connect { .. }) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::client::{ANTHROPIC_BASE_URL, OPENAI_BASE_URL},
        *,
    };

    #[test]
    fn key_is_local_only_if_its_provider_is_used_on_this_machine_only() {
        let model = |provider: &str, base: Option<&str>| ModelRef {
            provider: provider.to_owned(),
            name: "m".to_owned(),
            base_url: base.map(str::to_owned),
        };
        let here = Some("http://127.0.0.1:11434/v1");
        let listed = ["http://127.0.0.1:11434".to_owned()];
        let models = [model("openai", here), model("anthropic", None)];
        assert!(is_key_used_only_locally("openai", &models, &listed));
        assert!(!is_key_used_only_locally("anthropic", &models, &listed), "its own address");
        let both = [model("openai", here), model("openai-responses", None)];
        assert!(!is_key_used_only_locally("openai", &both, &listed), "one key, two protocols");
        assert!(!is_key_used_only_locally("anthropic", &both, &listed), "not asked here");
        assert!(!is_key_used_only_locally("openai", &models, &[]), "no server gets it in this run");
        let remote = [listed[0].clone(), "https://models.example".to_owned()];
        assert!(!is_key_used_only_locally("openai", &models, &remote));
    }

    #[test]
    fn key_goes_only_to_its_provider_and_listed_servers() {
        let listed =
            ["https://models.example/v1", "http://127.0.0.1:11434", "http://[::1]:*"].map(str::to_owned);
        use ServerTrust::{Full, Keyless};
        for (provider, base, expected) in [
            ("anthropic", None, Some(Full)),
            ("anthropic", Some("https://api.anthropic.com"), Some(Full)),
            ("anthropic", Some("https://API.anthropic.com:443/v1"), Some(Full)),
            ("openai", Some("https://api.openai.com/v1"), Some(Full)),
            // Another provider's server, or the key in plain text.
            ("openai", Some("https://api.anthropic.com"), None),
            ("openai", Some("http://api.openai.com/v1"), None),
            ("openai", Some("https://api.openai.com:8443/v1"), None),
            ("openai", Some("https://api.openai.com.evil.example/v1"), None),
            ("openai", Some("https://models.example/other"), Some(Full)),
            ("openai-responses", Some("https://models.example:443"), Some(Full)),
            ("openai", Some("http://models.example/v1"), None),
            ("openai", Some("https://models.example:444/v1"), None),
            ("openai", Some("http://127.0.0.1:11434/v1"), Some(Full)),
            ("openai", Some("http://127.0.0.1:11435/v1"), Some(Keyless)),
            ("openai", Some("http://127.0.0.2:11434/v1"), Some(Keyless)),
            ("openai", Some("http://localhost:11434/v1"), Some(Keyless)),
            ("openai", Some("http://2130706433:1/v1"), Some(Keyless)),
            ("openai", Some("http://[::1]:7/v1"), Some(Full)),
            // Cloud metadata, and other services in a worker's network.
            ("openai", Some("http://169.254.169.254/latest"), None),
            ("openai", Some("http://10.0.0.1"), None),
            ("openai", Some("http://0.0.0.0:11434"), None),
            ("openai", Some("http://localhost.example"), None),
        ] {
            let base_url = base.map(str::to_owned);
            let model = ModelRef { provider: provider.to_owned(), name: "m".to_owned(), base_url };
            let own = if provider == "anthropic" { ANTHROPIC_BASE_URL } else { OPENAI_BASE_URL };
            let url = Url::parse(base.unwrap_or(own)).expect("an address");
            assert_eq!(server_trust((&model, own), &url, &listed), expected, "{provider} {base:?}");
        }
    }

    #[test]
    fn allowlist_entries_must_name_a_server() {
        for good in ["http://h", "https://h:1/v1/", "http://127.0.0.1:*", "http://[::1]:*/v1"] {
            assert!(is_valid_allowlist_entry(good), "{good}");
        }
        for bad in ["", "h", "h:1", "ftp://h", "http://", "http://a:b@h", "http://:*", "*", "http://h:x"] {
            assert!(!is_valid_allowlist_entry(bad), "{bad}");
        }
    }
}
