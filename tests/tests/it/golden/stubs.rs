//! What stubs keep of archived tasks, as events of this release have it.

use docket_schema::{
    event::{Envelope, Head},
    ids::{BatchId, BlobHash, EventHash, Seq, StreamId, SystemTopic, TaskId, Timestamp, Turn},
    system::{ArchivedTask, StreamArchived, StreamsArchived, SystemEvent},
    task::TaskState,
};

use super::handmade::{StreamBuilder, fixed_uuid};

/// The stream of what was archived, with what stubs keep of tasks.
pub(super) fn stub_events() -> Vec<Envelope> {
    let mut stream = StreamBuilder::new(StreamId::System(SystemTopic::Archive));
    let head = Head { seq: Seq(4), hash: EventHash([8; 32]) };
    let kept = |title: &str, state| ArchivedTask {
        title: title.to_owned(),
        queue: "default".parse().expect("a name"),
        state,
        batch: None,
        batch_name: None,
        dedup_key: None,
        runs: 1,
        failures: 0,
        crashes: 0,
        submitted_at: Timestamp(1_700_000_000_000_000),
        ended_at: Timestamp(1_700_000_001_000_000),
    };
    let whole = ArchivedTask {
        batch: Some(BatchId(fixed_uuid(7))),
        batch_name: Some("the backlog".to_owned()),
        dedup_key: Some("a key".to_owned()),
        ..kept("Mend the roof", TaskState::Discarded)
    };
    for (n, kept) in [(3, kept("Paint the shed", TaskState::Completed)), (4, whole)] {
        let task = TaskId(fixed_uuid(n));
        let streams = vec![StreamArchived {
            stream: StreamId::Task(task),
            head,
            run_of: None,
            task: Some(Box::new(kept)),
        }];
        let archived = StreamsArchived {
            task,
            by: "retention".to_owned(),
            place: "s3://old-runs".to_owned(),
            file: "2026/11/b.docket".to_owned(),
            hash: BlobHash::hash_bytes(b"not a file either"),
            bytes: 1000,
            streams,
        };
        stream.push(Turn(0), &SystemEvent::from(archived));
    }
    stream.events
}
