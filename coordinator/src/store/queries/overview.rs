//! What a person looks at first: few statements, each over an index, each with a bound.

use docket_schema::{
    ids::{BatchId, Timestamp},
    system::{Budget, Spending},
    task::{TaskBlockedWhy, TaskState},
    wire::{
        BUDGET_TOLD_PART, BatchBudget, BlockedCount, BudgetNear, HourCount, HourSubmitted,
        OVERVIEW_BUDGETS_MAX, OVERVIEW_HOURS, OVERVIEW_QUEUES_MAX, OVERVIEW_TASKS_MAX, QueueView, StateCount,
        TaskBrief,
    },
};
use uuid::Uuid;

use super::{queues::list_queues, workers::list_workers};
use crate::store::{
    OverviewRows, StoreError,
    api::corrupt,
    db::{
        Arg, Db,
        row::{TASK_COLUMNS, TASK_TABLES, task_row},
    },
};

const DOING: &str = "reading the overview";

const HOUR_US: i64 = 3_600_000_000;

/// States that tasks end in.
const ENDS: [TaskState; 3] = [TaskState::Completed, TaskState::Cancelled, TaskState::Discarded];

/// How many completed tasks nothing verified.
pub(crate) async fn count_unverified(db: &Db) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM tasks WHERE state = 'completed' AND unverified IS NOT NULL";
    db.query(DOING, sql, Vec::new()).await?.first().map_or(Ok(0), |row| row.count(0))
}

/// All statements at once, as far as there are connections for them: none waits for another.
pub(crate) async fn read_overview(
    db: &Db,
    now: Timestamp,
    since: Timestamp,
    heard: Timestamp,
) -> Result<OverviewRows, StoreError> {
    let most = || Arg::Int(OVERVIEW_TASKS_MAX.into());
    let asks = "t.state = 'blocked' AND t.blocked_why IN ('person', 'provider', 'budget', 'worker_fault') ORDER BY t.id DESC LIMIT $1";
    let settled = "t.state = $3 AND t.ended_at >= $2 ORDER BY t.ended_at DESC, t.id DESC LIMIT $1";
    let of = |state: TaskState| vec![most(), Arg::Int(since.0), Arg::Text(state.as_str().to_owned())];
    // What failed waits for a person until it is retried or archived, however long ago that was.
    let discarded =
        "t.state = 'discarded' AND t.ended_at IS NOT NULL ORDER BY t.ended_at DESC, t.id DESC LIMIT $1";
    let (asks, blocked, budgets, running, discarded, completed, cancelled) = tokio::try_join!(
        tasks(db, asks, vec![most()]),
        blocked(db),
        budgets(db),
        tasks(db, "t.state = 'running' ORDER BY t.leased_at, t.id LIMIT $1", vec![most()]),
        tasks(db, discarded, vec![most()]),
        tasks(db, settled, of(TaskState::Completed)),
        tasks(db, settled, of(TaskState::Cancelled)),
    )?;
    let (queues, hours, submitted, ended_counts, all_ended, workers) = tokio::try_join!(
        list_queues(db),
        hours(db, now),
        submitted(db, now),
        count_ended_since(db, since),
        count_ended_since(db, Timestamp(i64::MIN)),
        list_workers(db, heard),
    )?;
    // The newest of all hold the newest since then.
    let mut ended: Vec<TaskBrief> =
        discarded.iter().filter(|task| task.ended_at.is_some_and(|at| at >= since)).cloned().collect();
    ended.extend([completed, cancelled].into_iter().flatten());
    ended.sort_unstable_by_key(|task| std::cmp::Reverse((task.ended_at, task.id)));
    ended.truncate(OVERVIEW_TASKS_MAX as usize);
    let is_discarded = |one: &&StateCount| one.state == TaskState::Discarded;
    let discarded_count = all_ended.iter().find(is_discarded).map_or(0, |one| one.count);
    let tasks = all_states(&queues, all_ended);
    let (queues, queues_left_out) = busiest(queues);
    Ok(OverviewRows {
        asks,
        blocked,
        discarded,
        discarded_count,
        budgets,
        running,
        ended,
        ended_counts,
        tasks,
        queues,
        queues_left_out,
        workers,
        hours,
        submitted,
    })
}

/// The queues with the most to do, in the order that they came in, and how many others there are.
fn busiest(mut queues: Vec<QueueView>) -> (Vec<QueueView>, u64) {
    let most = OVERVIEW_QUEUES_MAX as usize;
    let left_out = queues.len().saturating_sub(most);
    if left_out > 0 {
        let open = |queue: &QueueView| queue.tasks.iter().map(|of| of.count).sum::<u64>();
        queues.sort_by_key(|queue| std::cmp::Reverse(open(queue)));
        queues.truncate(most);
        queues.sort_by(|a, b| a.name.cmp(&b.name));
    }
    (queues, left_out as u64)
}

/// Every state: those that have not ended are counted by queue already.
fn all_states(queues: &[QueueView], ended: Vec<StateCount>) -> Vec<StateCount> {
    let standing = TaskState::ALL.into_iter().filter(|state| !state.is_ended());
    let sum = |state| StateCount { state, count: queues.iter().map(|queue| queue.count(state)).sum() };
    standing.map(sum).chain(ended).filter(|one| one.count > 0).collect()
}

async fn tasks(db: &Db, filter: &str, args: Vec<Arg>) -> Result<Vec<TaskBrief>, StoreError> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE {filter}");
    db.query(DOING, &sql, args).await?.iter_mut().map(|row| Ok(TaskBrief::of(task_row(row)?.0))).collect()
}

async fn blocked(db: &Db) -> Result<Vec<BlockedCount>, StoreError> {
    let sql = "SELECT blocked_why, count(*) FROM tasks WHERE state = 'blocked' GROUP BY blocked_why ORDER BY blocked_why";
    let why = |word: String| -> Result<TaskBlockedWhy, StoreError> {
        serde_json::from_value(word.clone().into())
            .map_err(|_| corrupt(format!("a task that is blocked for `{word}`")))
    };
    db.query(DOING, sql, Vec::new())
        .await?
        .iter_mut()
        .map(|row| Ok(BlockedCount { why: why(row.text(0)?)?, count: row.count(1)? }))
        .collect()
}

/// Tasks that ended since then and are not archived, by state.
pub(crate) async fn count_ended_since(db: &Db, since: Timestamp) -> Result<Vec<StateCount>, StoreError> {
    let mut counts = Vec::new();
    for state in ENDS {
        let sql = "SELECT count(*) FROM tasks WHERE state = $1 AND ended_at >= $2";
        let found =
            db.query(DOING, sql, vec![Arg::Text(state.as_str().to_owned()), Arg::Int(since.0)]).await?;
        let count = found.first().map_or(Ok(0), |row| row.count(0))?;
        counts.push(StateCount { state, count });
    }
    Ok(counts)
}

/// The first of the hours that are counted.
fn first_hour(now: Timestamp) -> i64 {
    now.0.div_euclid(HOUR_US) + 1 - i64::from(OVERVIEW_HOURS)
}

/// Ids rise with the time at which a task was submitted: each hour is a range of the key, and nothing but the key is read.
async fn submitted(db: &Db, now: Timestamp) -> Result<Vec<HourSubmitted>, StoreError> {
    let first = first_hour(now);
    let bounds = (first..=first + i64::from(OVERVIEW_HOURS)).map(|hour| {
        let ms = u128::try_from(hour.saturating_mul(HOUR_US) / 1000).unwrap_or(0);
        Arg::Blob(Uuid::from_u128(ms << 80).as_bytes().to_vec())
    });
    let args: Vec<Arg> = bounds.collect();
    let ranges: Vec<String> = (1..args.len()).map(|n| format!("({n}, ${n}, ${})", n + 1)).collect();
    let sql = format!(
        "WITH hours (n, low, high) AS (VALUES {}) \
         SELECT CAST(h.n AS BIGINT), (SELECT count(*) FROM tasks t WHERE t.id >= h.low AND t.id < h.high) \
         FROM hours h ORDER BY h.n",
        ranges.join(", ")
    );
    let mut hours = Vec::new();
    for row in &mut db.query(DOING, &sql, args).await? {
        let (n, count) = (row.int(0)?, row.count(1)?);
        if count > 0 {
            hours.push(HourSubmitted { at: Timestamp((first + n - 1).saturating_mul(HOUR_US)), count });
        }
    }
    Ok(hours)
}

/// Over the index of what ended, which has all that is asked for.
async fn hours(db: &Db, now: Timestamp) -> Result<Vec<HourCount>, StoreError> {
    let first = first_hour(now);
    let mut hours = Vec::new();
    for state in ENDS {
        let sql = "SELECT ended_at / $3, count(*) FROM tasks WHERE state = $1 AND ended_at >= $2 GROUP BY 1";
        let args = vec![Arg::Text(state.as_str().to_owned()), Arg::Int(first * HOUR_US), Arg::Int(HOUR_US)];
        for row in &mut db.query(DOING, sql, args).await? {
            let at = Timestamp(row.int(0)?.saturating_mul(HOUR_US));
            hours.push(HourCount { at, state, count: row.count(1)? });
        }
    }
    hours.sort_unstable_by_key(|hour| (hour.at, hour.state));
    Ok(hours)
}

async fn budgets(db: &Db) -> Result<Vec<BudgetNear>, StoreError> {
    // By differences, for a product may not fit.
    let sql = "SELECT b.batch, b.tokens_max, b.cost_max_nusd, b.spent, b.tokens, b.cost_nusd FROM batch_budgets b \
               WHERE (b.spent IS NOT NULL OR b.tokens >= b.tokens_max - b.tokens_max / $1 OR b.cost_nusd >= b.cost_max_nusd - b.cost_max_nusd / $1) \
               AND EXISTS (SELECT 1 FROM tasks t WHERE t.batch = b.batch AND t.ended_at IS NULL) \
               ORDER BY b.batch DESC LIMIT $2";
    let part = Arg::Int(i64::try_from(BUDGET_TOLD_PART).unwrap_or(1));
    let amount = |of: Option<i64>| of.and_then(|of| u64::try_from(of).ok());
    db.query(DOING, sql, vec![part, Arg::Int(OVERVIEW_BUDGETS_MAX.into())])
        .await?
        .iter_mut()
        .map(|row| {
            let budget =
                Budget { tokens: amount(row.int_or_null(1)?), cost_nusd: amount(row.int_or_null(2)?) };
            Ok(BudgetNear {
                batch: BatchId(row.uuid(0)?),
                budget: BatchBudget { budget, spent: row.text_or_null(3)? },
                used: Spending { tokens: row.count(4)?, cost_nusd: row.count(5)? },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_schema::queue::QueueSettings;

    #[test]
    fn of_many_queues_those_with_the_most_to_do_are_told_by_name() {
        let queue = |n: u32| QueueView {
            name: format!("q{n:04}").parse().expect("a name"),
            settings: QueueSettings::default(),
            tasks: vec![StateCount { state: TaskState::Available, count: u64::from(n % 7) }],
            oldest_available_at: None,
            oldest_leased_at: None,
        };
        let most = OVERVIEW_QUEUES_MAX as usize;
        let (few, none) = busiest((0..OVERVIEW_QUEUES_MAX).map(queue).collect());
        assert_eq!((few.len(), none), (most, 0));
        let (told, left_out) = busiest((0..7 * OVERVIEW_QUEUES_MAX).map(queue).collect());
        assert_eq!((told.len(), left_out), (most, 6 * most as u64));
        assert!(told.iter().all(|queue| queue.count(TaskState::Available) == 6));
        assert!(told.is_sorted_by(|a, b| a.name < b.name));
    }
}
