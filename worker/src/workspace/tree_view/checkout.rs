//! Writes a recorded tree to a standalone folder, for a person or a tool that inspects an earlier state.
//!
//! A run's workspace borrows the base's git objects from docket's cache; a checked-out folder must outlive
//! that cache, so the objects are copied into it. Called by `docket checkout`. Invariants: the tree hash is
//! verified before the function returns; then every mode is restricted by the caller's umask; no git command
//! runs in the folder and no link in it is followed.

use std::{
    fs::{self, File},
    io,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

use docket_schema::{
    content::WorkspacePath,
    ids::TreeHash,
    snapshot::{OmittedPath, PERMISSION_BITS, WorkspaceBase},
};
use nix::{
    errno::Errno,
    fcntl::{OFlag, openat},
    sys::stat::Mode,
};

use crate::workspace::{
    blobs::BlobReader,
    disk::dirfd::{TreeWriter, open_folder, restrict_child_mode, split_path, stat_child},
    materialize::{MaterializeError, WorkspaceOptions, materialize},
    repository::hidden_repository::HiddenRepositories,
    restore::{RestoreTarget, restore},
    snapshot::{
        index_updater::{DEFAULT_FOLDER_MODE, folder_entry},
        open_workspace::Workspace,
        snapshot_error::RestoreError,
        walk::ALTERNATES_PATH,
    },
};

/// A pack never changes, and git itself makes it read-only.
const PACK_MODE: u32 = 0o444;

/// The folder for the copied objects.
const PACKS_FOLDER: &[u8] = b".git/objects/pack";

/// A folder that contains a recorded tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckoutReport {
    /// The verified tree hash: the recorded one.
    pub tree: TreeHash,
    /// The number of files and links.
    pub files: usize,
    /// Paths that the run's workspace had but no snapshot captured: they are missing here.
    pub missing: Vec<OmittedPath>,
    /// Files written by the run that git acts on when it is run in the folder: settings, hooks, attributes.
    pub obeyed_by_git: Vec<WorkspacePath>,
}

#[derive(Debug, thiserror::Error)]
pub enum CheckoutError {
    /// The base could not be created.
    #[error("the run's base could not be created")]
    Base(#[from] MaterializeError),
    /// The run's changes could not be applied.
    #[error("the run's changes could not be restored")]
    Restore(#[from] RestoreError),
    /// The modes could not be set.
    #[error("the modes of the files in {path} could not be set: check the permissions of its parent folder")]
    Modes {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The objects of the base could not be copied.
    #[error("the commit's objects could not be copied into {path}: check the permissions and the free space")]
    Objects {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// Creates the workspace as recorded in `target` in `dir`, which must be empty or missing, with a standalone
/// `.git`. Modes are the recorded ones restricted by this process's umask, as if the caller had unpacked the
/// files. No other process may write in `dir` at the same time. Blocks on the file system.
///
/// # Errors
/// [`CheckoutError`]; `dir` may then contain some of the files.
pub async fn checkout(
    dir: &Path,
    base: &WorkspaceBase,
    target: &RestoreTarget<'_>,
    blobs: &impl BlobReader,
    options: &WorkspaceOptions,
) -> Result<CheckoutReport, CheckoutError> {
    let modes = |source| CheckoutError::Modes { path: dir.to_owned(), source };
    let allowed = allowed_permissions().map_err(modes)?;
    let mut workspace = materialize(dir, base, blobs, options).await?;
    let restored = restore(&mut workspace, target, blobs).await?;
    copy_borrowed_objects(&workspace)
        .map_err(|source| CheckoutError::Objects { path: workspace.path.clone(), source })?;
    restrict_modes(&workspace, allowed).map_err(|errno| modes(errno.into()))?;
    let of_git = target.git_overlay.iter().chain(target.overlay);
    let hidden = HiddenRepositories::find(workspace.base_manifest(), &workspace.manifest());
    let obeyed = of_git.filter(|(path, entry)| {
        entry.is_some_and(|entry| is_obeyed_by_git(path) || hidden.is_undeliverable(path, &entry))
    });
    Ok(CheckoutReport {
        tree: workspace.tree_hash(),
        files: workspace.work_area.index.iter_slots().filter(|(_, _, slot)| is_file_or_link(slot)).count(),
        missing: restored.missing,
        obeyed_by_git: obeyed.map(|(path, _)| path.clone()).collect(),
    })
}

/// Returns the permissions that the umask allows, as reported by the kernel. The system call that reads the
/// umask also sets it for every thread of the process, and a probe file would leave the folder non-empty if
/// the process were killed.
fn allowed_permissions() -> io::Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let umask = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    let umask = umask.and_then(|umask| u32::from_str_radix(umask.trim(), 8).ok());
    let umask = umask.ok_or_else(|| io::Error::other("/proc/self/status does not contain the umask"))?;
    Ok(PERMISSION_BITS & !umask)
}

/// Removes all permissions outside `allowed` from every file and folder, deepest first, because a folder may
/// become unreadable.
fn restrict_modes(workspace: &Workspace, allowed: u32) -> nix::Result<()> {
    let slots = workspace.work_area.index.iter_slots().chain(workspace.git_area.index.iter_slots());
    let excess = slots.filter(|(_, _, slot)| slot.stat.permissions() & !allowed != 0);
    let mut paths: Vec<(&[u8], &[u8])> = excess.map(|(folder, name, _)| (folder, name)).collect();
    paths.sort_unstable_by(|a, b| b.cmp(a));
    for (folder, name) in paths {
        restrict_child_mode(open_folder(workspace.root.as_fd(), folder)?.as_fd(), name, allowed)?;
    }
    Ok(())
}

fn is_file_or_link(slot: &crate::workspace::snapshot::index::IndexSlot) -> bool {
    matches!(slot.state, crate::workspace::snapshot::index::SlotState::Captured(_))
}

/// Whether git acts on the file: in the folder's own `.git` or in that of a nested repository.
fn is_obeyed_by_git(path: &WorkspacePath) -> bool {
    let mut parts = path.components().skip_while(|part| !part.eq_ignore_ascii_case(b".git")).skip(1);
    match parts.next() {
        Some(b"config" | b"config.worktree") => true,
        Some(b"hooks") => parts.next().is_some(),
        Some(b"info") => parts.next() == Some(b"attributes"),
        // Settings of submodules and linked work trees.
        Some(b"modules" | b"worktrees") => parts.any(|part| part.starts_with(b"config") || part == b"hooks"),
        Some(_) | None => false,
    }
}

/// Copies the borrowed objects into the workspace and removes the alternates. If the run removed its git
/// folder or its alternates, there is nothing to copy.
fn copy_borrowed_objects(workspace: &Workspace) -> io::Result<()> {
    let Some(objects) = workspace.borrowed_objects() else { return Ok(()) };
    let root = workspace.root.as_fd();
    let (info, name) = split_path(ALTERNATES_PATH);
    let Ok(info) = open_folder(root, info) else { return Ok(()) };
    if stat_child(info.as_fd(), name).is_err() {
        return Ok(());
    }
    let packs = ensure_packs_folder(workspace)?;
    for pack in fs::read_dir(objects.join("pack"))? {
        let pack = pack?;
        let to = match openat(
            &packs,
            pack.file_name().as_os_str(),
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC,
            Mode::from_bits_truncate(PACK_MODE),
        ) {
            // Pack names are derived from their content: the run copied it already.
            Err(Errno::EEXIST) => continue,
            opened => opened?,
        };
        io::copy(&mut File::open(pack.path())?, &mut File::from(to))?;
    }
    let mut writer = TreeWriter::new(open_folder(root, b"")?, workspace.owner);
    let alternates = WorkspacePath::new(ALTERNATES_PATH).expect("a constant without empty parts or dots");
    Ok(writer.remove_path(&alternates)?)
}

/// Returns the pack folder, creating it if the run removed or replaced it.
fn ensure_packs_folder(workspace: &Workspace) -> nix::Result<OwnedFd> {
    let root = workspace.root.as_fd();
    match open_folder(root, PACKS_FOLDER) {
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => {
            let mut writer = TreeWriter::new(open_folder(root, b"")?, workspace.owner);
            let path = WorkspacePath::new(PACKS_FOLDER).expect("a constant without empty parts or dots");
            writer.write_entry(&path, &folder_entry(DEFAULT_FOLDER_MODE), &[])?;
            open_folder(root, PACKS_FOLDER)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn allowed_permissions_equal_those_of_a_new_folder() {
        let parent = tempfile::tempdir().unwrap();
        let new = parent.path().join("new");
        fs::create_dir(&new).unwrap();
        let mode = fs::metadata(&new).unwrap().permissions().mode();
        assert_eq!(allowed_permissions().unwrap(), mode & PERMISSION_BITS);
    }

    #[test]
    fn files_obeyed_by_git_are_detected_at_any_depth() {
        for (path, obeyed) in [
            (".git/config", true),
            (".git/config.worktree", true),
            (".git/hooks/pre-commit", true),
            (".git/info/attributes", true),
            (".git/modules/sub/config", true),
            ("vendor/lib/.git/hooks/post-checkout", true),
            ("vendor/lib/.GIT/config", true),
            (".git/HEAD", false),
            (".git/hooks", false),
            (".git/refs/heads/config", false),
            (".git/info/exclude", false),
            ("config", false),
            ("src/hooks/x", false),
        ] {
            assert_eq!(is_obeyed_by_git(&WorkspacePath::new(path).unwrap()), obeyed, "{path}");
        }
    }
}
