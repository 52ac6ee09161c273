//! Budget accounting: counts what the runs of a batch use and reserves budget for their calls.
//!
//! `batch_budgets` holds the settings from `system/budgets` and the sum of `run_usage`, which holds for each
//! run the sum of its events up to a seq. Appends of runs do not write there. When a run requests budget for
//! a call, its own events are counted up to their head, as are those of the runs with a call in progress; a
//! read of a batch counts those of all its runs. `run_usage` also holds the maximum use of a call in
//! progress. That part is not a projection, since it is meaningless once the call has ended.

use docket_schema::{
    ids::{BatchId, Epoch, RunId},
    system::{BatchSpending, MaxCallCost},
};

use crate::{
    decide::{self, BudgetDecision},
    store::{
        BudgetReservation, StoreError,
        api::corrupt_error,
        db::{
            DbConn, SqlArg, SqlRow, TransactionError, read_envelope,
            row::{BudgetRow, read_budget, read_spending},
            select_events_sql,
        },
        writer::event_spending,
    },
};

/// Most runs counted in one transaction, because other requests wait for the writer meanwhile.
const RUNS_COUNTED_MAX: i64 = 50;

struct UncountedRun {
    run: RunId,
    stream_id: i64,
    counted_seq: i64,
    head_seq: i64,
    reserved: BatchSpending,
    is_live: bool,
}

const UNCOUNTED_COLUMNS: &str = "r.id, r.stream_id, coalesce(u.counted_seq, 0), s.head_seq, coalesce(u.reserved_tokens, 0), \
     coalesce(u.reserved_nusd, 0), CASE WHEN t.state = 'running' AND t.epoch = u.epoch THEN 1 ELSE 0 END";

fn read_uncounted_run(row: &mut SqlRow) -> Result<UncountedRun, StoreError> {
    Ok(UncountedRun {
        run: RunId(row.get_uuid(0)?),
        stream_id: row.get_i64(1)?,
        counted_seq: row.get_i64(2)?,
        head_seq: row.get_i64(3)?,
        reserved: read_spending(row, 4)?,
        is_live: row.get_i64(6)? != 0,
    })
}

/// Locks a batch's row, creating it if it does not exist.
async fn lock_batch_budget(
    conn: &mut DbConn<'_>,
    batch: BatchId,
) -> Result<(BudgetRow, BatchSpending), TransactionError> {
    let make = "INSERT INTO batch_budgets (batch) VALUES ($1) ON CONFLICT (batch) DO NOTHING";
    conn.execute(make, vec![SqlArg::from_uuid(batch.0)]).await?;
    let sql = format!(
        "SELECT tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets WHERE batch = $1{}",
        conn.dialect().lock_rows_sql()
    );
    let mut found = conn.query_rows(&sql, vec![SqlArg::from_uuid(batch.0)]).await?;
    let row =
        found.first_mut().ok_or_else(|| corrupt_error(format!("the row of batch {batch} cannot be made")))?;
    let used = read_spending(row, 3)?;
    Ok((read_budget(row, 0)?, used))
}

/// Counts a run's events up to their head. Returns their usage and whether the call in progress has ended.
async fn count_run_usage(
    conn: &mut DbConn<'_>,
    batch: BatchId,
    of: &UncountedRun,
) -> Result<(BatchSpending, bool), TransactionError> {
    if of.head_seq <= of.counted_seq {
        return Ok((BatchSpending::default(), false));
    }
    let sql = select_events_sql(
        "e.stream_id = $1 AND e.seq > $2 AND e.seq <= $3 \
         AND e.kind IN ('ModelAnswered', 'ModelFailed', 'RunEnded', 'RunBlocked', 'RunPaused') ORDER BY e.seq",
    );
    let args = vec![SqlArg::Int(of.stream_id), SqlArg::Int(of.counted_seq), SqlArg::Int(of.head_seq)];
    let (mut had, mut ended) = (BatchSpending::default(), false);
    for mut row in conn.query_rows(&sql, args).await? {
        let event = read_envelope(&mut row)?;
        ended = true;
        had = had.plus(event_spending(&event)?);
    }
    let still = if ended { BatchSpending::default() } else { of.reserved };
    let sql = "INSERT INTO run_usage (run, batch, counted_seq, tokens, cost_nusd, epoch, reserved_tokens, reserved_nusd) \
               VALUES ($1, $2, $3, $4, $5, 0, 0, 0) ON CONFLICT (run) DO UPDATE SET counted_seq = excluded.counted_seq, \
               tokens = run_usage.tokens + excluded.tokens, cost_nusd = run_usage.cost_nusd + excluded.cost_nusd, \
               reserved_tokens = $6, reserved_nusd = $7";
    let args = vec![
        SqlArg::from_uuid(of.run.0),
        SqlArg::from_uuid(batch.0),
        SqlArg::Int(of.head_seq),
        SqlArg::from_u64(had.tokens),
        SqlArg::from_u64(had.cost_nusd),
        SqlArg::from_u64(still.tokens),
        SqlArg::from_u64(still.cost_nusd),
    ];
    conn.execute(sql, args).await?;
    if had != BatchSpending::default() {
        let sql =
            "UPDATE batch_budgets SET tokens = tokens + $2, cost_nusd = cost_nusd + $3 WHERE batch = $1";
        conn.execute(
            sql,
            vec![SqlArg::from_uuid(batch.0), SqlArg::from_u64(had.tokens), SqlArg::from_u64(had.cost_nusd)],
        )
        .await?;
    }
    Ok((had, ended))
}

/// Counts usage of some of a batch's runs since the last count. Returns whether there is more to count.
pub(crate) async fn count_batch_usage(
    conn: &mut DbConn<'_>,
    batch: BatchId,
) -> Result<bool, TransactionError> {
    let sql = format!(
        "SELECT {UNCOUNTED_COLUMNS} FROM tasks t JOIN runs r ON r.task = t.id JOIN streams s ON s.id = r.stream_id \
         LEFT JOIN run_usage u ON u.run = r.id WHERE t.batch = $1 AND s.head_seq > coalesce(u.counted_seq, 0) LIMIT $2"
    );
    lock_batch_budget(conn, batch).await?;
    let found =
        conn.query_rows(&sql, vec![SqlArg::from_uuid(batch.0), SqlArg::Int(RUNS_COUNTED_MAX)]).await?;
    let more = found.len() as i64 >= RUNS_COUNTED_MAX;
    for mut row in found {
        let of = read_uncounted_run(&mut row)?;
        count_run_usage(conn, batch, &of).await?;
    }
    Ok(more)
}

/// Decides whether the budget of a run's batch covers a call. If so, the call counts as in progress from then
/// on.
pub(crate) async fn reserve_budget(
    conn: &mut DbConn<'_>,
    (run, epoch): (RunId, Epoch),
    call: MaxCallCost,
) -> Result<BudgetReservation, TransactionError> {
    // A run whose lease is lost is refused by its next append, whatever is returned here.
    let sql = "SELECT t.batch FROM runs r JOIN tasks t ON t.id = r.task JOIN batch_budgets b ON b.batch = t.batch \
               WHERE r.id = $1 AND t.state = 'running' AND t.epoch = $2 \
               AND (b.tokens_max IS NOT NULL OR b.cost_max_nusd IS NOT NULL)";
    let mut found = conn.query_rows(sql, vec![SqlArg::from_uuid(run.0), SqlArg::Int(epoch.0 as i64)]).await?;
    let Some(row) = found.first_mut() else { return Ok(BudgetReservation::Granted) };
    let batch = BatchId(row.get_uuid(0)?);
    let ((budget, spent), mut used) = lock_batch_budget(conn, batch).await?;
    if let Some(message) = spent {
        return Ok(BudgetReservation::Exceeded { batch, budget, message, is_recorded: true });
    }
    let sql = format!(
        "SELECT {UNCOUNTED_COLUMNS} FROM runs r JOIN tasks t ON t.id = r.task JOIN streams s ON s.id = r.stream_id \
         LEFT JOIN run_usage u ON u.run = r.id WHERE r.id = $1"
    );
    let own = conn
        .query_rows(&sql, vec![SqlArg::from_uuid(run.0)])
        .await?
        .first_mut()
        .map(read_uncounted_run)
        .transpose()?;
    let own = own.ok_or_else(|| corrupt_error(format!("run {run} has no stream")))?;
    used = used.plus(count_run_usage(conn, batch, &own).await?.0);
    let sql = format!(
        "SELECT {UNCOUNTED_COLUMNS} FROM run_usage u JOIN runs r ON r.id = u.run JOIN tasks t ON t.id = r.task \
         JOIN streams s ON s.id = r.stream_id WHERE u.batch = $1 AND u.reserved_tokens > 0 AND u.run <> $2"
    );
    let mut under_way = BatchSpending::default();
    for mut row in conn.query_rows(&sql, vec![SqlArg::from_uuid(batch.0), SqlArg::from_uuid(run.0)]).await? {
        let other = read_uncounted_run(&mut row)?;
        let (had, ended) = count_run_usage(conn, batch, &other).await?;
        used = used.plus(had);
        // A run without a holder has no call in progress.
        if !ended && other.is_live {
            under_way = under_way.plus(other.reserved);
        }
    }
    let afford = decide::check_budget(budget, used, under_way, call);
    if afford != BudgetDecision::Affordable {
        // Releases the reservation for a call that was not made; otherwise two such runs would wait for each
        // other forever.
        let sql = "UPDATE run_usage SET reserved_tokens = 0, reserved_nusd = 0 WHERE run = $1";
        conn.execute(sql, vec![SqlArg::from_uuid(run.0)]).await?;
    }
    match afford {
        BudgetDecision::MaybeAfterRunningCalls => Ok(BudgetReservation::CallInProgress),
        BudgetDecision::Unpriced => Ok(BudgetReservation::Unpriced),
        BudgetDecision::OverBudget(message) => {
            Ok(BudgetReservation::Exceeded { batch, budget, message, is_recorded: false })
        }
        BudgetDecision::Affordable => {
            let sql = "INSERT INTO run_usage (run, batch, counted_seq, tokens, cost_nusd, epoch, reserved_tokens, reserved_nusd) \
                       VALUES ($1, $2, 0, 0, 0, $3, $4, $5) ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, \
                       reserved_tokens = excluded.reserved_tokens, reserved_nusd = excluded.reserved_nusd";
            let args = vec![
                SqlArg::from_uuid(run.0),
                SqlArg::from_uuid(batch.0),
                SqlArg::Int(epoch.0 as i64),
                SqlArg::from_u64(call.tokens.max(1)),
                SqlArg::from_u64(call.cost_nusd.unwrap_or(0)),
            ];
            conn.execute(sql, args).await?;
            Ok(BudgetReservation::Granted)
        }
    }
}
