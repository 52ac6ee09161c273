//! Pushes a delivered branch to a remote of its repository, with the identity of the user who runs docket.
//!
//! The push is made from a git folder of docket's own that borrows the repository's objects. Only the
//! remote's address is read from the repository's settings, so none of its hooks, helpers or commands run.
//! Authentication at the remote is left to the user's git. Idempotent by the branch's name: pushing a commit
//! that the remote already has does nothing. Invariants: pushes are never forced; a remote branch with other
//! work is kept; addresses are printed without user name and password.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use crate::process::serving_command;
use crate::workspace::repository::{
    git::{GitCallError, GitDir, ObjectFormat, failed_call_error, run_probe, run_remote, trim_output_line},
    local_repo::LocalRepo,
    pin_error::PinError,
};

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    /// The repository has no such remote.
    #[error("the repository has no remote `{name}`{known}; `git remote add {name} URL` adds one")]
    NoRemote {
        /// The requested remote.
        name: String,
        /// The existing remotes, as text.
        known: String,
    },
    /// The remote branch contains other work.
    #[error(
        "the branch `{branch}` of {remote} is at {at} and contains other work, which docket does not overwrite: push \
         under another name with --branch, or delete it there"
    )]
    BranchTaken {
        branch: String,
        remote: String,
        /// The commit that the remote branch is at.
        at: String,
    },
    /// git failed.
    #[error(
        "the remote {remote} could not be reached or refused the push ({message}); the branch is in the repository, and pushing again is safe"
    )]
    RemoteFailed {
        remote: String,
        /// git's error output.
        message: String,
    },
    /// git could not be run.
    #[error("git could not push")]
    Git(#[from] GitCallError),
    /// The repository could not be read.
    #[error(transparent)]
    Repository(#[from] PinError),
    /// docket's own temporary files could not be accessed.
    #[error("cannot work in the temporary folder {path}: check its permissions and the free space")]
    ScratchFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PushOutcome {
    /// The commit was pushed.
    Pushed,
    /// The remote's branch was already at the commit.
    AlreadyPushed,
}

/// A remote of a repository, with docket's own git folder to access it.
#[derive(Debug)]
pub struct GitRemote {
    name: String,
    address: String,
    git_dir: GitDir,
    _scratch: tempfile::TempDir,
}

impl GitRemote {
    /// Finds the remote `name` of the repository that contains `repository`. `commit` is one of the
    /// repository's commits; `scratch` is an existing folder for temporary files.
    ///
    /// # Errors
    /// [`PushError`] if the remote does not exist or the repository cannot be read.
    pub async fn find(
        repository: &Path,
        name: &str,
        commit: &str,
        scratch: &Path,
    ) -> Result<Self, PushError> {
        let fail = |source| PushError::ScratchFolder { path: scratch.to_owned(), source };
        let repo = LocalRepo::discover(repository).await?;
        let address = read_remote_address(&repo, name).await?;
        let temporary = tempfile::Builder::new().prefix("push-").tempdir_in(scratch).map_err(fail)?;
        let format = ObjectFormat::from_hex_oid(commit)
            .ok_or(GitCallError::UnexpectedOutput { verb: "rev-parse", what: "no object name" })?;
        let own = GitDir::create(temporary.path(), format, &[&repo.objects_folder()]).map_err(fail)?;
        let shallow = repo.common_dir.join("shallow");
        if shallow.is_file() {
            fs::copy(shallow, own.path().join("shallow")).map_err(fail)?;
        }
        Ok(Self { name: name.to_owned(), address, git_dir: own, _scratch: temporary })
    }

    /// The remote's name as shown to people.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the commit that the remote's branch is at.
    ///
    /// # Errors
    /// [`PushError`] if the remote cannot be queried.
    pub async fn branch_commit(&self, branch: &str) -> Result<Option<String>, PushError> {
        let reference = format!("refs/heads/{branch}");
        let serving = self.local_server_option("--upload-pack", "upload-pack");
        let mut args = vec!["ls-remote", "--quiet"];
        args.extend(serving.as_deref());
        args.extend(["--", &self.address, &reference]);
        let ended = run_remote(self.git_dir.path(), &args).await?;
        if !ended.is_success() {
            return Err(self.push_error(&args, &ended));
        }
        let listed = trim_output_line(ended.stdout);
        // A pattern also matches refs that end with it.
        let found = listed.lines().filter_map(|line| line.split_once('\t'));
        Ok(found.filter(|(_, name)| *name == reference).map(|(oid, _)| oid.to_owned()).next())
    }

    /// Whether the remote's branch is at `commit` or at a descendant of it.
    ///
    /// # Errors
    /// [`PushError`] if the remote cannot be queried.
    pub async fn contains_commit(&self, branch: &str, commit: &str) -> Result<bool, PushError> {
        match self.branch_commit(branch).await? {
            Some(at) => Ok(at == commit || self.is_ancestor(commit, &at).await?),
            None => Ok(false),
        }
    }

    /// Pushes `commit` to the remote's branch. Safe to repeat.
    ///
    /// # Errors
    /// [`PushError::BranchTaken`] if the branch contains other work.
    pub async fn push(&self, branch: &str, commit: &str) -> Result<PushOutcome, PushError> {
        let taken =
            |at: String| PushError::BranchTaken { branch: branch.to_owned(), remote: self.name.clone(), at };
        match self.branch_commit(branch).await? {
            Some(at) if at == commit => return Ok(PushOutcome::AlreadyPushed),
            Some(at) if !self.is_ancestor(&at, commit).await? => return Err(taken(at)),
            Some(_) | None => {}
        }
        let refspec = format!("{commit}:refs/heads/{branch}");
        let serving = self.local_server_option("--receive-pack", "receive-pack");
        let mut args = vec!["push", "--quiet", "--no-verify"];
        args.extend(serving.as_deref());
        args.extend(["--", &self.address, &refspec]);
        let ended = run_remote(self.git_dir.path(), &args).await?;
        if ended.is_success() {
            return Ok(PushOutcome::Pushed);
        }
        // Another push was made between the check and ours, or ours succeeded and only the reply was lost.
        match self.branch_commit(branch).await {
            Ok(Some(at)) if at == commit => Ok(PushOutcome::AlreadyPushed),
            Ok(Some(at)) if !self.is_ancestor(&at, commit).await? => Err(taken(at)),
            Ok(Some(_) | None) | Err(_) => Err(self.push_error(&args, &ended)),
        }
    }

    /// Whether `old` is an ancestor of `commit`.
    async fn is_ancestor(&self, old: &str, commit: &str) -> Result<bool, PushError> {
        match self.git_dir.run(&["merge-base", "--is-ancestor", old, commit], Vec::new()).await {
            Ok(_) => Ok(true),
            // Not an ancestor, or the repository does not have the commit.
            Err(GitCallError::Failed { .. }) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Selects the git that serves a remote on this machine.
    fn local_server_option(&self, option: &str, verb: &str) -> Option<String> {
        is_local_address(&self.address).then(|| format!("{option}={}", serving_command(verb)))
    }

    fn push_error(&self, args: &[&str], ended: &crate::process::TrustedOutput) -> PushError {
        let message = match failed_call_error(args, ended) {
            GitCallError::Failed { message, .. } => message,
            other @ (GitCallError::Run { .. } | GitCallError::UnexpectedOutput { .. }) => {
                return other.into();
            }
        };
        let message = message.replace(&self.address, &self.name);
        PushError::RemoteFailed { remote: self.name.clone(), message: message.replace('\n', " ") }
    }
}

/// Returns the push address of the remote. Only its name and address are read.
async fn read_remote_address(repo: &LocalRepo, name: &str) -> Result<String, PushError> {
    for key in ["pushurl", "url"] {
        let key = format!("remote.{name}.{key}");
        match run_probe(&repo.git_dir, &["config", "--null", "--get", &key]).await {
            Ok(found) => {
                let found = String::from_utf8_lossy(&found).trim_end_matches('\0').to_owned();
                return Ok(absolute_address(repo, found));
            }
            Err(GitCallError::Failed { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let known = match run_probe(&repo.git_dir, &["remote"]).await {
        Ok(found) => trim_output_line(found).lines().collect::<Vec<_>>().join(", "),
        Err(_) => String::new(),
    };
    let known = if known.is_empty() { String::new() } else { format!("; existing remotes: {known}") };
    Err(PushError::NoRemote { name: name.to_owned(), known })
}

/// Makes a relative address absolute, for use from another folder.
fn absolute_address(repo: &LocalRepo, address: String) -> String {
    if !is_path_address(&address) {
        return address;
    }
    let from = repo.work_tree.as_deref().unwrap_or(&repo.git_dir);
    from.join(&address).to_string_lossy().into_owned()
}

fn is_local_address(address: &str) -> bool {
    is_path_address(address) || address.starts_with("file://")
}

/// Distinguishes a path from `host:path` and from a URL as git does.
fn is_path_address(address: &str) -> bool {
    match address.find(':') {
        None => true,
        Some(colon) => address[..colon].contains('/'),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_hosts_are_distinguished_as_git_does() {
        for (address, path, local) in [
            ("/srv/x.git", true, true),
            ("../x.git", true, true),
            ("./a:b", true, true),
            ("file:///srv/x.git", false, true),
            ("https://example.org/x.git", false, false),
            ("ssh://example.org/x.git", false, false),
            ("git@example.org:x.git", false, false),
        ] {
            assert_eq!((is_path_address(address), is_local_address(address)), (path, local), "{address}");
        }
    }
}
