//! A shell line taken apart by bash's grammar, well enough to label it and to hold it against policy. Labels steer
//! questions and recovery; they protect nothing: that is the sandbox's part. Pure.

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
