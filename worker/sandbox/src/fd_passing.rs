//! Passes a descriptor from a call's init to docket over the socket between them.
//!
//! The descriptor travels with one byte before the init's report. `init` sends it, `proxy` receives it.

use std::{
    io,
    os::fd::{AsFd, AsRawFd, FromRawFd as _, OwnedFd},
};

use nix::libc;
use tokio::{io::Interest, net::UnixStream};

/// Space for one descriptor, aligned like the kernel's header.
#[repr(C)]
union AncillaryBuffer {
    header: libc::cmsghdr,
    bytes: [u8; 64],
}

/// Sends a descriptor.
#[expect(unsafe_code, reason = "descriptors travel as ancillary data, which has no safe API")]
pub(super) fn send_fd(socket: &impl AsFd, fd: &impl AsFd) -> io::Result<()> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut ancillary = AncillaryBuffer { bytes: [0; 64] };
    let raw = fd.as_fd().as_raw_fd();
    // SAFETY: an all-zero msghdr is valid; its pointers outlive the call, and the buffer holds a header with
    // one descriptor, as CMSG_SPACE computes.
    let sent = unsafe {
        let size = u32::try_from(size_of::<libc::c_int>()).unwrap_or(4);
        debug_assert!(libc::CMSG_SPACE(size) as usize <= size_of::<AncillaryBuffer>());
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut ancillary).cast();
        message.msg_controllen = libc::CMSG_SPACE(size) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(header).cast::<libc::c_int>().write_unaligned(raw);
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL)
    };
    if sent == 1 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Waits for the next data and receives the descriptor attached to it. Returns `None`, having read nothing,
/// if no descriptor is attached or the socket is closed.
pub(super) async fn recv_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let taken = socket.async_io(Interest::READABLE, || peek_fd(socket)).await?;
    if taken.is_some() {
        // The byte the descriptor came with; peeking already received the descriptor itself.
        let mut byte = [0];
        socket.try_read(&mut byte)?;
    }
    Ok(taken)
}

/// Peeks at the next byte without consuming it. The kernel delivers a descriptor even on a peek.
#[expect(
    unsafe_code,
    reason = "as in `give`; and it takes ownership of a descriptor that the kernel just made"
)]
fn peek_fd(socket: &UnixStream) -> io::Result<Option<OwnedFd>> {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut ancillary = AncillaryBuffer { bytes: [0; 64] };
    // SAFETY: as in `send_fd`. The kernel writes at most `msg_controllen` bytes, in whole headers only; a
    // descriptor in one is new and has no other owner.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = (&raw mut ancillary).cast();
        message.msg_controllen = libc::CMSG_SPACE(u32::try_from(size_of::<libc::c_int>()).unwrap_or(4)) as _;
        let flags = libc::MSG_PEEK | libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        if libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        if header.is_null()
            || (*header).cmsg_level != libc::SOL_SOCKET
            || (*header).cmsg_type != libc::SCM_RIGHTS
        {
            return Ok(None);
        }
        let raw = libc::CMSG_DATA(header).cast::<libc::c_int>().read_unaligned();
        Ok(Some(OwnedFd::from_raw_fd(raw)))
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, io::Write as _, os::unix::net::UnixStream as StdUnixStream};

    use super::*;

    #[tokio::test]
    async fn descriptor_is_received_once_and_other_bytes_stay() {
        let (ours, mut theirs) = StdUnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let ours = UnixStream::from_std(ours).unwrap();
        let (mut far, near) = StdUnixStream::pair().unwrap();
        send_fd(&theirs, &near).unwrap();
        drop(near);
        theirs.write_all(b"answer").unwrap();
        let handed = recv_fd(&ours).await.unwrap().expect("was handed");
        StdUnixStream::from(handed).write_all(b"through").unwrap();
        let mut said = String::new();
        // Ends only if no second copy of the descriptor is open anywhere.
        far.read_to_string(&mut said).unwrap();
        assert_eq!(said, "through");
        assert!(recv_fd(&ours).await.unwrap().is_none());
        let mut bytes = [0; 16];
        assert_eq!(ours.try_read(&mut bytes).unwrap(), 6);
        assert_eq!(&bytes[..6], b"answer");
        drop(theirs);
        assert!(recv_fd(&ours).await.unwrap().is_none());
    }
}
