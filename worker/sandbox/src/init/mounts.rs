//! Lays the root inside: an empty file system, the plan's entries, then everything else is let go.
//!
//! The host's root stays reachable under [`OLD`] while the entries are laid and is detached before anything
//! of the workspace is looked into, so that no link in it can lead to the host.

use std::{
    ffi::CString,
    fs::{self, DirBuilder, File},
    io,
    os::unix::{
        ffi::OsStrExt,
        fs::{DirBuilderExt, chown, symlink},
    },
    path::{Path, PathBuf},
};

use nix::{
    libc,
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{chdir, geteuid, pivot_root},
};

use super::{
    super::plan::{Call, Entry, INNER_HOME, INNER_ID, Plan},
    orders::{Failure, at},
    sys,
};

/// Where the host's root is while the new one is filled.
const OLD: &str = "/.old";

/// Holds folders, links and the made-up files only.
const ROOT_OPTIONS: &str = "mode=0755,size=4m,nr_inodes=4096";

const NONE: Option<&str> = None;

/// Builds the root of the current mount namespace and makes it `/`.
pub(super) fn build(plan: &Plan) -> Result<(), Failure> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).map_err(at("private mounts"))?;
    let base = "/tmp";
    mount(Some("tmpfs"), base, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(ROOT_OPTIONS))
        .map_err(at("root file system"))?;
    chdir(base).map_err(at("enter root"))?;
    folder(Path::new("./.old")).map_err(at("old root"))?;
    pivot_root(".", "./.old").map_err(at("pivot root"))?;
    chdir("/").map_err(at("enter root"))?;
    let (uid, gid) = plan.drop_to.unwrap_or((INNER_ID, INNER_ID));
    for entry in &plan.entries {
        lay(entry, uid, gid).map_err(at(describe(entry)))?;
    }
    folder(Path::new("/proc")).map_err(at("folder for proc"))?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), quiet, NONE).map_err(at("mount proc"))?;
    parent(Path::new(EMPTY)).and_then(|()| File::create(EMPTY).map(drop)).map_err(at("empty file"))?;
    umount2(OLD, MntFlags::MNT_DETACH).map_err(at("leave the host's root"))?;
    fs::remove_dir(OLD).map_err(at("remove old root"))?;
    let closed = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(NONE, "/", NONE, closed | MsFlags::MS_NOSUID | MsFlags::MS_NODEV, NONE).map_err(at("close root"))
}

/// An empty file that is laid over others.
const EMPTY: &str = "/etc/.empty";

/// Lays an empty file over another.
fn cover(target: &Path) -> io::Result<()> {
    if !Path::new(EMPTY).exists() {
        parent(Path::new(EMPTY))?;
        File::create(EMPTY)?;
    }
    mount(Some(EMPTY), target, NONE, MsFlags::MS_BIND, NONE)?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::harden_mount(&CString::new(target.as_os_str().as_bytes())?, attributes)
}

/// Makes what a command must not change read-only in the workspace, and what leads to others unreachable.
pub(super) fn protect_all(plan: &Plan, call: &Call) -> Result<(), Failure> {
    for path in &call.pinned {
        let path = plan.workspace.join(path);
        let pinned = is_reached_without_links(&path, &plan.workspace).and_then(|there| {
            if there {
                Ok(mount(Some(&path), &path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?)
            } else {
                Ok(())
            }
        });
        pinned.map_err(at(format!("pin {}", path.display())))?;
    }
    for path in &call.covered {
        let path = plan.workspace.join(path);
        match is_reached_without_links(&path, &plan.workspace) {
            Ok(true) => cover(&path).map_err(at(format!("cover {}", path.display())))?,
            Ok(false) => {}
            Err(error) => return Err(at(format!("cover {}", path.display()))(error)),
        }
    }
    for path in &call.protected {
        protect(&plan.workspace.join(path), &plan.workspace)
            .map_err(at(format!("protect {}", path.display())))?;
    }
    Ok(())
}

fn describe(entry: &Entry) -> String {
    let (what, path) = match entry {
        Entry::ReadOnly { target, .. } => ("read-only", target),
        Entry::Writable { target, .. } => ("writable", target),
        Entry::Tmpfs { target, .. } => ("tmpfs", target),
        Entry::Device { path } => ("device", path),
        Entry::File { target, .. } => ("file", target),
        Entry::Link { target, .. } => ("link", target),
        Entry::Empty { target } => ("empty", target),
    };
    format!("lay {what} {}", path.display())
}

fn folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn old(path: &Path) -> PathBuf {
    Path::new(OLD).join(path.strip_prefix("/").unwrap_or(path))
}

fn lay(entry: &Entry, uid: u32, gid: u32) -> io::Result<()> {
    match entry {
        Entry::ReadOnly { source, target } => {
            if let Ok(below) = target.strip_prefix(INNER_HOME) {
                own_parents(below, uid, gid)?;
            }
            let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            bind(&old(source), target, attributes)
        }
        Entry::Writable { source, target } => {
            bind(&old(source), target, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
        }
        Entry::Device { path } => bind(&old(path), path, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC),
        Entry::Tmpfs { target, bytes, inodes } => {
            folder(target)?;
            let options = format!("mode=0755,size={bytes},nr_inodes={inodes},uid={uid},gid={gid}");
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            Ok(mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options.as_str()))?)
        }
        Entry::File { target, text } => {
            parent(target)?;
            fs::write(target, text)
        }
        Entry::Link { target, points_to } => {
            parent(target)?;
            symlink(points_to, target)
        }
        Entry::Empty { target } => cover(target),
    }
}

fn parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), folder)
}

/// Folders of the private home that hold a mount belong to the command as the home does.
fn own_parents(below: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut current = PathBuf::from(INNER_HOME);
    for part in below.parent().into_iter().flatten() {
        current.push(part);
        folder(&current)?;
        if geteuid().is_root() {
            chown(&current, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

fn bind(source: &Path, target: &Path, attributes: u64) -> io::Result<()> {
    if source.is_dir() {
        folder(target)?;
    } else {
        parent(target)?;
        File::create(target)?;
    }
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    sys::harden_mount(&CString::new(target.as_os_str().as_bytes())?, attributes)
}

/// Whether a path of the workspace exists and no part of it is a link.
fn is_reached_without_links(path: &Path, workspace: &Path) -> io::Result<bool> {
    let mut current = workspace.to_owned();
    for part in path.strip_prefix(workspace).unwrap_or(path) {
        current.push(part);
        match fs::symlink_metadata(&current) {
            Ok(meta) if meta.is_symlink() => return Ok(false),
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(false);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Makes a path of the workspace read-only where it stands. The host's root is gone by now, so whatever a
/// link may point to is inside; a link as any component of the path is left alone.
fn protect(path: &Path, workspace: &Path) -> io::Result<()> {
    if !is_reached_without_links(path, workspace)? {
        return Ok(());
    }
    mount(Some(path), path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::harden_mount(&CString::new(path.as_os_str().as_bytes())?, attributes)
}
