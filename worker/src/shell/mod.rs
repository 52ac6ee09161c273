//! Parses shell lines with bash's grammar, well enough to label them and to check them against policies. Labels guide
//! approvals and recovery; the protection is the sandbox. Pure.

mod arithmetic;
mod lookup_changes;
mod parse;
mod parse_coverage;
mod pipefail;
mod quote;
mod refusal;
mod simple_command;
mod words;
mod wrappers;

pub(crate) use parse::{parse_commands, parse_line};
pub(crate) use pipefail::with_pipefail;
pub use quote::quote;
pub(crate) use refusal::refusal_reason;
pub(crate) use simple_command::SimpleCommand;
pub(crate) use wrappers::{sets_git_alias, strip_git_options};
