//! Counts of requests rejected for their token, written to the log and the audit stream at a bounded rate.
//!
//! Invariant: memory and the events per minute are bounded for any input; nothing of a token is stored.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
};

use docket_schema::{
    api::ProblemCode,
    ids::Timestamp,
    system::{CallsRefused, SystemEvent},
};

/// Most addresses and codes distinguished between two writes.
const ENTRIES_MAX: usize = 1024;
/// Most events per write; those with the most requests are kept.
const EVENTS_MAX: usize = 16;

#[derive(Default)]
pub(crate) struct AuthFailureCounts {
    counts: Mutex<HashMap<(IpAddr, ProblemCode), (u64, Timestamp)>>,
}

impl AuthFailureCounts {
    pub(crate) fn record_failure(&self, peer: Option<IpAddr>, code: ProblemCode, now: Timestamp) {
        let Some(peer) = peer else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let full = counts.len() >= ENTRIES_MAX;
        match counts.get_mut(&(peer, code)) {
            Some((count, _)) => *count += 1,
            None if full => {}
            None => {
                counts.insert((peer, code), (1, now));
            }
        }
    }

    /// Returns the counts since the last call, as events.
    pub(crate) fn take_events(&self) -> Vec<SystemEvent> {
        let counts = std::mem::take(&mut *self.counts.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all: Vec<CallsRefused> = counts
            .into_iter()
            .map(|((from, code), (count, since))| CallsRefused { from: from.to_string(), code, count, since })
            .collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.from.cmp(&b.from)));
        all.truncate(EVENTS_MAX);
        all.into_iter().map(SystemEvent::from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_addresses_give_few_events_with_the_busiest() {
        let refused = AuthFailureCounts::default();
        let code = ProblemCode::Unauthorized;
        let busy: IpAddr = "10.9.9.9".parse().expect("an address");
        for n in 0..100_000_u32 {
            refused.record_failure(Some(IpAddr::from(n.to_be_bytes())), code, Timestamp(i64::from(n)));
            if n < 500 {
                refused.record_failure(Some(busy), code, Timestamp(7));
            }
        }
        assert_eq!(refused.counts.lock().expect("lock").len(), ENTRIES_MAX);
        let events = refused.take_events();
        assert_eq!(events.len(), EVENTS_MAX);
        let first = CallsRefused { from: busy.to_string(), code, count: 500, since: Timestamp(7) };
        assert_eq!(events.first(), Some(&SystemEvent::from(first)));
        assert!(refused.take_events().is_empty(), "each is told once");
    }
}
