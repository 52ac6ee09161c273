//! What comes in over one connection: heads, lines and pieces, with whatever was read ahead.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::head::{HEAD_BYTES_MAX, length};

/// One read.
const PIECE_BYTES: usize = 16 * 1024;

/// A line that says how long a chunk is, or a trailer.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The reading half of a connection.
pub(super) struct Incoming<R> {
    from: R,
    ahead: Vec<u8>,
}

impl<R: AsyncRead + Unpin> Incoming<R> {
    pub(super) const fn new(from: R) -> Self {
        Self { from, ahead: Vec::new() }
    }

    /// Reads once more; false at the end. Cancel-safe.
    pub(super) async fn more(&mut self) -> io::Result<bool> {
        self.ahead.reserve(PIECE_BYTES);
        Ok(self.from.read_buf(&mut self.ahead).await? > 0)
    }

    /// What was read and not taken.
    pub(super) fn ahead(&self) -> &[u8] {
        &self.ahead
    }

    /// Takes a head; `None` where the connection ends before one begins.
    pub(super) async fn head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = length(&self.ahead).filter(|length| *length <= HEAD_BYTES_MAX) {
                return Ok(Some(self.ahead.drain(..length).collect()));
            }
            if self.ahead.len() > HEAD_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is too long"));
            }
            if !self.more().await? {
                return if self.ahead.is_empty() { Ok(None) } else { Err(cut()) };
            }
        }
    }

    /// Takes a line, without its end.
    pub(super) async fn line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.ahead.windows(2).position(|two| two == b"\r\n") {
                let line = self.ahead.drain(..at + 2).take(at).collect();
                return Ok(line);
            }
            if self.ahead.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if !self.more().await? {
                return Err(cut());
            }
        }
    }

    /// Takes some bytes, at most `bytes_max`; none at the end.
    pub(super) async fn piece(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        if self.ahead.is_empty() {
            self.more().await?;
        }
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.ahead.len());
        Ok(self.ahead.drain(..bytes).collect())
    }
}

/// The other side ended in the middle of something.
pub(super) fn cut() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
