//! The git tools of the wide set: git in the workspace's own repository, inside the sandbox, without hooks, pager or
//! network; commits bear docket's name.
//!
//! Each is one git command, made of arguments that were checked word by word: policy reads it as the line that it is,
//! so that a rule about `git commit *` speaks of `git_commit` as well.

mod call;

pub(super) mod add;
pub(super) mod branch;
pub(super) mod checkout;
pub(super) mod commit;
pub(super) mod diff;
pub(super) mod log;
pub(super) mod show;
pub(super) mod status;
