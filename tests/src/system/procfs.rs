//! Process information from /proc: children, suspended or not, running or not.

use std::path::Path;

use nix::{sys::signal::kill, unistd::Pid};

pub use nix::sys::signal::Signal;

/// Sends a signal. A process that is already gone is ignored.
pub fn send_signal(pid: i32, signal: Signal) {
    let _ = kill(Pid::from_raw(pid), signal);
}

/// Returns the state letter of a process: `T` stopped, `Z` ended and not reaped. `None` if there is
/// none.
pub fn process_state(pid: i32) -> Option<char> {
    stat_fields(&Path::new("/proc").join(pid.to_string()))?.first()?.chars().next()
}

/// Returns whether a signal has stopped it.
pub fn is_stopped(pid: i32) -> bool {
    process_state(pid) == Some('T')
}

/// Returns whether it has not ended: it runs, sleeps or is stopped.
pub fn is_running(pid: i32) -> bool {
    !matches!(process_state(pid), None | Some('Z' | 'X'))
}

/// Returns the processes whose parent is `parent`. Reads all of `/proc`, so do not call it in tight
/// loops.
pub fn child_pids(parent: i32) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let ppid: i32 = stat_fields(&entry.path())?.get(1)?.parse().ok()?;
        (ppid == parent).then_some(pid)
    });
    pids.collect()
}

/// Returns the fields after the name in parentheses (which may contain anything): state, parent,
/// group, session …
fn stat_fields(process: &Path) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(process.join("stat")).ok()?;
    Some(stat.rsplit_once(')')?.1.split_ascii_whitespace().map(str::to_owned).collect())
}
