//! Extracts part of a file that is too large for memory, in a single pass with bounded memory.

use std::{
    collections::VecDeque,
    io::{self, Read},
};

use docket_schema::ids::BlobHash;

/// Largest file that is scanned, in bytes: about a second per gigabyte.
pub(crate) const SCANNED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Most bytes kept of a line.
const LINE_BYTES_MAX: usize = 4000;
const CHUNK_BYTES: usize = 256 * 1024;

/// A line of which at least the beginning is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct LongLine {
    /// Its beginning, without the line ending.
    pub(crate) prefix: Vec<u8>,
    /// Length in bytes, without the line ending.
    pub(crate) byte_len: u64,
}

/// The requested lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LineSelection {
    /// First line, from 1.
    pub(crate) first_line: u64,
    /// Number of lines from there.
    pub(crate) count: u64,
    /// Number of lines from the end of the file, not counting those above.
    pub(crate) tail_count: usize,
}

/// Result of a scan.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ScanResult {
    pub(crate) lines: Vec<LongLine>,
    pub(crate) tail: VecDeque<LongLine>,
    /// Number of lines in the whole file.
    pub(crate) total_lines: u64,
    /// The first bytes of the file.
    pub(crate) first_bytes: Vec<u8>,
    pub(crate) hash: Option<BlobHash>,
}

pub(crate) fn scan_lines(file: impl Read, wanted: LineSelection) -> io::Result<ScanResult> {
    let mut file = file.take(SCANNED_BYTES_MAX);
    let mut found = ScanResult::default();
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut line = LongLine::default();
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &chunk[..read];
        hasher.update(bytes);
        let room = crate::tools::text::encoding::SNIFFED_BYTES - found.first_bytes.len();
        found.first_bytes.extend_from_slice(&bytes[..read.min(room)]);
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            line.extend_line(&rest[..at]);
            found.add_line(std::mem::take(&mut line), wanted);
            rest = &rest[at + 1..];
        }
        line.extend_line(rest);
    }
    if line.byte_len > 0 {
        found.add_line(line, wanted);
    }
    found.hash = Some(BlobHash(*hasher.finalize().as_bytes()));
    Ok(found)
}

impl LongLine {
    fn extend_line(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.prefix.len();
        self.prefix.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.byte_len += bytes.len() as u64;
    }
}

impl ScanResult {
    fn add_line(&mut self, line: LongLine, wanted: LineSelection) {
        self.total_lines += 1;
        if self.total_lines < wanted.first_line {
            return;
        }
        if self.total_lines - wanted.first_line < wanted.count {
            self.lines.push(line);
        } else if wanted.tail_count > 0 {
            if self.tail.len() == wanted.tail_count {
                self.tail.pop_front();
            }
            self.tail.push_back(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn line_longer_than_the_limit_is_counted() {
        let text = [b"a\n".to_vec(), vec![b'x'; 1_000_000], b"\nb".to_vec()].concat();
        let found = scan_lines(text.as_slice(), LineSelection { first_line: 2, count: 1, tail_count: 0 })
            .expect("reads");
        assert_eq!((found.lines[0].prefix.len(), found.lines[0].byte_len), (LINE_BYTES_MAX, 1_000_000));
        assert_eq!((found.total_lines, found.hash), (3, Some(BlobHash::hash_bytes(&text))));
    }

    /// A reader that returns a few bytes at a time.
    struct SlowReader<'a>(&'a [u8], usize);

    impl Read for SlowReader<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn scan_finds_the_selected_lines(
            text in "[ab\n]{0,60}", first in 1u64..20, count in 0u64..10, tail in 0usize..5, drip in 1usize..7
        ) {
            let found = scan_lines(SlowReader(text.as_bytes(), drip), LineSelection { first_line: first, count, tail_count: tail }).expect("reads");
            let lines: Vec<&str> = text.lines().collect();
            let of = |line: &LongLine| String::from_utf8(line.prefix.clone()).expect("ASCII");
            prop_assert_eq!(found.total_lines, lines.len() as u64);
            let from = usize::try_from(first - 1).expect("small").min(lines.len());
            let to = (from + usize::try_from(count).expect("small")).min(lines.len());
            prop_assert_eq!(found.lines.iter().map(of).collect::<Vec<_>>(), &lines[from..to]);
            let last = to.max(lines.len().saturating_sub(tail));
            prop_assert_eq!(found.tail.iter().map(of).collect::<Vec<_>>(), &lines[last..]);
        }
    }
}
