//! Why a repository is not read, or a commit of it not pinned.

use std::{io, path::PathBuf};

use super::git::GitCallError;
use crate::workspace::blobs::BlobError;

/// Why nothing was pinned.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// The folder is in no repository.
    #[error(
        "{path} is in no git repository: run `git init` and commit there, or submit without a repository"
    )]
    NoRepository {
        /// The folder.
        path: PathBuf,
    },
    /// The folder cannot be read.
    #[error("cannot read the source folder {path}: check that it exists and that you may read it")]
    SourceFolder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The repository is made of parts that lie elsewhere and do not know it.
    #[error(
        "{path} leads to {to}, which does not name it back, so that it may be somebody else's: name the repository \
         itself with --repo, or if they do belong together, say so there (`git worktree repair` for a linked work \
         tree, else `git config core.worktree FOLDER`)"
    )]
    OutsideRepository {
        /// The link, or the file that names another place.
        path: PathBuf,
        /// The place.
        to: PathBuf,
    },
    /// A part of the repository is a pipe, a device, or a name far too long.
    #[error(
        "{0} is no file that git writes: a repository with such a file is not read; look who put it there"
    )]
    NotARegularFile(PathBuf),
    /// The revision names no commit.
    #[error(
        "`{rev}` names no commit in the repository ({message}): commit first, or name a branch, tag or commit"
    )]
    UnknownCommit {
        /// The revision.
        rev: String,
        /// git's words.
        message: String,
    },
    /// Uncommitted changes.
    #[error(
        "{path} has {count} uncommitted or untracked paths ({named}): commit them, or submit with --include-dirty"
    )]
    DirtyTree {
        /// The work tree.
        path: PathBuf,
        /// How many paths.
        count: usize,
        /// The first few.
        named: String,
    },
    /// Uncommitted changes belong to HEAD alone.
    #[error(
        "uncommitted changes cannot be put on top of a named revision: leave out --include-dirty or the revision"
    )]
    DirtyWithRevision,
    /// A path that would be dangerous or impossible to write.
    #[error("the commit holds the path `{path}`, which docket does not write: {why}")]
    UnsafePath {
        /// The path, lossily.
        path: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A git call failed.
    #[error(
        "reading the repository failed; objects a partial clone lacks can be had with `git fetch --refetch`"
    )]
    Git(#[from] GitCallError),
    /// docket's own temporary files.
    #[error("cannot work in the temporary folder {path}: check its permissions and the free space")]
    ScratchFolder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The sink failed.
    #[error("a blob of the base could not be stored")]
    Blob(#[from] BlobError),
}
