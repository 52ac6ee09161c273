//! A whole batch: reads what it needs in few statements, then plans ask after ask.

use docket_schema::ids::{BlobHash, IncarnationId, StreamId, SystemTopic, TaskId};

use super::{append, archive, command, depend, import, inbox, lease, running, submit};
use crate::store::{
    ask::{Answered, Ask, PackedBlob},
    conn::Conn,
    desk::{Desk, LoadError},
};

/// Plans all of `asks` on `desk`. An ask that is refused leaves nothing there.
pub(in crate::store) async fn plan_batch(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    asks: &[&Ask],
) -> Result<Vec<Answered>, LoadError> {
    if asks.iter().any(|ask| matches!(ask, Ask::Lease { .. })) {
        running::prepare_limits(desk, conn).await?;
    }
    load(desk, conn, asks).await?;
    let mut answers = Vec::with_capacity(asks.len());
    for ask in asks {
        answers.push(match ask {
            Ask::Append(ask) => Answered::Append(append::plan_append(desk, conn, ask).await?),
            Ask::Command(ask) => Answered::Command(Box::new(command::plan_command(desk, conn, ask).await?)),
            Ask::Submit { tasks, by, now } => {
                Answered::Submit(submit::plan_submit(desk, conn, tasks, by, *now).await?)
            }
            Ask::Lease { request, runs, lease_ms, now } => {
                Answered::Lease(Ok(lease::plan_lease(desk, conn, request, runs, *lease_ms, *now).await?))
            }
            Ask::Heartbeat { beat, lease_ms, now } => {
                Answered::Heartbeat(Ok(lease::plan_heartbeat(desk, beat, *lease_ms, *now)?))
            }
            Ask::PutBlobs { blobs, .. } => {
                stage_blobs(desk, blobs);
                Answered::PutBlobs(Ok(()))
            }
            Ask::TouchBlobs { hashes, .. } => {
                let stored: Vec<_> =
                    hashes.iter().copied().filter(|hash| desk.blobs.contains(hash)).collect();
                desk.staged.touched.extend(&stored);
                Answered::TouchBlobs(Ok(stored))
            }
            Ask::Import(ask) => Answered::Import(import::plan_import(desk, conn, ask).await?),
            Ask::Remove(ask) => Answered::Remove(archive::plan_removal(desk, conn, &ask.0, ask.1).await?),
            Ask::Restore(ask) => Answered::Restore(archive::plan_restore(desk, conn, &ask.0, ask.1).await?),
            Ask::TakeInbox { moves, now } => {
                Answered::TakeInbox(Ok(inbox::plan_inbox(desk, conn, moves, *now).await?))
            }
            Ask::Secret { .. }
            | Ask::Term(_)
            | Ask::Rebuild(_)
            | Ask::DropBlobs { .. }
            | Ask::ActInbox { .. }
            | Ask::Permit(_)
            | Ask::CallEnded { .. }
            | Ask::Reserve { .. }
            | Ask::CountBatch { .. }
            | Ask::DrainWorker { .. } => {
                unreachable!("lone asks are not planned in a batch")
            }
        });
    }
    let now = desk.staged.now;
    depend::set_free(desk, conn, now).await?;
    Ok(answers)
}

/// Blobs of a request that succeeds are written; those stored already are touched by the same statement.
pub(super) fn stage_blobs(desk: &mut Desk, blobs: &[PackedBlob]) {
    for blob in blobs {
        desk.blobs.insert(blob.hash);
        desk.staged.blobs.entry(blob.hash).or_insert_with(|| blob.clone());
    }
}

/// The first of `names` that is neither stored nor among `blobs`.
pub(super) fn missing_blob(desk: &Desk, names: &[BlobHash], blobs: &[PackedBlob]) -> Option<BlobHash> {
    names
        .iter()
        .copied()
        .find(|name| !desk.blobs.contains(name) && !blobs.iter().any(|blob| blob.hash == *name))
}

async fn load(desk: &mut Desk, conn: &mut Conn<'_>, asks: &[&Ask]) -> Result<(), LoadError> {
    let mut tasks: Vec<TaskId> = Vec::new();
    let mut streams: Vec<StreamId> = Vec::new();
    let mut names: Vec<BlobHash> = Vec::new();
    let mut workers: Vec<IncarnationId> = Vec::new();
    for ask in asks {
        match ask {
            Ask::Append(ask) => {
                if !desk.streams.contains_key(&ask.stream) {
                    streams.push(ask.stream.clone());
                }
                names.extend(&ask.names);
            }
            Ask::Command(ask) => {
                tasks.push(ask.task);
                names.extend(&ask.names);
            }
            Ask::Heartbeat { beat, .. } => {
                tasks.extend(beat.held.iter().map(|held| held.task));
                workers.push(beat.incarnation);
            }
            Ask::Lease { request, runs, .. } => {
                workers.push(request.incarnation);
                desk.leasing.requests += 1;
                desk.leasing.wanted += (request.max as usize).min(runs.len());
            }
            Ask::TouchBlobs { hashes, .. } => names.extend(hashes),
            Ask::Import(ask) => {
                streams.extend(ask.import.streams.iter().map(|stream| stream.stream.clone()));
                streams.push(StreamId::System(SystemTopic::Imports));
                names.extend(&ask.import.names);
            }
            Ask::Submit { .. } | Ask::PutBlobs { .. } | Ask::TakeInbox { .. } => {}
            Ask::Remove(ask) => {
                let going = ask.0.streams.iter().map(|archived| &archived.stream);
                tasks.extend(going.clone().filter_map(|stream| match stream {
                    StreamId::Task(task) => Some(*task),
                    StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
                }));
                streams.extend(going.cloned());
                streams.push(archive::STREAM);
            }
            Ask::Restore(ask) => {
                streams.extend(ask.0.streams.iter().map(|stream| stream.stream.clone()));
                streams.push(archive::STREAM);
                names.extend(&ask.0.names);
            }
            Ask::Secret { .. }
            | Ask::Term(_)
            | Ask::Rebuild(_)
            | Ask::DropBlobs { .. }
            | Ask::ActInbox { .. }
            | Ask::Permit(_)
            | Ask::CallEnded { .. }
            | Ask::Reserve { .. }
            | Ask::CountBatch { .. }
            | Ask::DrainWorker { .. } => {}
        }
    }
    lease::load_workers(desk, conn, &workers).await?;
    names.sort_unstable();
    names.dedup();
    desk.load_blobs(conn, names).await?;
    desk.load_tasks(conn, &tasks).await?;
    desk.load_streams(conn, streams).await
}
