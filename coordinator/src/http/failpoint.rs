//! Named places of a run's log at which a test lets the coordinator die: an append is committed, and
//! its answer never sent. Without one, nothing.

use std::str::FromStr;

use docket_schema::ids::{Epoch, Seq};
use nix::sys::signal::{Signal, raise};

/// An append whose writer gets no answer: the coordinator kills itself with -9 before. Tests only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LostReply {
    /// An event of the append.
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

/// `count` events up to `head` were committed under `epoch` for the first time; their writer waits for the
/// answer.
pub(super) fn die_before_reply(lost: &[LostReply], epoch: Epoch, head: Seq, count: usize) {
    let first = head.0.saturating_sub(count as u64) + 1;
    if lost.iter().any(|lost| lost.epoch == epoch && (first..=head.0).contains(&lost.seq.0)) {
        // Should it fail, the coordinator lives on, and the test that waits for its death fails.
        let _ = raise(Signal::SIGKILL);
    }
}
