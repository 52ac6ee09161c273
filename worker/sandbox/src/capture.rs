//! Output of a command, counted while it is read: the head and the tail are kept, the middle is dropped.
//!
//! Invariant: never more than the limit is held, however much comes.

use std::{collections::VecDeque, io, os::fd::AsFd};

use nix::{errno::Errno, unistd::read};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::plan::read_frame;

/// The kernel's default pipe size: one read empties it.
const READ_BYTES: usize = 64 * 1024;

/// One stream of a command. The bytes are as they came: hostile, perhaps no UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// Everything, or the head followed by the tail.
    pub bytes: Vec<u8>,
    /// How much of `bytes` is head; the gap is there when `truncated`.
    pub head_bytes: usize,
    /// How much the command wrote.
    pub total_bytes: u64,
    /// Whether a middle is missing.
    pub truncated: bool,
}

/// Reads one pipe into a [`Captured`].
pub(super) struct Capture<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    total_bytes: u64,
    /// Who hears it as it comes.
    listener: Option<Listener>,
}

/// Hears what a command says as it comes. It may be slow; whether it succeeds is its own affair.
pub type Listener = Box<dyn FnMut(&[u8]) + Send>;

impl<R: AsyncRead + Unpin> Capture<R> {
    /// Keeps at most `keep_bytes_max`, the larger half of it from the start.
    pub(super) fn new(pipe: Option<R>, keep_bytes_max: usize) -> Self {
        Self::heard(pipe, keep_bytes_max, None)
    }

    /// The same, and somebody hears all of it.
    pub(super) fn heard(pipe: Option<R>, keep_bytes_max: usize, listener: Option<Listener>) -> Self {
        let tail_max = keep_bytes_max / 2;
        Self {
            pipe,
            chunk: vec![0; READ_BYTES],
            head: Vec::new(),
            head_max: keep_bytes_max - tail_max,
            tail: VecDeque::new(),
            tail_max,
            total_bytes: 0,
            listener,
        }
    }

    /// Whether end of file has not been seen.
    pub(super) fn open(&self) -> bool {
        self.pipe.is_some()
    }

    /// How much came so far.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Whether a whole frame of [`write_frame`](super::plan::write_frame) is here.
    pub(super) fn ends_frame(&self) -> bool {
        read_frame(&mut &self.head[..]).is_ok()
    }

    /// One read. Cancel-safe: what was read is kept in the same poll.
    pub(super) async fn step(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        let read = match pipe.read(&mut self.chunk).await {
            // Its other end was closed with something unread in it: an init that was ended before it began.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        self.take(read);
        Ok(())
    }

    /// Takes what is there without waiting for more. Everything a command wrote is there once its last
    /// process has ended, also while somebody else still holds the pipe's other end.
    pub(super) fn drain(&mut self) -> io::Result<()>
    where
        R: AsFd,
    {
        while let Some(pipe) = &self.pipe {
            match read(pipe.as_fd(), &mut self.chunk) {
                Ok(read) => self.take(read),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(Errno::ECONNRESET) => self.pipe = None,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn take(&mut self, read: usize) {
        if read == 0 {
            self.pipe = None;
        }
        self.total_bytes += read as u64;
        if let Some(listener) = &mut self.listener {
            listener(&self.chunk[..read]);
        }
        let to_head = read.min(self.head_max - self.head.len());
        self.head.extend_from_slice(&self.chunk[..to_head]);
        let rest = &self.chunk[to_head..read];
        let fitting = &rest[rest.len().saturating_sub(self.tail_max)..];
        let overflow = (self.tail.len() + fitting.len()).saturating_sub(self.tail_max);
        self.tail.drain(..overflow);
        self.tail.extend(fitting);
    }

    /// What was kept.
    pub(super) fn finish(self) -> Captured {
        let head_bytes = self.head.len();
        let mut bytes = self.head;
        bytes.extend(self.tail);
        let truncated = self.total_bytes > bytes.len() as u64;
        Captured { bytes, head_bytes, total_bytes: self.total_bytes, truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn capture(input: &[u8], keep: usize) -> Captured {
        let mut capture = Capture::new(Some(input), keep);
        while capture.open() {
            capture.step().await.unwrap();
        }
        capture.finish()
    }

    /// What an init did not read when the kernel ended it for memory, say.
    #[tokio::test]
    async fn an_end_that_was_closed_with_something_unread_is_an_end() {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        io::Write::write_all(&mut &ours, b"orders").unwrap();
        drop(theirs);
        ours.set_nonblocking(true).unwrap();
        let mut raw = &ours;
        let reset = io::Read::read(&mut raw, &mut [0; 8]).map_err(|error| error.kind());
        assert_eq!(reset, Err(io::ErrorKind::ConnectionReset), "control");
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        io::Write::write_all(&mut &ours, b"orders").unwrap();
        drop(theirs);
        ours.set_nonblocking(true).unwrap();
        let mut capture = Capture::new(Some(tokio::net::UnixStream::from_std(ours).unwrap()), 100);
        capture.step().await.unwrap();
        assert!(!capture.open());
    }

    #[tokio::test]
    async fn head_and_tail_are_kept_for_every_length() {
        let all: Vec<u8> = (0..200_000_u32).map(|n| (n % 253) as u8).collect();
        for keep in [0, 1, 2, 9, 100, 100_000, 199_999, 200_000, 300_000] {
            let got = capture(&all, keep).await;
            let want = if keep >= all.len() {
                all.clone()
            } else {
                [&all[..keep - keep / 2], &all[all.len() - keep / 2..]].concat()
            };
            assert_eq!(got.bytes, want, "keep {keep}");
            assert_eq!(got.truncated, keep < all.len());
            assert_eq!(got.total_bytes, 200_000);
        }
    }
}
