//! Stall detection: tells a working run process from one that hangs or was stopped.
//!
//! Before each step that takes time, the run process notes how long the step may take at most
//! ([`ProgressNote`]). The supervisor reads the note and measures from the moment it saw the note change
//! ([`RunWatch`]). A process that waits forever writes no further note, so its time runs out even though its
//! supervisor still renews its lease. A process stopped by a signal is detected sooner, whatever its step,
//! from its state in `/proc`: a busy machine delays a process but never stops it.
//!
//! Only time in which the supervisor itself runs is counted. Suspending the machine, or stopping a supervisor
//! together with its runs, therefore ends no run. Used by the run loop and by the supervisor's `child`.
//! Invariant: a note that cannot be read or written never ends a process early; the previous time limit (or
//! the one at the start) applies.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt as _,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Time limit for starting a run process: its base may arrive over a slow connection, and setup commands run
/// one after the other.
pub const START_TIME_MAX: Duration = Duration::from_secs(3600);

/// Added to the limit that a process reports, for a machine under load: the step's own limit must fire first.
const STEP_MARGIN: Duration = Duration::from_secs(30);

/// How long a process may stay stopped: enough for a person who inspects it with a signal or two.
const STOPPED_MAX: Duration = Duration::from_secs(10);

/// Interval between checks of a run process.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Length of a note in bytes: two numbers of twenty digits, a space and a line feed. The length is constant,
/// so that one write replaces the previous note completely.
const NOTE_BYTES: usize = 42;

/// The run process's side: writes notes.
#[derive(Debug, Default)]
pub struct ProgressNote {
    file: Option<File>,
    note_count: AtomicU64,
}

impl ProgressNote {
    /// Opens the note that the supervisor created. Without a path, nothing is written.
    pub fn open(path: Option<&Path>) -> Self {
        let file = path.and_then(|path| {
            let opened = OpenOptions::new().write(true).open(path);
            opened.inspect_err(|error| tracing::warn!(%error, "progress cannot be noted")).ok()
        });
        Self { file, note_count: AtomicU64::new(0) }
    }

    /// Announces the maximum duration of the next step.
    pub fn set_step_limit(&self, time: Duration) {
        let count = self.note_count.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(file) = &self.file
            && let Err(error) = file.write_all_at(format_note(count, time).as_bytes(), 0)
        {
            tracing::debug!(%error, "progress is not noted");
        }
    }
}

fn format_note(count: u64, time: Duration) -> String {
    format!("{count:020} {:020}\n", u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Creates the note that a run process will overwrite.
pub(crate) fn create_note(path: &Path) -> io::Result<()> {
    std::fs::write(path, format_note(0, START_TIME_MAX))
}

/// Whether a run process has written a note. It writes none before its run is ready.
pub(crate) fn is_past_start(path: &Path) -> bool {
    let noted = std::fs::read(path).unwrap_or_default();
    !noted.is_empty() && noted != format_note(0, START_TIME_MAX).as_bytes()
}

/// Why the supervisor gives up on a run process that is still alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StallReason {
    /// The current step exceeded its time limit.
    NoProgress,
    /// A signal stopped the process, and none continued it.
    Stopped,
}

/// The supervisor's side: reads notes and detects stalls.
#[derive(Debug)]
pub(crate) struct RunWatch {
    last_note: Vec<u8>,
    /// Time since the note last changed, as the sum of check intervals.
    unchanged: Duration,
    /// Time the process has been stopped, as the sum of check intervals.
    stopped: Duration,
    last_check: Instant,
    step_limit: Duration,
    /// Upper limit of every step, whatever the process reports.
    cap: Duration,
    /// Time between two checks.
    check_interval: Duration,
}

impl RunWatch {
    /// Starts watching at `now`. A `cap` limits every step; used by tests.
    pub(crate) fn new(cap: Option<Duration>, now: Instant) -> Self {
        let (unchanged, stopped) = (Duration::ZERO, Duration::ZERO);
        let every = cap.map_or(CHECK_INTERVAL, |cap| CHECK_INTERVAL.min(cap / 4));
        let cap = cap.unwrap_or(Duration::MAX);
        Self {
            last_note: Vec::new(),
            unchanged,
            stopped,
            last_check: now,
            step_limit: START_TIME_MAX,
            cap,
            check_interval: every,
        }
    }

    /// The time to wait before the next check.
    pub(crate) const fn check_interval(&self) -> Duration {
        self.check_interval
    }

    /// Processes one check at `now`: the note's content and whether the process is stopped. Returns the
    /// reason to give up, if any.
    pub(crate) fn check_stall(&mut self, note: &[u8], is_stopped: bool, now: Instant) -> Option<StallReason> {
        // A check that is later than this was delayed together with the whole machine or the supervisor.
        let passed =
            now.saturating_duration_since(self.last_check).min(self.check_interval.saturating_mul(2));
        self.last_check = now;
        self.unchanged += passed;
        self.stopped = if is_stopped { self.stopped + passed } else { Duration::ZERO };
        if note != self.last_note
            && let Some(at_most) = parse_note(note)
        {
            (self.last_note, self.unchanged, self.step_limit) = (note.to_vec(), Duration::ZERO, at_most);
        }
        if self.stopped > STOPPED_MAX {
            return Some(StallReason::Stopped);
        }
        let granted = self.step_limit.saturating_add(STEP_MARGIN).min(self.cap);
        (self.unchanged > granted).then_some(StallReason::NoProgress)
    }
}

/// Whether the process was stopped by a signal. A stop by a debugger is a different state and is not
/// reported, because a person is working on the process.
pub(crate) fn is_stopped(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The state follows the name in parentheses, which may contain anything.
    stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
}

fn parse_note(note: &[u8]) -> Option<Duration> {
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

    /// Checks once per second until `to`, like a supervisor; returns the first reason and its second.
    fn check_until(
        watch: &mut RunWatch,
        note: &[u8],
        is_stopped: bool,
        (begun, from, to): (Instant, u64, u64),
    ) -> Option<(u64, StallReason)> {
        (from..=to).find_map(|at| {
            let now = begun + Duration::from_secs(at);
            watch.check_stall(note, is_stopped, now).map(|reason| (at, reason))
        })
    }

    #[test]
    fn run_without_a_note_is_not_past_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("progress");
        assert!(!is_past_start(&path), "there is none");
        create_note(&path).unwrap();
        assert!(!is_past_start(&path));
        ProgressNote::open(Some(&path)).set_step_limit(START_TIME_MAX);
        assert!(is_past_start(&path));
    }

    #[test]
    fn time_runs_from_the_moment_a_note_is_seen() {
        let begun = Instant::now();
        let mut watch = RunWatch::new(None, begun);
        let first = format_note(1, Duration::from_secs(100));
        let no_progress = Some((182, StallReason::NoProgress));
        assert_eq!(check_until(&mut watch, b"", false, (begun, 1, 50)), None);
        assert_eq!(check_until(&mut watch, first.as_bytes(), false, (begun, 51, 400)), no_progress);
        // The same limit written again restarts the count.
        let again = format_note(2, Duration::from_secs(100));
        let no_progress = Some((314, StallReason::NoProgress));
        assert_eq!(check_until(&mut watch, again.as_bytes(), false, (begun, 183, 400)), no_progress);
        // A cap limits every step.
        let mut watch = RunWatch::new(Some(Duration::from_secs(5)), begun);
        let no_progress = Some((7, StallReason::NoProgress));
        assert_eq!(check_until(&mut watch, first.as_bytes(), false, (begun, 1, 50)), no_progress);
    }

    #[test]
    fn stopped_process_is_given_up_regardless_of_its_step_limit() {
        let begun = Instant::now();
        let step = format_note(1, Duration::from_secs(3600));
        let mut watch = RunWatch::new(None, begun);
        assert_eq!(check_until(&mut watch, step.as_bytes(), false, (begun, 1, 100)), None);
        // A process that is continued in time starts over.
        assert_eq!(check_until(&mut watch, step.as_bytes(), true, (begun, 101, 110)), None);
        assert_eq!(check_until(&mut watch, step.as_bytes(), false, (begun, 111, 111)), None);
        let stopped = Some((122, StallReason::Stopped));
        assert_eq!(check_until(&mut watch, step.as_bytes(), true, (begun, 112, 200)), stopped);
    }

    #[test]
    fn time_while_the_supervisor_is_stopped_does_not_count() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let step = format_note(1, Duration::from_secs(5));
        let mut watch = RunWatch::new(None, begun);
        assert_eq!(watch.check_stall(step.as_bytes(), false, at(1)), None);
        // Both were stopped for an hour, and the supervisor is continued first.
        assert_eq!(watch.check_stall(step.as_bytes(), true, at(3600)), None);
        assert_eq!(watch.check_stall(step.as_bytes(), false, at(3601)), None);
    }

    #[test]
    fn invalid_note_is_ignored() {
        let begun = Instant::now();
        let end = (START_TIME_MAX + STEP_MARGIN).as_secs() + 1;
        for damaged in
            [&b""[..], b"soon\n", &format_note(1, Duration::ZERO).as_bytes()[1..], &[0xff; NOTE_BYTES]]
        {
            let mut watch = RunWatch::new(None, begun);
            let found = check_until(&mut watch, damaged, false, (begun, 1, 2 * end));
            assert_eq!(found, Some((end, StallReason::NoProgress)), "{damaged:?}");
        }
    }

    #[test]
    fn process_stopped_by_a_signal_is_detected() {
        use nix::{
            sys::signal::{Signal, kill},
            unistd::Pid,
        };
        let own = i32::try_from(std::process::id()).unwrap();
        assert!(!is_stopped(own) && !is_stopped(i32::MAX));
        #[expect(clippy::disallowed_methods, reason = "a process of the system's own, to be stopped")]
        let mut child = std::process::Command::new("sleep").arg("600").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        kill(Pid::from_raw(pid), Signal::SIGSTOP).unwrap();
        // A signal to another process is delivered asynchronously.
        while !is_stopped(pid) {
            std::thread::yield_now();
        }
        kill(Pid::from_raw(pid), Signal::SIGCONT).unwrap();
        while is_stopped(pid) {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn written_note_is_read_by_the_watch() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("note");
        create_note(&path).unwrap();
        let read = || parse_note(&std::fs::read(&path).unwrap());
        assert_eq!(read(), Some(START_TIME_MAX));
        let process = ProgressNote::open(Some(&path));
        for time in [Duration::from_millis(7), Duration::MAX, Duration::from_secs(3)] {
            process.set_step_limit(time);
            let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
            assert_eq!(read(), Some(Duration::from_millis(ms)));
        }
        ProgressNote::open(None).set_step_limit(Duration::ZERO);
        ProgressNote::open(Some(&folder.path().join("missing"))).set_step_limit(Duration::ZERO);
    }
}
