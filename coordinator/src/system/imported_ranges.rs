//! Which events of tasks came from another installation: the fold of `system/imports`.

use std::collections::HashMap;

use docket_schema::{
    event::{Envelope, EventRef},
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{SystemEvent, TopicError, TopicFold, decode_topic_event},
};

use super::CachedFold;

/// See the module.
#[derive(Debug, Default)]
pub struct ImportedRanges {
    head: Seq,
    /// The last event of another installation, and when it was imported: the import ends a task that had not ended.
    by_task: HashMap<TaskId, (Seq, Timestamp)>,
}

impl ImportedRanges {
    /// Whether an event of a task came by an import.
    pub fn contains(&self, task: TaskId, event: &Envelope) -> bool {
        let range = self.by_task.get(&task);
        range.is_some_and(|(last, at)| event.seq <= *last || event.recorded_at == *at)
    }
}

impl TopicFold for ImportedRanges {
    const TOPIC: SystemTopic = SystemTopic::Imports;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        // Events of other kinds are not decoded: one that a newer docket wrote stops nothing here.
        if event.kind == "RunImported"
            && let SystemEvent::RunImported(import) = decode_topic_event(Self::TOPIC, event)?
        {
            for stream in import.streams {
                if let StreamId::Task(task) = stream.stream {
                    self.by_task.insert(task, (stream.head.seq, event.recorded_at));
                }
            }
        }
        self.head = event.seq;
        Ok(())
    }
}

impl CachedFold for ImportedRanges {
    const UNREADABLE: &'static str =
        "the log's imports cannot be read; `docket verify` says more, a newer docket may know them";
}
