//! Leases and heartbeats.

mod choose;
mod running;

use docket_schema::{
    api::{LeaseLostReason, LostLease, WorkerCapabilities},
    ids::{Epoch, IncarnationId, RunId, StreamId, TaskId},
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::command::{PlanExecution, stage_plan};
use crate::{
    decide::{self, LeaseRecipient, lease_lost_reason},
    store::{
        CommandError, GrantedLease, HeartbeatOutcome, LeaseOutcome, WorkerHeartbeat,
        api::corrupt_error,
        db::{DbConn, SqlArg, TransactionError},
        writer::{
            DeadlineChange, LeaseTasks, RenewLeases, StagedRequest, StoredWorker, WorkerUpdate, WorkingSet,
        },
    },
};
use choose::choose_tasks;
pub(super) use running::prepare_limits;

/// A lease of a reply, stored for repeated requests.
#[derive(Debug, Serialize, Deserialize)]
struct CachedLease {
    task: TaskId,
    epoch: Epoch,
}

pub(super) async fn plan_lease(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    command: &LeaseTasks,
) -> Result<LeaseOutcome, TransactionError> {
    let LeaseTasks { request, runs, lease_ms, now } = command;
    let (now, deadline) = (*now, now.plus_ms(*lease_ms));
    let about = WorkerCapabilities {
        queues: request.queues.clone(),
        engines: request.engines.clone(),
        labels: request.labels.clone(),
        layers: request.layers.clone(),
        faults: request.faults.clone(),
    };
    let about = serde_json::to_string(&about).map_err(|e| corrupt_error(e.to_string()))?;
    let (name, room) = (request.name.clone(), request.room.clone());
    set.writes
        .workers
        .insert(request.incarnation, WorkerUpdate { name, seen_at: now, about: Some(about), capacity: room });
    let RequestingWorker { cached_answer: kept, drain } = requesting_worker(set, request.incarnation)?;
    if let Some((number, kept)) = kept
        && number >= request.number
    {
        // A lower number belongs to a request that its worker has given up; it must not lease anything.
        return if number == request.number {
            let standing = repeat_grants(set, conn, request.incarnation, &kept).await?;
            // A repeated request shows that the worker is alive, so it renews like a heartbeat. The reply's
            // leases therefore count from this request, however long the worker waited for the lost one.
            for granted in &standing {
                let lease = (granted.record.epoch, deadline);
                set.writes.deadlines.insert(granted.record.id, lease);
            }
            Ok(LeaseOutcome { leases: standing, drain })
        } else {
            Ok(LeaseOutcome { leases: Vec::new(), drain })
        };
    }
    if drain {
        return Ok(LeaseOutcome { leases: Vec::new(), drain });
    }
    let wanted = (request.max as usize).min(runs.len());
    set.lease_reads.lease_ms = *lease_ms;
    let chosen = choose_tasks(set, conn, request, wanted, now).await?;
    set.load_tasks(conn, &chosen).await?;
    let lessee = LeaseRecipient { incarnation: request.incarnation, name: request.name.clone() };
    let when = PlanExecution { now, deadline: DeadlineChange::Set(deadline) };
    let mut fresh = runs.iter().copied();
    let mut granted = Vec::with_capacity(chosen.len());
    for task in chosen {
        let Some((record, _)) = set.tasks.get(&task) else { continue };
        let candidate = match record.run {
            Some(run) => run,
            None => match fresh.next() {
                Some(run) => run,
                None => break,
            },
        };
        let Ok(plan) = decide::lease(record, &lessee, candidate) else { continue };
        let mut staged = StagedRequest::default();
        match stage_plan(set, conn, &mut staged, task, plan, when).await? {
            Ok(_) => set.merge_staged(staged),
            Err(CommandError::Store(error)) => return Err(error.into()),
            Err(refused) => {
                return Err(corrupt_error(format!("task {task} cannot be leased: {refused}")).into());
            }
        }
        granted.push((task, candidate));
    }
    let kept: Vec<CachedLease> = granted
        .iter()
        .filter_map(|(task, _)| set.tasks.get(task))
        .map(|(record, _)| CachedLease { task: record.id, epoch: record.epoch })
        .collect();
    if !kept.is_empty() {
        let answer = serde_json::to_string(&kept).map_err(|e| corrupt_error(e.to_string()))?;
        set.writes.lease_answers.insert(request.incarnation, (request.number, answer));
    }
    Ok(LeaseOutcome { leases: load_grants(set, conn, &granted).await?, drain })
}

/// The requesting worker.
struct RequestingWorker {
    /// Number of its last request that got leases, and these leases.
    cached_answer: Option<(u64, Vec<CachedLease>)>,
    /// Whether a person asked it to drain.
    drain: bool,
}

/// Loads the workers of a batch.
pub(super) async fn load_workers(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    incarnations: &[IncarnationId],
) -> Result<(), TransactionError> {
    if incarnations.is_empty() {
        return Ok(());
    }
    set.lease_reads.workers.extend(incarnations.iter().map(|incarnation| (*incarnation, None)));
    let sql = format!(
        "SELECT w.incarnation, w.draining, r.number, r.answer FROM workers w \
         LEFT JOIN lease_requests r ON r.incarnation = w.incarnation WHERE {}",
        conn.dialect().any_blob_sql("w.incarnation", 1)
    );
    let ids = SqlArg::from_uuids(incarnations.iter().map(|incarnation| incarnation.0));
    for mut row in conn.query_rows(&sql, vec![ids]).await? {
        let incarnation = IncarnationId(row.get_uuid(0)?);
        let kept = row.get_i64_or_null(2)?.map(i64::unsigned_abs).zip(row.get_text_or_null(3)?);
        let known = StoredWorker { drain: row.get_i64(1)? != 0, cached_answer: kept };
        set.lease_reads.workers.insert(incarnation, Some(known));
    }
    Ok(())
}

fn requesting_worker(
    set: &WorkingSet,
    incarnation: IncarnationId,
) -> Result<RequestingWorker, TransactionError> {
    let stored = set.lease_reads.workers.get(&incarnation).and_then(Option::as_ref);
    let staged = set.writes.lease_answers.get(&incarnation);
    let kept = staged.or(stored.and_then(|known| known.cached_answer.as_ref()));
    let parse = |(number, text): &(u64, String)| match serde_json::from_str(text) {
        Ok(kept) => Ok((*number, kept)),
        Err(error) => Err(corrupt_error(format!("the lease answer of {incarnation}: {error}"))),
    };
    Ok(RequestingWorker {
        cached_answer: kept.map(parse).transpose()?,
        drain: stored.is_some_and(|known| known.drain),
    })
}

/// Repeats a reply with those of its leases that are still valid.
async fn repeat_grants(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    incarnation: IncarnationId,
    kept: &[CachedLease],
) -> Result<Vec<GrantedLease>, TransactionError> {
    let tasks: Vec<TaskId> = kept.iter().map(|kept| kept.task).collect();
    set.load_tasks(conn, &tasks).await?;
    let standing: Vec<(TaskId, RunId)> = kept
        .iter()
        .filter_map(|kept| {
            let (record, _) = set.tasks.get(&kept.task)?;
            let stands =
                lease_lost_reason(record, kept.epoch).is_none() && record.worker == Some(incarnation);
            record.run.filter(|_| stands).map(|run| (kept.task, run))
        })
        .collect();
    load_grants(set, conn, &standing).await
}

async fn load_grants(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    leases: &[(TaskId, RunId)],
) -> Result<Vec<GrantedLease>, TransactionError> {
    let mut forked: Vec<RunId> =
        set.writes.new_runs.values().filter(|row| row.parent.is_some()).map(|row| row.id).collect();
    let begun: Vec<Uuid> = leases
        .iter()
        .filter(|(_, run)| !set.writes.new_runs.contains_key(run))
        .map(|(_, run)| run.0)
        .collect();
    if !begun.is_empty() {
        let sql = format!(
            "SELECT id FROM runs WHERE parent IS NOT NULL AND {}",
            conn.dialect().any_blob_sql("id", 1)
        );
        for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuids(begun)]).await? {
            forked.push(RunId(row.get_uuid(0)?));
        }
    }
    set.load_streams(conn, leases.iter().map(|(_, run)| StreamId::Run(*run))).await?;
    leases
        .iter()
        .map(|(task, run)| {
            let (record, _) =
                set.tasks.get(task).ok_or_else(|| corrupt_error(format!("task {task} is gone")))?;
            let stream = set.streams.get(&StreamId::Run(*run));
            let head = stream.ok_or_else(|| corrupt_error(format!("run {run} has no stream")))?.head;
            Ok(GrantedLease { record: record.clone(), run: *run, head, forked: forked.contains(run) })
        })
        .collect()
}

/// Plans heartbeats. A deadline is not an event.
pub(super) fn plan_heartbeat(
    set: &mut WorkingSet,
    command: &RenewLeases,
) -> Result<HeartbeatOutcome, TransactionError> {
    let RenewLeases {
        heartbeat: WorkerHeartbeat { incarnation, leases: held, capacity: room },
        lease_ms,
        now,
    } = command;
    let drain = requesting_worker(set, *incarnation)?.drain;
    let mut renewed = HeartbeatOutcome { drain, ..HeartbeatOutcome::default() };
    let seen = set.writes.workers.entry(*incarnation).or_default();
    seen.seen_at = *now;
    seen.capacity = room.clone().or(seen.capacity.take());
    for held in held {
        let why = match set.tasks.get(&held.task) {
            None => Some(LeaseLostReason::Unknown),
            Some((record, _)) => lease_lost_reason(record, held.epoch)
                .or_else(|| (record.worker != Some(*incarnation)).then_some(LeaseLostReason::Fenced)),
        };
        match why {
            Some(why) => renewed.lost.push(LostLease { task: held.task, why }),
            None => {
                renewed.renewed.push(held.task);
                set.writes.deadlines.insert(held.task, (held.epoch, now.plus_ms(*lease_ms)));
            }
        }
    }
    Ok(renewed)
}
