//! Files of the workspace, through its directory handle: no `..`, no link that leads out, regular
//! files only, sizes capped, writes atomic.

use std::io::{self, Read as _, Write as _};

use crate::calls::PathError;
use cap_std::fs::{
    Dir, File, FileType, FileTypeExt as _, Metadata, MetadataExt as _, OpenOptions, OpenOptionsExt as _,
    Permissions, PermissionsExt as _,
};
use docket_sandbox::git_shape::{GitEntry, GitName, GitShape};
use docket_schema::{content::WorkPath, ids::BlobHash, snapshot::PERMISSION_BITS};
use nix::{
    fcntl::OFlag,
    unistd::{Gid, Uid, fchown},
};

/// Largest file that is read into memory, in bytes: larger ones are data, not source.
pub(crate) const FILE_BYTES_MAX: u64 = 10 * 1024 * 1024;

/// Parts of a path that no file tool writes below, in any letter case, for some file systems take all for one:
/// git's own folder runs what is put there, and docket's settings are not the model's.
const PROTECTED: [&[u8]; 3] = [b".git", b".docket", b"docket.toml"];

/// Names of the temporary file beside the one that is written.
const TEMPORARY: &str = ".docket-write-";

/// Why a file cannot be read or written, for the model.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FileError {
    #[error(transparent)]
    Path(#[from] PathError),
    #[error("`{0}` does not exist: list_files shows what does")]
    Missing(WorkPath),
    #[error("`{0}` is a symbolic link to `{1}`, which {2}")]
    LeadsNowhere(WorkPath, String, &'static str),
    #[error("`{0}` is a folder, not a file: use list_files")]
    Folder(WorkPath),
    #[error("`{0}` is {1}, not a file: nothing in it can be read again")]
    NotAFile(WorkPath, &'static str),
    #[error("`{0}` is not a folder: give the folder it lies in")]
    NotAFolder(WorkPath),
    #[error("`{0}` leads out of the workspace")]
    Outside(WorkPath),
    #[error("`{0}` is a symbolic link, or lies below one: name the file it points to")]
    Link(WorkPath),
    #[error(
        "`{0}` has other names (hard links), perhaps outside the workspace: file tools neither read nor write it; copy it first"
    )]
    Shared(WorkPath),
    #[error(
        "`{0}` is protected and cannot be written by file tools: git's own folder and docket's settings are a person's"
    )]
    Protected(WorkPath),
    #[error(
        "`{0}` is protected and cannot be written by file tools: with it git would take its folder for a repository, \
         and run what is configured there, for a person who uses git in it; choose another name or folder"
    )]
    Repository(WorkPath),
    #[error("the workspace cannot be opened")]
    Root(#[source] io::Error),
    #[error(
        "`{0}` has {1} bytes, more than the {FILE_BYTES_MAX} that are edited or shown whole: change it by a command"
    )]
    TooLarge(WorkPath, u64),
    #[error("`{0}` exists already")]
    Exists(WorkPath),
    #[error("`{0}` changed while it was being written: read it again")]
    Raced(WorkPath),
    #[error("`{path}`: {source}")]
    Io { path: WorkPath, source: io::Error },
}

impl FileError {
    pub(crate) fn io(path: &WorkPath, source: io::Error) -> Self {
        let path = path.clone();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing(path),
            io::ErrorKind::IsADirectory => Self::Folder(path),
            io::ErrorKind::AlreadyExists => Self::Exists(path),
            // cap-std's own answer to a path that leaves the handle.
            io::ErrorKind::PermissionDenied if source.raw_os_error().is_none() => Self::Outside(path),
            _ => match source.raw_os_error().map(nix::errno::Errno::from_raw) {
                Some(nix::errno::Errno::ELOOP | nix::errno::Errno::ENOTDIR) => Self::Link(path),
                Some(nix::errno::Errno::EXDEV) => Self::Outside(path),
                Some(_) | None => Self::Io { path, source },
            },
        }
    }
}

/// The path as the operating system takes it.
pub(crate) fn os(path: &WorkPath) -> &std::path::Path {
    use std::os::unix::ffi::OsStrExt as _;
    std::path::Path::new(std::ffi::OsStr::from_bytes(path.as_bytes()))
}

/// A file's bytes and what it was.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) bytes: Vec<u8>,
    pub(crate) hash: BlobHash,
    pub(crate) mode: u32,
    pub(crate) links: u64,
}

/// Opens a regular file. A FIFO or device is refused without waiting for its other end.
pub(crate) fn open(root: &Dir, path: &WorkPath) -> Result<(File, Metadata), FileError> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NONBLOCK.bits() | OFlag::O_NOCTTY.bits());
    let file = root.open_with(os(path), &options).map_err(|error| unopened(root, path, error))?;
    let meta = file.metadata().map_err(|error| FileError::io(path, error))?;
    if meta.is_dir() {
        return Err(FileError::Folder(path.clone()));
    }
    if !meta.is_file() {
        return Err(FileError::NotAFile(path.clone(), kind_of(meta.file_type())));
    }
    // One of its names may stand outside, and what is read here goes to a model.
    if meta.nlink() > 1 {
        return Err(FileError::Shared(path.clone()));
    }
    Ok((file, meta))
}

/// Why a path does not open: of a link, what it points to.
fn unopened(root: &Dir, path: &WorkPath, error: io::Error) -> FileError {
    let found = root.symlink_metadata(os(path)).map(|meta| meta.file_type());
    // A socket cannot be opened at all.
    if let Ok(found) = &found
        && !found.is_symlink()
        && !found.is_file()
        && !found.is_dir()
    {
        return FileError::NotAFile(path.clone(), kind_of(*found));
    }
    let error = FileError::io(path, error);
    // The link may be one that leads out, which cap-std does not read.
    let target = found.ok().filter(FileType::is_symlink).and_then(|_| root.read_link_contents(os(path)).ok());
    let Some(target) = target else { return error };
    let why = match &error {
        FileError::Missing(_) => "does not exist",
        FileError::Outside(_) => "is not in the workspace: only what is in it can be read",
        FileError::Link(_) => "leads on and on: name a file",
        _ => return error,
    };
    FileError::LeadsNowhere(path.clone(), target.to_string_lossy().into_owned(), why)
}

fn kind_of(found: FileType) -> &'static str {
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

/// A size as people read it.
pub(crate) fn size_text(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{}.{} KiB", bytes / 1024, bytes % 1024 * 10 / 1024),
        _ => format!("{}.{} MiB", bytes / 1_048_576, bytes % 1_048_576 * 10 / 1_048_576),
    }
}

/// Reads a regular file of at most [`FILE_BYTES_MAX`].
pub(crate) fn load(root: &Dir, path: &WorkPath) -> Result<Loaded, FileError> {
    let (file, meta) = open(root, path)?;
    load_opened(file, &meta, path)
}

/// Reads what [`open`] opened.
pub(crate) fn load_opened(file: File, meta: &Metadata, path: &WorkPath) -> Result<Loaded, FileError> {
    if meta.len() > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(path.clone(), meta.len()));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).unwrap_or(0));
    // One more than allowed: the file may have grown since its size was asked.
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| FileError::io(path, error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(FileError::TooLarge(path.clone(), bytes.len() as u64));
    }
    let hash = BlobHash::of(&bytes);
    Ok(Loaded { bytes, hash, mode: meta.mode() & PERMISSION_BITS, links: meta.nlink() })
}

/// Replaces the bytes of a file that was loaded; its mode stays.
pub(crate) fn replace(root: &Dir, path: &WorkPath, old: &Loaded, bytes: &[u8]) -> Result<(), FileError> {
    let (dir, name) = parent(root, path, Parents::MustExist)?;
    let meta = dir.symlink_metadata(&name).map_err(|error| FileError::io(path, error))?;
    if meta.is_symlink() {
        return Err(FileError::Link(path.clone()));
    }
    if old.links > 1 || meta.nlink() > 1 {
        return Err(FileError::Shared(path.clone()));
    }
    let temporary = write_temporary(&dir, path, bytes, old.mode)?;
    let done = match load(root, path) {
        Ok(now) if now.hash == old.hash => {
            dir.rename(&temporary, &dir, &name).map_err(|error| FileError::io(path, error))
        }
        Ok(_) => Err(FileError::Raced(path.clone())),
        Err(error) => Err(error),
    };
    finish(&dir, path, &temporary, done)
}

/// Makes a file that does not exist, and the folders above it.
pub(crate) fn create(root: &Dir, path: &WorkPath, bytes: &[u8]) -> Result<(), FileError> {
    create_with_mode(root, path, bytes, NEW_FILE_MODE)
}

/// The same with another mode.
pub(crate) fn create_with_mode(
    root: &Dir,
    path: &WorkPath,
    bytes: &[u8],
    mode: u32,
) -> Result<(), FileError> {
    let (dir, name) = parent(root, path, Parents::Make)?;
    if dir.symlink_metadata(&name).is_ok() {
        return Err(FileError::Exists(path.clone()));
    }
    let temporary = write_temporary(&dir, path, bytes, mode)?;
    // A link, unlike a rename, never replaces what appeared in the meantime.
    let done = dir
        .hard_link(&temporary, &dir, &name)
        .and_then(|()| dir.remove_file(&temporary))
        .map_err(|error| FileError::io(path, error));
    finish(&dir, path, &temporary, done)
}

const NEW_FILE_MODE: u32 = 0o644;
const NEW_FOLDER_MODE: u32 = 0o755;

/// What is done about folders above a path that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Parents {
    MustExist,
    Make,
}

/// Whether a path is one that no file tool writes.
pub(crate) fn is_protected(path: &WorkPath) -> bool {
    path.parts().any(|part| PROTECTED.iter().any(|name| part.eq_ignore_ascii_case(name)))
}

/// The folder of a `path` that may be written, reached without following any link, and the name in it.
pub(crate) fn parent(
    root: &Dir,
    path: &WorkPath,
    parents: Parents,
) -> Result<(Dir, std::ffi::OsString), FileError> {
    if is_protected(path) {
        return Err(FileError::Protected(path.clone()));
    }
    if makes_repository(root, path).map_err(|error| FileError::io(path, error))? {
        return Err(FileError::Repository(path.clone()));
    }
    folder_of(root, path, parents)
}

/// Whether git, run by a person in a folder on the way to `path`, would take that folder for a repository and obey what
/// is written there. Commands are checked for the same after they ended, see [`docket_sandbox`].
fn makes_repository(root: &Dir, path: &WorkPath) -> io::Result<bool> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_DIRECTORY.bits());
    let mut dir = root.try_clone()?;
    let mut parts = path.parts().peekable();
    while let Some(part) = parts.next() {
        let entry = if parts.peek().is_some() { GitEntry::Folder } else { GitEntry::Other };
        if let Some(name) = GitName::of(part) {
            let before = shape_of(&dir)?;
            let mut after = before;
            after.add(name, entry);
            if after.obeys(name, entry) || (after.is_armed() && !before.is_armed()) {
                return Ok(true);
            }
        }
        // Where the folder is not there yet, everything below is new. What is no folder is refused by the caller.
        match dir.open_with(std::ffi::OsStr::from_bytes(part), &options) {
            Ok(below) => dir = Dir::from_std_file(below.into_std()),
            Err(_) => return Ok(false),
        }
    }
    Ok(false)
}

fn shape_of(dir: &Dir) -> io::Result<GitShape> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut shape = GitShape::default();
    for entry in dir.entries()? {
        let entry = entry?;
        if let Some(name) = GitName::of(entry.file_name().as_bytes()) {
            let is_folder = entry.file_type()?.is_dir();
            shape.add(name, if is_folder { GitEntry::Folder } else { GitEntry::Other });
        }
    }
    Ok(shape)
}

/// The same, whatever its name.
pub(crate) fn folder_of(
    root: &Dir,
    path: &WorkPath,
    parents: Parents,
) -> Result<(Dir, std::ffi::OsString), FileError> {
    use std::os::unix::ffi::OsStrExt as _;
    let fail = |error| FileError::io(path, error);
    let mut dir = root.try_clone().map_err(fail)?;
    let mut parts = path.parts().map(std::ffi::OsStr::from_bytes).peekable();
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_NOFOLLOW.bits() | OFlag::O_DIRECTORY.bits());
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return Ok((dir, part.to_owned()));
        }
        let opened = match dir.open_with(part, &options) {
            Err(error) if error.kind() == io::ErrorKind::NotFound && parents == Parents::Make => {
                dir.create_dir(part).map_err(fail)?;
                let made = dir.open_with(part, &options).map_err(fail)?;
                give_to_owner_of(&dir, &made).map_err(fail)?;
                made.set_permissions(Permissions::from_mode(NEW_FOLDER_MODE)).map_err(fail)?;
                made
            }
            opened => opened.map_err(fail)?,
        };
        dir = Dir::from_std_file(opened.into_std());
    }
    Err(PathError(path.to_string()).into())
}

fn write_temporary(dir: &Dir, path: &WorkPath, bytes: &[u8], mode: u32) -> Result<String, FileError> {
    let fail = |error| FileError::io(path, error);
    let name = format!("{TEMPORARY}{}", &BlobHash::of(path.as_bytes()).to_string()[..16]);
    // What a crash left behind; runs of one workspace write one after another.
    match dir.remove_file(&name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(fail(error)),
        Ok(()) | Err(_) => {}
    }
    let mut options = OpenOptions::new();
    options.write(true).create_new(true).mode(0o600);
    let mut file = dir.open_with(&name, &options).map_err(fail)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| give_to_owner_of(dir, &file))
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all());
    match written {
        Ok(()) => Ok(name),
        Err(error) => {
            // The first failure is what the caller needs to know; a leftover is removed by the next write.
            dir.remove_file(&name).ok();
            Err(fail(error))
        }
    }
}

/// A root's docket works in a workspace that belongs to the user its commands run as: what the file
/// tools make there must be theirs too, or a command could change a file after a recovery (which
/// restores owners) and not before.
fn give_to_owner_of(dir: &Dir, made: &File) -> io::Result<()> {
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let folder = dir.dir_metadata()?;
    fchown(made, Some(Uid::from_raw(folder.uid())), Some(Gid::from_raw(folder.gid())))?;
    Ok(())
}

/// Removes the temporary file after a failure; makes a success durable.
fn finish(dir: &Dir, path: &WorkPath, temporary: &str, done: Result<(), FileError>) -> Result<(), FileError> {
    if done.is_err() {
        // As above.
        dir.remove_file(temporary).ok();
        return done;
    }
    // The handle itself may be one that only names the folder, which cannot be synced.
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(OFlag::O_DIRECTORY.bits());
    let synced = dir.open_with(".", &options).and_then(|folder| folder.sync_all());
    synced.map_err(|error| FileError::io(path, error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tools::testing::Workspace;

    fn path(text: &str) -> WorkPath {
        WorkPath::new(text).expect("legal")
    }

    #[test]
    fn nothing_is_read_or_written_outside() {
        let outside = tempfile::tempdir().expect("temp");
        std::fs::write(outside.path().join("secret"), "s").expect("write");
        let w = Workspace::new(&[("real/x.txt", "x\n")]);
        w.link("out", outside.path());
        w.link("abs", outside.path().join("secret"));
        w.link("in", "real");
        for leaving in ["out/secret", "abs"] {
            let error = load(&w.dir, &path(leaving)).expect_err("refused");
            let outside = matches!(error, FileError::Outside(_) | FileError::LeadsNowhere(..));
            assert!(outside, "{leaving}: {error:?}");
        }
        assert!(matches!(create(&w.dir, &path("out/new"), b"x"), Err(FileError::Link(_))));
        assert!(!outside.path().join("new").exists());
        let old = load(&w.dir, &path("in/x.txt")).expect("a link that stays inside is read");
        assert!(matches!(replace(&w.dir, &path("in/x.txt"), &old, b"y"), Err(FileError::Link(_))));
        assert!(matches!(create(&w.dir, &path(".git/hooks/pre-commit"), b"x"), Err(FileError::Protected(_))));
        assert!(matches!(create(&w.dir, &path("sub/.git/config"), b"x"), Err(FileError::Protected(_))));
    }

    #[test]
    fn only_regular_files_with_one_name() {
        let w = Workspace::new(&[("a", "1\n"), ("d/b", "2\n")]);
        nix::unistd::mkfifo(&w.path("fifo"), nix::sys::stat::Mode::S_IRWXU).expect("fifo");
        assert!(matches!(load(&w.dir, &path("fifo")), Err(FileError::NotAFile(..))));
        assert!(matches!(load(&w.dir, &path("d")), Err(FileError::Folder(_))));
        std::fs::hard_link(w.path("a"), w.path("a2")).expect("link");
        assert!(matches!(load(&w.dir, &path("a")), Err(FileError::Shared(_))));
        std::fs::remove_file(w.path("a2")).expect("removes");
        let old = load(&w.dir, &path("a")).expect("reads");
        std::fs::hard_link(w.path("a"), w.path("a2")).expect("link");
        assert!(matches!(replace(&w.dir, &path("a"), &old, b"x"), Err(FileError::Shared(_))));
        assert_eq!(w.read("a"), "1\n");
    }

    #[test]
    fn what_is_made_belongs_to_the_owner_of_its_folder() {
        use std::os::unix::fs::MetadataExt as _;
        let w = Workspace::new(&[("a", "1\n")]);
        // Only root can give anything away; for others the folder's owner is who they are.
        if Uid::effective().is_root() {
            std::os::unix::fs::chown(w.path("."), Some(65_525), Some(65_525)).expect("chown");
        }
        let owner = std::fs::metadata(w.path(".")).expect("is there").uid();
        create(&w.dir, &path("x/y/z.txt"), b"z").expect("creates");
        let old = load(&w.dir, &path("a")).expect("reads");
        replace(&w.dir, &path("a"), &old, b"2\n").expect("writes");
        for made in ["x", "x/y", "x/y/z.txt", "a"] {
            assert_eq!(std::fs::metadata(w.path(made)).expect("is there").uid(), owner, "{made}");
        }
    }

    #[test]
    fn a_write_keeps_the_mode_and_leaves_nothing_beside() {
        let w = Workspace::new(&[("run.sh", "a\n")]);
        w.chmod("run.sh", 0o755);
        let old = load(&w.dir, &path("run.sh")).expect("reads");
        replace(&w.dir, &path("run.sh"), &old, b"b\n").expect("writes");
        assert_eq!((w.read("run.sh").as_str(), w.mode("run.sh")), ("b\n", 0o755));
        assert!(matches!(replace(&w.dir, &path("run.sh"), &old, b"c\n"), Err(FileError::Raced(_))));
        create(&w.dir, &path("x/y/z.txt"), b"z").expect("creates");
        assert_eq!((w.mode("x/y/z.txt"), w.mode("x")), (0o644, 0o755));
        assert!(matches!(create(&w.dir, &path("x/y/z.txt"), b"q"), Err(FileError::Exists(_))));
        assert_eq!(w.names(), ["run.sh", "x/y/z.txt"]);
    }
}
