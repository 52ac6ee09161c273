//! When tasks were brought back from the archive, as far as a coordinator has read it: their age counts from then.
//!
//! What was brought back is meant to be worked with; by its end alone it would go again with the next round. The fold of
//! `system/archive`, tailed: it is read once as a whole, and holds no more than what was brought back.

use std::{collections::HashMap, sync::Arc};

use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::SystemEvent,
    wire::PAGE_EVENTS_MAX,
};
use tokio::sync::Mutex;

use crate::store::{Store, StoreError};

/// See the module. Of one store; copies share what was read.
#[derive(Debug, Clone, Default)]
pub struct Restored(Arc<Mutex<(Seq, HashMap<TaskId, Timestamp>)>>);

impl Restored {
    /// When each was, the last time; what another coordinator brought back is read as well.
    pub(super) async fn read(&self, store: &dyn Store) -> Result<HashMap<TaskId, Timestamp>, StoreError> {
        let mut known = self.0.lock().await;
        let (head, of) = &mut *known;
        loop {
            let page = store.read(StreamId::System(SystemTopic::Archive), *head, PAGE_EVENTS_MAX).await?;
            let Some(last) = page.last() else { return Ok(of.clone()) };
            for event in page.iter().filter(|event| event.kind == "StreamsRestored") {
                let corrupt = |error| StoreError::Corrupt {
                    what: format!("{}, event {}: {error}", event.stream, event.seq),
                };
                let said = SystemEvent::decode(&event.kind, event.version, event.payload.as_str());
                if let SystemEvent::StreamsRestored(back) =
                    said.map_err(|error| corrupt(error.to_string()))?
                {
                    of.extend(back.streams.iter().filter_map(|stream| match stream {
                        StreamId::Task(task) => Some((*task, event.recorded_at)),
                        StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
                    }));
                }
            }
            *head = last.seq;
        }
    }
}
