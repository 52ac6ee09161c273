//! Trusted processes: docket's own children, never a command chosen by a model or a repository.
//!
//! There are two kinds. [`run_trusted`] starts a short program (docket's git calls), collects its output up to a
//! limit and kills its process group at a deadline. The supervisor's children are long-lived, read a payload from
//! stdin and hold the read end of a lifeline pipe.
//!
//! Every child gets exactly the environment it is given and no descriptors except its own. Anything that executes a
//! repository's instructions (hooks, tests, linters) belongs in the sandbox instead.

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
