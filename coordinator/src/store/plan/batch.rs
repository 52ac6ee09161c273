//! Batch planning: reads what its commands need in few statements, then decides them one by one.

use docket_schema::ids::{BlobHash, IncarnationId, StreamId, SystemTopic, TaskId};

use super::{
    append::plan_append,
    archive::{self, plan_removal, plan_restore},
    blobs::{stage_blobs, touch_stored},
    command::plan_command,
    dependencies,
    import::plan_import,
    inbox::plan_inbox,
    lease::{self, plan_heartbeat, plan_lease},
    submit::plan_submit,
};
use crate::store::{
    db::{DbConn, TransactionError},
    writer::{BatchCommand, WorkingSet},
};

/// Decides every command of a batch on `set`. Each then has its reply, valid once the set's rows are
/// committed. A refused command leaves nothing in the set.
pub(crate) async fn plan_batch(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    batch: &mut [&mut BatchCommand],
) -> Result<(), TransactionError> {
    if batch.iter().any(|command| matches!(command, BatchCommand::Lease(_))) {
        lease::prepare_limits(set, conn).await?;
    }
    load_batch(set, conn, batch).await?;
    for command in batch {
        match command {
            BatchCommand::Append(request) => {
                request.reply = Some(plan_append(set, conn, &request.command).await?);
            }
            BatchCommand::Task(request) => {
                request.reply = Some(plan_command(set, conn, &request.command).await?);
            }
            BatchCommand::Submit(request) => {
                let submit = &request.command;
                request.reply = Some(plan_submit(set, conn, &submit.tasks, &submit.by, submit.now).await?);
            }
            BatchCommand::Lease(request) => {
                request.reply = Some(Ok(plan_lease(set, conn, &request.command).await?));
            }
            BatchCommand::Heartbeat(request) => {
                request.reply = Some(Ok(plan_heartbeat(set, &request.command)?));
            }
            BatchCommand::PutBlobs(request) => {
                stage_blobs(set, &request.command.blobs);
                request.reply = Some(Ok(()));
            }
            BatchCommand::TouchBlobs(request) => {
                request.reply = Some(Ok(touch_stored(set, &request.command.hashes)));
            }
            BatchCommand::Import(request) => {
                request.reply = Some(plan_import(set, conn, &request.command).await?);
            }
            BatchCommand::ConsumeInbox(request) => {
                let take = &request.command;
                request.reply = Some(Ok(plan_inbox(set, conn, &take.moves, take.now).await?));
            }
            BatchCommand::RemoveArchived(request) => {
                let remove = &request.command;
                request.reply = Some(plan_removal(set, conn, &remove.archived, remove.now).await?);
            }
            BatchCommand::Restore(request) => {
                let restore = &request.command;
                request.reply = Some(plan_restore(set, conn, &restore.restore, restore.now).await?);
            }
        }
    }
    let now = set.writes.now;
    dependencies::release_dependents(set, conn, now).await
}

async fn load_batch(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    batch: &[&mut BatchCommand],
) -> Result<(), TransactionError> {
    let mut tasks: Vec<TaskId> = Vec::new();
    let mut streams: Vec<StreamId> = Vec::new();
    let mut names: Vec<BlobHash> = Vec::new();
    let mut workers: Vec<IncarnationId> = Vec::new();
    for command in batch {
        match &**command {
            BatchCommand::Append(request) => {
                if !set.streams.contains_key(&request.command.stream) {
                    streams.push(request.command.stream.clone());
                }
                names.extend(&request.command.required_blobs);
            }
            BatchCommand::Task(request) => {
                tasks.push(request.command.task);
                names.extend(&request.command.required_blobs);
            }
            BatchCommand::Heartbeat(request) => {
                let beat = &request.command.heartbeat;
                tasks.extend(beat.leases.iter().map(|held| held.task));
                workers.push(beat.incarnation);
            }
            BatchCommand::Lease(request) => {
                let lease = &request.command;
                workers.push(lease.request.incarnation);
                set.lease_reads.requests += 1;
                set.lease_reads.leases_wanted += (lease.request.max as usize).min(lease.runs.len());
            }
            BatchCommand::TouchBlobs(request) => names.extend(&request.command.hashes),
            BatchCommand::Import(request) => {
                let import = &request.command.import;
                streams.extend(import.streams.iter().map(|stream| stream.stream.clone()));
                streams.push(StreamId::System(SystemTopic::Imports));
                names.extend(&import.required_blobs);
            }
            BatchCommand::Submit(_) | BatchCommand::PutBlobs(_) | BatchCommand::ConsumeInbox(_) => {}
            BatchCommand::RemoveArchived(request) => {
                let going = request.command.archived.streams.iter().map(|archived| &archived.stream);
                tasks.extend(going.clone().filter_map(|stream| match stream {
                    StreamId::Task(task) => Some(*task),
                    StreamId::Run(_) | StreamId::Queue(_) | StreamId::System(_) => None,
                }));
                streams.extend(going.cloned());
                streams.push(archive::ARCHIVE_STREAM);
            }
            BatchCommand::Restore(request) => {
                let restore = &request.command.restore;
                streams.extend(restore.streams.iter().map(|stream| stream.stream.clone()));
                streams.push(archive::ARCHIVE_STREAM);
                names.extend(&restore.required_blobs);
            }
        }
    }
    lease::load_workers(set, conn, &workers).await?;
    names.sort_unstable();
    names.dedup();
    set.load_blobs(conn, names).await?;
    set.load_tasks(conn, &tasks).await?;
    set.load_streams(conn, streams).await
}
