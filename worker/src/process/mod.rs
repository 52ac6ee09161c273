//! Trusted processes: docket's own children, never a command that a model or a repository chose.
//!
//! Two kinds live here. [`run_trusted`] starts a short program (docket's `git` plumbing), collects its
//! output to a named limit and ends its whole process group at a deadline. The children of the supervisor
//! live long, read a payload from stdin and hold the read end of a lifeline pipe.
//!
//! Every child gets exactly the environment it is given and no descriptor above its own. Whatever executes
//! what a repository says (hooks, tests, linters) belongs into the sandbox instead.

mod child;
mod git;
mod hook;
mod spawner;
#[cfg(test)]
pub(crate) mod tests_support;
mod traces;
mod trusted;

pub use child::{
    ChildError, ChildHandle, ChildLog, ChildSpec, LIFELINE_FD, Lifeline, PAYLOAD_BYTES_MAX, start_child,
};
pub use git::{
    GIT_LISTING_BYTES_MAX, GIT_OUTPUT_BYTES_MAX, GIT_TIMEOUT, GitError, Ssh, git_spec, remote_spec, run_git,
    serving_command, settings_env,
};
pub use hook::{HOOK_OUTPUT_BYTES_MAX, HookEnd, run_hook};
pub use traces::leave_no_traces;
pub use trusted::{ChildExit, TrustedError, TrustedOutput, TrustedSpec, run_trusted};
