//! Named places of the log at which a test lets a process die. Without a failpoint, nothing.
//!
//! Crash tests name the place by stream, place and side, never by time: a crash at every event
//! boundary is a loop over numbers, and each failure can be repeated.

use std::ops::Range;

use docket_schema::ids::Epoch;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::{Pid, getppid},
};

use crate::bootstrap::{FailWhen, FailWhom, Failpoint};

/// Dies here if the failpoint says so: `seqs` are the places of the events in the append at hand.
pub(super) fn reached(failpoint: Option<&Failpoint>, epoch: Epoch, seqs: Range<u64>, when: FailWhen) {
    let Some(failpoint) = failpoint else { return };
    if failpoint.epoch != epoch.0 || failpoint.when != when || !seqs.contains(&failpoint.seq) {
        return;
    }
    // A signal that cannot be sent leaves the process alive, and the test that waits for its death fails.
    let sent = match failpoint.whom {
        FailWhom::Run => raise(Signal::SIGKILL),
        FailWhom::Supervisor => kill(getppid(), Signal::SIGKILL).and_then(|()| raise(Signal::SIGKILL)),
        FailWhom::Sleeper => raise(Signal::SIGSTOP),
        FailWhom::Process(pid) => kill(Pid::from_raw(pid), Signal::SIGKILL),
    };
    if let Err(error) = sent {
        tracing::error!(%error, "a failpoint's signal could not be sent");
    }
}
