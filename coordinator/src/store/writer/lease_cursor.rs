//! Scan state kept between lease requests: fair-share turns and, on PostgreSQL, a cursor per flow that skips index entries
//! of tasks that are already leased.
//!
//! A leased task leaves an entry in the index of available tasks, which only a vacuum removes; and no vacuum does while
//! another session holds an older snapshot, a long report for example. A scan from each flow's beginning would step over
//! all of these entries at each lease. So a coordinator remembers the flows, and for each the place of the first task that
//! it saw: before that place there was nothing to lease. Tasks that another coordinator makes available before it are
//! found by the next full scan. There is one a second, or fewer if it takes long: at most a twentieth of the time is spent
//! on it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use docket_schema::{ids::TaskId, task::TaskRecord};

use crate::decide::FairShareTurns;

/// The usual time between two full scans.
const RESCAN_INTERVAL: Duration = Duration::from_secs(1);
/// A full scan that takes less is repeated whenever nothing was found.
const CHEAP_SCAN_MAX: Duration = Duration::from_millis(5);
/// Full scans take at most this part of the time.
const SCAN_SHARE: u32 = 20;

/// A place in a flow: rank and task.
pub(crate) type FlowPosition = (i64, TaskId);

/// The beginning of a flow.
pub(crate) const FLOW_START: FlowPosition = (i64::MIN, TaskId(uuid::Uuid::nil()));

/// Scan state of a coordinator's lease requests; see the module.
#[derive(Debug, Default)]
pub(crate) struct LeaseCursor {
    flows: BTreeMap<String, FlowPosition>,
    /// When the last full scan ended, and how long it took.
    last_scan: Option<(Instant, Duration)>,
    /// When each flow's group was last served.
    pub(crate) turns: FairShareTurns,
    /// If there are more flows than one scan covers: the first flow after those that were scanned.
    pub(crate) next_window: usize,
}

impl LeaseCursor {
    /// Returns the flows and positions if they are recent enough.
    pub(crate) fn fresh_flows(&self) -> Option<&BTreeMap<String, FlowPosition>> {
        self.last_scan
            .filter(|(at, took)| at.elapsed() < RESCAN_INTERVAL.max(*took * SCAN_SHARE))
            .map(|_| &self.flows)
    }

    /// Whether a full scan is due if the cursor found nothing.
    pub(crate) fn can_rescan(&self) -> bool {
        self.last_scan.is_none_or(|(at, took)| took < CHEAP_SCAN_MAX || at.elapsed() >= took * SCAN_SHARE)
    }

    /// Records the flows that a full scan found.
    pub(crate) fn record_scan(&mut self, flows: impl Iterator<Item = String>, took: Duration) {
        self.flows = flows.map(|flow| (flow, FLOW_START)).collect();
        self.last_scan = Some((Instant::now(), took));
    }

    /// Records how long a full scan took, including the reads of each flow's first tasks.
    pub(crate) fn record_scan_time(&mut self, took: Duration) {
        self.last_scan = Some((Instant::now(), took));
    }

    /// Moves a known flow to its first task; `None` if it has none.
    pub(crate) fn move_to(&mut self, flow: &str, first: Option<FlowPosition>) {
        match (self.flows.get_mut(flow), first) {
            (Some(place), Some(first)) => *place = first,
            (Some(_), None) => drop(self.flows.remove(flow)),
            (None, _) => {}
        }
    }

    /// Records a task that this coordinator made available.
    pub(crate) fn note_available(&mut self, flow: String, record: &TaskRecord) {
        self.move_back(flow, (record.lease_rank(), record.id));
    }

    fn move_back(&mut self, flow: String, here: FlowPosition) {
        let place = self.flows.entry(flow).or_insert(here);
        *place = here.min(*place);
    }
}

/// Tasks made available by a coordinator's other writers, for the writer that leases.
#[derive(Debug, Clone, Default)]
pub(crate) struct AvailabilityHints(Arc<Mutex<LeaseCursor>>);

impl AvailabilityHints {
    /// Publishes the tasks that a writer's committed transaction made available: everything in its own
    /// cursor, which was empty before.
    pub(crate) fn publish(&self, made: LeaseCursor) {
        if !made.flows.is_empty() {
            let mut hints = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            made.flows.into_iter().for_each(|(flow, here)| hints.move_back(flow, here));
        }
    }

    /// Moves published hints into the cursor of the writer that leases.
    pub(crate) fn drain_into(&self, cursor: &mut LeaseCursor) {
        let hints = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        hints.flows.into_iter().for_each(|(flow, here)| cursor.move_back(flow, here));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursor_moves_on_and_back_for_tasks_before_it() {
        let id = |n| TaskId(uuid::Uuid::from_u128(n));
        let mut cursor = LeaseCursor::default();
        assert!(cursor.fresh_flows().is_none() && cursor.can_rescan());
        cursor.record_scan(["a".to_owned(), "b".to_owned()].into_iter(), Duration::ZERO);
        assert!(cursor.can_rescan(), "a cheap one");
        cursor.move_to("a", Some((7, id(1))));
        cursor.move_to("b", None);
        cursor.move_to("c", Some((1, id(1))));
        let known = |cursor: &LeaseCursor| cursor.fresh_flows().expect("fresh").clone();
        assert_eq!(known(&cursor), BTreeMap::from([("a".to_owned(), (7, id(1)))]));
        // Another writer makes tasks available, twice before this one checks.
        let hints = AvailabilityHints::default();
        for rank in [5, 6] {
            let mut made = LeaseCursor::default();
            made.move_back("a".to_owned(), (rank, id(2)));
            hints.publish(made);
        }
        hints.drain_into(&mut cursor);
        hints.drain_into(&mut cursor);
        assert_eq!(known(&cursor), BTreeMap::from([("a".to_owned(), (5, id(2)))]));
        // The result of a slow scan stays valid for longer.
        cursor.record_scan(["a".to_owned()].into_iter(), Duration::from_secs(60));
        assert!(!cursor.can_rescan());
    }
}
