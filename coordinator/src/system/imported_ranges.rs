//! Events of tasks that came from another installation: the fold of `system/imports`.

use std::collections::HashMap;

use docket_schema::{
    event::{Envelope, EventRef},
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{SystemEvent, TopicError, TopicFold, decode_topic_event},
};

use super::CachedFold;

/// The imported ranges of task streams; see the module.
#[derive(Debug, Default)]
pub struct ImportedRanges {
    head: Seq,
    /// The last imported event of a task and the time of the import, which ends an unfinished task.
    by_task: HashMap<TaskId, (Seq, Timestamp)>,
}

impl ImportedRanges {
    /// Whether an event of a task was imported.
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
        // Other kinds are not decoded, so an event of a newer docket does no harm.
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
        "the log's imports cannot be read; run `docket verify` for details, or use a newer docket";
}
