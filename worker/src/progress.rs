//! How a supervisor knows a run process that works from one that hangs: a note of what it is at.
//!
//! Before anything that takes time the run process notes how long it may take at most ([`ProgressNote`]); the
//! supervisor reads the note and counts on its own clock from the moment it saw it change ([`Watched`]). A
//! process that is stopped, or waits for what never comes, makes no note, and its time runs out although its
//! supervisor still vouches for its lease. Used by the driver and by the supervisor's `child`. Invariant: a
//! note that cannot be read or written ends nobody early; the time noted last, or at the start, goes on.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// What a run process may take to begin: its base may come over a slow line, and commands that make its
/// workspace ready run one after the other.
pub const START_AT_MOST: Duration = Duration::from_secs(3600);

/// Granted beyond what a process says, for a machine under load.
const MARGIN: Duration = Duration::from_secs(120);

/// Length of a note: two numbers of twenty digits, a blank, a line feed. Always the same, so that a note is
/// written over the one before in one piece.
const NOTE_BYTES: usize = 42;

/// The run process's side.
#[derive(Debug, Default)]
pub struct ProgressNote {
    file: Option<File>,
    count: AtomicU64,
}

impl ProgressNote {
    /// Takes up the note that the supervisor made; without one nothing is noted.
    pub fn open(path: Option<&Path>) -> Self {
        let file = path.and_then(|path| {
            let opened = OpenOptions::new().write(true).open(path);
            opened.inspect_err(|error| tracing::warn!(%error, "progress cannot be noted")).ok()
        });
        Self { file, count: AtomicU64::new(0) }
    }

    /// What comes now takes so long at most.
    pub fn at_most(&self, time: Duration) {
        let count = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(note(count, time).as_bytes(), 0)
        {
            tracing::debug!(%error, "progress is not noted");
        }
    }
}

fn note(count: u64, time: Duration) -> String {
    format!("{count:020} {:020}\n", u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Makes the note that a run process will write over.
pub(crate) fn make(path: &Path) -> io::Result<()> {
    std::fs::write(path, note(0, START_AT_MOST))
}

/// The supervisor's side.
#[derive(Debug)]
pub(crate) struct Watched {
    seen: Vec<u8>,
    /// When the note was first seen as it is.
    since: Instant,
    at_most: Duration,
    /// Whatever a process says, it gets no more than this.
    cap: Duration,
}

impl Watched {
    /// Begins to watch at `now`.
    pub(crate) const fn new(cap: Option<Duration>, now: Instant) -> Self {
        let cap = match cap {
            Some(cap) => cap,
            None => Duration::MAX,
        };
        Self { seen: Vec::new(), since: now, at_most: START_AT_MOST, cap }
    }

    /// Takes in what the note says at `now`; answers whether the process has let its time pass.
    pub(crate) fn is_stalled(&mut self, note: &[u8], now: Instant) -> bool {
        if note != self.seen
            && let Some(at_most) = parse(note)
        {
            (self.seen, self.since, self.at_most) = (note.to_vec(), now, at_most);
        }
        now.saturating_duration_since(self.since) > self.at_most.saturating_add(MARGIN).min(self.cap)
    }
}

fn parse(note: &[u8]) -> Option<Duration> {
    if note.len() != NOTE_BYTES {
        return None;
    }
    let text = std::str::from_utf8(note).ok()?;
    let (count, ms) = text.strip_suffix('\n')?.split_once(' ')?;
    count.parse::<u64>().ok()?;
    Some(Duration::from_millis(ms.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_runs_from_the_moment_a_note_is_seen() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut watched = Watched::new(None, begun);
        let first = note(1, Duration::from_secs(100));
        assert!(!watched.is_stalled(first.as_bytes(), at(50)));
        assert!(!watched.is_stalled(first.as_bytes(), at(270)), "100 s and the margin");
        assert!(watched.is_stalled(first.as_bytes(), at(271)));
        // The same time noted again begins anew, for it counts.
        let again = note(2, Duration::from_secs(100));
        assert!(!watched.is_stalled(again.as_bytes(), at(271)));
        assert!(watched.is_stalled(again.as_bytes(), at(492)));
        // Where there is a cap, nobody gets more.
        let mut watched = Watched::new(Some(Duration::from_secs(5)), begun);
        assert!(!watched.is_stalled(first.as_bytes(), at(50)), "seen only now");
        assert!(watched.is_stalled(first.as_bytes(), at(56)));
    }

    #[test]
    fn a_note_that_does_not_read_changes_nothing() {
        let begun = Instant::now();
        let late = begun + START_AT_MOST + MARGIN;
        for damaged in [&b""[..], b"soon\n", &note(1, Duration::ZERO).as_bytes()[1..], &[0xff; NOTE_BYTES]] {
            let mut watched = Watched::new(None, begun);
            assert!(!watched.is_stalled(damaged, late), "{damaged:?}");
            assert!(watched.is_stalled(damaged, late + Duration::from_millis(1)), "{damaged:?}");
        }
    }

    #[test]
    fn what_one_side_writes_the_other_reads() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        make(&path).unwrap();
        let read = || parse(&std::fs::read(&path).unwrap());
        assert_eq!(read(), Some(START_AT_MOST));
        let process = ProgressNote::open(Some(&path));
        for time in [Duration::from_millis(7), Duration::MAX, Duration::from_secs(3)] {
            process.at_most(time);
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            assert_eq!(read(), Some(Duration::from_millis(ms)));
        }
        ProgressNote::open(None).at_most(Duration::ZERO);
        ProgressNote::open(Some(&folder.path().join("missing"))).at_most(Duration::ZERO);
    }
}
