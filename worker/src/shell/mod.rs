//! A shell line taken apart by bash's grammar, well enough to label it and to hold it against policy. Labels steer
//! questions and recovery; they protect nothing: that is the sandbox's part. Pure.

mod accounted;
mod arithmetic;
mod lookup;
mod parse;
mod pipes;
mod quote;
mod refusal;
mod simple_command;
mod words;
mod wrap;

pub(crate) use parse::{commands, script};
pub(crate) use pipes::as_check;
pub use quote::quote;
pub(crate) use refusal::refusal;
pub(crate) use simple_command::Simple;
pub(crate) use wrap::{sets_git_alias, without_git_options};
