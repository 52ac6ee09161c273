//! Which tasks a lease request gets: reads what there is, in as few statements as that takes; the choice itself is
//! [`decide::choose`].
//!
//! Flows are found by jumping over the index from each to the next, so what a worker does not serve costs it one step
//! a flow, however many tasks wait there. What runs is read only where a choice depends on it. Where limits are set
//! PostgreSQL's coordinators choose one after the other, by a lock that the transaction holds.

use std::collections::HashMap;

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
    },
};

/// Flows that one request looks at, at most: those that come first by their names beyond that wait for the others.
const FLOWS_MAX: usize = 1000;

/// How often a choice looks behind tasks that their concurrency keys keep back.
const LOOKS_MAX: u32 = 8;

/// Each flow of which there are tasks, and each queue's settings.
const STANDING: &str = "WITH RECURSIVE f(flow) AS (\
       SELECT (SELECT t.flow FROM tasks t WHERE t.state = 'available' ORDER BY t.flow LIMIT 1) \
       UNION ALL \
       SELECT (SELECT t.flow FROM tasks t WHERE t.state = 'available' AND t.flow > f.flow ORDER BY t.flow LIMIT 1) \
       FROM f WHERE f.flow IS NOT NULL) \
     SELECT 0, flow, 0, NULL FROM f WHERE flow IS NOT NULL \
     UNION ALL SELECT 1, name, paused, running_max FROM queues";

const CANDIDATE: &str = "t.id, t.rank, t.priority, t.available_at, t.concurrency_key, t.concurrency_max";

/// Up to `wanted` tasks for a worker, in order, without those that this batch has already changed.
pub(super) async fn choose(
    desk: &Desk,
    conn: &mut Conn<'_>,
    request: &LeaseRequest,
    wanted: usize,
    now: Timestamp,
) -> Result<Vec<TaskId>, LoadError> {
    let (flows, mut queues) = standing(conn).await?;
    queues.extend(desk.staged.queues.iter().map(|(name, settings)| (name.clone(), *settings)));
    let flows: Vec<Flow> = flows.into_iter().filter(|flow| serves(request, flow, &queues)).collect();
    if flows.is_empty() || wanted == 0 {
        return Ok(Vec::new());
    }
    let mut full: Vec<String> = Vec::new();
    let mut running = None;
    let mut chosen: Vec<TaskId> = Vec::new();
    for _ in 0..LOOKS_MAX {
        let each = (wanted - chosen.len()).min(2 * wanted / flows.len() + 1);
        let limit = each + desk.staged.tasks.len() + chosen.len();
        let mut heads = heads(conn, &flows, &full, limit).await?;
        let more = heads.iter().any(|head| head.candidates.len() >= limit);
        for head in &mut heads {
            head.candidates
                .retain(|one| !desk.staged.tasks.contains_key(&one.task) && !chosen.contains(&one.task));
        }
        let running = match &mut running {
            Some(running) => running,
            None if depends_on_running(&heads, &queues) => {
                running.insert(read_running(desk, conn, limited(&heads, &queues)).await?)
            }
            None => running.insert(Running::default()),
        };
        let choice = decide::choose(&heads, &queues, running, wanted - chosen.len(), now);
        let gained = !choice.tasks.is_empty() || !choice.full_keys.is_empty();
        chosen.extend(choice.tasks);
        full.extend(choice.full_keys);
        if chosen.len() >= wanted || !more || !gained {
            break;
        }
    }
    Ok(chosen)
}

/// Whether a worker may take tasks of a flow at all.
fn serves(request: &LeaseRequest, flow: &Flow, queues: &HashMap<QueueName, QueueSettings>) -> bool {
    let paused = queues.get(&flow.queue).is_some_and(|settings| settings.paused);
    !paused
        && (request.queues.is_empty() || request.queues.contains(&flow.queue))
        && (request.engines.is_empty() || request.engines.iter().any(|engine| engine.name == flow.engine))
        && request.labels.satisfy(&flow.selector)
}

fn limited(heads: &[FlowHead], queues: &HashMap<QueueName, QueueSettings>) -> bool {
    heads.iter().any(|head| {
        queues.get(&head.flow.queue).is_some_and(|settings| settings.running_max.is_some())
            || head.candidates.iter().any(|one| one.concurrency.is_some())
    })
}

fn depends_on_running(heads: &[FlowHead], queues: &HashMap<QueueName, QueueSettings>) -> bool {
    heads.iter().filter(|head| !head.candidates.is_empty()).count() > 1 || limited(heads, queues)
}

async fn standing(conn: &mut Conn<'_>) -> Result<(Vec<Flow>, HashMap<QueueName, QueueSettings>), LoadError> {
    let (mut flows, mut queues) = (Vec::new(), HashMap::new());
    for mut row in conn.rows(STANDING, Vec::new()).await? {
        let text = row.text(1)?;
        if row.int(0)? == 0 {
            if flows.len() < FLOWS_MAX {
                flows.push(flow_of(&text)?);
            }
            continue;
        }
        let name = text.parse().map_err(|_| corrupt(format!("a queue named `{text}`")))?;
        let running_max = row.int_or_null(3)?.and_then(|max| u32::try_from(max).ok());
        queues.insert(name, QueueSettings { paused: row.int(2)? != 0, running_max });
    }
    Ok((flows, queues))
}

fn flow_of(text: &str) -> Result<Flow, StoreError> {
    text.parse().map_err(|_| corrupt(format!("a flow `{text}`")))
}

/// The first tasks of each flow by rank, without those whose concurrency key is among `full`.
async fn heads(
    conn: &mut Conn<'_>,
    flows: &[Flow],
    full: &[String],
    limit: usize,
) -> Result<Vec<FlowHead>, LoadError> {
    let dialect = conn.dialect();
    let mut heads: Vec<FlowHead> =
        flows.iter().map(|flow| FlowHead { flow: flow.clone(), candidates: Vec::new() }).collect();
    let but = match full {
        [] => String::new(),
        _ => format!(" AND (t.concurrency_key IS NULL OR NOT {})", dialect.any_text("t.concurrency_key", 3)),
    };
    let with_full = |mut args: Vec<Arg>| {
        if !full.is_empty() {
            args.push(Arg::Texts(full.to_vec()));
        }
        args
    };
    match (dialect, flows) {
        (Dialect::Sqlite, _) | (Dialect::Postgres, [_]) => {
            let lock = if dialect == Dialect::Postgres { " FOR UPDATE SKIP LOCKED" } else { "" };
            let sql = format!(
                "SELECT {CANDIDATE} FROM tasks t WHERE t.state = 'available' AND t.flow = $1{but} \
                 ORDER BY t.rank, t.id LIMIT $2{lock}"
            );
            for head in &mut heads {
                let args = with_full(vec![Arg::Text(head.flow.to_string()), Arg::Int(limit as i64)]);
                for mut row in conn.rows(&sql, args).await? {
                    head.candidates.push(candidate(&mut row)?);
                }
            }
        }
        (Dialect::Postgres, _) => {
            let sql = format!(
                "SELECT {CANDIDATE}, f.place FROM unnest($1::text[]) WITH ORDINALITY AS f(flow, place) \
                 CROSS JOIN LATERAL (SELECT t.* FROM tasks t WHERE t.state = 'available' AND t.flow = f.flow{but} \
                 ORDER BY t.rank, t.id LIMIT $2 FOR UPDATE SKIP LOCKED) t"
            );
            let names = flows.iter().map(ToString::to_string).collect();
            for mut row in conn.rows(&sql, with_full(vec![Arg::Texts(names), Arg::Int(limit as i64)])).await?
            {
                let place = usize::try_from(row.int(6)?).unwrap_or(0);
                let head = heads
                    .get_mut(place.wrapping_sub(1))
                    .ok_or_else(|| corrupt("a flow's place".to_owned()))?;
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
