//! Leases and heartbeats.

use docket_schema::{
    ids::{Epoch, IncarnationId, RunId, StreamId, TaskId, Timestamp},
    wire::{Held, LeaseRequest, LostLease, LostWhy},
};
use serde::{Deserialize, Serialize};

use super::command::{Execution, draft_plan};
use crate::{
    decide::{self, Lessee, lost_why},
    store::{
        CommandError, Granted, Renewed,
        conn::{Arg, Conn, Dialect},
        desk::{Deadline, Desk, Draft, LoadError, corrupt},
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
) -> Result<Vec<Granted>, LoadError> {
    desk.staged.workers.insert(request.incarnation, (request.name.clone(), now));
    if let Some((number, kept)) = kept_answer(desk, conn, request.incarnation).await?
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
            Ok(standing)
        } else {
            Ok(Vec::new())
        };
    }
    let chosen = choose(desk, conn, request, runs.len()).await?;
    let resumed: Vec<TaskId> = chosen.clone();
    desk.load_tasks(conn, &resumed).await?;
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
    grants(desk, conn, &granted).await
}

/// Available tasks in order, without those this batch has already changed.
async fn choose(
    desk: &Desk,
    conn: &mut Conn<'_>,
    request: &LeaseRequest,
    runs: usize,
) -> Result<Vec<TaskId>, LoadError> {
    let dialect = conn.dialect();
    let wanted = (request.max as usize).min(runs);
    let mut args = vec![Arg::Int((wanted + desk.staged.tasks.len()) as i64)];
    let mut filters = String::new();
    for (column, list) in [
        ("queue", request.queues.iter().map(|queue| queue.as_str().to_owned()).collect::<Vec<_>>()),
        ("engine", request.engines.iter().map(|engine| engine.name.clone()).collect()),
    ] {
        if !list.is_empty() {
            args.push(Arg::Texts(list));
            filters = format!("{filters} AND {}", dialect.any_text(column, args.len() as u8));
        }
    }
    let lock = match dialect {
        Dialect::Sqlite => "",
        Dialect::Postgres => " FOR UPDATE SKIP LOCKED",
    };
    let sql = format!(
        "SELECT id FROM tasks WHERE state = 'available'{filters} \
         ORDER BY priority DESC, available_at, id LIMIT $1{lock}"
    );
    let mut chosen = Vec::new();
    for mut row in conn.rows(&sql, args).await? {
        let id = TaskId(uuid::Uuid::from_bytes(row.fixed(0)?));
        if chosen.len() < wanted && !desk.staged.tasks.contains_key(&id) {
            chosen.push(id);
        }
    }
    Ok(chosen)
}

/// The answer that was last given to this incarnation.
async fn kept_answer(
    desk: &Desk,
    conn: &mut Conn<'_>,
    incarnation: IncarnationId,
) -> Result<Option<(u64, Vec<Kept>)>, LoadError> {
    let parse = |text: &str| {
        serde_json::from_str(text).map_err(|e| corrupt(format!("the lease answer of {incarnation}: {e}")))
    };
    if let Some((number, answer)) = desk.staged.lease_answers.get(&incarnation) {
        return Ok(Some((*number, parse(answer)?)));
    }
    let sql = "SELECT number, answer FROM lease_requests WHERE incarnation = $1";
    let args = vec![Arg::Blob(incarnation.0.as_bytes().to_vec())];
    match conn.rows(sql, args).await?.first_mut() {
        None => Ok(None),
        Some(row) => Ok(Some((row.count(0)?, parse(&row.text(1)?)?))),
    }
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

/// Plans heartbeats: in memory, for a deadline is no event.
pub(super) fn plan_heartbeat(
    desk: &mut Desk,
    incarnation: IncarnationId,
    held: &[Held],
    lease_ms: u64,
    now: Timestamp,
) -> Renewed {
    let mut renewed = Renewed::default();
    desk.staged.workers.entry(incarnation).or_insert((String::new(), now)).1 = now;
    for held in held {
        let why = match desk.tasks.get(&held.task) {
            None => Some(LostWhy::Unknown),
            Some((record, _)) => lost_why(record, held.epoch)
                .or_else(|| (record.worker != Some(incarnation)).then_some(LostWhy::Fenced)),
        };
        match why {
            Some(why) => renewed.lost.push(LostLease { task: held.task, why }),
            None => {
                renewed.renewed.push(held.task);
                desk.staged.deadlines.insert(held.task, (held.epoch, now.plus_ms(lease_ms)));
            }
        }
    }
    renewed
}
