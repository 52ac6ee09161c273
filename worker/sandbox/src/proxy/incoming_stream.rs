//! Reads heads, lines and pieces from one connection, with buffering.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _};

use super::http_head::{HEAD_BYTES_MAX, head_length};

/// Size of one read.
const READ_BYTES: usize = 16 * 1024;

/// Maximum length of a chunk size line or a trailer.
const LINE_BYTES_MAX: usize = 4 * 1024;

/// The reading half of a connection.
pub(super) struct IncomingStream<R> {
    reader: R,
    buffer: Vec<u8>,
}

impl<R: AsyncRead + Unpin> IncomingStream<R> {
    pub(super) const fn new(from: R) -> Self {
        Self { reader: from, buffer: Vec::new() }
    }

    /// Reads more data; returns false at the end. Cancel-safe.
    pub(super) async fn read_more(&mut self) -> io::Result<bool> {
        self.buffer.reserve(READ_BYTES);
        Ok(self.reader.read_buf(&mut self.buffer).await? > 0)
    }

    /// Returns buffered data that was not taken yet.
    pub(super) fn buffered_bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// Takes a head; `None` if the connection ends before one begins.
    pub(super) async fn read_head(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = head_length(&self.buffer).filter(|length| *length <= HEAD_BYTES_MAX) {
                return Ok(Some(self.buffer.drain(..length).collect()));
            }
            if self.buffer.len() > HEAD_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the head is too long"));
            }
            if !self.read_more().await? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(unexpected_eof()) };
            }
        }
    }

    /// Takes a line, without its ending.
    pub(super) async fn read_line(&mut self) -> io::Result<Vec<u8>> {
        loop {
            if let Some(at) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.buffer.drain(..at + 2).take(at).collect();
                return Ok(line);
            }
            if self.buffer.len() > LINE_BYTES_MAX {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long"));
            }
            if !self.read_more().await? {
                return Err(unexpected_eof());
            }
        }
    }

    /// Takes at most `bytes_max` bytes; empty at the end.
    pub(super) async fn read_piece(&mut self, bytes_max: u64) -> io::Result<Vec<u8>> {
        if self.buffer.is_empty() {
            self.read_more().await?;
        }
        let bytes = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(self.buffer.len());
        Ok(self.buffer.drain(..bytes).collect())
    }
}

/// The error for a connection that ends in the middle of a message.
pub(super) fn unexpected_eof() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
