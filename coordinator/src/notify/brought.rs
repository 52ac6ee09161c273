//! Which events came from elsewhere: imported from another installation, or back from the archive. They stand at new
//! places in the log, and tell of nothing new.

use std::collections::HashMap;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::SystemEvent,
    wire::PAGE_EVENTS_MAX,
};

use crate::store::{Store, StoreError};

/// The folds of `system/imports` and `system/archive`, as far as they were read: of tasks' streams alone.
#[derive(Debug, Default)]
pub(super) struct Brought {
    heads: [Seq; 2],
    /// Up to where a task's events are another installation's, and when they came: the import ends a task that had not.
    imported: HashMap<TaskId, (Seq, Timestamp)>,
    /// When a task came back from the archive, the last time.
    restored: HashMap<TaskId, Timestamp>,
}

impl Brought {
    /// Whether an event came so. What brought it was committed with it, so whoever catches up after it read the event
    /// knows of it.
    pub(super) fn has(&self, event: &Envelope) -> bool {
        let StreamId::Task(task) = event.stream else { return false };
        let imported = self
            .imported
            .get(&task)
            .is_some_and(|(until, at)| event.seq <= *until || event.recorded_at == *at);
        let restored = self.restored.get(&task).is_some_and(|at| event.recorded_at < *at);
        imported || restored
    }

    /// Reads what came since.
    pub(super) async fn catch_up(&mut self, store: &dyn Store) -> Result<(), StoreError> {
        for (nth, topic) in [SystemTopic::Imports, SystemTopic::Archive].into_iter().enumerate() {
            loop {
                let page = store.read(StreamId::System(topic), self.heads[nth], PAGE_EVENTS_MAX).await?;
                let Some(last) = page.last() else { break };
                for event in &page {
                    self.take(event)?;
                }
                self.heads[nth] = last.seq;
            }
        }
        Ok(())
    }

    fn take(&mut self, event: &Envelope) -> Result<(), StoreError> {
        if !["RunImported", "StreamsRestored"].contains(&event.kind.as_str()) {
            return Ok(());
        }
        let corrupt =
            |error| StoreError::Corrupt { what: format!("{}, event {}: {error}", event.stream, event.seq) };
        let said = SystemEvent::decode(&event.kind, event.version, event.payload.as_str());
        let said = said.map_err(|error| corrupt(error.to_string()))?;
        if let SystemEvent::RunImported(import) = &said {
            for stream in &import.streams {
                if let StreamId::Task(task) = stream.stream {
                    self.imported.insert(task, (stream.head.seq, event.recorded_at));
                }
            }
        }
        if let SystemEvent::StreamsRestored(back) = &said {
            for stream in &back.streams {
                if let StreamId::Task(task) = stream {
                    self.restored.insert(*task, event.recorded_at);
                }
            }
        }
        Ok(())
    }
}
