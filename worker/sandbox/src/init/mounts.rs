//! Builds the root inside: an empty file system with the plan's entries, then detaches everything else.
//!
//! The host's root stays reachable under [`OLD_ROOT`] while the entries are mounted. It is detached before
//! any path of the workspace is resolved, so that no link in it can lead to the host.

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
    super::plan::{CommandPlan, INNER_HOME, INNER_ID, MountEntry, SandboxPlan},
    init_context::{SetupFailure, failed_at},
    sys,
};

/// Path of the host's root while the new one is built.
const OLD_ROOT: &str = "/.old";

/// The root holds only folders, links and generated files.
const ROOT_OPTIONS: &str = "mode=0755,size=4m,nr_inodes=4096";

const NONE: Option<&str> = None;

/// Builds the root of the current mount namespace and makes it `/`.
pub(super) fn build_root(plan: &SandboxPlan) -> Result<(), SetupFailure> {
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(failed_at("private mounts"))?;
    let base = "/tmp";
    mount(Some("tmpfs"), base, Some("tmpfs"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(ROOT_OPTIONS))
        .map_err(failed_at("root file system"))?;
    chdir(base).map_err(failed_at("enter root"))?;
    create_folder(Path::new("./.old")).map_err(failed_at("old root"))?;
    pivot_root(".", "./.old").map_err(failed_at("pivot root"))?;
    chdir("/").map_err(failed_at("enter root"))?;
    let (uid, gid) = plan.drop_to.unwrap_or((INNER_ID, INNER_ID));
    for entry in &plan.entries {
        mount_entry(entry, uid, gid).map_err(failed_at(describe_entry(entry)))?;
    }
    create_folder(Path::new("/proc")).map_err(failed_at("folder for proc"))?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), quiet, NONE).map_err(failed_at("mount proc"))?;
    create_parent(Path::new(EMPTY_FILE))
        .and_then(|()| File::create(EMPTY_FILE).map(drop))
        .map_err(failed_at("empty file"))?;
    umount2(OLD_ROOT, MntFlags::MNT_DETACH).map_err(failed_at("leave the host's root"))?;
    fs::remove_dir(OLD_ROOT).map_err(failed_at("remove old root"))?;
    let closed = MsFlags::MS_REMOUNT | MsFlags::MS_BIND | MsFlags::MS_RDONLY;
    mount(NONE, "/", NONE, closed | MsFlags::MS_NOSUID | MsFlags::MS_NODEV, NONE)
        .map_err(failed_at("close root"))
}

/// An empty file that is mounted over others.
const EMPTY_FILE: &str = "/etc/.empty";

/// Mounts an empty file over another.
fn cover_with_empty_file(target: &Path) -> io::Result<()> {
    if !Path::new(EMPTY_FILE).exists() {
        create_parent(Path::new(EMPTY_FILE))?;
        File::create(EMPTY_FILE)?;
    }
    mount(Some(EMPTY_FILE), target, NONE, MsFlags::MS_BIND, NONE)?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::harden_mount(&CString::new(target.as_os_str().as_bytes())?, attributes)
}

/// Makes the protected paths of the workspace read-only, and covers sockets and FIFOs that lead to other
/// processes.
pub(super) fn apply_path_protections(plan: &SandboxPlan, call: &CommandPlan) -> Result<(), SetupFailure> {
    for path in &call.pinned {
        let path = plan.workspace.join(path);
        let pinned = exists_without_links(&path, &plan.workspace).and_then(|there| {
            if there {
                Ok(mount(Some(&path), &path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?)
            } else {
                Ok(())
            }
        });
        pinned.map_err(failed_at(format!("pin {}", path.display())))?;
    }
    for path in &call.covered {
        let path = plan.workspace.join(path);
        match exists_without_links(&path, &plan.workspace) {
            Ok(true) => {
                cover_with_empty_file(&path).map_err(failed_at(format!("cover {}", path.display())))?
            }
            Ok(false) => {}
            Err(error) => return Err(failed_at(format!("cover {}", path.display()))(error)),
        }
    }
    for path in &call.protected {
        make_read_only(&plan.workspace.join(path), &plan.workspace)
            .map_err(failed_at(format!("protect {}", path.display())))?;
    }
    Ok(())
}

fn describe_entry(entry: &MountEntry) -> String {
    let (what, path) = match entry {
        MountEntry::ReadOnly { target, .. } => ("read-only", target),
        MountEntry::Writable { target, .. } => ("writable", target),
        MountEntry::Tmpfs { target, .. } => ("tmpfs", target),
        MountEntry::Device { path } => ("device", path),
        MountEntry::File { target, .. } => ("file", target),
        MountEntry::Link { target, .. } => ("link", target),
        MountEntry::Empty { target } => ("empty", target),
    };
    format!("lay {what} {}", path.display())
}

fn create_folder(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(path)
}

fn path_in_old_root(path: &Path) -> PathBuf {
    Path::new(OLD_ROOT).join(path.strip_prefix("/").unwrap_or(path))
}

fn mount_entry(entry: &MountEntry, uid: u32, gid: u32) -> io::Result<()> {
    match entry {
        MountEntry::ReadOnly { source, target } => {
            if let Ok(below) = target.strip_prefix(INNER_HOME) {
                create_owned_parents(below, uid, gid)?;
            }
            let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
            bind_mount(&path_in_old_root(source), target, attributes)
        }
        MountEntry::Writable { source, target } => {
            bind_mount(&path_in_old_root(source), target, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
        }
        MountEntry::Device { path } => {
            bind_mount(&path_in_old_root(path), path, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NOEXEC)
        }
        MountEntry::Tmpfs { target, bytes, inodes } => {
            create_folder(target)?;
            let options = format!("mode=0755,size={bytes},nr_inodes={inodes},uid={uid},gid={gid}");
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
            Ok(mount(Some("tmpfs"), target, Some("tmpfs"), flags, Some(options.as_str()))?)
        }
        MountEntry::File { target, text } => {
            create_parent(target)?;
            fs::write(target, text)
        }
        MountEntry::Link { target, points_to } => {
            create_parent(target)?;
            symlink(points_to, target)
        }
        MountEntry::Empty { target } => cover_with_empty_file(target),
    }
}

fn create_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), create_folder)
}

/// Creates parent folders of mounts in the private home, owned by the command like the home itself.
fn create_owned_parents(below: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let mut current = PathBuf::from(INNER_HOME);
    for part in below.parent().into_iter().flatten() {
        current.push(part);
        create_folder(&current)?;
        if geteuid().is_root() {
            chown(&current, Some(uid), Some(gid))?;
        }
    }
    Ok(())
}

fn bind_mount(source: &Path, target: &Path, attributes: u64) -> io::Result<()> {
    if source.is_dir() {
        create_folder(target)?;
    } else {
        create_parent(target)?;
        File::create(target)?;
    }
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    sys::harden_mount(&CString::new(target.as_os_str().as_bytes())?, attributes)
}

/// Returns whether a path of the workspace exists and none of its components is a link.
fn exists_without_links(path: &Path, workspace: &Path) -> io::Result<bool> {
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

/// Makes a path of the workspace read-only in place. The host's root is already detached, so a link can
/// only point inside; a path with a link as any component is left alone.
fn make_read_only(path: &Path, workspace: &Path) -> io::Result<()> {
    if !exists_without_links(path, workspace)? {
        return Ok(());
    }
    mount(Some(path), path, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    let attributes = libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    sys::harden_mount(&CString::new(path.as_os_str().as_bytes())?, attributes)
}
