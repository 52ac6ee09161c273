//! What a delivery would meet in a repository, looked at before any work is paid for.
//!
//! Reads only: nothing is written to the repository or to its remote. What was found can change until the result is
//! delivered, so `deliver_onto` and `push` look again; this spares a person the price of a result that cannot be
//! handed over where they asked for it. Called by the commands that submit tasks.

use std::{path::Path, time::Duration};

use nix::unistd::{AccessFlags, access};

use super::{
    push::{GitRemote, PushError},
    rebase::check_branch_name_conflict,
    result_commit::{DeliverError, branch_commit},
};
use crate::workspace::repository::{local_repo::LocalRepo, repo_safety::check_safe_to_write};

/// How long a remote may take to answer before a task is submitted. A delivery waits longer.
const REMOTE_CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// What a remote said of a branch.
#[derive(Debug)]
pub enum RemoteBranch {
    /// The remote has no such branch.
    Free,
    /// The remote has it, at this commit.
    At(String),
    /// The remote did not say: it cannot be reached now, or refuses. It may answer by the time of the push.
    Unknown(String),
}

/// Checks that a new task's result can become the branch `branch` of the repository that holds `repository`.
///
/// # Errors
/// [`DeliverError::BranchTaken`] or [`DeliverError::InTheWay`] where another branch stands there,
/// [`DeliverError::NotWritable`] where refs cannot be written.
pub async fn check_branch_is_free(repository: &Path, branch: &str) -> Result<(), DeliverError> {
    let repo = LocalRepo::discover(repository).await?;
    let reference = format!("refs/heads/{branch}");
    if let Some(at) = branch_commit(&repo, &reference).await? {
        return Err(DeliverError::BranchTaken { branch: branch.to_owned(), at });
    }
    check_branch_name_conflict(&repo, branch).await?;
    check_safe_to_write(&repo.git_dir, &repo.common_dir, &reference)?;
    let refs = repo.common_dir.join("refs");
    match access(&refs, AccessFlags::W_OK) {
        Ok(()) => Ok(()),
        Err(_) => Err(DeliverError::NotWritable(refs)),
    }
}

/// Asks the remote `name` of the repository that holds `repository` for its branch `branch`. `scratch` is an existing
/// folder for temporary files.
///
/// # Errors
/// [`PushError::NoRemote`] where the repository has no remote of that name; other faults of the repository. A remote
/// that does not answer is no error.
pub async fn check_remote_branch(
    repository: &Path,
    name: &str,
    branch: &str,
    scratch: &Path,
) -> Result<RemoteBranch, PushError> {
    let head = LocalRepo::discover(repository).await?.resolve_commit(None).await?.commit;
    let remote = GitRemote::find(repository, name, &head, scratch).await?;
    match tokio::time::timeout(REMOTE_CHECK_TIMEOUT, remote.branch_commit(branch)).await {
        Ok(Ok(None)) => Ok(RemoteBranch::Free),
        Ok(Ok(Some(at))) => Ok(RemoteBranch::At(at)),
        Ok(Err(PushError::RemoteFailed { message, .. })) => Ok(RemoteBranch::Unknown(message)),
        Ok(Err(error)) => Err(error),
        Err(_) => Ok(RemoteBranch::Unknown(format!(
            "it did not answer within {} s",
            REMOTE_CHECK_TIMEOUT.as_secs()
        ))),
    }
}
