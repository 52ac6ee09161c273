//! The way out of one call: a proxy that reaches the hosts which policy lists, and nothing else.
//!
//! The call's init binds a socket inside its network namespace and hands it over; a socket belongs to the namespace
//! that it was made in, so docket accepts what is dialled inside and dials outside. Nothing else of the network is in
//! there, whatever a program makes of its environment.
//!
//! Invariants: a place is looked at anew with each request; names are resolved here, and dialled is exactly the
//! address that was looked at; an address that is not of the open internet is reached only where it is listed itself;
//! what goes through a tunnel by TLS says the same host as the tunnel; every buffer, count and wait is bounded; all
//! ends with [`Uplink`], which lives as long as the call.
//!
//! Not seen is what goes on within TLS: a host that serves others' contents as well serves those too. At a port that
//! the list names a tunnel may hold something else than TLS, as ssh; at 443 it may not.

mod address;
mod call_proxy;
mod client_hello;
mod connection;
mod http_body;
mod http_head;
mod incoming_stream;
mod meter;
#[cfg(test)]
mod tests;

pub(super) use call_proxy::CallProxy;
