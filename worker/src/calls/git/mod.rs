//! Calls of the git tools of the wide set, each translated to a git command.
//!
//! Each is one git command with individually checked arguments. Policy reads it as that line, so that a rule about
//! `git commit *` also covers `git_commit`.

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
