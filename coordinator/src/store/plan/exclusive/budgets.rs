//! What batches may use, and what their runs have used.
//!
//! `batch_budgets` holds what `system/budgets` says, and the sum of what `run_usage` says of each run: what its events up
//! to a place come to. Nothing of it is written when a run appends. A run that asks whether a call is paid for has its
//! own events counted up to their head, and those of the runs with a call under way; whoever looks at a batch, those
//! of all its runs. Beside it stands what a call under way may use at most, which is no projection: it is worth nothing
//! once the call has ended.

use std::collections::BTreeMap;

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    ids::{BatchId, Epoch, RunId},
    run::RunEvent,
    system::{Budget, BudgetSet, BudgetSpent, CallCost, Spending, SystemEvent},
    wire::BatchBudget,
};
use uuid::Uuid;

use super::{
    Difference, StoreError,
    conn::{Arg, Conn, Db, Row},
    desk::{LoadError, corrupt},
    read::rows,
    rebuild::difference,
    row::{EVENT_COLUMNS, envelope},
    staged::Staged,
    write::{
        Kind::{Blob, Int, Text},
        Write,
    },
};
use crate::decide::{self, Afford};

/// Runs that are counted in one transaction, at most: others wait for the writer meanwhile.
const RUNS_COUNTED: i64 = 50;

/// Whether a batch's budget pays for a call of one of its runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reserved {
    /// It does, or there is none. The most that the call may use is set aside until it has ended.
    Granted,
    /// It may, once one of the calls under way has ended.
    Crowded,
    /// Nobody can say: it is of money, and the call's model has no price. The batch is none the poorer for it.
    Unpriced,
    /// It does not.
    Over {
        /// The batch.
        batch: BatchId,
        /// What is set for it.
        budget: Budget,
        /// What was used, and what was wanted.
        message: String,
        /// The log says so already.
        known: bool,
    },
}

/// What stands in a batch's row of what the log says: the budget, and why it is used up.
pub(super) type BudgetRow = (Budget, Option<String>);

/// What an event of `system/budgets` makes of its batch.
pub(super) fn of_event(event: &NewEvent) -> Option<(BatchId, BudgetRow)> {
    if !matches!(event.kind.as_str(), "BudgetSet" | "BudgetSpent") {
        return None;
    }
    match SystemEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
        SystemEvent::BudgetSet(BudgetSet { batch, budget, .. }) => Some((batch, (budget, None))),
        SystemEvent::BudgetSpent(BudgetSpent { batch, budget, message }) => {
            Some((batch, (budget, Some(message))))
        }
        _ => None,
    }
}

fn batch_arg(batch: BatchId) -> Arg {
    Arg::Blob(batch.0.as_bytes().to_vec())
}

fn run_arg(run: RunId) -> Arg {
    Arg::Blob(run.0.as_bytes().to_vec())
}

fn amount(most: Option<u64>) -> Arg {
    Arg::IntOrNull(most.map(|most| i64::try_from(most).unwrap_or(i64::MAX)))
}

fn int(value: u64) -> Arg {
    Arg::Int(i64::try_from(value).unwrap_or(i64::MAX))
}

/// What a batch of requests sets.
pub(super) fn budgets(staged: &Staged) -> Write {
    let mut write = Write::insert(
        "INSERT INTO batch_budgets (batch, tokens_max, cost_max_nusd, spent) {rows} ON CONFLICT (batch) DO UPDATE SET \
         tokens_max = excluded.tokens_max, cost_max_nusd = excluded.cost_max_nusd, spent = excluded.spent",
        &[Blob, Int, Int, Text],
    );
    for (batch, (budget, spent)) in &staged.budgets {
        write.cells.extend([
            batch_arg(*batch),
            amount(budget.tokens),
            amount(budget.cost_nusd),
            Arg::TextOrNull(spent.clone()),
        ]);
    }
    write
}

fn budget_at(row: &mut Row, at: usize) -> Result<BudgetRow, StoreError> {
    let most = |value: Option<i64>| value.map(i64::unsigned_abs);
    let budget = Budget { tokens: most(row.int_or_null(at)?), cost_nusd: most(row.int_or_null(at + 1)?) };
    Ok((budget, row.text_or_null(at + 2)?))
}

fn spending_at(row: &Row, at: usize) -> Result<Spending, StoreError> {
    Ok(Spending { tokens: row.count(at)?, cost_nusd: row.count(at + 1)? })
}

/// What is set for a batch, and what was counted of its runs.
pub(super) async fn budget(db: &Db, batch: BatchId) -> Result<(BatchBudget, Spending), StoreError> {
    let sql =
        "SELECT tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets WHERE batch = $1";
    match rows(db, "reading a batch's budget", sql, vec![batch_arg(batch)]).await?.first_mut() {
        None => Ok((BatchBudget::default(), Spending::default())),
        Some(row) => {
            let used = spending_at(row, 3)?;
            let (budget, spent) = budget_at(row, 0)?;
            Ok((BatchBudget { budget, spent }, used))
        }
    }
}

/// Whether any batch has a budget.
pub(super) async fn any(db: &Db) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM batch_budgets WHERE tokens_max IS NOT NULL OR cost_max_nusd IS NOT NULL LIMIT 1";
    Ok(!rows(db, "looking for budgets", sql, Vec::new()).await?.is_empty())
}

/// A run whose events are to be counted.
struct Lagging {
    run: RunId,
    stream_id: i64,
    counted: i64,
    head: i64,
    reserved: Spending,
    lives: bool,
}

const LAGGING: &str = "r.id, r.stream_id, coalesce(u.counted_seq, 0), s.head_seq, coalesce(u.reserved_tokens, 0), \
     coalesce(u.reserved_nusd, 0), CASE WHEN t.state = 'running' AND t.epoch = u.epoch THEN 1 ELSE 0 END";

fn lagging(row: &mut Row) -> Result<Lagging, StoreError> {
    Ok(Lagging {
        run: RunId(Uuid::from_bytes(row.fixed(0)?)),
        stream_id: row.int(1)?,
        counted: row.int(2)?,
        head: row.int(3)?,
        reserved: spending_at(row, 4)?,
        lives: row.int(6)? != 0,
    })
}

/// Locks a batch's row, which is made if it is not there.
async fn lock(conn: &mut Conn<'_>, batch: BatchId) -> Result<(BudgetRow, Spending), LoadError> {
    let make = "INSERT INTO batch_budgets (batch) VALUES ($1) ON CONFLICT (batch) DO NOTHING";
    conn.run(make, vec![batch_arg(batch)]).await?;
    let sql = format!(
        "SELECT tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets WHERE batch = $1{}",
        conn.dialect().lock_rows()
    );
    let mut found = conn.rows(&sql, vec![batch_arg(batch)]).await?;
    let row = found.first_mut().ok_or_else(|| corrupt(format!("the row of batch {batch} cannot be made")))?;
    let used = spending_at(row, 3)?;
    Ok((budget_at(row, 0)?, used))
}

/// Counts a run's events up to their head. Answers what they had, and whether what was under way has ended.
async fn count_run(conn: &mut Conn<'_>, batch: BatchId, of: &Lagging) -> Result<(Spending, bool), LoadError> {
    if of.head <= of.counted {
        return Ok((Spending::default(), false));
    }
    let sql = format!(
        "SELECT {EVENT_COLUMNS} FROM events e JOIN streams s ON s.id = e.stream_id \
         WHERE e.stream_id = $1 AND e.seq > $2 AND e.seq <= $3 \
         AND e.kind IN ('ModelAnswered', 'ModelFailed', 'RunEnded', 'RunBlocked', 'RunPaused') ORDER BY e.seq"
    );
    let args = vec![Arg::Int(of.stream_id), Arg::Int(of.counted), Arg::Int(of.head)];
    let (mut had, mut ended) = (Spending::default(), false);
    for mut row in conn.rows(&sql, args).await? {
        let event = envelope(&mut row)?;
        ended = true;
        had = had.plus(spent_by(&event.kind, event.version, event.payload.as_str())?);
    }
    let still = if ended { Spending::default() } else { of.reserved };
    let sql = "INSERT INTO run_usage (run, batch, counted_seq, tokens, cost_nusd, epoch, reserved_tokens, reserved_nusd) \
               VALUES ($1, $2, $3, $4, $5, 0, 0, 0) ON CONFLICT (run) DO UPDATE SET counted_seq = excluded.counted_seq, \
               tokens = run_usage.tokens + excluded.tokens, cost_nusd = run_usage.cost_nusd + excluded.cost_nusd, \
               reserved_tokens = $6, reserved_nusd = $7";
    let args = vec![
        run_arg(of.run),
        batch_arg(batch),
        Arg::Int(of.head),
        int(had.tokens),
        int(had.cost_nusd),
        int(still.tokens),
        int(still.cost_nusd),
    ];
    conn.run(sql, args).await?;
    if had != Spending::default() {
        let sql =
            "UPDATE batch_budgets SET tokens = tokens + $2, cost_nusd = cost_nusd + $3 WHERE batch = $1";
        conn.run(sql, vec![batch_arg(batch), int(had.tokens), int(had.cost_nusd)]).await?;
    }
    Ok((had, ended))
}

/// What an event of a run used.
pub(super) fn spent_by(kind: &str, version: u16, payload: &str) -> Result<Spending, StoreError> {
    if kind != "ModelAnswered" {
        return Ok(Spending::default());
    }
    match RunEvent::decode(kind, version, payload) {
        Ok(RunEvent::ModelAnswered(answered)) => Ok(Spending::of(answered.usage, answered.cost_nusd)),
        Ok(_) => Ok(Spending::default()),
        Err(error) => Err(corrupt(format!("an answer of a model cannot be read: {error}"))),
    }
}

/// Counts what runs of a batch have used since they were counted last, some of them. Answers whether there are more.
pub(super) async fn count(conn: &mut Conn<'_>, batch: BatchId) -> Result<bool, LoadError> {
    let sql = format!(
        "SELECT {LAGGING} FROM tasks t JOIN runs r ON r.task = t.id JOIN streams s ON s.id = r.stream_id \
         LEFT JOIN run_usage u ON u.run = r.id WHERE t.batch = $1 AND s.head_seq > coalesce(u.counted_seq, 0) LIMIT $2"
    );
    lock(conn, batch).await?;
    let found = conn.rows(&sql, vec![batch_arg(batch), Arg::Int(RUNS_COUNTED)]).await?;
    let more = found.len() as i64 >= RUNS_COUNTED;
    for mut row in found {
        let of = lagging(&mut row)?;
        count_run(conn, batch, &of).await?;
    }
    Ok(more)
}

/// Whether the budget of a run's batch pays for a call, which is under way from then on.
pub(super) async fn reserve(
    conn: &mut Conn<'_>,
    (run, epoch): (RunId, Epoch),
    call: CallCost,
) -> Result<Reserved, LoadError> {
    // One whose lease is gone is refused by its next append, whatever is said here.
    let sql = "SELECT t.batch FROM runs r JOIN tasks t ON t.id = r.task JOIN batch_budgets b ON b.batch = t.batch \
               WHERE r.id = $1 AND t.state = 'running' AND t.epoch = $2 \
               AND (b.tokens_max IS NOT NULL OR b.cost_max_nusd IS NOT NULL)";
    let mut found = conn.rows(sql, vec![run_arg(run), Arg::Int(epoch.0 as i64)]).await?;
    let Some(row) = found.first_mut() else { return Ok(Reserved::Granted) };
    let batch = BatchId(Uuid::from_bytes(row.fixed(0)?));
    let ((budget, spent), mut used) = lock(conn, batch).await?;
    if let Some(message) = spent {
        return Ok(Reserved::Over { batch, budget, message, known: true });
    }
    let sql = format!(
        "SELECT {LAGGING} FROM runs r JOIN tasks t ON t.id = r.task JOIN streams s ON s.id = r.stream_id \
         LEFT JOIN run_usage u ON u.run = r.id WHERE r.id = $1"
    );
    let own = conn.rows(&sql, vec![run_arg(run)]).await?.first_mut().map(lagging).transpose()?;
    let own = own.ok_or_else(|| corrupt(format!("run {run} has no stream")))?;
    used = used.plus(count_run(conn, batch, &own).await?.0);
    let sql = format!(
        "SELECT {LAGGING} FROM run_usage u JOIN runs r ON r.id = u.run JOIN tasks t ON t.id = r.task \
         JOIN streams s ON s.id = r.stream_id WHERE u.batch = $1 AND u.reserved_tokens > 0 AND u.run <> $2"
    );
    let mut under_way = Spending::default();
    for mut row in conn.rows(&sql, vec![batch_arg(batch), run_arg(run)]).await? {
        let other = lagging(&mut row)?;
        let (had, ended) = count_run(conn, batch, &other).await?;
        used = used.plus(had);
        // Of a run that nobody works at nothing is under way.
        if !ended && other.lives {
            under_way = under_way.plus(other.reserved);
        }
    }
    let afford = decide::afford(budget, used, under_way, call);
    if afford != decide::Afford::Yes {
        // What was set aside for a call that it did not make: two such would wait for each other for ever.
        let sql = "UPDATE run_usage SET reserved_tokens = 0, reserved_nusd = 0 WHERE run = $1";
        conn.run(sql, vec![run_arg(run)]).await?;
    }
    match afford {
        Afford::Perhaps => Ok(Reserved::Crowded),
        Afford::Unpriced => Ok(Reserved::Unpriced),
        Afford::No(message) => Ok(Reserved::Over { batch, budget, message, known: false }),
        Afford::Yes => {
            let sql = "INSERT INTO run_usage (run, batch, counted_seq, tokens, cost_nusd, epoch, reserved_tokens, reserved_nusd) \
                       VALUES ($1, $2, 0, 0, 0, $3, $4, $5) ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, \
                       reserved_tokens = excluded.reserved_tokens, reserved_nusd = excluded.reserved_nusd";
            let args = vec![
                run_arg(run),
                batch_arg(batch),
                Arg::Int(epoch.0 as i64),
                int(call.tokens.max(1)),
                int(call.cost_nusd.unwrap_or(0)),
            ];
            conn.run(sql, args).await?;
            Ok(Reserved::Granted)
        }
    }
}

/// What a rebuild finds of a run: what its events up to where it was counted come to.
#[derive(Debug, Default)]
pub(super) struct RunCounted {
    counted: u64,
    used: Spending,
    derived: Spending,
}

impl RunCounted {
    /// What stands there of a run, if anything.
    pub(super) async fn read(conn: &mut Conn<'_>, run: RunId) -> Result<Option<Self>, LoadError> {
        let sql = "SELECT counted_seq, tokens, cost_nusd FROM run_usage WHERE run = $1";
        let found = conn.rows(sql, vec![run_arg(run)]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (counted, used) = (row.count(0)?, spending_at(row, 1)?);
        Ok(Some(Self { counted, used, derived: Spending::default() }))
    }

    /// Takes an event of it.
    pub(super) fn event(&mut self, event: &docket_schema::event::Envelope) -> Result<(), StoreError> {
        if event.seq.0 <= self.counted {
            let had = spent_by(&event.kind, event.version, event.payload.as_str())?;
            self.derived = self.derived.plus(had);
        }
        Ok(())
    }

    /// Compares, and mends.
    pub(super) async fn compare(
        self,
        conn: &mut Conn<'_>,
        run: RunId,
        differences: &mut Vec<Difference>,
    ) -> Result<(), LoadError> {
        if self.used == self.derived {
            return Ok(());
        }
        let (was, is) = (format!("{:?}", self.used), format!("{:?}", self.derived));
        differences.push(difference("run_usage", &run.to_string(), "tokens, cost_nusd", &was, &is));
        let sql = "UPDATE run_usage SET tokens = $2, cost_nusd = $3 WHERE run = $1";
        conn.run(sql, vec![run_arg(run), int(self.derived.tokens), int(self.derived.cost_nusd)]).await?;
        Ok(())
    }
}

/// Compares what is set for batches, and the sums of their runs, with what the log says, and mends it.
pub(super) async fn rebuild_budgets(
    conn: &mut Conn<'_>,
    derived: &BTreeMap<BatchId, BudgetRow>,
    differences: &mut Vec<Difference>,
) -> Result<(), LoadError> {
    const TABLE: &str = "batch_budgets";
    let mut sums: BTreeMap<BatchId, Spending> = BTreeMap::new();
    let sql = "SELECT batch, CAST(sum(tokens) AS bigint), CAST(sum(cost_nusd) AS bigint) FROM run_usage GROUP BY batch";
    for mut row in conn.rows(sql, Vec::new()).await? {
        sums.insert(BatchId(Uuid::from_bytes(row.fixed(0)?)), spending_at(&row, 1)?);
    }
    let mut stored: BTreeMap<BatchId, (BudgetRow, Spending)> = BTreeMap::new();
    let sql = "SELECT batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets";
    for mut row in conn.rows(sql, Vec::new()).await? {
        let batch = BatchId(Uuid::from_bytes(row.fixed(0)?));
        let used = spending_at(&row, 4)?;
        stored.insert(batch, (budget_at(&mut row, 1)?, used));
    }
    let all: Vec<BatchId> = stored.keys().chain(derived.keys()).chain(sums.keys()).copied().collect();
    for batch in all {
        let is =
            (derived.get(&batch).cloned().unwrap_or_default(), sums.get(&batch).copied().unwrap_or_default());
        let was = stored.get(&batch);
        // A row that says nothing is as good as none.
        if was.map_or_else(|| is == Default::default(), |was| *was == is) {
            continue;
        }
        let shown = |row: &(BudgetRow, Spending)| format!("{row:?}");
        let was = was.map_or_else(|| "missing".to_owned(), shown);
        differences.push(difference(TABLE, &batch.to_string(), "(row)", &was, &shown(&is)));
        let sql = "INSERT INTO batch_budgets (batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (batch) DO UPDATE SET tokens_max = excluded.tokens_max, \
                   cost_max_nusd = excluded.cost_max_nusd, spent = excluded.spent, tokens = excluded.tokens, \
                   cost_nusd = excluded.cost_nusd";
        let ((budget, spent), used) = &is;
        let args = vec![
            batch_arg(batch),
            amount(budget.tokens),
            amount(budget.cost_nusd),
            Arg::TextOrNull(spent.clone()),
            int(used.tokens),
            int(used.cost_nusd),
        ];
        conn.run(sql, args).await?;
        stored.insert(batch, is);
    }
    Ok(())
}
