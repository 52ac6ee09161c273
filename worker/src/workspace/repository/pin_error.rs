//! Errors of reading a repository or pinning a commit.

use std::{io, path::PathBuf};

use super::git::GitCallError;
use crate::workspace::blobs::BlobError;

#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The folder is not in a git repository.
    #[error(
        "{path} is not in a git repository: run `git init` and commit there, or submit without a repository"
    )]
    NoRepository { path: PathBuf },
    /// The folder cannot be read.
    #[error(
        "cannot read the source folder {path}: check that it exists and that you have permission to read it"
    )]
    SourceFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Parts of the repository are at another location that does not refer back to it.
    #[error(
        "{path} leads to {to}, which does not refer back to it and may belong to another user: name that repository \
         directly with --repo, or, if they belong together, record it there (`git worktree repair` for a linked \
         work tree, otherwise `git config core.worktree FOLDER`)"
    )]
    OutsideRepository {
        /// The link, or the file that points to another location.
        path: PathBuf,
        /// That location.
        to: PathBuf,
    },
    /// A part of the repository is a pipe, a device or an oversized file.
    #[error(
        "{0} is not a file that git creates: docket does not read a repository with such a file; check who put it there"
    )]
    NotARegularFile(PathBuf),
    /// The revision does not resolve to a commit.
    #[error(
        "`{rev}` is not a commit in the repository ({message}): commit first, or give a branch, tag or commit"
    )]
    UnknownCommit {
        rev: String,
        /// git's error output.
        message: String,
    },
    /// The work tree has uncommitted changes.
    #[error(
        "{path} has {count} uncommitted or untracked paths ({named}): commit them, or submit with --include-dirty"
    )]
    DirtyTree {
        /// The work tree.
        path: PathBuf,
        /// The number of paths.
        count: usize,
        /// The first few paths.
        named: String,
    },
    /// Uncommitted changes can only be combined with HEAD.
    #[error(
        "uncommitted changes cannot be combined with a given revision: omit --include-dirty or the revision"
    )]
    DirtyWithRevision,
    /// A path that would be dangerous or impossible to write.
    #[error("the commit contains the path `{path}`, which docket does not write: {why}")]
    UnsafePath {
        /// The path, as lossy UTF-8.
        path: String,
        /// The problem with it.
        why: &'static str,
    },
    /// A git call failed.
    #[error(
        "reading the repository failed; if it is a partial clone, `git fetch --refetch` fetches missing objects"
    )]
    Git(#[from] GitCallError),
    /// docket's own temporary files could not be accessed.
    #[error("cannot work in the temporary folder {path}: check its permissions and the free space")]
    ScratchFolder {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The sink failed.
    #[error("a blob of the base could not be stored")]
    Blob(#[from] BlobError),
}
