//! Finds a local repository and resolves a commit in it, without running anything it configures.
//!
//! Used only for pinning and delivery. Invariant: nothing in the source repository is written here, and the
//! only git calls made with its configuration are `rev-parse` calls, which execute nothing.

use std::{
    ffi::OsStr,
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use super::{
    git::{GitCallError, GitDir, ObjectFormat, run_probe, trim_output_line},
    pin_error::PinError,
    repo_safety::{check_safe_to_read, is_linked_from, read_pointer_file, resolve_common_dir},
};

/// Number of dirty paths listed in an error: enough to recognize them.
const DIRTY_PATHS_SHOWN_MAX: usize = 5;

/// What a task starts from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BaseSource {
    /// An empty workspace without git.
    Empty,
    /// The repository that contains this folder.
    Local(PathBuf),
}

/// What to do with uncommitted changes in the source's work tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum DirtyTreePolicy {
    /// Refuse to pin.
    #[default]
    Refuse,
    /// Include them in the base, as a commit that exists only in docket's own folder and the base.
    Include,
}

/// How untracked paths are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UntrackedListing {
    /// A folder without tracked files is listed as one path.
    Folders,
    /// File by file.
    Files,
}

/// A repository on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LocalRepo {
    /// The git folder of this work tree (HEAD, index).
    pub(crate) git_dir: PathBuf,
    /// The folder of objects and refs; equal to `git_dir` unless this is a linked work tree.
    pub(crate) common_dir: PathBuf,
    /// The work tree; `None` for a bare repository.
    pub(crate) work_tree: Option<PathBuf>,
}

/// A commit of a local repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResolvedCommit {
    pub(crate) commit: String,
    pub(crate) branch: Option<String>,
    pub(crate) format: ObjectFormat,
}

impl LocalRepo {
    /// Finds the repository that contains `path`, searching upwards as git does. Its parts must lie inside it
    /// or refer back to it.
    pub(crate) async fn discover(path: &Path) -> Result<Self, PinError> {
        let start = fs::canonicalize(path)
            .map_err(|source| PinError::SourceFolder { path: path.to_owned(), source })?;
        for folder in start.ancestors() {
            let dot_git = folder.join(".git");
            let found = fs::symlink_metadata(&dot_git).ok();
            let target = match found {
                Some(found) if found.is_dir() => is_git_dir(&dot_git).then(|| dot_git.clone()),
                Some(found) if found.is_file() => {
                    let text = read_pointer_file(&dot_git)?.unwrap_or_default();
                    let none = || PinError::NoRepository { path: path.to_owned() };
                    Some(folder.join(path_from_line(text.strip_prefix(b"gitdir: ").ok_or_else(none)?)))
                }
                Some(found) if found.is_symlink() => is_git_dir(&dot_git).then(|| dot_git.clone()),
                Some(_) | None => None,
            };
            if let Some(target) = target {
                let git_dir = fs::canonicalize(&target)
                    .map_err(|source| PinError::SourceFolder { path: target.clone(), source })?;
                if git_dir != dot_git && !is_owned_by_work_tree(&git_dir, folder, &dot_git).await? {
                    return Err(PinError::OutsideRepository { path: dot_git, to: git_dir });
                }
                return Self::open_git_dir(git_dir, Some(folder.to_owned()));
            }
            // A bare repository must be named explicitly: a folder of a work tree may be crafted to look like
            // one.
            if folder == start && is_git_dir(folder) {
                return Self::open_git_dir(folder.to_owned(), None);
            }
        }
        Err(PinError::NoRepository { path: path.to_owned() })
    }

    /// Opens the repository with this git folder.
    pub(crate) fn open_git_dir(git_dir: PathBuf, work_tree: Option<PathBuf>) -> Result<Self, PinError> {
        let common_dir = match read_pointer_file(&git_dir.join("commondir"))? {
            Some(text) => resolve_common_dir(&git_dir, path_from_line(&text))?,
            None => git_dir.clone(),
        };
        check_safe_to_read(&git_dir, &common_dir)?;
        Ok(Self { git_dir, common_dir, work_tree })
    }

    /// The object folder.
    pub(crate) fn objects_folder(&self) -> PathBuf {
        self.common_dir.join("objects")
    }

    /// Resolves `rev` to a commit; HEAD if `None`.
    pub(crate) async fn resolve_commit(&self, rev: Option<&str>) -> Result<ResolvedCommit, PinError> {
        let name = rev.unwrap_or("HEAD");
        let peeled = format!("{name}^{{commit}}");
        let args = ["rev-parse", "--verify", "--end-of-options", &peeled];
        let commit = match run_probe(&self.git_dir, &args).await {
            Ok(output) => trim_output_line(output),
            Err(GitCallError::Failed { message, .. }) => {
                return Err(PinError::UnknownCommit { rev: name.to_owned(), message });
            }
            Err(error) => return Err(error.into()),
        };
        let format = ObjectFormat::from_hex_oid(&commit)
            .ok_or(GitCallError::UnexpectedOutput { verb: "rev-parse", what: "no object name" })?;
        let args = ["rev-parse", "--symbolic-full-name", "--end-of-options", name];
        let full = match run_probe(&self.git_dir, &args).await {
            Ok(output) => trim_output_line(output),
            Err(GitCallError::Failed { .. }) => String::new(),
            Err(error) => return Err(error.into()),
        };
        let branch = full.lines().find_map(|l| l.strip_prefix("refs/heads/")).map(str::to_owned);
        Ok(ResolvedCommit { commit, branch, format })
    }

    /// Returns the paths of the work tree that differ from `commit`, including untracked ones. Runs in
    /// docket's own git folder, so that neither an fsmonitor nor a clean filter of the source is started, and
    /// does not enter submodules, which have their own configuration.
    pub(crate) async fn dirty_paths(
        &self,
        own: &GitDir,
        commit: &str,
        untracked: UntrackedListing,
    ) -> Result<Vec<Vec<u8>>, PinError> {
        let Some(work_tree) = &self.work_tree else { return Ok(Vec::new()) };
        self.share_index_with(own, commit)
            .map_err(|source| PinError::ScratchFolder { path: own.path().to_owned(), source })?;
        let index = self.git_dir.join("index");
        let env: [(&str, &OsStr); 2] =
            [("GIT_WORK_TREE", work_tree.as_os_str()), ("GIT_INDEX_FILE", index.as_os_str())];
        let untracked = match untracked {
            UntrackedListing::Folders => "--untracked-files=normal",
            UntrackedListing::Files => "--untracked-files=all",
        };
        let args = ["status", "--porcelain=v1", "-z", "--no-renames", "--ignore-submodules=all", untracked];
        let output = own.run_with_env(&args, &env, Vec::new()).await?;
        let records = output.split(|b| *b == 0).filter(|record| record.len() > 3);
        Ok(records.map(|record| record[3..].to_vec()).collect())
    }

    /// Makes `own` evaluate this work tree as the source would: same HEAD, same excludes, same shared index.
    fn share_index_with(&self, own: &GitDir, commit: &str) -> io::Result<()> {
        fs::write(own.path().join("HEAD"), format!("{commit}\n"))?;
        let exclude = self.common_dir.join("info/exclude");
        if exclude.is_file() {
            fs::copy(exclude, own.path().join("info/exclude"))?;
        }
        for entry in fs::read_dir(&self.git_dir)? {
            let entry = entry?;
            if entry.file_name().as_bytes().starts_with(b"sharedindex.") {
                let link = own.path().join(entry.file_name());
                if fs::symlink_metadata(&link).is_err() {
                    std::os::unix::fs::symlink(entry.path(), link)?;
                }
            }
        }
        Ok(())
    }
}

/// Builds the error for a dirty tree, listing the first few paths.
pub(crate) fn dirty_tree_error(repo: &LocalRepo, paths: &[Vec<u8>]) -> PinError {
    let named = paths.iter().take(DIRTY_PATHS_SHOWN_MAX).map(|path| String::from_utf8_lossy(path));
    let mut named = named.collect::<Vec<_>>().join(", ");
    if paths.len() > DIRTY_PATHS_SHOWN_MAX {
        named.push_str(", …");
    }
    let path = repo.work_tree.clone().unwrap_or_else(|| repo.git_dir.clone());
    PinError::DirtyTree { path, count: paths.len(), named }
}

/// Whether the git folder `git_dir` at another location belongs to the work tree in `folder`: a linked work
/// tree's names it in a file, a submodule's in its settings.
async fn is_owned_by_work_tree(git_dir: &Path, folder: &Path, dot_git: &Path) -> Result<bool, PinError> {
    if let Some(back) = read_pointer_file(&git_dir.join("gitdir"))? {
        return Ok(is_linked_from(git_dir, path_from_line(&back), dot_git));
    }
    // This check must come before git reads the settings.
    check_safe_to_read(git_dir, git_dir)?;
    for settings in ["config", "config.worktree"] {
        if !git_dir.join(settings).is_file() {
            continue;
        }
        let args = ["config", "--file", settings, "--no-includes", "--null", "--get", "core.worktree"];
        let named = match run_probe(git_dir, &args).await {
            Ok(output) => output,
            Err(GitCallError::Failed { .. }) => continue,
            Err(error) => return Err(error.into()),
        };
        let named = named.strip_suffix(b"\0").unwrap_or(&named);
        if fs::canonicalize(git_dir.join(OsStr::from_bytes(named))).is_ok_and(|back| back == folder) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_git_dir(folder: &Path) -> bool {
    folder.join("HEAD").exists() && folder.join("objects").is_dir() && folder.join("refs").is_dir()
}

fn path_from_line(text: &[u8]) -> &Path {
    let end = text.iter().rposition(|b| !matches!(b, b'\n' | b'\r')).map_or(0, |last| last + 1);
    Path::new(OsStr::from_bytes(&text[..end]))
}
