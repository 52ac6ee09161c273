//! Selection of tasks for a lease request: reads the candidates in as few statements as possible; the choice
//! itself is [`decide::waiting::choose_tasks`].
//!
//! Flows are enumerated by jumping over the index from each to the next, so a flow that the worker does not
//! serve costs one step, however many tasks wait in it. Running tasks are read only if a choice depends on
//! them. If limits are set, PostgreSQL's coordinators choose one after the other, by a lock held by the
//! transaction (`running.rs`).

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use docket_schema::{
    api::{LeaseRequest, WorkerFault},
    ids::{BatchId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{ConcurrencyLimit, Flow},
};
use serde::Deserialize;
use uuid::Uuid;

use super::running::{count_running, parse_flow, read_concurrency};
use crate::{
    decide::{self, FairShares, FlowHead, LeaseCandidate, RunningCounts},
    store::{
        StoreError,
        api::corrupt_error,
        db::{DbConn, SqlArg, SqlDialect, SqlRow, TransactionError},
        writer::{CachedHeads, FLOW_START, FlowPosition, WorkingSet},
    },
};

/// Most flows examined together. If there are more, the next ones are examined while nothing was found, and
/// the next request begins after those.
const FLOWS_MAX: usize = 1000;

/// How often a choice looks behind tasks that are held back by concurrency keys.
const PASSES_MAX: u32 = 8;

/// Factor by which each pass looks further ahead, and most tasks per flow.
const LOOKAHEAD_FACTOR: usize = 4;
const CANDIDATES_PER_FLOW_MAX: usize = 4096;

/// A full read is allowed up to this multiple of the tasks that a batch wants, so that most rows read are
/// used.
const FULL_READ_FACTOR: usize = 2;

/// Lists each flow with available tasks, by name, with one index step each. SQLite is given the index:
/// otherwise it would use the one over states and sort all waiting tasks.
fn flows_sql(dialect: SqlDialect) -> String {
    let by = match dialect {
        SqlDialect::Sqlite => " INDEXED BY tasks_leasable",
        SqlDialect::Postgres => "",
    };
    format!(
        "WITH RECURSIVE f(flow) AS (\
           SELECT (SELECT t.flow FROM tasks t{by} WHERE t.state = 'available' ORDER BY t.flow LIMIT 1) \
           UNION ALL \
           SELECT (SELECT t.flow FROM tasks t{by} WHERE t.state = 'available' AND t.flow > f.flow ORDER BY t.flow \
                   LIMIT 1) \
           FROM f WHERE f.flow IS NOT NULL) \
         SELECT flow FROM f WHERE flow IS NOT NULL"
    )
}

const CANDIDATE_COLUMNS: &str =
    "t.id, t.rank, t.priority, t.available_at, t.concurrency_key, t.concurrency_max";

/// Chooses up to `wanted` tasks for a worker, in order, without those that this batch has already changed.
pub(super) async fn choose_tasks(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    request: &LeaseRequest,
    wanted: usize,
    now: Timestamp,
) -> Result<Vec<TaskId>, TransactionError> {
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let (mut queues, mut spent) = match set.lease_reads.queues.clone() {
        Some(known) => known,
        None => set.lease_reads.queues.insert(load_queue_settings(conn).await?).clone(),
    };
    for (batch, row) in &set.writes.budgets {
        if row.1.is_some() {
            spent.insert(*batch)
        } else {
            spent.remove(batch)
        };
    }
    let is_paid = |flow: &Flow| flow.batch.is_none_or(|batch| !spent.contains(&batch));
    queues.extend(set.writes.queues.iter().map(|(name, settings)| (name.clone(), *settings)));
    if conn.dialect() == SqlDialect::Postgres
        && let Some(known) = set.cursor.fresh_flows()
    {
        let flows: Result<Vec<_>, StoreError> =
            known.iter().map(|(text, place)| Ok((parse_flow(text)?, *place))).collect();
        let flows = flows?.into_iter().filter(|(flow, _): &(Flow, _)| is_paid(flow)).collect();
        let chosen = choose_from_flows(set, conn, request, (flows, &queues), wanted, now).await?;
        if !chosen.is_empty() || !set.cursor.can_rescan() {
            return Ok(chosen);
        }
    }
    let started = Instant::now();
    let flows = list_flows(conn).await?;
    set.cursor.record_scan(flows.iter().map(ToString::to_string), started.elapsed());
    let flows = flows.into_iter().filter(is_paid).map(|flow| (flow, FLOW_START)).collect();
    let chosen = choose_from_flows(set, conn, request, (flows, &queues), wanted, now).await?;
    set.cursor.record_scan_time(started.elapsed());
    Ok(chosen)
}

/// Tasks chosen so far, over several passes.
#[derive(Default)]
struct ChosenTasks {
    tasks: Vec<TaskId>,
    /// Flow and concurrency limit of each.
    taken: Vec<(Flow, Option<ConcurrencyLimit>)>,
}

type QueueSettingsByName = HashMap<QueueName, QueueSettings>;

async fn choose_from_flows(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    request: &LeaseRequest,
    (flows, queues): (Vec<(Flow, FlowPosition)>, &QueueSettingsByName),
    wanted: usize,
    now: Timestamp,
) -> Result<Vec<TaskId>, TransactionError> {
    let mut flows: Vec<(Flow, FlowPosition)> =
        flows.into_iter().filter(|(flow, _)| can_serve_flow(request, flow, queues)).collect();
    if request.queues.is_empty() && flows.iter().any(|(flow, _)| flow.queue.is_single_task()) {
        let claimed = claimed_queues(set, conn, now).await?;
        flows.retain(|(flow, _)| !claimed.contains(&flow.queue));
    }
    let kept_away = request.faults.iter().filter_map(WorkerFault::excluded_task).collect();
    let mut looking = TaskSearch {
        full_keys: Vec::new(),
        running: None,
        excluded_tasks: kept_away,
        chosen: ChosenTasks::default(),
    };
    let is_limited = |(flow, _): &(Flow, _)| running_limit(queues, flow).is_some();
    if flows.len() > 1 && flows.iter().any(is_limited) {
        // Flows whose queue is full are not read.
        let running = count_running(set, conn, true).await?;
        flows.retain(|(flow, _)| {
            running_limit(queues, flow).is_none_or(|max| running.running_in_queue(&flow.queue) < max)
        });
        looking.running = Some((running, RequiredReads::RunningUnderLock));
    }
    if flows.len() > FLOWS_MAX {
        let first = set.cursor.next_window % flows.len();
        flows.rotate_left(first);
        set.cursor.next_window = first + FLOWS_MAX;
    }
    for window in flows.chunks(FLOWS_MAX) {
        search_flows(set, conn, (window, queues), &mut looking, wanted, now).await?;
        if looking.chosen.tasks.len() >= wanted {
            break;
        }
    }
    Ok(looking.chosen.tasks)
}

fn running_limit(queues: &QueueSettingsByName, flow: &Flow) -> Option<u32> {
    queues.get(&flow.queue).and_then(|settings| settings.running_max)
}

/// State of a request's search for tasks.
struct TaskSearch {
    /// Concurrency keys at their limit.
    full_keys: Vec<String>,
    running: Option<(RunningCounts, RequiredReads)>,
    /// Tasks that a fault of the worker excludes, at most [`docket_schema::api::FAULTS_MAX`].
    excluded_tasks: Vec<TaskId>,
    chosen: ChosenTasks,
}

/// Chooses from some flows, over several passes.
async fn search_flows(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    (flows, queues): (&[(Flow, FlowPosition)], &QueueSettingsByName),
    looking: &mut TaskSearch,
    wanted: usize,
    now: Timestamp,
) -> Result<(), TransactionError> {
    let TaskSearch { full_keys: full, running, excluded_tasks: kept_away, chosen } = looking;
    for look in 0..PASSES_MAX {
        let left = wanted - chosen.tasks.len();
        let each = left.min(2 * wanted / flows.len() + 1);
        // Behind held-back tasks there may be many more of them, so each pass looks further.
        let further =
            each.saturating_mul(LOOKAHEAD_FACTOR.saturating_pow(look)).min(CANDIDATES_PER_FLOW_MAX).max(each);
        let limit = further + set.writes.tasks.len() + chosen.tasks.len() + kept_away.len();
        let (mut heads, more) = match cached_heads(set, flows, further).filter(|_| look == 0) {
            Some(seen) => seen,
            None => load_heads(set, conn, flows, full, limit).await?,
        };
        for head in &mut heads {
            head.candidates.retain(|one| {
                !set.writes.tasks.contains_key(&one.task)
                    && !chosen.tasks.contains(&one.task)
                    && !kept_away.contains(&one.task)
            });
        }
        let wants = RequiredReads::for_choice(&heads, queues);
        if running.as_ref().is_none_or(|(_, read)| *read < wants) {
            let mut counted = match wants {
                RequiredReads::Nothing => RunningCounts::default(),
                RequiredReads::Running | RequiredReads::RunningUnderLock => {
                    count_running(set, conn, wants == RequiredReads::RunningUnderLock).await?
                }
            };
            for (flow, shared) in &chosen.taken {
                counted.add_task(flow, shared.as_ref(), now);
            }
            *running = Some((counted, wants));
        }
        let Some((running, _)) = running.as_mut() else { break };
        let shares = FairShares { running, turns: &mut set.cursor.turns };
        let choice = decide::choose_tasks(&heads, queues, shares, left, now);
        let gained = !choice.tasks.is_empty() || choice.has_skipped;
        for head in &heads {
            let taken = head.candidates.iter().filter(|one| choice.tasks.contains(&one.task));
            chosen.taken.extend(taken.map(|one| (head.flow.clone(), one.concurrency.clone())));
        }
        chosen.tasks.extend(choice.tasks);
        full.extend(choice.full_keys);
        if chosen.tasks.len() >= wanted || !more || !gained {
            break;
        }
    }
    Ok(())
}

/// Returns heads that another request of this batch has read, if at least `enough` of each flow are left or
/// there are no more, and whether there are more. A single request reads its own.
fn cached_heads(
    set: &WorkingSet,
    flows: &[(Flow, FlowPosition)],
    enough: usize,
) -> Option<(Vec<FlowHead>, bool)> {
    let seen = set.lease_reads.heads.as_ref()?;
    if seen.flows.len() != flows.len() || seen.flows.iter().zip(flows).any(|(one, (two, _))| one != two) {
        return None;
    }
    let mut heads = seen.heads.clone();
    let mut more = false;
    for head in &mut heads {
        let is_cut = head.candidates.len() >= seen.limit;
        head.candidates.retain(|one| !set.writes.tasks.contains_key(&one.task));
        if is_cut && head.candidates.len() < enough {
            return None;
        }
        more |= is_cut;
    }
    Some((heads, more))
}

/// Reads heads, and whether there are more behind them; also for the other requests of the batch.
async fn load_heads(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    flows: &[(Flow, FlowPosition)],
    full: &[String],
    limit: usize,
) -> Result<(Vec<FlowHead>, bool), TransactionError> {
    let others = if set.lease_reads.requests > 1 {
        set.lease_reads.leases_wanted.min(CANDIDATES_PER_FLOW_MAX)
    } else {
        0
    };
    let limit = limit + if full.is_empty() { others / flows.len() } else { 0 };
    let heads = read_heads(conn, flows, full, limit).await?;
    if full.is_empty() {
        if conn.dialect() == SqlDialect::Postgres {
            for head in &heads {
                let first = head.candidates.first().map(|first| (first.rank, first.task));
                set.cursor.move_to(&head.flow.to_string(), first);
            }
        }
        if others > 0 {
            let flows = flows.iter().map(|(flow, _)| flow.clone()).collect();
            set.lease_reads.heads = Some(CachedHeads { flows, heads: heads.clone(), limit });
            let near: Vec<TaskId> =
                heads.iter().flat_map(|head| head.candidates.iter().map(|one| one.task)).collect();
            if near.len() <= FULL_READ_FACTOR * set.lease_reads.leases_wanted {
                set.load_tasks(conn, &near).await?;
            }
        }
    }
    let more = heads.iter().any(|head| head.candidates.len() >= limit);
    Ok((heads, more))
}

/// What must be known about running tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum RequiredReads {
    Nothing,
    Running,
    /// Read under the lock of limited choices.
    RunningUnderLock,
}

impl RequiredReads {
    fn for_choice(heads: &[FlowHead], queues: &QueueSettingsByName) -> Self {
        let limited = heads.iter().any(|head| {
            running_limit(queues, &head.flow).is_some()
                || head.candidates.iter().any(|one| one.concurrency.is_some())
        });
        if limited {
            return Self::RunningUnderLock;
        }
        let several = heads.iter().filter(|head| !head.candidates.is_empty()).count() > 1;
        if several { Self::Running } else { Self::Nothing }
    }
}

/// Whether a worker may take tasks of a flow at all.
fn can_serve_flow(request: &LeaseRequest, flow: &Flow, queues: &HashMap<QueueName, QueueSettings>) -> bool {
    let paused = queues.get(&flow.queue).is_some_and(|settings| settings.paused);
    !paused
        && (request.queues.is_empty() || request.queues.contains(&flow.queue))
        && (request.engines.is_empty() || request.engines.iter().any(|engine| engine.name == flow.engine))
        && request.labels.matches_selector(&flow.selector)
        && !request.faults.iter().any(|fault| fault.excludes_flow(flow))
}

/// Returns single-task queues whose `docket run` is alive: workers of all queues leave them to it, because it
/// has the keys and settings meant for the task. The queue is open to all once its worker was drained or has
/// been silent for [`decide::waiting::queue_claim_ms`].
async fn claimed_queues(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    now: Timestamp,
) -> Result<HashSet<QueueName>, TransactionError> {
    if let Some(known) = &set.lease_reads.claimed_queues {
        return Ok(known.clone());
    }
    let mut claimed = HashSet::new();
    // Reads the whole table of workers: one row for each that was heard from recently.
    let sql = "SELECT about FROM workers WHERE seen_at >= $1 AND draining = 0 AND about IS NOT NULL";
    let silence_ms = decide::queue_claim_ms(set.lease_reads.lease_ms);
    let since = now.0.saturating_sub_unsigned(silence_ms.saturating_mul(1000));
    for mut row in conn.query_rows(sql, vec![SqlArg::Int(since)]).await? {
        claimed.extend(read_claimed_queues(&row.get_text(0)?));
    }
    // Workers heard from in this batch.
    for about in set.writes.workers.values().filter_map(|worker| worker.about.as_deref()) {
        claimed.extend(read_claimed_queues(about));
    }
    set.lease_reads.claimed_queues = Some(claimed.clone());
    Ok(claimed)
}

/// The part of a worker's `about` that a claim needs; the rest may be of another version of docket.
#[derive(Deserialize)]
struct ClaimingWorker {
    #[serde(default)]
    queues: Vec<QueueName>,
}

/// Returns the single-task queues that a worker names. A row that cannot be read claims nothing: one worker's
/// row must not block all others.
fn read_claimed_queues(about: &str) -> Vec<QueueName> {
    match serde_json::from_str::<ClaimingWorker>(about) {
        Ok(worker) => worker.queues.into_iter().filter(QueueName::is_single_task).collect(),
        Err(error) => {
            tracing::warn!(%error, "a worker's description cannot be read, so it claims no queue");
            Vec::new()
        }
    }
}

/// Lists each flow with available tasks.
async fn list_flows(conn: &mut DbConn<'_>) -> Result<Vec<Flow>, TransactionError> {
    let mut flows = Vec::new();
    for mut row in conn.query_rows(&flows_sql(conn.dialect()), Vec::new()).await? {
        flows.push(parse_flow(&row.get_text(0)?)?);
    }
    Ok(flows)
}

/// Loads queue settings, and batches whose budget is used up: none of their tasks is leased.
async fn load_queue_settings(
    conn: &mut DbConn<'_>,
) -> Result<(QueueSettingsByName, HashSet<BatchId>), TransactionError> {
    let (mut queues, mut spent) = (QueueSettingsByName::new(), HashSet::new());
    let sql = "SELECT name, paused, running_max, NULL FROM queues UNION ALL \
               SELECT '', 0, NULL, batch FROM batch_budgets WHERE spent IS NOT NULL";
    for mut row in conn.query_rows(sql, Vec::new()).await? {
        if let Some(batch) = row.get_array_or_null(3)? {
            spent.insert(BatchId(Uuid::from_bytes(batch)));
            continue;
        }
        let text = row.get_text(0)?;
        let name = text.parse().map_err(|_| corrupt_error(format!("a queue named `{text}`")))?;
        let running_max = row.get_i64_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        queues.insert(name, QueueSettings { paused: row.get_i64(1)? != 0, running_max });
    }
    Ok((queues, spent))
}

/// Reads the first tasks of each flow by rank, from its cursor on, without those whose concurrency key is in
/// `full`.
async fn read_heads(
    conn: &mut DbConn<'_>,
    flows: &[(Flow, FlowPosition)],
    full: &[String],
    limit: usize,
) -> Result<Vec<FlowHead>, TransactionError> {
    let dialect = conn.dialect();
    let mut heads: Vec<FlowHead> =
        flows.iter().map(|(flow, _)| FlowHead { flow: flow.clone(), candidates: Vec::new() }).collect();
    let but = match full {
        [] => String::new(),
        _ => format!(
            " AND (t.concurrency_key IS NULL OR NOT {})",
            dialect.any_text_sql("t.concurrency_key", 5)
        ),
    };
    let with_full = |mut args: Vec<SqlArg>| {
        if !full.is_empty() {
            args.push(SqlArg::Texts(full.to_vec()));
        }
        args
    };
    let id_of = |place: &FlowPosition| place.1.0.as_bytes().to_vec();
    match (dialect, flows) {
        (SqlDialect::Sqlite, _) | (SqlDialect::Postgres, [_]) => {
            let lock = if dialect == SqlDialect::Postgres { " FOR UPDATE SKIP LOCKED" } else { "" };
            let sql = format!(
                "SELECT {CANDIDATE_COLUMNS} FROM tasks t WHERE t.state = 'available' AND t.flow = $1 \
                 AND (t.rank, t.id) >= ($3, $4){but} ORDER BY t.rank, t.id LIMIT $2{lock}"
            );
            for (head, (flow, place)) in heads.iter_mut().zip(flows) {
                let flow = SqlArg::Text(flow.to_string());
                let args =
                    vec![flow, SqlArg::Int(limit as i64), SqlArg::Int(place.0), SqlArg::Blob(id_of(place))];
                for mut row in conn.query_rows(&sql, with_full(args)).await? {
                    head.candidates.push(read_candidate(&mut row)?);
                }
            }
        }
        (SqlDialect::Postgres, _) => {
            let sql = format!(
                "SELECT {CANDIDATE_COLUMNS}, f.nth FROM unnest($1::text[], $3::bigint[], $4::bytea[]) WITH ORDINALITY \
                 AS f(flow, rank, id, nth) CROSS JOIN LATERAL (SELECT t.* FROM tasks t \
                 WHERE t.state = 'available' AND t.flow = f.flow AND (t.rank, t.id) >= (f.rank, f.id){but} \
                 ORDER BY t.rank, t.id LIMIT $2 FOR UPDATE SKIP LOCKED) t"
            );
            let args = vec![
                SqlArg::Texts(flows.iter().map(|(flow, _)| flow.to_string()).collect()),
                SqlArg::Int(limit as i64),
                SqlArg::IntColumn(flows.iter().map(|(_, place)| Some(place.0)).collect()),
                SqlArg::BlobColumn(flows.iter().map(|(_, place)| Some(id_of(place))).collect()),
            ];
            for mut row in conn.query_rows(&sql, with_full(args)).await? {
                let nth = usize::try_from(row.get_i64(6)?).unwrap_or(0);
                let head = heads
                    .get_mut(nth.wrapping_sub(1))
                    .ok_or_else(|| corrupt_error("a flow's place".to_owned()))?;
                head.candidates.push(read_candidate(&mut row)?);
            }
            for head in &mut heads {
                head.candidates.sort_by_key(|one| (one.rank, one.task));
            }
        }
    }
    Ok(heads)
}

fn read_candidate(row: &mut SqlRow) -> Result<LeaseCandidate, StoreError> {
    Ok(LeaseCandidate {
        task: TaskId(row.get_uuid(0)?),
        rank: row.get_i64(1)?,
        priority: i16::try_from(row.get_i64(2)?).map_err(|_| corrupt_error("a priority".to_owned()))?,
        available_at: Timestamp(row.get_i64(3)?),
        concurrency: read_concurrency(row, 4)?,
    })
}

#[cfg(test)]
mod tests {
    use docket_schema::migrations;

    use super::*;

    #[test]
    fn unreadable_worker_row_claims_no_queue_and_unknown_fields_are_ignored() {
        let own = QueueName::for_single_task(TaskId(Uuid::from_u128(1)));
        let about = format!(r#"{{"queues":["{own}","default"],"faults":[{{"kind":"of a later version"}}]}}"#);
        assert_eq!(read_claimed_queues(&about), [own]);
        for unreadable in ["", "[]]", r#"{"queues":["not a name"]}"#] {
            assert!(read_claimed_queues(unreadable).is_empty(), "{unreadable}");
        }
    }

    #[test]
    fn sqlite_finds_flows_by_index_seeks() {
        let conn = rusqlite::Connection::open_in_memory().expect("memory opens");
        for migration in migrations::SQLITE {
            conn.execute_batch(migration.sql).expect("migrates");
        }
        let plan_of = |sql: &str| {
            let mut plan = conn.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).expect("prepares");
            let steps = plan.query_map([], |row| row.get::<_, String>(3)).expect("explains");
            steps.collect::<Result<Vec<_>, _>>().expect("explains").join("\n")
        };
        let plan = plan_of(&flows_sql(SqlDialect::Sqlite));
        assert!(plan.contains("USING COVERING INDEX tasks_leasable (flow>?)"), "{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
        // The planner's own choice; if this fails, the test proves nothing.
        assert!(plan_of(&flows_sql(SqlDialect::Postgres)).contains("TEMP B-TREE"));
    }
}
