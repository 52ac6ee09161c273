//! The API over real HTTP on loopback, with a real store on a file of its own.

mod appends;
mod carry;
pub(super) mod events;
mod expiry;
mod follow;
mod forks;
mod life;
mod malformed;
mod polls;
mod resume;
mod serving;
mod support;
mod tokens;
