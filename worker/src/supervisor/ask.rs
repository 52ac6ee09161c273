//! The dispatcher's requests for work: when one is due, for how many tasks, and when one under way is replaced because
//! what this worker can do has changed. Pure, as all rules of the dispatcher.

use std::time::Duration;

use super::{
    decide::{Moment, free},
    state::{Command, Phase, Poll, State, Wanted},
};

/// How long a request for work waits: long enough to be rare, short enough that proxies let it live.
pub(super) const LEASE_WAIT: Duration = Duration::from_secs(20);

pub(super) fn ask_for_work(state: &mut State, at: Moment, out: &mut Vec<Command>) {
    if state.phase != Phase::Leasing {
        // A drain waits for the one answer it asked for, not for a coordinator that is away.
        if matches!(state.lease, Poll::Pausing(..)) {
            state.lease = Poll::Idle;
        }
        return;
    }
    // One task shows whether a fault is still there.
    let most = if state.quarantine.is_probing() { 1 } else { u32::MAX };
    let wanted = match state.lease {
        Poll::Asked(_, _) if state.lease_version == state.quarantine.version() => return,
        // The same request with what is known of faults by now: whichever is granted first, both get its answer.
        Poll::Asked(wanted, _) => Wanted { max: wanted.max.min(most), ..wanted },
        Poll::Pausing(_, until) if until > at.now => return,
        Poll::Pausing(wanted, _) => Wanted { max: wanted.max.min(most), ..wanted },
        Poll::Idle => {
            let max = free(state).min(most);
            if max == 0 || state.no_lease_before.is_some_and(|before| before > at.now) {
                return;
            }
            state.no_lease_before = None;
            Wanted { number: next_number(state), max }
        }
    };
    state.lease_version = state.quarantine.version();
    state.lease = Poll::Asked(wanted, at.now);
    out.push(Command::Lease { wanted, wait: LEASE_WAIT });
}

fn next_number(state: &mut State) -> u64 {
    state.last_number += 1;
    state.last_number
}
