//! Test failpoints: the coordinator dies after committing a given append and before replying.
//! Inactive unless configured.

use std::str::FromStr;

use docket_schema::ids::{Epoch, Seq};
use nix::sys::signal::{Signal, raise};

/// An append whose writer gets no reply because the coordinator kills itself with SIGKILL first.
/// Tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostReply {
    /// Sequence number of an event in the append.
    pub seq: Seq,
    /// The lease's epoch.
    pub epoch: Epoch,
}

impl FromStr for LostReply {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts =
            text.split_once('@').and_then(|(seq, epoch)| Some((seq.parse().ok()?, epoch.parse().ok()?)));
        let (seq, epoch) = parts.ok_or_else(|| format!("`{text}` is not SEQ@EPOCH"))?;
        Ok(Self { seq: Seq(seq), epoch: Epoch(epoch) })
    }
}

/// Kills the process if a failpoint matches. Called after `count` events up to `head` were first
/// committed under `epoch`, before the reply.
pub(in crate::http) fn die_before_reply(lost: &[LostReply], epoch: Epoch, head: Seq, count: usize) {
    let first = head.0.saturating_sub(count as u64) + 1;
    if lost.iter().any(|lost| lost.epoch == epoch && (first..=head.0).contains(&lost.seq.0)) {
        // If the signal fails, the coordinator survives and the waiting test fails.
        let _ = raise(Signal::SIGKILL);
    }
}
