//! Temporarily gives a person's folder to commands. When docket is root, commands run as another host user
//! and can write only what that user owns.

use std::{
    collections::BTreeMap,
    ffi::{CStr, OsStr},
    io,
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd},
    path::{Path, PathBuf},
};

use nix::{
    dir::Type,
    fcntl::AtFlags,
    libc,
    sys::stat::fstat,
    unistd::{Gid, Uid, fchown, fchownat},
};

use super::{
    host::workspace_owner,
    safe_walk::{self, WalkAction, WalkEntry, WalkVisitor},
};

/// Folders that must not change ownership: a typo must not give a system away. Neither these nor anything in
/// them …
const SYSTEM_FOLDERS: [&str; 11] =
    ["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "sbin", "sys", "usr"];
/// … of these, only folders in them …
const SYSTEM_PARENTS: [&str; 9] = ["home", "media", "mnt", "opt", "root", "run", "srv", "tmp", "var"];
/// … and of these, only folders two levels below.
const SYSTEM_GRANDPARENTS: [&str; 2] = ["home", "var"];

/// Records a folder's original owner, in case docket is killed before it restores the ownership. Only root
/// can write it.
const OWNER_XATTR: &CStr = c"trusted.docket.owner";

type UnixOwner = (u32, u32);

/// A folder owned by commands while this guard lives.
#[derive(Debug)]
pub struct OwnershipGuard {
    folder: PathBuf,
    original: Option<OriginalOwnership>,
}

/// The original owner of everything in a folder.
#[derive(Debug)]
struct OriginalOwnership {
    owner: UnixOwner,
    others: BTreeMap<PathBuf, UnixOwner>,
}

/// Why a folder cannot be given to commands.
#[derive(Debug, thiserror::Error)]
pub enum OwnershipError {
    /// It is a system folder.
    #[error("{0} is a system folder: choose a folder that contains only files commands may write to")]
    SystemFolder(PathBuf),
    /// It cannot be read, or its owner cannot be changed.
    #[error(
        "the folder {folder} cannot be given to commands: it must exist, and docket must be allowed to change its owner"
    )]
    ChangeOwner {
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}

impl OwnershipGuard {
    /// Gives `folder` and its contents to commands, except files with another hard link elsewhere. Changes
    /// nothing if docket is not root or commands already own the folder.
    ///
    /// # Errors
    /// Returns [`OwnershipError`] if the folder is a system folder, cannot be read, or cannot change its
    /// owner.
    pub fn new(folder: &Path) -> Result<Self, OwnershipError> {
        let refuse = |source| OwnershipError::ChangeOwner { folder: folder.to_owned(), source };
        let folder = folder.canonicalize().map_err(refuse)?;
        if is_system_folder(&folder)
            || std::env::var_os("HOME").is_some_and(|home| folder == Path::new(&home))
        {
            return Err(OwnershipError::SystemFolder(folder));
        }
        let root = safe_walk::open_root(&folder).map_err(refuse)?;
        let stat = fstat(&root).map_err(|errno| refuse(errno.into()))?;
        let found = (stat.st_uid, stat.st_gid);
        let Some(to) = workspace_owner() else { return Ok(Self { folder, original: None }) };
        // A previous docket may have been killed before it restored the owner.
        let noted = read_owner_note(root.as_fd());
        let owner = noted.filter(|_| found == to).unwrap_or(found);
        if owner == to {
            return Ok(Self { folder, original: None });
        }
        // On a file system that cannot store the note, the folder of a killed docket stays with the
        // commands' user.
        let _ = write_owner_note(root.as_fd(), Some(owner));
        fchown(root.as_fd(), Some(Uid::from_raw(to.0)), Some(Gid::from_raw(to.1)))
            .map_err(|errno| refuse(errno.into()))?;
        let mut lending = OwnershipTransfer { to, owner, others: BTreeMap::new() };
        let walked = safe_walk::walk(root, &mut lending);
        let lent = Self {
            folder: folder.clone(),
            original: Some(OriginalOwnership { owner, others: lending.others }),
        };
        walked.map_err(|source| OwnershipError::ChangeOwner { folder, source })?;
        Ok(lent)
    }

    /// Returns the folder, without links in its path.
    pub fn folder(&self) -> &Path {
        &self.folder
    }
}

impl Drop for OwnershipGuard {
    fn drop(&mut self) {
        let (Some(back), Some(from)) = (self.original.take(), workspace_owner()) else { return };
        let Ok(root) = safe_walk::open_root(&self.folder) else { return };
        // Files whose owner cannot be restored stay with the commands' user.
        let _ = fchown(root.as_fd(), Some(Uid::from_raw(back.owner.0)), Some(Gid::from_raw(back.owner.1)));
        let note = root.as_fd().try_clone_to_owned();
        let walked = safe_walk::walk(root, &mut OwnershipRestore { from, back });
        if let (Ok(note), Ok(_)) = (note, walked) {
            let _ = write_owner_note(note.as_fd(), None);
        }
    }
}

fn is_system_folder(folder: &Path) -> bool {
    let parts: Vec<&OsStr> = folder.iter().skip(1).collect();
    let Some(first) = parts.first() else { return true };
    let is_one = |names: &[&str]| names.iter().any(|never| *first == *never);
    is_one(&SYSTEM_FOLDERS)
        || (parts.len() == 1 && is_one(&SYSTEM_PARENTS))
        || (parts.len() == 2 && is_one(&SYSTEM_GRANDPARENTS))
}

/// Returns the recorded original owner of a folder.
#[expect(unsafe_code, reason = "extended attributes have no wrapper in nix")]
fn read_owner_note(folder: BorrowedFd<'_>) -> Option<UnixOwner> {
    let mut bytes = [0_u8; 8];
    // SAFETY: the name ends in a zero byte, and at most eight bytes are written to a buffer of eight.
    let read = unsafe {
        libc::fgetxattr(folder.as_raw_fd(), OWNER_XATTR.as_ptr(), bytes.as_mut_ptr().cast(), bytes.len())
    };
    let part = |at: usize| bytes[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    (read == 8).then(|| Some((part(0)?, part(4)?))).flatten()
}

/// Records a folder's original owner, or removes the record.
#[expect(unsafe_code, reason = "extended attributes have no wrapper in nix")]
fn write_owner_note(folder: BorrowedFd<'_>, owner: Option<UnixOwner>) -> io::Result<()> {
    // SAFETY: the name ends in a zero byte; eight bytes are read from a buffer of eight.
    let done = unsafe {
        match owner {
            Some((uid, gid)) => {
                let bytes = [uid.to_le_bytes(), gid.to_le_bytes()].concat();
                libc::fsetxattr(
                    folder.as_raw_fd(),
                    OWNER_XATTR.as_ptr(),
                    bytes.as_ptr().cast(),
                    bytes.len(),
                    0,
                )
            }
            None => libc::fremovexattr(folder.as_raw_fd(), OWNER_XATTR.as_ptr()),
        }
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

struct OwnershipTransfer {
    to: UnixOwner,
    owner: UnixOwner,
    others: BTreeMap<PathBuf, UnixOwner>,
}

impl WalkVisitor for OwnershipTransfer {
    fn visit_entry(&mut self, met: &WalkEntry<'_>) -> WalkAction {
        if let Ok(stat) = met.stat() {
            let owner = (stat.st_uid, stat.st_gid);
            let elsewhere = met.kind != Type::Directory && stat.st_nlink > 1;
            if !elsewhere && owner != self.to && change_owner(met, self.to) && owner != self.owner {
                self.others.insert(met.path(), owner);
            }
        }
        WalkAction::Descend
    }
}

struct OwnershipRestore {
    from: UnixOwner,
    back: OriginalOwnership,
}

impl WalkVisitor for OwnershipRestore {
    fn visit_entry(&mut self, met: &WalkEntry<'_>) -> WalkAction {
        if met.stat().is_ok_and(|stat| (stat.st_uid, stat.st_gid) == self.from) {
            let owner = self.back.others.get(&met.path()).copied().unwrap_or(self.back.owner);
            change_owner(met, owner);
        }
        WalkAction::Descend
    }
}

fn change_owner(met: &WalkEntry<'_>, (uid, gid): UnixOwner) -> bool {
    let (uid, gid) = (Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)));
    fchownat(met.folder, met.name, uid, gid, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok()
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn ownership_is_restored_on_drop() {
        let dir = tempfile::tempdir().unwrap();
        let at = |path: &str| dir.path().join(path);
        fs::create_dir_all(at("work/sub")).unwrap();
        fs::write(at("work/sub/file"), "x").unwrap();
        fs::write(at("outside"), "x").unwrap();
        fs::hard_link(at("outside"), at("work/linked")).unwrap();
        let owner = |path: &str| {
            (fs::symlink_metadata(at(path)).unwrap().uid(), fs::symlink_metadata(at(path)).unwrap().gid())
        };
        let before = owner("work/sub/file");
        let lent = OwnershipGuard::new(&at("work")).unwrap();
        if let Some(to) = workspace_owner() {
            assert_eq!((owner("work"), owner("work/sub/file")), (to, to));
            fs::write(at("work/new"), "made meanwhile").unwrap();
            std::os::unix::fs::chown(at("work/new"), Some(to.0), Some(to.1)).unwrap();
            assert_eq!(owner("outside"), before, "what has a name elsewhere is not given away");
        } else {
            fs::write(at("work/new"), "made meanwhile").unwrap();
        }
        drop(lent);
        for path in ["work", "work/sub", "work/sub/file", "work/new", "outside"] {
            assert_eq!(owner(path), before, "{path}");
        }
    }

    #[test]
    fn ownership_is_restored_after_the_owner_process_was_killed() {
        let Some(to) = workspace_owner() else { return assert!(!nix::unistd::geteuid().is_root()) };
        let dir = tempfile::tempdir().unwrap();
        let work = dir.path().join("work");
        fs::create_dir(&work).unwrap();
        let owner = || fs::metadata(&work).map(|meta| (meta.uid(), meta.gid())).unwrap();
        let before = owner();
        let mut killed = OwnershipGuard::new(&work).unwrap();
        killed.original = None;
        drop(killed);
        assert_eq!(owner(), to, "control");
        drop(OwnershipGuard::new(&work).unwrap());
        assert_eq!(owner(), before);
    }

    #[test]
    fn system_folders_are_refused() {
        for folder in ["/", "/etc", "/usr", "/usr/share", "/root", "/home", "/tmp", "/var", "/var/lib"] {
            assert!(
                matches!(OwnershipGuard::new(Path::new(folder)), Err(OwnershipError::SystemFolder(_))),
                "{folder}"
            );
        }
        assert!(matches!(
            OwnershipGuard::new(Path::new("/no/such/folder")),
            Err(OwnershipError::ChangeOwner { .. })
        ));
    }
}
