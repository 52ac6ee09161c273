//! The dispatcher's lease requests: when one is due, for how many tasks, and when one in flight is replaced because
//! the worker's abilities have changed. Pure, as are all rules of the dispatcher.

use std::time::Duration;

use super::{
    decide::{NowWithJitter, free_slots},
    state::{DispatcherCommand, DispatcherState, LeaseAttempt, PollState, WorkerPhase},
};

/// How long a lease request waits: long enough to be rare, short enough for proxies to keep it open.
pub(super) const LEASE_WAIT: Duration = Duration::from_secs(20);

pub(super) fn request_work(state: &mut DispatcherState, at: NowWithJitter, out: &mut Vec<DispatcherCommand>) {
    if state.phase != WorkerPhase::Leasing {
        // A drain waits for the one reply it requested, not for an unavailable coordinator.
        if matches!(state.lease_poll, PollState::BackingOff(..)) {
            state.lease_poll = PollState::Idle;
        }
        return;
    }
    // A single task shows whether a fault persists.
    let most = if state.quarantine.is_probing() { 1 } else { u32::MAX };
    let wanted = match state.lease_poll {
        PollState::InFlight(_, _) if state.faults_version == state.quarantine.version() => return,
        // The same request with the current faults: whichever is granted first answers both.
        PollState::InFlight(wanted, _) => LeaseAttempt { max: wanted.max.min(most), ..wanted },
        PollState::BackingOff(_, until) if until > at.now => return,
        PollState::BackingOff(wanted, _) => LeaseAttempt { max: wanted.max.min(most), ..wanted },
        PollState::Idle => {
            let max = free_slots(state).min(most);
            if max == 0 || state.no_request_before.is_some_and(|before| before > at.now) {
                return;
            }
            state.no_request_before = None;
            LeaseAttempt { number: next_request_number(state), max }
        }
    };
    state.faults_version = state.quarantine.version();
    state.lease_poll = PollState::InFlight(wanted, at.now);
    out.push(DispatcherCommand::Lease { attempt: wanted, wait: LEASE_WAIT });
}

fn next_request_number(state: &mut DispatcherState) -> u64 {
    state.last_request_number += 1;
    state.last_request_number
}
