//! Leases and heartbeats.

use docket_schema::{
    ids::{Epoch, IncarnationId, RunId, StreamId, TaskId, Timestamp},
    wire::{LeaseRequest, LostLease, LostWhy, WorkerAbout},
};
use serde::{Deserialize, Serialize};

use super::{
    choose::choose,
    command::{Execution, draft_plan},
};
use crate::{
    decide::{self, Lessee, lost_why},
    store::{
        CommandError, Granted, Heartbeat, Leased, Renewed,
        conn::{Arg, Conn},
        desk::{Deadline, Desk, Draft, KnownWorker, LoadError, WorkerSeen, corrupt},
    },
};

/// One lease of an answer, as it is kept for a repeated request.
#[derive(Debug, Serialize, Deserialize)]
struct Kept {
    task: TaskId,
    epoch: Epoch,
}

/// Plans a lease request.
pub(super) async fn plan_lease(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    request: &LeaseRequest,
    runs: &[RunId],
    lease_ms: u64,
    now: Timestamp,
) -> Result<Leased, LoadError> {
    let about = WorkerAbout {
        queues: request.queues.clone(),
        engines: request.engines.clone(),
        labels: request.labels.clone(),
        layers: request.layers.clone(),
        faults: request.faults.clone(),
    };
    let about = serde_json::to_string(&about).map_err(|e| corrupt(e.to_string()))?;
    let (name, room) = (request.name.clone(), request.room.clone());
    desk.staged.workers.insert(request.incarnation, WorkerSeen { name, at: now, about: Some(about), room });
    let Known { kept, drain } = known_worker(desk, request.incarnation)?;
    if let Some((number, kept)) = kept
        && number >= request.number
    {
        // A lower number is a request that its worker has given up; it must not take work with it.
        return if number == request.number {
            let standing = again(desk, conn, request.incarnation, &kept).await?;
            // Who asks again lives: as a heartbeat does, this renews. So an answer always counts from its own
            // request, however long the lost one was waited for.
            for granted in &standing {
                let lease = (granted.record.epoch, now.plus_ms(lease_ms));
                desk.staged.deadlines.insert(granted.record.id, lease);
            }
            Ok(Leased { leases: standing, drain })
        } else {
            Ok(Leased { leases: Vec::new(), drain })
        };
    }
    if drain {
        return Ok(Leased { leases: Vec::new(), drain });
    }
    let wanted = (request.max as usize).min(runs.len());
    desk.leasing.lease_ms = lease_ms;
    let chosen = choose(desk, conn, request, wanted, now).await?;
    desk.load_tasks(conn, &chosen).await?;
    let lessee = Lessee { incarnation: request.incarnation, name: request.name.clone() };
    let when = Execution { now, deadline: Deadline::Set(now.plus_ms(lease_ms)) };
    let mut fresh = runs.iter().copied();
    let mut granted = Vec::with_capacity(chosen.len());
    for task in chosen {
        let Some((record, _)) = desk.tasks.get(&task) else { continue };
        let candidate = match record.run {
            Some(run) => run,
            None => match fresh.next() {
                Some(run) => run,
                None => break,
            },
        };
        let Ok(plan) = decide::lease(record, &lessee, candidate) else { continue };
        let mut draft = Draft::default();
        match draft_plan(desk, conn, &mut draft, task, plan, when).await? {
            Ok(_) => desk.accept(draft),
            Err(CommandError::Store(error)) => return Err(error.into()),
            Err(refused) => return Err(corrupt(format!("task {task} cannot be leased: {refused}")).into()),
        }
        granted.push((task, candidate));
    }
    let kept: Vec<Kept> = granted
        .iter()
        .filter_map(|(task, _)| desk.tasks.get(task))
        .map(|(record, _)| Kept { task: record.id, epoch: record.epoch })
        .collect();
    if !kept.is_empty() {
        let answer = serde_json::to_string(&kept).map_err(|e| corrupt(e.to_string()))?;
        desk.staged.lease_answers.insert(request.incarnation, (request.number, answer));
    }
    Ok(Leased { leases: grants(desk, conn, &granted).await?, drain })
}

/// What is known of a worker that asks.
struct Known {
    /// Number of its last request that got leases, and what it got.
    kept: Option<(u64, Vec<Kept>)>,
    /// Somebody wants it to take no more.
    drain: bool,
}

/// Reads what is known of the workers of a batch.
pub(super) async fn load_workers(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    incarnations: &[IncarnationId],
) -> Result<(), LoadError> {
    if incarnations.is_empty() {
        return Ok(());
    }
    desk.leasing.workers.extend(incarnations.iter().map(|incarnation| (*incarnation, None)));
    let sql = format!(
        "SELECT w.incarnation, w.draining, r.number, r.answer FROM workers w \
         LEFT JOIN lease_requests r ON r.incarnation = w.incarnation WHERE {}",
        conn.dialect().any_blob("w.incarnation", 1)
    );
    let ids = incarnations.iter().map(|incarnation| incarnation.0.as_bytes().to_vec()).collect();
    for mut row in conn.rows(&sql, vec![Arg::Blobs(ids)]).await? {
        let incarnation = IncarnationId(uuid::Uuid::from_bytes(row.fixed(0)?));
        let kept = row.int_or_null(2)?.map(i64::unsigned_abs).zip(row.text_or_null(3)?);
        let known = KnownWorker { drain: row.int(1)? != 0, kept };
        desk.leasing.workers.insert(incarnation, Some(known));
    }
    Ok(())
}

fn known_worker(desk: &Desk, incarnation: IncarnationId) -> Result<Known, LoadError> {
    let stored = desk.leasing.workers.get(&incarnation).and_then(Option::as_ref);
    let staged = desk.staged.lease_answers.get(&incarnation);
    let kept = staged.or(stored.and_then(|known| known.kept.as_ref()));
    let parse = |(number, text): &(u64, String)| match serde_json::from_str(text) {
        Ok(kept) => Ok((*number, kept)),
        Err(error) => Err(corrupt(format!("the lease answer of {incarnation}: {error}"))),
    };
    Ok(Known { kept: kept.map(parse).transpose()?, drain: stored.is_some_and(|known| known.drain) })
}

/// The same answer again, as far as its leases stand.
async fn again(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    incarnation: IncarnationId,
    kept: &[Kept],
) -> Result<Vec<Granted>, LoadError> {
    let tasks: Vec<TaskId> = kept.iter().map(|kept| kept.task).collect();
    desk.load_tasks(conn, &tasks).await?;
    let standing: Vec<(TaskId, RunId)> = kept
        .iter()
        .filter_map(|kept| {
            let (record, _) = desk.tasks.get(&kept.task)?;
            let stands = lost_why(record, kept.epoch).is_none() && record.worker == Some(incarnation);
            record.run.filter(|_| stands).map(|run| (kept.task, run))
        })
        .collect();
    grants(desk, conn, &standing).await
}

async fn grants(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    leases: &[(TaskId, RunId)],
) -> Result<Vec<Granted>, LoadError> {
    let mut forked: Vec<RunId> =
        desk.staged.new_runs.values().filter(|row| row.parent.is_some()).map(|row| row.id).collect();
    let begun: Vec<Vec<u8>> = leases
        .iter()
        .filter(|(_, run)| !desk.staged.new_runs.contains_key(run))
        .map(|(_, run)| run.0.as_bytes().to_vec())
        .collect();
    if !begun.is_empty() {
        let sql =
            format!("SELECT id FROM runs WHERE parent IS NOT NULL AND {}", conn.dialect().any_blob("id", 1));
        for mut row in conn.rows(&sql, vec![Arg::Blobs(begun)]).await? {
            forked.push(RunId(uuid::Uuid::from_bytes(row.fixed(0)?)));
        }
    }
    desk.load_streams(conn, leases.iter().map(|(_, run)| StreamId::Run(*run))).await?;
    leases
        .iter()
        .map(|(task, run)| {
            let (record, _) = desk.tasks.get(task).ok_or_else(|| corrupt(format!("task {task} is gone")))?;
            let stream = desk.streams.get(&StreamId::Run(*run));
            let head = stream.ok_or_else(|| corrupt(format!("run {run} has no stream")))?.head;
            Ok(Granted { record: record.clone(), run: *run, head, forked: forked.contains(run) })
        })
        .collect()
}

/// Plans heartbeats. A deadline is no event.
pub(super) fn plan_heartbeat(
    desk: &mut Desk,
    beat: &Heartbeat,
    lease_ms: u64,
    now: Timestamp,
) -> Result<Renewed, LoadError> {
    let Heartbeat { incarnation, held, room } = beat;
    let drain = known_worker(desk, *incarnation)?.drain;
    let mut renewed = Renewed { drain, ..Renewed::default() };
    let seen = desk.staged.workers.entry(*incarnation).or_default();
    seen.at = now;
    seen.room = room.clone().or(seen.room.take());
    for held in held {
        let why = match desk.tasks.get(&held.task) {
            None => Some(LostWhy::Unknown),
            Some((record, _)) => lost_why(record, held.epoch)
                .or_else(|| (record.worker != Some(*incarnation)).then_some(LostWhy::Fenced)),
        };
        match why {
            Some(why) => renewed.lost.push(LostLease { task: held.task, why }),
            None => {
                renewed.renewed.push(held.task);
                desk.staged.deadlines.insert(held.task, (held.epoch, now.plus_ms(lease_ms)));
            }
        }
    }
    Ok(renewed)
}
