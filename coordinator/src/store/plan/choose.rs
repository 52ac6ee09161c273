//! Which tasks a lease request gets: reads what there is, in as few statements as that takes; the choice itself is
//! [`decide::choose`].
//!
//! Flows are found by jumping over the index from each to the next, so what a worker does not serve costs it one step
//! a flow, however many tasks wait there. What runs is read only where a choice depends on it. Where limits are set
//! PostgreSQL's coordinators choose one after the other, by a lock that the transaction holds.

use std::{collections::HashMap, time::Instant};

use docket_schema::{
    ids::{QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{Concurrency, Flow, TaskState},
    wire::LeaseRequest,
};
use uuid::Uuid;

use crate::{
    decide::{self, Candidate, FlowHead, Running},
    store::{
        StoreError,
        conn::{Arg, Conn, Dialect, Row},
        desk::{Desk, LoadError, corrupt},
        lookout::{BEGINNING, PlaceInFlow},
    },
};

/// Flows that one request looks at, at most: those that come first by their names beyond that wait for the others.
const FLOWS_MAX: usize = 1000;

/// How often a choice looks behind tasks that their concurrency keys keep back.
const LOOKS_MAX: u32 = 8;

/// How much further each of them sees, and how many tasks of a flow at most.
const FURTHER: usize = 4;
const SEEN_MAX: usize = 4096;

/// Each flow of which there are tasks, by name.
const FLOWS: &str = "WITH RECURSIVE f(flow) AS (\
       SELECT (SELECT t.flow FROM tasks t WHERE t.state = 'available' ORDER BY t.flow LIMIT 1) \
       UNION ALL \
       SELECT (SELECT t.flow FROM tasks t WHERE t.state = 'available' AND t.flow > f.flow ORDER BY t.flow LIMIT 1) \
       FROM f WHERE f.flow IS NOT NULL) \
     SELECT flow FROM f WHERE flow IS NOT NULL";

const CANDIDATE: &str = "t.id, t.rank, t.priority, t.available_at, t.concurrency_key, t.concurrency_max";

/// Up to `wanted` tasks for a worker, in order, without those that this batch has already changed.
pub(super) async fn choose(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    request: &LeaseRequest,
    wanted: usize,
    now: Timestamp,
) -> Result<Vec<TaskId>, LoadError> {
    if wanted == 0 {
        return Ok(Vec::new());
    }
    let mut queues = queues(conn).await?;
    queues.extend(desk.staged.queues.iter().map(|(name, settings)| (name.clone(), *settings)));
    if conn.dialect() == Dialect::Postgres
        && let Some(known) = desk.lookout.known()
    {
        let flows: Result<_, StoreError> =
            known.iter().map(|(text, place)| Ok((flow_of(text)?, *place))).collect();
        let flows = flows?;
        let chosen = choose_of(desk, conn, request, (flows, &queues), wanted, now).await?;
        if !chosen.is_empty() || !desk.lookout.may_look_again() {
            return Ok(chosen);
        }
    }
    let started = Instant::now();
    let flows = flows(conn).await?;
    desk.lookout.looked(flows.iter().map(ToString::to_string), started.elapsed());
    let flows = flows.into_iter().map(|flow| (flow, BEGINNING)).collect();
    let chosen = choose_of(desk, conn, request, (flows, &queues), wanted, now).await?;
    desk.lookout.took(started.elapsed());
    Ok(chosen)
}

/// What the choice has come to, over several looks.
#[derive(Default)]
struct Chosen {
    tasks: Vec<TaskId>,
    /// Flow and concurrency key of each.
    taken: Vec<(Flow, Option<String>)>,
}

type Queues = HashMap<QueueName, QueueSettings>;

async fn choose_of(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    request: &LeaseRequest,
    (flows, queues): (Vec<(Flow, PlaceInFlow)>, &Queues),
    wanted: usize,
    now: Timestamp,
) -> Result<Vec<TaskId>, LoadError> {
    let flows: Vec<(Flow, PlaceInFlow)> =
        flows.into_iter().filter(|(flow, _)| serves(request, flow, queues)).take(FLOWS_MAX).collect();
    let mut full: Vec<String> = Vec::new();
    let mut running: Option<(Running, Read)> = None;
    let mut chosen = Chosen::default();
    for look in 0..LOOKS_MAX {
        if flows.is_empty() {
            break;
        }
        let left = wanted - chosen.tasks.len();
        let each = left.min(2 * wanted / flows.len() + 1);
        // Behind tasks that are kept back there may be many more of them: each look sees further.
        let further = each.saturating_mul(FURTHER.saturating_pow(look)).min(SEEN_MAX).max(each);
        let limit = further + desk.staged.tasks.len() + chosen.tasks.len();
        let mut heads = heads(conn, &flows, &full, limit).await?;
        if full.is_empty() && conn.dialect() == Dialect::Postgres {
            for head in &heads {
                let first = head.candidates.first().map(|first| (first.rank, first.task));
                desk.lookout.begins_at(&head.flow.to_string(), first);
            }
        }
        let more = heads.iter().any(|head| head.candidates.len() >= limit);
        for head in &mut heads {
            head.candidates.retain(|one| {
                !desk.staged.tasks.contains_key(&one.task) && !chosen.tasks.contains(&one.task)
            });
        }
        let wants = Read::for_choice(&heads, queues);
        if running.as_ref().is_none_or(|(_, read)| *read < wants) {
            let mut counted = match wants {
                Read::Nothing => Running::default(),
                Read::Running | Read::Limits => read_running(desk, conn, wants == Read::Limits).await?,
            };
            for (flow, key) in &chosen.taken {
                counted.add(flow, key.as_deref(), now);
            }
            running = Some((counted, wants));
        }
        let Some((running, _)) = &mut running else { break };
        let choice = decide::choose(&heads, queues, running, left, now);
        let gained = !choice.tasks.is_empty() || !choice.full_keys.is_empty();
        for head in &heads {
            let taken = head.candidates.iter().filter(|one| choice.tasks.contains(&one.task));
            let key = |one: &Candidate| one.concurrency.as_ref().map(|shared| shared.key.clone());
            chosen.taken.extend(taken.map(|one| (head.flow.clone(), key(one))));
        }
        chosen.tasks.extend(choice.tasks);
        full.extend(choice.full_keys);
        if chosen.tasks.len() >= wanted || !more || !gained {
            break;
        }
    }
    Ok(chosen.tasks)
}

/// What must be known of what runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Nothing,
    Running,
    /// Under the lock of those who choose under a limit.
    Limits,
}

impl Read {
    fn for_choice(heads: &[FlowHead], queues: &Queues) -> Self {
        let limited = heads.iter().any(|head| {
            queues.get(&head.flow.queue).is_some_and(|settings| settings.running_max.is_some())
                || head.candidates.iter().any(|one| one.concurrency.is_some())
        });
        if limited {
            return Self::Limits;
        }
        let several = heads.iter().filter(|head| !head.candidates.is_empty()).count() > 1;
        if several { Self::Running } else { Self::Nothing }
    }
}

/// Whether a worker may take tasks of a flow at all.
fn serves(request: &LeaseRequest, flow: &Flow, queues: &HashMap<QueueName, QueueSettings>) -> bool {
    let paused = queues.get(&flow.queue).is_some_and(|settings| settings.paused);
    !paused
        && (request.queues.is_empty() || request.queues.contains(&flow.queue))
        && (request.engines.is_empty() || request.engines.iter().any(|engine| engine.name == flow.engine))
        && request.labels.satisfy(&flow.selector)
}

/// Each flow of which there are tasks.
async fn flows(conn: &mut Conn<'_>) -> Result<Vec<Flow>, LoadError> {
    let mut flows = Vec::new();
    for mut row in conn.rows(FLOWS, Vec::new()).await? {
        flows.push(flow_of(&row.text(0)?)?);
    }
    Ok(flows)
}

/// What is set for queues.
async fn queues(conn: &mut Conn<'_>) -> Result<Queues, LoadError> {
    let mut queues = Queues::new();
    for mut row in conn.rows("SELECT name, paused, running_max FROM queues", Vec::new()).await? {
        let text = row.text(0)?;
        let name = text.parse().map_err(|_| corrupt(format!("a queue named `{text}`")))?;
        let running_max = row.int_or_null(2)?.and_then(|max| u32::try_from(max).ok());
        queues.insert(name, QueueSettings { paused: row.int(1)? != 0, running_max });
    }
    Ok(queues)
}

fn flow_of(text: &str) -> Result<Flow, StoreError> {
    text.parse().map_err(|_| corrupt(format!("a flow `{text}`")))
}

/// The first tasks of each flow by rank from its place on, without those whose concurrency key is among `full`.
async fn heads(
    conn: &mut Conn<'_>,
    flows: &[(Flow, PlaceInFlow)],
    full: &[String],
    limit: usize,
) -> Result<Vec<FlowHead>, LoadError> {
    let dialect = conn.dialect();
    let mut heads: Vec<FlowHead> =
        flows.iter().map(|(flow, _)| FlowHead { flow: flow.clone(), candidates: Vec::new() }).collect();
    let but = match full {
        [] => String::new(),
        _ => format!(" AND (t.concurrency_key IS NULL OR NOT {})", dialect.any_text("t.concurrency_key", 5)),
    };
    let with_full = |mut args: Vec<Arg>| {
        if !full.is_empty() {
            args.push(Arg::Texts(full.to_vec()));
        }
        args
    };
    let id_of = |place: &PlaceInFlow| place.1.0.as_bytes().to_vec();
    match (dialect, flows) {
        (Dialect::Sqlite, _) | (Dialect::Postgres, [_]) => {
            let lock = if dialect == Dialect::Postgres { " FOR UPDATE SKIP LOCKED" } else { "" };
            let sql = format!(
                "SELECT {CANDIDATE} FROM tasks t WHERE t.state = 'available' AND t.flow = $1 \
                 AND (t.rank, t.id) >= ($3, $4){but} ORDER BY t.rank, t.id LIMIT $2{lock}"
            );
            for (head, (flow, place)) in heads.iter_mut().zip(flows) {
                let flow = Arg::Text(flow.to_string());
                let args = vec![flow, Arg::Int(limit as i64), Arg::Int(place.0), Arg::Blob(id_of(place))];
                for mut row in conn.rows(&sql, with_full(args)).await? {
                    head.candidates.push(candidate(&mut row)?);
                }
            }
        }
        (Dialect::Postgres, _) => {
            let sql = format!(
                "SELECT {CANDIDATE}, f.nth FROM unnest($1::text[], $3::bigint[], $4::bytea[]) WITH ORDINALITY \
                 AS f(flow, rank, id, nth) CROSS JOIN LATERAL (SELECT t.* FROM tasks t \
                 WHERE t.state = 'available' AND t.flow = f.flow AND (t.rank, t.id) >= (f.rank, f.id){but} \
                 ORDER BY t.rank, t.id LIMIT $2 FOR UPDATE SKIP LOCKED) t"
            );
            let args = vec![
                Arg::Texts(flows.iter().map(|(flow, _)| flow.to_string()).collect()),
                Arg::Int(limit as i64),
                Arg::IntColumn(flows.iter().map(|(_, place)| Some(place.0)).collect()),
                Arg::BlobColumn(flows.iter().map(|(_, place)| Some(id_of(place))).collect()),
            ];
            for mut row in conn.rows(&sql, with_full(args)).await? {
                let nth = usize::try_from(row.int(6)?).unwrap_or(0);
                let head =
                    heads.get_mut(nth.wrapping_sub(1)).ok_or_else(|| corrupt("a flow's place".to_owned()))?;
                head.candidates.push(candidate(&mut row)?);
            }
            for head in &mut heads {
                head.candidates.sort_by_key(|one| (one.rank, one.task));
            }
        }
    }
    Ok(heads)
}

fn candidate(row: &mut Row) -> Result<Candidate, StoreError> {
    let max = row.int_or_null(5)?.and_then(|max| u32::try_from(max).ok());
    Ok(Candidate {
        task: TaskId(Uuid::from_bytes(row.fixed(0)?)),
        rank: row.int(1)?,
        priority: i16::try_from(row.int(2)?).map_err(|_| corrupt("a priority".to_owned()))?,
        available_at: Timestamp(row.int(3)?),
        concurrency: row.text_or_null(4)?.zip(max).map(|(key, max)| Concurrency { key, max }),
    })
}

/// What runs: as the database has it, and as this batch changes it.
async fn read_running(desk: &Desk, conn: &mut Conn<'_>, limited: bool) -> Result<Running, LoadError> {
    if limited && conn.dialect() == Dialect::Postgres {
        // Any fixed number: what it names is "docket chooses under a limit". What another coordinator leased under it
        // is committed before this one counts.
        conn.run("SELECT pg_advisory_xact_lock(723541)", Vec::new()).await?;
    }
    let mut running = Running::default();
    let sql = "SELECT id, flow, concurrency_key, leased_at FROM tasks WHERE state = 'running'";
    for mut row in conn.rows(sql, Vec::new()).await? {
        let id = TaskId(Uuid::from_bytes(row.fixed(0)?));
        if !desk.staged.tasks.contains_key(&id) {
            let key = row.text_or_null(2)?;
            running.add(&flow_of(&row.text(1)?)?, key.as_deref(), Timestamp(row.int(3)?));
        }
    }
    let changed = desk.staged.tasks.keys().filter_map(|id| desk.tasks.get(id));
    for (record, _) in changed.filter(|(record, _)| record.state == TaskState::Running) {
        let key = record.spec.conditions.concurrency.as_ref().map(|shared| shared.key.as_str());
        running.add(&Flow::of(&record.spec), key, record.leased_at.unwrap_or_default());
    }
    Ok(running)
}
