//! Captures a command's output while it is read: keeps the head and the tail, drops the middle.
//!
//! Invariant: never holds more than the limit, however much the command writes.

use std::{collections::VecDeque, io, os::fd::AsFd};

use nix::{errno::Errno, unistd::read};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::plan::read_frame;

/// The kernel's default pipe size: one read empties it.
const READ_BYTES: usize = 64 * 1024;

/// One output stream of a command. The bytes are untrusted and may not be UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CapturedStream {
    /// The full output, or the head followed by the tail.
    pub bytes: Vec<u8>,
    /// Number of bytes of the head. When `truncated`, the gap follows them.
    pub head_bytes: usize,
    /// Number of bytes the command wrote.
    pub total_bytes: u64,
    /// Whether the middle is missing.
    pub truncated: bool,
}

/// Reads one pipe into a [`CapturedStream`].
pub(super) struct StreamCapture<R> {
    pipe: Option<R>,
    chunk: Vec<u8>,
    head: Vec<u8>,
    head_max: usize,
    tail: VecDeque<u8>,
    tail_max: usize,
    total_bytes: u64,
    /// Receives the output as it arrives.
    listener: Option<OutputListener>,
}

/// Receives a command's output as it arrives. It may be slow, and its failures are its own concern.
pub type OutputListener = Box<dyn FnMut(&[u8]) + Send>;

impl<R: AsyncRead + Unpin> StreamCapture<R> {
    /// Keeps at most `keep_bytes_max`, the larger half of it from the start.
    pub(super) fn new(pipe: Option<R>, keep_bytes_max: usize) -> Self {
        Self::with_listener(pipe, keep_bytes_max, None)
    }

    /// Like [`Self::new`], and passes everything to a listener.
    pub(super) fn with_listener(
        pipe: Option<R>,
        keep_bytes_max: usize,
        listener: Option<OutputListener>,
    ) -> Self {
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

    /// Returns whether end of file has not been seen yet.
    pub(super) fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Returns the number of bytes read so far.
    pub(super) fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Returns whether a complete frame of [`write_frame`](super::plan::write_frame) has arrived.
    pub(super) fn has_complete_frame(&self) -> bool {
        read_frame(&mut &self.head[..]).is_ok()
    }

    /// Reads once. Cancel-safe: the bytes are stored in the same poll.
    pub(super) async fn read_chunk(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        let read = match pipe.read(&mut self.chunk).await {
            // The other end was closed with unread data: an init that was killed before it began.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => 0,
            read => read?,
        };
        self.push_chunk(read);
        Ok(())
    }

    /// Reads the available bytes without waiting for more. Once the last process of a command has ended,
    /// all its output is in the pipe, even if another process still holds the other end.
    pub(super) fn drain(&mut self) -> io::Result<()>
    where
        R: AsFd,
    {
        while let Some(pipe) = &self.pipe {
            match read(pipe.as_fd(), &mut self.chunk) {
                Ok(read) => self.push_chunk(read),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => break,
                Err(Errno::ECONNRESET) => self.pipe = None,
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    fn push_chunk(&mut self, read: usize) {
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

    /// Returns the captured output.
    pub(super) fn finish(self) -> CapturedStream {
        let head_bytes = self.head.len();
        let mut bytes = self.head;
        bytes.extend(self.tail);
        let truncated = self.total_bytes > bytes.len() as u64;
        CapturedStream { bytes, head_bytes, total_bytes: self.total_bytes, truncated }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn capture_all(input: &[u8], keep: usize) -> CapturedStream {
        let mut capture = StreamCapture::new(Some(input), keep);
        while capture.is_open() {
            capture.read_chunk().await.unwrap();
        }
        capture.finish()
    }

    /// The kernel killed an init for memory before it read its input, for example.
    #[tokio::test]
    async fn connection_reset_counts_as_end_of_stream() {
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
        let mut capture = StreamCapture::new(Some(tokio::net::UnixStream::from_std(ours).unwrap()), 100);
        capture.read_chunk().await.unwrap();
        assert!(!capture.is_open());
    }

    #[tokio::test]
    async fn head_and_tail_are_kept_for_any_length() {
        let all: Vec<u8> = (0..200_000_u32).map(|n| (n % 253) as u8).collect();
        for keep in [0, 1, 2, 9, 100, 100_000, 199_999, 200_000, 300_000] {
            let got = capture_all(&all, keep).await;
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
