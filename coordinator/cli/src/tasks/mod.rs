//! Tasks as people write them: flags, backlog files, and the checks before submission.

pub(crate) mod backlog;
pub(crate) mod conditions;
pub(crate) mod pinning;
pub(crate) mod policy_file;
pub(crate) mod role_overrides;
pub(crate) mod task_args;
pub(crate) mod task_checks;
