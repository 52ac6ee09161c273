//! The log as the checker reads it: every event of the feed by stream, and when it became durable.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Envelope, Head},
    ids::{Position, StreamId},
};

/// An event and when it became durable.
#[derive(Debug, Clone, PartialEq)]
pub struct CommittedEvent {
    pub event: Envelope,
    /// Increases as transactions commit; equal for events of one PostgreSQL transaction. A position cannot
    /// serve here, because a transaction gets its number before it waits for another one.
    pub committed_at: i64,
}

/// The log of a chaos run; see the module.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RecordedLog {
    /// Events by stream, in feed order.
    pub streams: BTreeMap<StreamId, Vec<CommittedEvent>>,
    /// The heads that the store reports.
    pub heads: BTreeMap<StreamId, Head>,
    /// Positions shared by two events.
    pub shared_positions: BTreeSet<Position>,
}

impl RecordedLog {
    /// Groups the events. `committed` returns when the event at a position became durable.
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
