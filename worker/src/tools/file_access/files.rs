//! File access through the workspace's directory handle: no `..`, no links that lead outside, regular files only,
//! limited sizes, atomic writes.

use std::io::{self, Read as _, Write as _};

use crate::calls::PathError;
use cap_std::fs::{
    Dir, File, FileType, FileTypeExt as _, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _,
    Permissions, PermissionsExt as _,
};
use docket_sandbox::git_repository::{GitEntryKind, GitName, RepositoryShape};
use docket_schema::{content::WorkspacePath, ids::BlobHash, snapshot::PERMISSION_BITS};
use nix::{
    fcntl::OFlag,
    unistd::{Gid, Uid, fchown},
};

/// Largest file that is read into memory, in bytes: larger ones are data, not source.
pub(crate) const FILE_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Path components below which no file tool writes, in any letter case because some file systems ignore case: git
/// executes hooks and programs set in its folder, and docket's settings are not the model's to change.
const PROTECTED_NAMES: [&[u8]; 3] = [b".git", b".docket", b"docket.toml"];

/// Prefix of the temporary file written next to the target.
const TEMPORARY_PREFIX: &str = ".docket-write-";

/// Why a file cannot be read or written, for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{0}` does not exist: list_files shows what does")]
    Missing(WorkspacePath),
    #[error("`{0}` is a symbolic link to `{1}`, which {2}")]
    BrokenLink(WorkspacePath, String, &'static str),
    #[error("`{0}` is a folder, not a file: use list_files")]
    IsFolder(WorkspacePath),
    #[error("`{0}` is {1}, not a file: nothing in it can be read again")]
    NotAFile(WorkspacePath, &'static str),
    #[error("`{0}` is not a folder: give the folder it lies in")]
    NotAFolder(WorkspacePath),
    #[error("`{0}` leads out of the workspace")]
    OutsideWorkspace(WorkspacePath),
    #[error("`{0}` is a symbolic link, or lies below one: name the file it points to")]
    IsLink(WorkspacePath),
    #[error(
        "`{0}` has other names (hard links), perhaps outside the workspace: file tools neither read nor write it; copy it first"
    )]
    HardLinked(WorkspacePath),
    #[error(
        "`{0}` is protected and cannot be written by file tools: git's own folder and docket's settings are a person's"
    )]
    Protected(WorkspacePath),
    #[error(
        "`{0}` is protected and cannot be written by file tools: with it git would take its folder for a repository, \
         and run what is configured there, for a person who uses git in it; choose another name or folder"
    )]
    MakesRepository(WorkspacePath),
    #[error("the workspace cannot be opened")]
    Root(#[source] io::Error),
    #[error(
        "`{0}` has {1} bytes, more than the {FILE_BYTES_MAX} that are edited or shown whole: change it by a command"
    )]
    TooLarge(WorkspacePath, u64),
    #[error("`{0}` exists already")]
    Exists(WorkspacePath),
    #[error("`{0}` changed while it was being written: read it again")]
    ChangedWhileWriting(WorkspacePath),
    #[error("`{path}`: {source}")]
    Io { path: WorkspacePath, source: io::Error },
}

impl FileError {
    pub(crate) fn from_io(path: &WorkspacePath, source: io::Error) -> Self {
        let path = path.clone();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::IsADirectory => Self::IsFolder(path),
            io::ErrorKind::AlreadyExists => Self::Exists(path),
            // cap-std's own error for a path that leaves the handle.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => {
                Self::OutsideWorkspace(path)
            }
            _ => match source.raw_os_error().map(nix::errno::Errno::from_raw) {
                Some(nix::errno::Errno::ELOOP | nix::errno::Errno::ENOTDIR) => Self::IsLink(path),
                Some(nix::errno::Errno::EXDEV) => Self::OutsideWorkspace(path),
                Some(_) | None => Self::Io { path, source },
            },
        }
    }
}

/// The path in the form that the operating system takes.
pub(crate) fn os_path(path: &WorkspacePath) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt as _;
    std::path::Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// A file's bytes and metadata.
#[derive(Debug)]
pub(crate) struct LoadedFile {
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: BlobHash,
    pub(crate) mode: u32,
    pub(crate) link_count: u64,
}

/// Opens a regular file. A FIFO or device is refused without waiting for its other end.
pub(crate) fn open_regular(root: &Dir, path: &WorkspacePath) -> Result<(File, Metadata), FileError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
    let file = root.open_with(os_path(path), &options).map_err(|error| open_error(root, path, error))?;
    let meta = file.metadata().map_err(|error| FileError::from_io(path, error))?;
    if meta.is_dir() {
        return Err(FileError::IsFolder(path.clone()));
    }
    if !meta.is_file() {
        return Err(FileError::NotAFile(path.clone(), special_file_kind(meta.file_type())));
    }
    // Another name of the file may be outside the workspace, and its content would go to a model.
    if meta.nlink() > 1 {
        return Err(FileError::HardLinked(path.clone()));
    }
    Ok((file, meta))
}

/// Explains why a path does not open; for a link, names its target.
fn open_error(root: &Dir, path: &WorkspacePath, error: io::Error) -> FileError {
    let found = root.symlink_metadata(os_path(path)).map(|meta| meta.file_type());
    // A socket cannot be opened at all.
    if let Ok(found) = &found
        && !found.is_symlink()
        && !found.is_file()
        && !found.is_dir()
    {
        return FileError::NotAFile(path.clone(), special_file_kind(*found));
    }
    let error = FileError::from_io(path, error);
    // The link may lead outside, and cap-std does not read such links.
    let target =
        found.ok().filter(FileType::is_symlink).and_then(|_| root.read_link_contents(os_path(path)).ok());
    let Some(target) = target else { return error };
    let why = match &error {
        FileError::Missing(_) => "does not exist",
        FileError::OutsideWorkspace(_) => "is not in the workspace: only what is in it can be read",
        FileError::IsLink(_) => "leads on and on: name a file",
        _ => return error,
    };
    FileError::BrokenLink(path.clone(), target.to_string_lossy().into_owned(), why)
}

fn special_file_kind(found: FileType) -> &'static str {
    if found.is_fifo() {
        "a named pipe"
    } else if found.is_socket() {
        "a socket"
    } else if found.is_block_device() || found.is_char_device() {
        "a device"
    } else {
        "a special file"
    }
}

/// Formats a size for people.
pub(crate) fn format_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

/// Reads a regular file of at most [`FILE_BYTES_MAX`].
pub(crate) fn load_file(root: &Dir, path: &WorkspacePath) -> Result<LoadedFile, FileError> {
    let (file, meta) = open_regular(root, path)?;
    load_opened_file(file, &meta, path)
}

/// Reads a file opened by [`open_regular`].
pub(crate) fn load_opened_file(
    file: File,
    meta: &Metadata,
    path: &WorkspacePath,
) -> Result<LoadedFile, FileError> {
    if meta.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(path.clone(), meta.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    // Read one byte more than allowed: the file may have grown since its size was checked.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| FileError::from_io(path, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(path.clone(), bytes.len() as u64));
    }
    let hash = BlobHash::hash_bytes(&bytes);
    Ok(LoadedFile { bytes, hash, mode: meta.mode() & PERMISSION_BITS, link_count: meta.nlink() })
}

/// Replaces the bytes of a loaded file and keeps its mode.
pub(crate) fn replace_file(
    root: &Dir,
    path: &WorkspacePath,
    old: &LoadedFile,
    bytes: &[u8],
) -> Result<(), FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::MustExist)?;
    let meta = dir.symlink_metadata(&name).map_err(|error| FileError::from_io(path, error))?;
    if meta.is_symlink() {
        return Err(FileError::IsLink(path.clone()));
    }
    if old.link_count > 1 || meta.nlink() > 1 {
        return Err(FileError::HardLinked(path.clone()));
    }
    let temporary = write_temporary(&dir, path, bytes, old.mode)?;
    let done = match load_file(root, path) {
        Ok(now) if now.hash == old.hash => {
            dir.rename(&temporary, &dir, &name).map_err(|error| FileError::from_io(path, error))
        }
        Ok(_) => Err(FileError::ChangedWhileWriting(path.clone())),
        Err(error) => Err(error),
    };
    finish_write(&dir, path, &temporary, done)
}

/// Creates a file that does not exist, and its parent folders.
pub(crate) fn create_file(root: &Dir, path: &WorkspacePath, bytes: &[u8]) -> Result<(), FileError> {
    create_file_with_mode(root, path, bytes, NEW_FILE_MODE)
}

/// Creates a file like [`create_file`], with another mode.
pub(crate) fn create_file_with_mode(
    root: &Dir,
    path: &WorkspacePath,
    bytes: &[u8],
    mode: u32,
) -> Result<(), FileError> {
    let (dir, name) = open_writable_parent(root, path, ParentFolders::Create)?;
    if dir.symlink_metadata(&name).is_ok() {
        return Err(FileError::Exists(path.clone()));
    }
    let temporary = write_temporary(&dir, path, bytes, mode)?;
    // Unlike a rename, a link never replaces a file that appeared in the meantime.
    let done = dir
        .hard_link(&temporary, &dir, &name)
        .and_then(|()| dir.remove_file(&temporary))
        .map_err(|error| FileError::from_io(path, error));
    finish_write(&dir, path, &temporary, done)
}

const NEW_FILE_MODE: u32 = 0o644;
const NEW_FOLDER_MODE: u32 = 0o755;

/// How to handle missing parent folders.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParentFolders {
    MustExist,
    Create,
}

/// Whether file tools must not write this path.
pub(crate) fn is_protected(path: &WorkspacePath) -> bool {
    path.components().any(|part| PROTECTED_NAMES.iter().any(|name| part.eq_ignore_ascii_case(name)))
}

/// Opens the parent folder of a writable `path` without following any link; returns it with the file's name.
pub(crate) fn open_writable_parent(
    root: &Dir,
    path: &WorkspacePath,
    parents: ParentFolders,
) -> Result<(Dir, std::ffi::OsString), FileError> {
    if is_protected(path) {
        return Err(FileError::Protected(path.clone()));
    }
    if would_make_repository(root, path).map_err(|error| FileError::from_io(path, error))? {
        return Err(FileError::MakesRepository(path.clone()));
    }
    open_parent(root, path, parents)
}

/// Whether git, run by a person in a folder on the way to `path`, would treat that folder as a repository and obey
/// its contents. Commands are checked for the same after they end, see [`docket_sandbox`].
fn would_make_repository(root: &Dir, path: &WorkspacePath) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_DIRECTORY.bits());
    let mut dir = root.try_clone()?;
    let mut parts = path.components().peekable();
    while let Some(part) = parts.next() {
        let entry = if parts.peek().is_some() { GitEntryKind::Folder } else { GitEntryKind::Other };
        if let Some(name) = GitName::from_file_name(part) {
            let before = git_shape(&dir)?;
            let mut after = before;
            after.add_entry(name, entry);
            if after.obeys(name, entry) || (after.can_run_programs() && !before.can_run_programs()) {
                return Ok(true);
            }
        }
        // If the folder does not exist, everything below it is new. The caller refuses anything that is not a folder.
        match dir.open_with(std::ffi::OsStr::from_bytes(part), &options) {
            Ok(below) => dir = Dir::from_std_file(below.into_std()),
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

fn git_shape(dir: &Dir) -> io::Result<RepositoryShape> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut shape = RepositoryShape::default();
    for entry in dir.entries()? {
        let entry = entry?;
        if let Some(name) = GitName::from_file_name(entry.file_name().as_bytes()) {
            let is_folder = entry.file_type()?.is_dir();
            shape.add_entry(name, if is_folder { GitEntryKind::Folder } else { GitEntryKind::Other });
        }
    }
    Ok(shape)
}

/// Opens the parent folder like [`open_writable_parent`], for any path.
pub(crate) fn open_parent(
    root: &Dir,
    path: &WorkspacePath,
    parents: ParentFolders,
) -> Result<(Dir, std::ffi::OsString), FileError> {
    use std::os::unix::ffi::OsStrExt as _;
    let fail = |error| FileError::from_io(path, error);
    let mut dir = root.try_clone().map_err(fail)?;
    let mut parts = path.components().map(std::ffi::OsStr::from_bytes).peekable();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_DIRECTORY.bits());
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Ok((dir, part.to_owned()));
        }
        let opened = match dir.open_with(part, &options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && parents == ParentFolders::Create => {
                dir.create_dir(part).map_err(fail)?;
                let made = dir.open_with(part, &options).map_err(fail)?;
                chown_to_owner_of(&dir, &made).map_err(fail)?;
                made.set_permissions(Permissions::from_mode(NEW_FOLDER_MODE)).map_err(fail)?;
                made
            }
            opened => opened.map_err(fail)?,
        };
        dir = Dir::from_std_file(opened.into_std());
    }
    Err(PathError(path.to_string()).into())
}

fn write_temporary(dir: &Dir, path: &WorkspacePath, bytes: &[u8], mode: u32) -> Result<String, FileError> {
    let fail = |error| FileError::from_io(path, error);
    let name = format!("{TEMPORARY_PREFIX}{}", &BlobHash::hash_bytes(path.as_bytes()).to_string()[..16]);
    // A crash may have left it behind; writes in one workspace never overlap.
    match dir.remove_file(&name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = dir.open_with(&name, &options).map_err(fail)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| chown_to_owner_of(dir, &file))
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all());
    match written {
        Ok(()) => Ok(name),
        Err(error) => {
            // The caller needs the first error; the next write removes a leftover file.
            dir.remove_file(&name).ok();
            Err(fail(error))
        }
    }
}

/// If docket runs as root, the workspace belongs to the user that its commands run as. Files created by the file
/// tools must belong to that user too. Otherwise a command could change a file after a recovery, which restores
/// owners, but not before.
fn chown_to_owner_of(dir: &Dir, made: &File) -> io::Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let folder = dir.dir_metadata()?;
    fchown(made, Some(Uid::from_raw(folder.uid())), Some(Gid::from_raw(folder.gid())))?;
    Ok(())
}

/// Removes the temporary file after a failure; makes a success durable.
fn finish_write(
    dir: &Dir,
    path: &WorkspacePath,
    temporary: &str,
    done: Result<(), FileError>,
) -> Result<(), FileError> {
    if done.is_err() {
        // As above.
        dir.remove_file(temporary).ok();
        return done;
    }
    // The handle may be a path-only handle of the folder, which cannot be synced.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
    let synced = dir.open_with(".", &options).and_then(|folder| folder.sync_all());
    synced.map_err(|error| FileError::from_io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::TestWorkspace;

    fn path(text: &str) -> WorkspacePath {
        WorkspacePath::new(text).expect("legal")
    }

    #[test]
    fn files_outside_the_workspace_are_not_read_or_written() {
        let outside = tempfile::tempdir().expect("temp");
        std::fs::write(outside.path().join("secret"), "s").expect("write");
        let w = TestWorkspace::new(&[("real/x.txt", "x\n")]);
        w.create_link("out", outside.path());
        w.create_link("abs", outside.path().join("secret"));
        w.create_link("in", "real");
        for leaving in ["out/secret", "abs"] {
            let error = load_file(&w.dir, &path(leaving)).expect_err("refused");
            let outside = matches!(error, FileError::OutsideWorkspace(_) | FileError::BrokenLink(..));
            assert!(outside, "{leaving}: {error:?}");
        }
        assert!(matches!(create_file(&w.dir, &path("out/new"), b"x"), Err(FileError::IsLink(_))));
        assert!(!outside.path().join("new").exists());
        let old = load_file(&w.dir, &path("in/x.txt")).expect("a link that stays inside is read");
        assert!(matches!(replace_file(&w.dir, &path("in/x.txt"), &old, b"y"), Err(FileError::IsLink(_))));
        assert!(matches!(
            create_file(&w.dir, &path(".git/hooks/pre-commit"), b"x"),
            Err(FileError::Protected(_))
        ));
        assert!(matches!(create_file(&w.dir, &path("sub/.git/config"), b"x"), Err(FileError::Protected(_))));
    }

    #[test]
    fn only_regular_files_with_one_link_are_accessed() {
        let w = TestWorkspace::new(&[("a", "1\n"), ("d/b", "2\n")]);
        nix::unistd::mkfifo(&w.full_path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        assert!(matches!(load_file(&w.dir, &path("fifo")), Err(FileError::NotAFile(..))));
        assert!(matches!(load_file(&w.dir, &path("d")), Err(FileError::IsFolder(_))));
        std::fs::hard_link(w.full_path("a"), w.full_path("a2")).expect("link");
        assert!(matches!(load_file(&w.dir, &path("a")), Err(FileError::HardLinked(_))));
        std::fs::remove_file(w.full_path("a2")).expect("removes");
        let old = load_file(&w.dir, &path("a")).expect("reads");
        std::fs::hard_link(w.full_path("a"), w.full_path("a2")).expect("link");
        assert!(matches!(replace_file(&w.dir, &path("a"), &old, b"x"), Err(FileError::HardLinked(_))));
        assert_eq!(w.read_file("a"), "1\n");
    }

    #[test]
    fn new_files_belong_to_the_owner_of_their_folder() {
        use std::os::unix::fs::MetadataExt as _;
        let w = TestWorkspace::new(&[("a", "1\n")]);
        // Only root can change owners; for other users the folder's owner is themselves.
        if Uid::effective().is_root() {
            std::os::unix::fs::chown(w.full_path("."), Some(65_525), Some(65_525)).expect("chown");
        }
        let owner = std::fs::metadata(w.full_path(".")).expect("is there").uid();
        create_file(&w.dir, &path("x/y/z.txt"), b"z").expect("creates");
        let old = load_file(&w.dir, &path("a")).expect("reads");
        replace_file(&w.dir, &path("a"), &old, b"2\n").expect("writes");
        for made in ["x", "x/y", "x/y/z.txt", "a"] {
            assert_eq!(std::fs::metadata(w.full_path(made)).expect("is there").uid(), owner, "{made}");
        }
    }

    #[test]
    fn write_keeps_the_mode_and_leaves_no_temporary_file() {
        let w = TestWorkspace::new(&[("run.sh", "a\n")]);
        w.set_mode("run.sh", 0o755);
        let old = load_file(&w.dir, &path("run.sh")).expect("reads");
        replace_file(&w.dir, &path("run.sh"), &old, b"b\n").expect("writes");
        assert_eq!((w.read_file("run.sh").as_str(), w.file_mode("run.sh")), ("b\n", 0o755));
        assert!(matches!(
            replace_file(&w.dir, &path("run.sh"), &old, b"c\n"),
            Err(FileError::ChangedWhileWriting(_))
        ));
        create_file(&w.dir, &path("x/y/z.txt"), b"z").expect("creates");
        assert_eq!((w.file_mode("x/y/z.txt"), w.file_mode("x")), (0o644, 0o755));
        assert!(matches!(create_file(&w.dir, &path("x/y/z.txt"), b"q"), Err(FileError::Exists(_))));
        assert_eq!(w.file_names(), ["run.sh", "x/y/z.txt"]);
    }
}
