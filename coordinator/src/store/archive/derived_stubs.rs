//! Stubs derived from the log, for a rebuild.

use std::collections::BTreeMap;

use docket_schema::{
    event::{Envelope, TypedEvent as _},
    ids::{StreamId, SystemTopic},
    system::{StreamArchived, StreamsArchived, SystemEvent},
};

use crate::store::{
    ArchiveStub, StoreError,
    api::corrupt_error,
    db::{DbConn, TransactionError, for_each_event},
};

/// Derives the stubs from `system/archive`.
pub(crate) async fn derive_stubs(
    conn: &mut DbConn<'_>,
) -> Result<BTreeMap<StreamId, ArchiveStub>, TransactionError> {
    let mut stubs = BTreeMap::new();
    for_each_event(conn, &StreamId::System(SystemTopic::Archive), |event| {
        apply_archive_event(&mut stubs, &event)
    })
    .await?;
    Ok(stubs)
}

fn apply_archive_event(
    stubs: &mut BTreeMap<StreamId, ArchiveStub>,
    event: &Envelope,
) -> Result<(), StoreError> {
    let corrupt = |what: String| corrupt_error(format!("{}, event {}: {what}", event.stream, event.seq));
    match SystemEvent::decode(&event.kind, event.version, event.payload.as_str())
        .map_err(|error| corrupt(error.to_string()))?
    {
        SystemEvent::StreamsArchived(StreamsArchived { place, file, hash, bytes, streams, .. }) => {
            for StreamArchived { stream, head, run_of: _, task } in streams {
                let stub = ArchiveStub {
                    stream: stream.clone(),
                    head,
                    archived_at: event.recorded_at,
                    location: place.clone(),
                    file: file.clone(),
                    file_hash: hash,
                    file_bytes: bytes,
                    task,
                };
                stubs.insert(stream, stub);
            }
        }
        SystemEvent::StreamsRestored(restored) => {
            for stream in restored.streams {
                stubs.remove(&stream);
            }
        }
        SystemEvent::RunImported(_)
        | SystemEvent::TokenCreated(_)
        | SystemEvent::TokenRevoked(_)
        | SystemEvent::AdminActed(_)
        | SystemEvent::CallsRefused(_)
        | SystemEvent::ScheduleSet(_)
        | SystemEvent::SchedulePaused(_)
        | SystemEvent::ScheduleRemoved(_)
        | SystemEvent::ScheduleFired(_)
        | SystemEvent::LimitSet(_)
        | SystemEvent::LimitRemoved(_)
        | SystemEvent::BudgetSet(_)
        | SystemEvent::BudgetSpent(_)
        | SystemEvent::NotificationsFollowed(_)
        | SystemEvent::NotificationRaised(_)
        | SystemEvent::NotificationDelivered(_)
        | SystemEvent::NotificationFailed(_)
        | SystemEvent::NotificationDeadLettered(_)
        | SystemEvent::NotificationRetried(_)
        | SystemEvent::NotificationDropped(_)
        | SystemEvent::MemorySaved(_)
        | SystemEvent::MemoryForgotten(_) => {
            return Err(corrupt(format!("a {} belongs elsewhere", event.kind)));
        }
    }
    Ok(())
}
