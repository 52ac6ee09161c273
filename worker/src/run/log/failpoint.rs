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

use crate::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};

/// The failpoints of one run process; each is obeyed once.
#[derive(Debug, Default)]
pub struct Failpoints(Vec<Failpoint>);

impl Failpoints {
    /// These failpoints.
    pub const fn new(failpoints: Vec<Failpoint>) -> Self {
        Self(failpoints)
    }

    /// Sends whatever signals stand at this side of an append: `seqs` are the places of its events.
    pub(in crate::run) fn trigger_matching(&mut self, epoch: Epoch, seqs: Range<u64>, when: FailpointTiming) {
        let here =
            |point: &mut Failpoint| point.epoch == epoch.0 && point.when == when && seqs.contains(&point.seq);
        for point in self.0.extract_if(.., here) {
            // A signal that cannot be sent leaves the process alive, and the test that waits for its
            // death fails.
            if let Err(error) = send_signal(point.whom) {
                tracing::error!(%error, "a failpoint's signal could not be sent");
            }
        }
    }
}

fn send_signal(whom: FailpointTarget) -> nix::Result<()> {
    match whom {
        FailpointTarget::Run => raise(Signal::SIGKILL),
        FailpointTarget::Supervisor => kill(getppid(), Signal::SIGKILL).and_then(|()| raise(Signal::SIGKILL)),
        FailpointTarget::Sleeper => raise(Signal::SIGSTOP),
        FailpointTarget::Process(pid) => kill(Pid::from_raw(pid), Signal::SIGKILL),
    }
}
