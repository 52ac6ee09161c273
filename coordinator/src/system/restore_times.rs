//! Restore times of archived tasks, folded from `system/archive`.
//!
//! Retention counts from the restore: a restored task is meant to be used, and by its end time alone the next
//! pass would archive it again.

use std::collections::HashMap;

use docket_schema::{
    event::EventRef,
    ids::{Seq, StreamId, SystemTopic, TaskId, Timestamp},
    system::{SystemEvent, TopicError, TopicFold, decode_topic_event},
};

use super::CachedFold;

/// The restore times; see the module.
#[derive(Debug, Default)]
pub struct RestoreTimes {
    head: Seq,
    by_task: HashMap<TaskId, Timestamp>,
}

impl RestoreTimes {
    /// Returns when a task was last restored.
    pub fn get(&self, task: TaskId) -> Option<Timestamp> {
        self.by_task.get(&task).copied()
    }
}

impl TopicFold for RestoreTimes {
    const TOPIC: SystemTopic = SystemTopic::Archive;

    fn head(&self) -> Seq {
        self.head
    }

    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError> {
        // Other kinds are not decoded, so an event of a newer docket does no harm.
        if event.kind == "StreamsRestored"
            && let SystemEvent::StreamsRestored(restored) = decode_topic_event(Self::TOPIC, event)?
        {
            self.by_task.extend(restored.streams.iter().filter_map(|stream| match stream {
                StreamId::Task(task) => Some((*task, event.recorded_at)),
                StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
            }));
        }
        self.head = event.seq;
        Ok(())
    }
}

impl CachedFold for RestoreTimes {
    const UNREADABLE: &'static str =
        "the log's restores cannot be read; run `docket verify` for details, or use a newer docket";
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        event::TypedEvent as _,
        ids::{Epoch, EventHash, Position, RunId, Turn},
        system::StreamsRestored,
    };

    use super::*;

    #[test]
    fn last_restore_counts_and_other_events_are_not_decoded() {
        let task = TaskId(uuid::Uuid::from_u128(1));
        let restored = |streams| {
            let restored = StreamsRestored { task, by: "ann".to_owned(), streams };
            SystemEvent::from(restored).encode(Turn(0))
        };
        let mut times = RestoreTimes::default();
        let mut apply = |kind: &str, payload: &str, at: i64| {
            let seq = times.head().next();
            let applied = times.apply(&EventRef {
                seq,
                position: Position(0),
                recorded_at: Timestamp(at),
                turn: Turn(0),
                epoch: Epoch(0),
                kind,
                version: 1,
                payload,
                prev_hash: EventHash::ZERO,
                hash: EventHash::ZERO,
            });
            (applied.is_ok(), times.head(), times.get(task))
        };
        let both = restored(vec![StreamId::Task(task), StreamId::Run(RunId(task.0))]);
        assert_eq!(apply("TasksRenamed", "{}", 1), (true, Seq(1), None), "of a newer docket");
        for (nth, at) in [(2, 10), (3, 20)] {
            let applied = apply(&both.kind, both.payload.as_str(), at);
            assert_eq!(applied, (true, Seq(nth), Some(Timestamp(at))));
        }
        assert_eq!(apply(&both.kind, "{}", 30), (false, Seq(3), Some(Timestamp(20))), "cannot be read");
    }
}
