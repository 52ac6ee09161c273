//! Checks whether a result could be delivered, before any work is paid for.
//!
//! Nothing is written to the repository or its remote. The situation can change until the result is
//! delivered, so `deliver_to_branch` and `push` check again; this check saves a person from paying for a
//! result that cannot be delivered where they want it. Called by the commands that submit tasks.

use std::{path::Path, time::Duration};

use nix::unistd::{AccessFlags, access};

use super::{
    push::{GitRemote, PushError},
    rebase::check_branch_name_conflict,
    result_commit::{DeliverError, branch_commit},
};
use crate::workspace::repository::{local_repo::LocalRepo, repo_safety::check_safe_to_write};

/// Timeout for a remote to answer before a task is submitted. A delivery waits longer.
const REMOTE_CHECK_TIMEOUT: Duration = Duration::from_secs(20);

/// The state of a remote's branch.
#[derive(Debug)]
pub enum RemoteBranch {
    /// The remote has no such branch.
    Free,
    /// The remote's branch is at this commit.
    At(String),
    /// The remote is unreachable or refused the request. It may answer at the time of the push.
    Unknown(String),
}

/// Checks that a new task's result can be delivered as the branch `branch` of the repository that contains
/// `repository`.
///
/// # Errors
/// [`DeliverError::BranchTaken`] or [`DeliverError::BranchNameConflict`] if an existing branch prevents it,
/// [`DeliverError::NotWritable`] if refs cannot be written.
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

/// Queries the remote `name` of the repository that contains `repository` for its branch `branch`. `scratch`
/// is an existing folder for temporary files.
///
/// # Errors
/// [`PushError::NoRemote`] if the repository has no remote of that name, or another error of the repository.
/// A remote that does not answer is not an error.
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
            "it did not respond within {} s",
            REMOTE_CHECK_TIMEOUT.as_secs()
        ))),
    }
}
