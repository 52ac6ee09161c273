//! Trusted processes: docket's own children, never a command that a model or a repository chose.
//!
//! Two kinds live here. [`run_trusted`] starts a short program (docket's `git` plumbing), collects its
//! output to a named limit and ends its whole process group at a deadline. The children of the supervisor
//! live long, read a payload from stdin and hold the read end of a lifeline pipe.
//!
//! Every child gets exactly the environment it is given and no descriptor above its own. Whatever executes
//! what a repository says (hooks, tests, linters) belongs into the sandbox instead.

mod child;
mod delivery_hook;
mod git;
mod hardening;
mod spawner;
#[cfg(test)]
pub(crate) mod tests_support;
mod trusted;

pub use child::{
    ChildError, ChildHandle, ChildLog, ChildSpec, LIFELINE_FD, PAYLOAD_BYTES_MAX, SupervisorLifeline,
    start_child,
};
pub use delivery_hook::{HOOK_OUTPUT_BYTES_MAX, HookResult, run_hook};
pub use git::{
    GIT_LISTING_BYTES_MAX, GIT_OUTPUT_BYTES_MAX, GIT_TIMEOUT, GitError, SshCommand, git_spec, remote_spec,
    run_git, serving_command, settings_env,
};
pub use hardening::disable_core_dumps_and_ptrace;
pub use trusted::{ChildExit, TrustedError, TrustedOutput, TrustedSpec, run_trusted};
