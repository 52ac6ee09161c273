//! Named points in the log at which tests kill a process. Without failpoints it does nothing.
//!
//! Crash tests name the point by stream, seq and side, never by time: crashing at every event boundary is a loop over
//! numbers, and each failure is reproducible.

use std::ops::Range;

use docket_schema::ids::Epoch;
use nix::{
    sys::signal::{Signal, kill, raise},
    unistd::{Pid, getppid},
};

use crate::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};

/// The failpoints of one run process; each fires once.
#[derive(Debug, Default)]
pub struct Failpoints(Vec<Failpoint>);

impl Failpoints {
    pub const fn new(failpoints: Vec<Failpoint>) -> Self {
        Self(failpoints)
    }

    /// Sends the signals registered for this side of an append; `seqs` are the positions of its events.
    pub(in crate::run) fn trigger_matching(&mut self, epoch: Epoch, seqs: Range<u64>, when: FailpointTiming) {
        let here =
            |point: &mut Failpoint| point.epoch == epoch.0 && point.when == when && seqs.contains(&point.seq);
        for point in self.0.extract_if(.., here) {
            // If the signal cannot be sent the process stays alive, and the test waiting for its death fails.
            if let Err(error) = send_signal(point.whom) {
                tracing::error!(%error, "cannot send a failpoint's signal");
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
