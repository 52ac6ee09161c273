//! All unsafe calls of the init, each with the reason why it is sound. Used in `init` only.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd},
};

use nix::{
    libc,
    unistd::{ForkResult, fork},
};

fn check_result(result: i64) -> io::Result<i64> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Forks.
#[expect(unsafe_code, reason = "the init has one thread, so the child may do anything the parent may")]
pub(super) fn fork_single_threaded() -> io::Result<ForkResult> {
    // SAFETY: the init never starts a thread, so no other thread can hold a lock.
    Ok(unsafe { fork() }?)
}

/// Returns the kernel's Landlock ABI version, or why there is none.
#[expect(unsafe_code, reason = "asks for a number; no pointer is followed")]
pub(crate) fn landlock_abi() -> io::Result<i64> {
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_ulong = 1;
    let none = std::ptr::null::<libc::c_void>();
    // SAFETY: with the version flag the kernel wants a null pointer of size 0 and creates nothing.
    check_result(unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, none, 0_usize, LANDLOCK_CREATE_RULESET_VERSION)
    })
}

/// Makes a mounted tree read-only (or only free of devices and set-id programs), submounts included.
#[expect(unsafe_code, reason = "mount_setattr has no safe wrapper in nix")]
pub(super) fn harden_mount(path: &CStr, flags: u64) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: flags, attr_clr: 0, propagation: 0, userns_fd: 0 };
    // SAFETY: both pointers outlive the call, and the size is that of the struct.
    check_result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_RECURSIVE | libc::AT_SYMLINK_NOFOLLOW,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Brings `lo` up in the current network namespace.
#[expect(unsafe_code, reason = "an ioctl on an interface request has no safe wrapper")]
pub(super) fn bring_loopback_up(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: an all-zero ifreq is valid; the ioctl reads its name and flags and writes nothing.
    unsafe {
        let mut request: libc::ifreq = std::mem::zeroed();
        for (slot, byte) in request.ifr_name.iter_mut().zip(b"lo") {
            *slot = byte.cast_signed();
        }
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
        check_result(libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request).into())?;
    }
    Ok(())
}

/// Makes a terminal the controlling terminal of this session, whose leader is the caller.
#[expect(unsafe_code, reason = "the ioctl has no safe wrapper; it takes a number")]
pub(super) fn set_controlling_terminal(terminal: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: plain numbers.
    check_result(unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSCTTY, 0) }.into())?;
    Ok(())
}

/// Empties all capability sets and the bounding set.
#[expect(unsafe_code, reason = "capabilities have no wrapper in nix")]
pub(super) fn drop_capabilities() -> io::Result<()> {
    /// Beyond the last capability of any kernel; the loop ends at the first unknown one.
    const CAPABILITIES_MAX: libc::c_ulong = 64;
    #[repr(C)]
    struct CapabilityHeader {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    for capability in 0..CAPABILITIES_MAX {
        // SAFETY: plain numbers.
        let dropped = check_result(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) }.into());
        match dropped.map_err(|error| error.raw_os_error()) {
            Ok(_) => {}
            Err(Some(libc::EINVAL)) => break,
            Err(errno) => return Err(io::Error::from_raw_os_error(errno.unwrap_or(libc::EPERM))),
        }
    }
    let header = CapabilityHeader { version: VERSION_3, pid: 0 };
    let none = [0_u32; 6];
    // SAFETY: version 3 reads a header and two triples of u32, which are passed here.
    check_result(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })?;
    Ok(())
}

/// Marks every descriptor from `first` on to be closed by `execve`.
#[expect(unsafe_code, reason = "close_range has no wrapper in nix")]
pub(super) fn close_on_exec_from(first: u32) -> io::Result<()> {
    // SAFETY: plain numbers; nothing is closed before execve.
    check_result(unsafe {
        libc::syscall(libc::SYS_close_range, first, u32::MAX, libc::CLOSE_RANGE_CLOEXEC)
    })?;
    Ok(())
}

/// Opens a socket for interface requests.
#[expect(unsafe_code, reason = "takes ownership of a descriptor that the kernel just made")]
pub(super) fn open_interface_socket() -> io::Result<std::os::fd::OwnedFd> {
    use std::os::fd::{FromRawFd, OwnedFd};
    // SAFETY: plain numbers; the result is a new descriptor without another owner.
    unsafe {
        let fd = check_result(libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0).into())?;
        let fd = i32::try_from(fd).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
