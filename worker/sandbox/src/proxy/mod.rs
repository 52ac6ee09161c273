//! Network access of one call: a proxy that reaches only the hosts that the policy lists.
//!
//! The call's init binds a socket inside its network namespace and passes it to docket. A socket belongs to
//! the namespace it was created in, so docket accepts connections from inside and dials outside. The
//! namespace has no other route, whatever a program does with its environment.
//!
//! Invariants: every request is checked; names are resolved here, and exactly the checked address is dialed;
//! an address outside the open internet is reached only if it is listed itself; TLS through a tunnel must
//! name the same host as the tunnel; every buffer, counter and wait is bounded; everything ends with
//! [`CallProxy`], which lives as long as the call.
//!
//! Traffic within TLS is not visible: an allowed host that also serves other parties' content can be used to
//! reach it. On a port that the list names, a tunnel may carry a protocol other than TLS, such as ssh; on 443
//! it may not.

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
