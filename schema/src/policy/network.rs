//! Which hosts commands may reach (E12). Data, and how a host is held against it; whoever connects asks here.
//!
//! Invariant: a name and its pattern are compared in one normal form (IDNA, lower case, no dot at the end), an
//! address only with an address, and a place is allowed only if every policy lists it.

use std::{fmt, net::IpAddr, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Host;

use super::bounds::{PolicyError, check_texts, some_or_left_out};

/// Bytes that one call may send and receive where a policy says nothing: a toolchain, not a mirror.
pub const NETWORK_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// What of the network commands may reach. Without it: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// Hosts: `crates.io`, `*.crates.io:443`, `127.0.0.1:8080`. Without a port: 443 by TLS and 80 by HTTP.
    pub hosts: Vec<String>,
    /// Patterns of the commands that get it, as rules have them; empty = every command. Of a shell line each
    /// command must be like one of them.
    #[serde(default, deserialize_with = "some_or_left_out", skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Bytes that one call may send and receive; none = [`NETWORK_BYTES_MAX`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
}

impl Network {
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

    fn patterns(&self) -> Vec<HostPattern> {
        // Checked where the policy was read; what does not parse allows nothing.
        self.hosts.iter().filter_map(|host| host.parse().ok()).collect()
    }
}

/// A host in its normal form.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostName {
    /// A name.
    Name(String),
    /// An address; one of IPv4 that is written as IPv6 is one of IPv4.
    Address(IpAddr),
}

impl HostName {
    /// Reads a host as a URL has it; an address of IPv6 may lack its brackets. `None` where it is none.
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

/// How a place is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through a tunnel, by TLS.
    Tunnel,
    /// By plain HTTP.
    Plain,
}

impl Way {
    /// The port of an entry that names none.
    const fn port(self) -> u16 {
        match self {
            Self::Tunnel => 443,
            Self::Plain => 80,
        }
    }
}

/// A host and its port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The host.
    pub host: HostName,
    /// Its port.
    pub port: u16,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`, and a bare address of IPv6, taken apart.
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

impl Place {
    /// Reads `HOST:PORT`, as a request has it. `None` where it is none.
    pub fn parse(text: &str, port: Option<u16>) -> Option<Self> {
        let (host, named) = split_port(text)?;
        Some(Self { host: HostName::parse(host)?, port: named.or(port)? })
    }
}

/// A host that is listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPattern {
    host: HostName,
    /// Names below it are meant, it itself is not.
    below: bool,
    port: Option<u16>,
}

/// What an entry of `hosts` must be.
const MUST: &str = "must be a host, `*.` and a name of two parts or more, or an address, with a port where it is meant, \
                    as crates.io, *.crates.io:443, 127.0.0.1:8080 or [::1]:80";

impl FromStr for HostPattern {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, port) = split_port(text).ok_or(MUST)?;
        let (below, host) = match host.strip_prefix("*.") {
            Some(host) => (true, host),
            None => (false, host),
        };
        match HostName::parse(host).ok_or(MUST)? {
            HostName::Address(_) if below => Err(MUST),
            HostName::Name(name) if below && !name.contains('.') => Err(MUST),
            host => Ok(Self { host, below, port }),
        }
    }
}

impl HostPattern {
    fn lists(&self, place: &Place, way: Way) -> bool {
        if place.port != self.port.unwrap_or_else(|| way.port()) {
            return false;
        }
        match (&self.host, &place.host) {
            (HostName::Name(suffix), HostName::Name(name)) if self.below => {
                name.strip_suffix(suffix.as_str()).is_some_and(|rest| rest.len() > 1 && rest.ends_with('.'))
            }
            (own, host) => !self.below && own == host,
        }
    }
}

/// What one call may reach: of several policies only what each of them lists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AllowList {
    lists: Vec<Vec<HostPattern>>,
    told: String,
    /// Bytes that the call may send and receive.
    pub bytes_max: u64,
}

/// Hosts that a refusal names.
const TOLD_MAX: usize = 10;

impl AllowList {
    /// The list of these policies; `None` without any.
    pub fn of<'a>(networks: impl IntoIterator<Item = &'a Network>) -> Option<Self> {
        let networks: Vec<&Network> = networks.into_iter().collect();
        let bytes_max = networks.iter().map(|one| one.bytes_max.unwrap_or(NETWORK_BYTES_MAX)).min()?;
        let lists = networks.iter().map(|one| one.patterns()).collect();
        // The shortest tells most: nothing beyond it is allowed.
        let narrowest = networks.iter().min_by_key(|one| one.hosts.len())?;
        let mut told: Vec<&str> = narrowest.hosts.iter().take(TOLD_MAX).map(String::as_str).collect();
        if narrowest.hosts.len() > TOLD_MAX {
            told.push("…");
        }
        Some(Self { lists, told: told.join(", "), bytes_max })
    }

    /// Whether a place may be reached this way.
    pub fn allows(&self, place: &Place, way: Way) -> bool {
        self.lists.iter().all(|list| list.iter().any(|pattern| pattern.lists(place, way)))
    }

    /// The first hosts of the narrowest list, for people and models.
    pub fn told(&self) -> &str {
        &self.told
    }

    /// What programs reach without the proxy: servers of their own. An address of loopback that is listed is not
    /// among these, for it is the host's that is meant.
    pub fn no_proxy(&self) -> String {
        let listed = |address: &str| {
            let address: Option<IpAddr> = address.parse().ok();
            let mut all = self.lists.iter().flatten();
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

    fn list(hosts: &[&str]) -> Network {
        Network { hosts: hosts.iter().map(|&host| host.to_owned()).collect(), ..Network::default() }
    }

    fn allows(networks: &[Network], place: &str, way: Way) -> bool {
        let list = AllowList::of(networks).expect("one at least");
        Place::parse(place, Some(way.port())).is_some_and(|place| list.allows(&place, way))
    }

    #[test]
    fn hosts_are_compared_in_one_form_and_patterns_do_not_reach_further_than_they_say() {
        use Way::{Plain, Tunnel};
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
    fn of_several_policies_only_what_each_lists_is_allowed() {
        let wide = Network { bytes_max: Some(5), ..list(&["*.example.org", "a.example.org", "b.net"]) };
        let both = [wide, list(&["a.example.org", "c.net"])];
        for (place, is) in
            [("a.example.org", true), ("x.example.org", false), ("b.net", false), ("c.net", false)]
        {
            assert_eq!(allows(&both, place, Way::Tunnel), is, "{place}");
        }
        let list = AllowList::of(&both).expect("two");
        assert_eq!((list.told(), list.bytes_max), ("a.example.org, c.net", 5));
        assert_eq!(AllowList::of([]), None);
    }

    #[test]
    fn own_servers_are_reached_without_the_proxy_unless_the_hosts_are_meant() {
        let of = |hosts: &[&str]| AllowList::of(&[list(hosts)]).expect("one").no_proxy();
        assert_eq!(of(&["crates.io"]), "localhost,127.0.0.1,::1");
        assert_eq!(of(&["127.0.0.1:80"]), "localhost,::1");
    }

    #[test]
    fn what_is_no_host_is_told_by_its_field() {
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
        let zero = Network { bytes_max: Some(0), ..list(&["a.org"]) };
        assert_eq!(zero.check().expect_err("zero").field, "network.bytes_max");
        let many = list(&["a.org"; PARTS_MAX + 1]);
        assert_eq!(many.check().expect_err("many").field, "network.hosts");
    }

    proptest! {
        #[test]
        fn any_text_can_be_read_and_reads_again_as_itself(text in "[ -~äß]{0,40}") {
            if let Some(place) = Place::parse(&text, Some(443)) {
                prop_assert_eq!(Place::parse(&place.to_string(), None), Some(place));
            }
            let _ = text.parse::<HostPattern>();
        }
    }
}
