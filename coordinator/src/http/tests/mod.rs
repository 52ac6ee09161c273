//! The API over real HTTP on loopback, with a real store on a file of its own.

mod appends;
mod bulk;
mod carry;
mod dashboard;
mod delegation;
mod doors;
pub(super) mod events;
mod expiry;
mod follow;
mod forks;
mod hostile;
mod life;
mod limits;
mod made_tokens;
mod malformed;
mod memory;
mod metrics;
mod pace;
mod polls;
mod resume;
mod schedules;
mod serving;
mod slow;
mod support;
mod task_policy;
mod tls;
mod tokens;
