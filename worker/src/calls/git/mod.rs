//! Calls of the git tools of the wide set, each as the git command that it comes to.
//!
//! Each is one git command, made of arguments that were checked word by word: policy reads it as the line that it is,
//! so that a rule about `git commit *` speaks of `git_commit` as well.

mod git_command;

pub(crate) mod add;
pub(crate) mod branch;
pub(crate) mod checkout;
pub(crate) mod commit;
pub(crate) mod diff;
pub(crate) mod log;
pub(crate) mod show;
pub(crate) mod status;

pub(crate) use git_command::GitCommand;
