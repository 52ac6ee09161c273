//! Reads of the overview: few statements, each over an index and bounded.

use docket_schema::{
    api::{
        BUDGET_WARNING_FRACTION, BatchBudget, BlockedCount, HourlyEndCount, HourlySubmitCount,
        NearlySpentBudget, OVERVIEW_BUDGETS_MAX, OVERVIEW_HOURS, OVERVIEW_QUEUES_MAX, OVERVIEW_TASKS_MAX,
        QueueView, StateCount, TaskSummary,
    },
    ids::{BatchId, Timestamp},
    system::{BatchSpending, Budget},
    task::{TaskBlockedReason, TaskState},
};
use uuid::Uuid;

use super::{queues::list_queues, workers::list_workers};
use crate::store::{
    OverviewRows, StoreError,
    api::corrupt_error,
    db::{
        DbPool, SqlArg,
        row::{TASK_COLUMNS, TASK_TABLES, read_task_row},
    },
};

const DOING: &str = "reading the overview";

const HOUR_US: i64 = 3_600_000_000;

/// End states of tasks.
const END_STATES: [TaskState; 3] = [TaskState::Completed, TaskState::Cancelled, TaskState::Discarded];

/// Counts completed tasks without any verification.
pub(crate) async fn count_unverified_tasks(db: &DbPool) -> Result<u64, StoreError> {
    let sql = "SELECT count(*) FROM tasks WHERE state = 'completed' AND unverified IS NOT NULL";
    db.query(DOING, sql, Vec::new()).await?.first().map_or(Ok(0), |row| row.get_u64(0))
}

/// All statements run concurrently, as far as there are connections; none waits for another.
pub(crate) async fn read_overview(
    db: &DbPool,
    now: Timestamp,
    since: Timestamp,
    heard: Timestamp,
) -> Result<OverviewRows, StoreError> {
    let most = || SqlArg::Int(OVERVIEW_TASKS_MAX.into());
    let asks = "t.state = 'blocked' AND t.blocked_why IN ('person', 'provider', 'budget', 'worker_fault') ORDER BY t.id DESC LIMIT $1";
    let settled = "t.state = $3 AND t.ended_at >= $2 ORDER BY t.ended_at DESC, t.id DESC LIMIT $1";
    let of = |state: TaskState| vec![most(), SqlArg::Int(since.0), SqlArg::Text(state.as_str().to_owned())];
    // A discarded task waits for a person until it is retried or archived, however long ago it was discarded.
    let discarded =
        "t.state = 'discarded' AND t.ended_at IS NOT NULL ORDER BY t.ended_at DESC, t.id DESC LIMIT $1";
    let (asks, blocked, budgets, running, discarded, completed, cancelled) = tokio::try_join!(
        list_task_briefs(db, asks, vec![most()]),
        count_blocked(db),
        list_budgets_near_limit(db),
        list_task_briefs(db, "t.state = 'running' ORDER BY t.leased_at, t.id LIMIT $1", vec![most()]),
        list_task_briefs(db, discarded, vec![most()]),
        list_task_briefs(db, settled, of(TaskState::Completed)),
        list_task_briefs(db, settled, of(TaskState::Cancelled)),
    )?;
    let (queues, hours, submitted, ended_counts, all_ended, workers) = tokio::try_join!(
        list_queues(db),
        count_ended_by_hour(db, now),
        count_submitted_by_hour(db, now),
        count_ended_since(db, since),
        count_ended_since(db, Timestamp(i64::MIN)),
        list_workers(db, heard),
    )?;
    // The newest ended tasks include the newest since that time.
    let mut ended: Vec<TaskSummary> =
        discarded.iter().filter(|task| task.ended_at.is_some_and(|at| at >= since)).cloned().collect();
    ended.extend([completed, cancelled].into_iter().flatten());
    ended.sort_unstable_by_key(|task| std::cmp::Reverse((task.ended_at, task.id)));
    ended.truncate(OVERVIEW_TASKS_MAX as usize);
    let is_discarded = |one: &&StateCount| one.state == TaskState::Discarded;
    let discarded_count = all_ended.iter().find(is_discarded).map_or(0, |one| one.count);
    let tasks = count_all_states(&queues, all_ended);
    let (queues, queues_left_out) = select_busiest(queues);
    Ok(OverviewRows {
        awaiting_person: asks,
        blocked,
        discarded,
        discarded_count,
        budgets_near_limit: budgets,
        running,
        recently_ended: ended,
        ended_counts,
        tasks,
        queues,
        queues_left_out,
        workers,
        ended_by_hour: hours,
        submitted_by_hour: submitted,
    })
}

/// Selects the busiest queues, in their original order, and counts the others.
fn select_busiest(mut queues: Vec<QueueView>) -> (Vec<QueueView>, u64) {
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

/// Combines all states: unfinished tasks are already counted by queue.
fn count_all_states(queues: &[QueueView], ended: Vec<StateCount>) -> Vec<StateCount> {
    let standing = TaskState::ALL.into_iter().filter(|state| !state.is_ended());
    let sum =
        |state| StateCount { state, count: queues.iter().map(|queue| queue.count_in_state(state)).sum() };
    standing.map(sum).chain(ended).filter(|one| one.count > 0).collect()
}

async fn list_task_briefs(
    db: &DbPool,
    filter: &str,
    args: Vec<SqlArg>,
) -> Result<Vec<TaskSummary>, StoreError> {
    let sql = format!("SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE {filter}");
    db.query(DOING, &sql, args)
        .await?
        .iter_mut()
        .map(|row| Ok(TaskSummary::from_record(read_task_row(row)?.0)))
        .collect()
}

async fn count_blocked(db: &DbPool) -> Result<Vec<BlockedCount>, StoreError> {
    let sql = "SELECT blocked_why, count(*) FROM tasks WHERE state = 'blocked' GROUP BY blocked_why ORDER BY blocked_why";
    let why = |word: String| -> Result<TaskBlockedReason, StoreError> {
        serde_json::from_value(word.clone().into())
            .map_err(|_| corrupt_error(format!("a task that is blocked for `{word}`")))
    };
    db.query(DOING, sql, Vec::new())
        .await?
        .iter_mut()
        .map(|row| Ok(BlockedCount { why: why(row.get_text(0)?)?, count: row.get_u64(1)? }))
        .collect()
}

/// Counts tasks that ended since then and are not archived, by state.
pub(crate) async fn count_ended_since(db: &DbPool, since: Timestamp) -> Result<Vec<StateCount>, StoreError> {
    let mut counts = Vec::new();
    for state in END_STATES {
        let sql = "SELECT count(*) FROM tasks WHERE state = $1 AND ended_at >= $2";
        let found =
            db.query(DOING, sql, vec![SqlArg::Text(state.as_str().to_owned()), SqlArg::Int(since.0)]).await?;
        let count = found.first().map_or(Ok(0), |row| row.get_u64(0))?;
        counts.push(StateCount { state, count });
    }
    Ok(counts)
}

/// Returns the first of the counted hours.
fn first_hour(now: Timestamp) -> i64 {
    now.0.div_euclid(HOUR_US) + 1 - i64::from(OVERVIEW_HOURS)
}

/// Ids increase with submit time: each hour is a range of the key, and only the key is read.
async fn count_submitted_by_hour(db: &DbPool, now: Timestamp) -> Result<Vec<HourlySubmitCount>, StoreError> {
    let first = first_hour(now);
    let bounds = (first..=first + i64::from(OVERVIEW_HOURS)).map(|hour| {
        let ms = u128::try_from(hour.saturating_mul(HOUR_US) / 1000).unwrap_or(0);
        SqlArg::Blob(Uuid::from_u128(ms << 80).as_bytes().to_vec())
    });
    let args: Vec<SqlArg> = bounds.collect();
    let ranges: Vec<String> = (1..args.len()).map(|n| format!("({n}, ${n}, ${})", n + 1)).collect();
    let sql = format!(
        "WITH hours (n, low, high) AS (VALUES {}) \
         SELECT CAST(h.n AS BIGINT), (SELECT count(*) FROM tasks t WHERE t.id >= h.low AND t.id < h.high) \
         FROM hours h ORDER BY h.n",
        ranges.join(", ")
    );
    let mut hours = Vec::new();
    for row in &mut db.query(DOING, &sql, args).await? {
        let (n, count) = (row.get_i64(0)?, row.get_u64(1)?);
        if count > 0 {
            hours.push(HourlySubmitCount { at: Timestamp((first + n - 1).saturating_mul(HOUR_US)), count });
        }
    }
    Ok(hours)
}

/// Uses the index of ended tasks, which covers the query.
async fn count_ended_by_hour(db: &DbPool, now: Timestamp) -> Result<Vec<HourlyEndCount>, StoreError> {
    let first = first_hour(now);
    let mut hours = Vec::new();
    for state in END_STATES {
        let sql = "SELECT ended_at / $3, count(*) FROM tasks WHERE state = $1 AND ended_at >= $2 GROUP BY 1";
        let args =
            vec![SqlArg::Text(state.as_str().to_owned()), SqlArg::Int(first * HOUR_US), SqlArg::Int(HOUR_US)];
        for row in &mut db.query(DOING, sql, args).await? {
            let at = Timestamp(row.get_i64(0)?.saturating_mul(HOUR_US));
            hours.push(HourlyEndCount { at, state, count: row.get_u64(1)? });
        }
    }
    hours.sort_unstable_by_key(|hour| (hour.at, hour.state));
    Ok(hours)
}

async fn list_budgets_near_limit(db: &DbPool) -> Result<Vec<NearlySpentBudget>, StoreError> {
    // Compares differences, because a product may overflow.
    let sql = "SELECT b.batch, b.tokens_max, b.cost_max_nusd, b.spent, b.tokens, b.cost_nusd FROM batch_budgets b \
               WHERE (b.spent IS NOT NULL OR b.tokens >= b.tokens_max - b.tokens_max / $1 OR b.cost_nusd >= b.cost_max_nusd - b.cost_max_nusd / $1) \
               AND EXISTS (SELECT 1 FROM tasks t WHERE t.batch = b.batch AND t.ended_at IS NULL) \
               ORDER BY b.batch DESC LIMIT $2";
    let part = SqlArg::Int(i64::try_from(BUDGET_WARNING_FRACTION).unwrap_or(1));
    let amount = |of: Option<i64>| of.and_then(|of| u64::try_from(of).ok());
    db.query(DOING, sql, vec![part, SqlArg::Int(OVERVIEW_BUDGETS_MAX.into())])
        .await?
        .iter_mut()
        .map(|row| {
            let budget = Budget {
                tokens: amount(row.get_i64_or_null(1)?),
                cost_nusd: amount(row.get_i64_or_null(2)?),
            };
            Ok(NearlySpentBudget {
                batch: BatchId(row.get_uuid(0)?),
                budget: BatchBudget { budget, spent: row.get_text_or_null(3)? },
                used: BatchSpending { tokens: row.get_u64(4)?, cost_nusd: row.get_u64(5)? },
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use docket_schema::queue::QueueSettings;

    #[test]
    fn overview_lists_the_busiest_queues_by_name() {
        let queue = |n: u32| QueueView {
            name: format!("q{n:04}").parse().expect("a name"),
            settings: QueueSettings::default(),
            tasks: vec![StateCount { state: TaskState::Available, count: u64::from(n % 7) }],
            oldest_available_at: None,
            oldest_leased_at: None,
        };
        let most = OVERVIEW_QUEUES_MAX as usize;
        let (few, none) = select_busiest((0..OVERVIEW_QUEUES_MAX).map(queue).collect());
        assert_eq!((few.len(), none), (most, 0));
        let (told, left_out) = select_busiest((0..7 * OVERVIEW_QUEUES_MAX).map(queue).collect());
        assert_eq!((told.len(), left_out), (most, 6 * most as u64));
        assert!(told.iter().all(|queue| queue.count_in_state(TaskState::Available) == 6));
        assert!(told.is_sorted_by(|a, b| a.name < b.name));
    }
}
