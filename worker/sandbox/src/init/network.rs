//! The inner end of a call's network access: a loopback socket on which docket listens, and the environment
//! that points programs to it.
//!
//! docket receives the socket and no copy of it stays here, so no process inside is between a command and the
//! proxy.

use std::{
    ffi::OsString,
    net::{Ipv4Addr, TcpListener},
};

use super::{
    super::fd_passing,
    init_context::{InitContext, SetupFailure, failed_at},
};

/// Set to the proxy's address. Programs read the lower-case or upper-case variable, or their own.
const PROXY_VARIABLES: [&str; 9] = [
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "CARGO_HTTP_PROXY",
    "npm_config_proxy",
    "npm_config_https_proxy",
];

/// Set to the hosts that are reached without the proxy.
const NO_PROXY_VARIABLES: [&str; 3] = ["NO_PROXY", "no_proxy", "npm_config_noproxy"];

/// cargo writes next to what it fetches, and the mounted folders of the host are read-only.
const CARGO_HOME: &str = "/tmp/.cargo";

/// Opens the proxy socket if the call has network access. Must be called in the call's network
/// namespace.
pub(super) fn open_proxy_socket(orders: &mut InitContext) -> Result<(), SetupFailure> {
    if orders.call.no_proxy.is_none() {
        return Ok(());
    }
    let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed_at("bind the way out"))?;
    let port = socket.local_addr().map_err(failed_at("bind the way out"))?.port();
    fd_passing::send_fd(&orders.control, &socket).map_err(failed_at("hand out the way out"))?;
    orders.proxy_port = Some(port);
    Ok(())
}

/// Returns a command's environment: as planned, plus the variables that point programs to the
/// proxy.
pub(super) fn command_environment(
    planned: &[(OsString, OsString)],
    orders: &InitContext,
) -> Vec<(OsString, OsString)> {
    let (Some(port), Some(no_proxy)) = (orders.proxy_port, &orders.call.no_proxy) else {
        return planned.to_vec();
    };
    let address = format!("http://{}:{port}", Ipv4Addr::LOCALHOST);
    let mut own: Vec<(&str, &str)> = PROXY_VARIABLES.iter().map(|name| (*name, address.as_str())).collect();
    own.extend(NO_PROXY_VARIABLES.iter().map(|name| (*name, no_proxy.as_str())));
    own.push(("CARGO_HOME", CARGO_HOME));
    let replaced = |name: &OsString| name == "CARGO_NET_OFFLINE" || own.iter().any(|(own, _)| name == own);
    let kept = planned.iter().filter(|(name, _)| !replaced(name)).cloned();
    kept.chain(own.iter().map(|(name, value)| ((*name).into(), (*value).into()))).collect()
}
