//! A part of a file that is too large to be held: found by one pass over it, in bounded memory.

use std::{
    collections::VecDeque,
    io::{self, Read},
};

use docket_schema::ids::BlobHash;

/// Largest file that is passed over, in bytes: the pass takes about a second for each of them.
pub(crate) const SCANNED_BYTES_MAX: u64 = 1024 * 1024 * 1024;
/// Bytes of a line that are kept.
const LINE_BYTES_MAX: usize = 4000;
const CHUNK_BYTES: usize = 256 * 1024;

/// A line of which at least the beginning is there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Line {
    /// Its beginning, without its break.
    pub(crate) begin: Vec<u8>,
    /// All its bytes, without its break.
    pub(crate) bytes: u64,
}

/// Which lines are wanted.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wanted {
    /// The first one, from 1.
    pub(crate) first: u64,
    /// How many from there.
    pub(crate) count: u64,
    /// How many of the last ones of the file, as far as they lie behind those.
    pub(crate) tail: usize,
}

/// What a pass found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) lines: Vec<Line>,
    pub(crate) tail: VecDeque<Line>,
    /// Lines of the whole file.
    pub(crate) total: u64,
    /// Its first bytes.
    pub(crate) begin: Vec<u8>,
    pub(crate) hash: Option<BlobHash>,
}

/// Passes over all of `file`.
pub(crate) fn scan(file: impl Read, wanted: Wanted) -> io::Result<Found> {
    let mut file = file.take(SCANNED_BYTES_MAX);
    let mut found = Found::default();
    let mut hasher = blake3::Hasher::new();
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut line = Line::default();
    loop {
        let read = match file.read(&mut chunk) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let bytes = &chunk[..read];
        hasher.update(bytes);
        let room = crate::tools::text::encoding::SNIFFED_BYTES - found.begin.len();
        found.begin.extend_from_slice(&bytes[..read.min(room)]);
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            line.more(&rest[..at]);
            found.take(std::mem::take(&mut line), wanted);
            rest = &rest[at + 1..];
        }
        line.more(rest);
    }
    if line.bytes > 0 {
        found.take(line, wanted);
    }
    found.hash = Some(BlobHash(*hasher.finalize().as_bytes()));
    Ok(found)
}

impl Line {
    fn more(&mut self, bytes: &[u8]) {
        let room = LINE_BYTES_MAX - self.begin.len();
        self.begin.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.bytes += bytes.len() as u64;
    }
}

impl Found {
    fn take(&mut self, line: Line, wanted: Wanted) {
        self.total += 1;
        if self.total < wanted.first {
            return;
        }
        if self.total - wanted.first < wanted.count {
            self.lines.push(line);
        } else if wanted.tail > 0 {
            if self.tail.len() == wanted.tail {
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
    fn a_line_longer_than_what_is_kept_is_counted() {
        let text = [b"a\n".to_vec(), vec![b'x'; 1_000_000], b"\nb".to_vec()].concat();
        let found = scan(text.as_slice(), Wanted { first: 2, count: 1, tail: 0 }).expect("reads");
        assert_eq!((found.lines[0].begin.len(), found.lines[0].bytes), (LINE_BYTES_MAX, 1_000_000));
        assert_eq!((found.total, found.hash), (3, Some(BlobHash::of(&text))));
    }

    /// Hands out a few bytes at a time.
    struct Dripping<'a>(&'a [u8], usize);

    impl Read for Dripping<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len());
            buffer[..count].copy_from_slice(&self.0[..count]);
            self.0 = &self.0[count..];
            Ok(count)
        }
    }

    proptest! {
        #[test]
        fn a_pass_finds_what_lines_are(
            text in "[ab\n]{0,60}", first in 1u64..20, count in 0u64..10, tail in 0usize..5, drip in 1usize..7
        ) {
            let found = scan(Dripping(text.as_bytes(), drip), Wanted { first, count, tail }).expect("reads");
            let lines: Vec<&str> = text.lines().collect();
            let of = |line: &Line| String::from_utf8(line.begin.clone()).expect("ASCII");
            prop_assert_eq!(found.total, lines.len() as u64);
            let from = usize::try_from(first - 1).expect("small").min(lines.len());
            let to = (from + usize::try_from(count).expect("small")).min(lines.len());
            prop_assert_eq!(found.lines.iter().map(of).collect::<Vec<_>>(), &lines[from..to]);
            let last = to.max(lines.len().saturating_sub(tail));
            prop_assert_eq!(found.tail.iter().map(of).collect::<Vec<_>>(), &lines[last..]);
        }
    }
}
