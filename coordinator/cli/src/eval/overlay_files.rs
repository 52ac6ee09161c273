//! Overlay files of a suite: copied over a result before its acceptance commands run, so that the suite's own
//! tests judge the work even if the run changed files of the same name.
//!
//! No process runs in the result meanwhile, and no link in it is followed: a link in the way, or a folder where
//! a file must go, is removed.

use std::{
    fs, io,
    os::unix::fs::{PermissionsExt as _, lchown},
    path::{Path, PathBuf},
};

use docket_sandbox::workspace_owner;
use docket_schema::snapshot::PERMISSION_BITS;

/// Maximum number of files: the tests of one task.
const FILES_MAX: usize = 1000;

/// The overlay files of a task.
#[derive(Debug)]
pub(super) struct OverlayFiles {
    folder: PathBuf,
    /// Sorted paths relative to the folder.
    files: Vec<PathBuf>,
}

impl OverlayFiles {
    /// Lists the files of a folder.
    ///
    /// # Errors
    /// Returns a message with the folder's problem and how to fix it.
    pub(super) fn from_folder(folder: &Path) -> Result<Self, String> {
        if !folder.is_dir() {
            return Err(format!("no folder {}", folder.display()));
        }
        let (mut files, mut folders) = (Vec::new(), vec![PathBuf::new()]);
        while let Some(below) = folders.pop() {
            let of = folder.join(&below);
            let unread = |error: io::Error| format!("cannot read {}: {error}", of.display());
            for entry in fs::read_dir(&of).map_err(unread)? {
                let entry = entry.map_err(unread)?;
                let (path, kind) = (below.join(entry.file_name()), entry.file_type().map_err(unread)?);
                if entry.file_name() == ".git" {
                    return Err(format!("{} contains a `.git`; remove it", of.display()));
                }
                if kind.is_dir() {
                    folders.push(path);
                } else if kind.is_file() {
                    files.push(path);
                } else {
                    let path = entry.path();
                    return Err(format!(
                        "{} is neither a file nor a folder; replace it with a file",
                        path.display()
                    ));
                }
            }
        }
        files.sort();
        match files.len() {
            0 => Err(format!("{} contains no file; put the tests there, or leave it out", folder.display())),
            1..=FILES_MAX => Ok(Self { folder: folder.to_owned(), files }),
            many => Err(format!("{} contains {many} files; the limit is {FILES_MAX}", folder.display())),
        }
    }

    /// Copies them over the tree in `root`.
    pub(super) fn copy_over(&self, root: &Path) -> io::Result<()> {
        for path in &self.files {
            let mut at = root.to_owned();
            for part in path.parent().into_iter().flat_map(Path::components) {
                at.push(part);
                if !metadata_no_follow(&at)?.is_some_and(|of| of.is_dir()) {
                    remove_existing(&at)?;
                    fs::create_dir(&at)?;
                    chown_to_workspace_owner(&at)?;
                }
            }
            let to = root.join(path);
            remove_existing(&to)?;
            fs::copy(self.folder.join(path), &to)?;
            // The copy keeps all mode bits of the original.
            let mode = fs::symlink_metadata(&to)?.permissions().mode() & PERMISSION_BITS;
            fs::set_permissions(&to, fs::Permissions::from_mode(mode))?;
            chown_to_workspace_owner(&to)?;
        }
        Ok(())
    }
}

/// The metadata of the path itself, without following a link.
fn metadata_no_follow(path: &Path) -> io::Result<Option<fs::Metadata>> {
    match fs::symlink_metadata(path) {
        Ok(of) => Ok(Some(of)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn remove_existing(path: &Path) -> io::Result<()> {
    match metadata_no_follow(path)? {
        None => Ok(()),
        Some(of) if of.is_dir() => fs::remove_dir_all(path),
        Some(_) => fs::remove_file(path),
    }
}

/// When docket runs as root, the copied files must belong to the user that runs the commands.
fn chown_to_workspace_owner(path: &Path) -> io::Result<()> {
    workspace_owner().map_or(Ok(()), |(uid, gid)| lchown(path, Some(uid), Some(gid)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    #[test]
    fn overlay_replaces_existing_entries_and_follows_no_links() {
        let outside = folder_with(&[("a", "outside")]);
        let result = folder_with(&[("tests/own.py", "bent"), ("other.py", "stays"), ("deep/a/x", "x")]);
        symlink(outside.path(), result.path().join("linked")).expect("a link");
        symlink(outside.path().join("a"), result.path().join("tests/link.py")).expect("a link");
        let suite = folder_with(&[
            ("tests/own.py", "real"),
            ("tests/link.py", "real"),
            ("linked/a", "real"),
            ("other.py/b", "real"),
            ("deep/a", "real"),
        ]);
        let laid = OverlayFiles::from_folder(suite.path()).expect("files");
        laid.copy_over(result.path()).expect("laid");
        for path in ["tests/own.py", "tests/link.py", "linked/a", "other.py/b", "deep/a"] {
            let path = result.path().join(path);
            assert!(metadata_no_follow(&path).expect("looks").is_some_and(|of| of.is_file()), "{path:?}");
            assert_eq!(fs::read_to_string(&path).expect("reads"), "real", "{path:?}");
        }
        assert_eq!(fs::read_to_string(outside.path().join("a")).expect("reads"), "outside");
    }

    #[test]
    fn invalid_overlay_folder_error_says_why() {
        let empty = folder_with(&[]);
        let linked = folder_with(&[("a", "a")]);
        symlink("a", linked.path().join("b")).expect("a link");
        let git = folder_with(&[(".git/config", "")]);
        for (folder, says) in [
            (empty.path().join("none"), "no folder"),
            (empty.path().to_owned(), "contains no file"),
            (linked.path().to_owned(), "neither a file nor a folder"),
            (git.path().to_owned(), "contains a `.git`"),
        ] {
            let said = OverlayFiles::from_folder(&folder).expect_err(says);
            assert!(said.contains(says), "{said}");
        }
    }
}
