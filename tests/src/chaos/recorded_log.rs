//! The log as the checker reads it: every event of the store's feed by its stream, and when it became durable.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, Head},
    ids::{Position, StreamId},
};

/// An event, and when it became durable.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedEvent {
    /// The event.
    pub event: Envelope,
    /// Rises as transactions commit; the same for events of one transaction on PostgreSQL. A position does not do for
    /// that there: a transaction has its number before it waits for another.
    pub committed_at: i64,
}

/// See the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedLog {
    /// Events by stream, in the order in which the feed has them.
    pub streams: BTreeMap<StreamId, Vec<CommittedEvent>>,
    /// The heads that the store tells.
    pub heads: BTreeMap<StreamId, Head>,
    /// Positions that two events have.
    pub shared_positions: BTreeSet<Position>,
}

impl RecordedLog {
    /// Sorts what was read. `committed` says when what stands at a position became durable.
    pub fn new(
        feed: Vec<Envelope>,
        heads: BTreeMap<StreamId, Head>,
        committed: impl Fn(Position) -> i64,
    ) -> Self {
        let mut log = Self { heads, ..Self::default() };
        let mut positions = BTreeSet::new();
        for event in feed {
            if !positions.insert(event.position) {
                log.shared_positions.insert(event.position);
            }
            let committed = committed(event.position);
            log.streams
                .entry(event.stream.clone())
                .or_default()
                .push(CommittedEvent { event, committed_at: committed });
        }
        log
    }
}
