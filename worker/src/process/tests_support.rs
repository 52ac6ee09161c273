//! Helpers for tests of this crate that watch processes end. Compiled for tests only.

use std::time::Duration;

/// Waits until no process with this id runs; a zombie counts as gone.
pub(crate) async fn wait_until_gone(pid: i32) {
    let stat = format!("/proc/{pid}/stat");
    for _ in 0..2_000 {
        let Ok(text) = std::fs::read_to_string(&stat) else { return };
        let state = text.rsplit(')').next().and_then(|rest| rest.trim().chars().next());
        if state == Some('Z') {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    panic!("process {pid} still runs");
}
