//! Output of a command, counted while it is read: the head and the tail are kept, the middle is dropped.
//!
//! Invariant: never more than the limit is held, however much comes.

use std::{collections::VecDeque, io};

use tokio::io::{AsyncRead, AsyncReadExt};

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
}

impl<R: AsyncRead + Unpin> Capture<R> {
    /// Keeps at most `keep_bytes_max`, the larger half of it from the start.
    pub(super) fn new(pipe: Option<R>, keep_bytes_max: usize) -> Self {
        let tail_max = keep_bytes_max / 2;
        Self {
            pipe,
            chunk: vec![0; READ_BYTES],
            head: Vec::new(),
            head_max: keep_bytes_max - tail_max,
            tail: VecDeque::new(),
            tail_max,
            total_bytes: 0,
        }
    }

    /// Whether end of file has not been seen.
    pub(super) fn open(&self) -> bool {
        self.pipe.is_some()
    }

    /// One read. Cancel-safe: what was read is kept in the same poll.
    pub(super) async fn step(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        let read = pipe.read(&mut self.chunk).await?;
        if read == 0 {
            self.pipe = None;
            return Ok(());
        }
        self.total_bytes += read as u64;
        let to_head = read.min(self.head_max - self.head.len());
        self.head.extend_from_slice(&self.chunk[..to_head]);
        let rest = &self.chunk[to_head..read];
        let fitting = &rest[rest.len().saturating_sub(self.tail_max)..];
        let overflow = (self.tail.len() + fitting.len()).saturating_sub(self.tail_max);
        self.tail.drain(..overflow);
        self.tail.extend(fitting);
        Ok(())
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
