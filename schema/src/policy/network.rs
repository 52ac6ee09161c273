//! Network policy: which hosts commands may reach (E12), and the matching of a host against it.
//!
//! Invariant: names and patterns are compared in one normal form (IDNA, lower case, no trailing dot),
//! addresses only with addresses, and a destination is allowed only if every policy lists it.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Host;

use super::bounds::{PolicyError, check_texts, some_or_left_out};

/// Default limit of the bytes that one call may send and receive: enough for a toolchain, not for a mirror.
pub const NETWORK_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Network access of commands. Without it, they have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NetworkPolicy {
    /// Allowed hosts: `crates.io`, `*.crates.io:443`, `127.0.0.1:8080`. Default ports are 443 for TLS and 80
    /// for HTTP.
    pub hosts: Vec<String>,
    /// Patterns of the commands that get access, as in rules; empty means every command. In a shell line,
    /// every command must match.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Limit of the bytes that one call may send and receive; [`NETWORK_BYTES_MAX`] if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
}

impl NetworkPolicy {
    pub(super) fn check(&self) -> Result<(), PolicyError> {
        check_texts("network.hosts", &self.hosts)?;
        check_texts("network.commands", &self.commands)?;
        for (nth, host) in self.hosts.iter().enumerate() {
            if let Err(must) = host.parse::<HostPattern>() {
                return Err(PolicyError::new(format!("network.hosts[{nth}]"), format!("{must}: `{host}`")));
            }
        }
        if self.bytes_max == Some(0) {
            return Err(PolicyError::new("network.bytes_max", "must be at least 1"));
        }
        Ok(())
    }

    fn host_patterns(&self) -> Vec<HostPattern> {
        // Validated when the policy was read; an entry that does not parse allows nothing.
        self.hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }
}

/// A host in normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A host name.
    Name(String),
    /// An IP address; an IPv4 address written as IPv6 is converted to IPv4.
    Address(IpAddr),
}

impl HostName {
    /// Parses a host as in a URL; an IPv6 address may lack its brackets. `None` if it is not valid.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(address) = text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
            return Some(Self::Address(address.to_canonical()));
        }
        if text.contains('%') {
            return None;
        }
        match Host::parse(text.strip_suffix('.').unwrap_or(text)).ok()? {
            Host::Ipv4(address) => Some(Self::Address(address.into())),
            Host::Ipv6(address) => Some(Self::Address(IpAddr::from(address).to_canonical())),
            Host::Domain(name) => {
                let legal = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c);
                let label = |label: &str| (1..=63).contains(&label.len()) && label.chars().all(legal);
                (name.len() <= 253 && name.split('.').all(label)).then_some(Self::Name(name))
            }
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Address(IpAddr::V4(address)) => write!(f, "{address}"),
            Self::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

/// How a host is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// Through a tunnel, with TLS.
    Tunnel,
    /// By plain HTTP.
    Plain,
}

impl ConnectionKind {
    /// Returns the default port.
    const fn default_port(self) -> u16 {
        match self {
            Self::Tunnel => 443,
            Self::Plain => 80,
        }
    }
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// The host.
    pub host: HostName,
    /// The port.
    pub port: u16,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// Splits `HOST`, `HOST:PORT`, `[ADDRESS]:PORT` or a bare IPv6 address.
fn split_port(text: &str) -> Option<(&str, Option<u16>)> {
    let digits = |port: &str| -> Option<u16> {
        let port = port.bytes().all(|byte| byte.is_ascii_digit()).then(|| port.parse().ok())??;
        (port > 0).then_some(port)
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (_, after) = rest.split_once(']')?;
        let host = text.get(..text.len() - after.len())?;
        return match after.strip_prefix(':') {
            Some(port) => Some((host, Some(digits(port)?))),
            None => after.is_empty().then_some((host, None)),
        };
    }
    match text.split_once(':') {
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((host, port)) => Some((host, Some(digits(port)?))),
        None => Some((text, None)),
    }
}

impl HostPort {
    /// Parses `HOST:PORT` from a request. `None` if it is not valid.
    pub fn parse(text: &str, port: Option<u16>) -> Option<Self> {
        let (host, named) = split_port(text)?;
        Some(Self { host: HostName::parse(host)?, port: named.or(port)? })
    }
}

/// A listed host or wildcard.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: HostName,
    /// Matches subdomains only, not the name itself.
    subdomains_only: bool,
    port: Option<u16>,
}

/// The requirement for an entry of `hosts`.
const HOST_PATTERN_RULE: &str = "must be a host, `*.` and a name of two parts or more, or an address, optionally with a port, \
                    such as crates.io, *.crates.io:443, 127.0.0.1:8080 or [::1]:80";

impl FromStr for HostPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = split_port(text).ok_or(HOST_PATTERN_RULE)?;
        let (below, host) = match host.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, host),
        };
        match HostName::parse(host).ok_or(HOST_PATTERN_RULE)? {
            HostName::Address(_) if below => Err(HOST_PATTERN_RULE),
            HostName::Name(name) if below && !name.contains('.') => Err(HOST_PATTERN_RULE),
            host => Ok(Self { host, subdomains_only: below, port }),
        }
    }
}

impl HostPattern {
    fn matches(&self, place: &HostPort, way: ConnectionKind) -> bool {
        if place.port != self.port.unwrap_or_else(|| way.default_port()) {
            return false;
        }
        match (&self.host, &place.host) {
            (HostName::Name(suffix), HostName::Name(name)) if self.subdomains_only => {
                name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (own, host) => !self.subdomains_only && own == host,
        }
    }
}

/// The destinations that one call may reach: with several policies, only those that each of them lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    pattern_lists: Vec<Vec<HostPattern>>,
    listed_hosts: String,
    /// Limit of the bytes that the call may send and receive.
    pub bytes_max: u64,
}

/// Number of hosts listed in a refusal.
const LISTED_HOSTS_MAX: usize = 10;

impl AllowList {
    /// Builds the list from these policies; `None` if there are none.
    pub fn from_policies<'a>(networks: impl IntoIterator<Item = &'a NetworkPolicy>) -> Option<Self> {
        let networks: Vec<&NetworkPolicy> = networks.into_iter().collect();
        let bytes_max = networks.iter().map(|one| one.bytes_max.unwrap_or(NETWORK_BYTES_MAX)).min()?;
        let lists = networks.iter().map(|one| one.host_patterns()).collect();
        // The shortest list is the most informative: nothing beyond it is allowed.
        let narrowest = networks.iter().min_by_key(|one| one.hosts.len())?;
        let mut told: Vec<&str> = narrowest.hosts.iter().take(LISTED_HOSTS_MAX).map(String::as_str).collect();
        if narrowest.hosts.len() > LISTED_HOSTS_MAX {
            told.push("…");
        }
        Some(Self { pattern_lists: lists, listed_hosts: told.join(", "), bytes_max })
    }

    /// Whether this destination may be reached with this kind of connection.
    pub fn allows(&self, place: &HostPort, way: ConnectionKind) -> bool {
        self.pattern_lists.iter().all(|list| list.iter().any(|pattern| pattern.matches(place, way)))
    }

    /// Returns the first hosts of the narrowest list, for people and models.
    pub fn listed_hosts(&self) -> &str {
        &self.listed_hosts
    }

    /// Returns what programs reach without the proxy: their own servers. A listed loopback address is
    /// excluded, because it means the host's.
    pub fn no_proxy(&self) -> String {
        let listed = |address: &str| {
            let address: Option<IpAddr> = address.parse().ok();
            let mut all = self.pattern_lists.iter().flatten();
            all.any(|pattern| address.is_some_and(|address| pattern.host == HostName::Address(address)))
        };
        let own = ["localhost", "127.0.0.1", "::1"];
        own.into_iter().filter(|own| !listed(own)).collect::<Vec<_>>().join(",")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::PARTS_MAX;

    fn list(hosts: &[&str]) -> NetworkPolicy {
        NetworkPolicy {
            hosts: hosts.iter().map(|&host| host.to_owned()).collect(),
            ..NetworkPolicy::default()
        }
    }

    fn allows(networks: &[NetworkPolicy], place: &str, way: ConnectionKind) -> bool {
        let list = AllowList::from_policies(networks).expect("one at least");
        HostPort::parse(place, Some(way.default_port())).is_some_and(|place| list.allows(&place, way))
    }

    #[test]
    fn hosts_are_normalized_and_patterns_match_only_what_they_name() {
        use ConnectionKind::{Plain, Tunnel};
        let one = [list(&[
            "Crates.IO.",
            "*.rust-lang.org:8443",
            "127.0.0.1:8080",
            "bücher.example",
            "[::1]:80",
            "2606:4700::1111",
        ])];
        for (place, way, is) in [
            ("crates.io", Tunnel, true),
            ("CRATES.io.:443", Tunnel, true),
            ("crates.io", Plain, true),
            ("crates.io:80", Tunnel, false),
            ("crates.io:443", Plain, false),
            ("crates.io:8443", Tunnel, false),
            ("evilcrates.io", Tunnel, false),
            ("crates.io.evil.example", Tunnel, false),
            ("a.crates.io", Tunnel, false),
            ("static.rust-lang.org:8443", Tunnel, true),
            ("a.b.rust-lang.org:8443", Plain, true),
            ("rust-lang.org:8443", Tunnel, false),
            (".rust-lang.org:8443", Tunnel, false),
            ("xrust-lang.org:8443", Tunnel, false),
            ("static.rust-lang.org", Tunnel, false),
            ("127.0.0.1:8080", Plain, true),
            ("127.1:8080", Plain, true),
            ("0x7f000001:8080", Plain, true),
            ("[::ffff:127.0.0.1]:8080", Plain, true),
            ("127.0.0.1:8081", Plain, false),
            ("127.0.0.2:8080", Plain, false),
            ("xn--bcher-kva.example", Tunnel, true),
            ("BÜCHER.example", Tunnel, true),
            ("[::1]:80", Plain, true),
            ("[0:0::1]:80", Plain, true),
            ("[2606:4700::1111]", Tunnel, true),
            ("crates.io:0", Tunnel, false),
            ("crates.io:", Tunnel, false),
            ("crates%2Eio", Tunnel, false),
            ("crates.io@evil", Tunnel, false),
            ("", Tunnel, false),
        ] {
            assert_eq!(allows(&one, place, way), is, "{place}");
        }
    }

    #[test]
    fn host_must_be_listed_by_every_policy() {
        let wide = NetworkPolicy { bytes_max: Some(5), ..list(&["*.example.org", "a.example.org", "b.net"]) };
        let both = [wide, list(&["a.example.org", "c.net"])];
        for (place, is) in
            [("a.example.org", true), ("x.example.org", false), ("b.net", false), ("c.net", false)]
        {
            assert_eq!(allows(&both, place, ConnectionKind::Tunnel), is, "{place}");
        }
        let list = AllowList::from_policies(&both).expect("two");
        assert_eq!((list.listed_hosts(), list.bytes_max), ("a.example.org, c.net", 5));
        assert_eq!(AllowList::from_policies([]), None);
    }

    #[test]
    fn loopback_bypasses_the_proxy_unless_it_is_listed() {
        let of = |hosts: &[&str]| AllowList::from_policies(&[list(hosts)]).expect("one").no_proxy();
        assert_eq!(of(&["crates.io"]), "localhost,127.0.0.1,::1");
        assert_eq!(of(&["127.0.0.1:80"]), "localhost,::1");
    }

    #[test]
    fn invalid_host_is_reported_with_its_field() {
        for bad in [
            "*",
            "*.com",
            "*.",
            "*.127.0.0.1",
            "a..b",
            "https://x.org",
            "x.org/a",
            "x.org:0",
            "x.org:99999",
            "x.org:http",
            "a b",
            "[::1",
            "*x.org",
            "a.*.org",
            "x.org:443:1:",
            "[::1%eth0]",
        ] {
            let error = list(&["ok.example", bad]).check().expect_err(bad);
            assert_eq!(error.field, "network.hosts[1]", "{bad}");
        }
        let zero = NetworkPolicy { bytes_max: Some(0), ..list(&["a.org"]) };
        assert_eq!(zero.check().expect_err("zero").field, "network.bytes_max");
        let many = list(&["a.org"; PARTS_MAX + 1]);
        assert_eq!(many.check().expect_err("many").field, "network.hosts");
    }

    proptest! {
        #[test]
        fn host_parsing_never_panics_and_round_trips(text in "[ -~äß]{0,40}") {
            if let Some(place) = HostPort::parse(&text, Some(443)) {
                prop_assert_eq!(HostPort::parse(&place.to_string(), None), Some(place));
            }
            let _ = text.parse::<HostPattern>();
        }
    }
}
