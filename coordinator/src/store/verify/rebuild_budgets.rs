//! Budgets and use of batches, compared with the log.

use std::collections::BTreeMap;

use docket_schema::{
    event::Envelope,
    ids::{BatchId, RunId},
    system::Spending,
};

use crate::store::{
    Difference, StoreError,
    db::{
        Arg, Conn, TransactionError,
        row::{BudgetRow, budget_amount, budget_at, spending_at},
    },
    writer::event_spending,
};

/// What was counted of a run, and the sum of its events up to there.
#[derive(Debug, Default)]
pub(crate) struct RunCounted {
    counted: u64,
    used: Spending,
    derived: Spending,
}

impl RunCounted {
    /// Reads what was counted of a run, if anything.
    pub(crate) async fn read(conn: &mut Conn<'_>, run: RunId) -> Result<Option<Self>, TransactionError> {
        let sql = "SELECT counted_seq, tokens, cost_nusd FROM run_usage WHERE run = $1";
        let found = conn.rows(sql, vec![Arg::uuid(run.0)]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (counted, used) = (row.count(0)?, spending_at(row, 1)?);
        Ok(Some(Self { counted, used, derived: Spending::default() }))
    }

    /// Adds an event of the run.
    pub(crate) fn add(&mut self, event: &Envelope) -> Result<(), StoreError> {
        if event.seq.0 <= self.counted {
            self.derived = self.derived.plus(event_spending(event)?);
        }
        Ok(())
    }

    /// Compares, and corrects the row.
    pub(crate) async fn compare(
        self,
        conn: &mut Conn<'_>,
        run: RunId,
        differences: &mut Vec<Difference>,
    ) -> Result<(), TransactionError> {
        if self.used == self.derived {
            return Ok(());
        }
        let (was, is) = (format!("{:?}", self.used), format!("{:?}", self.derived));
        differences.push(Difference::new("run_usage", &run.to_string(), "tokens, cost_nusd", &was, &is));
        let sql = "UPDATE run_usage SET tokens = $2, cost_nusd = $3 WHERE run = $1";
        conn.run(
            sql,
            vec![Arg::uuid(run.0), Arg::count(self.derived.tokens), Arg::count(self.derived.cost_nusd)],
        )
        .await?;
        Ok(())
    }
}

/// Compares the budgets of batches, and the sums of their runs, with what the log says, and corrects them.
pub(crate) async fn rebuild_budgets(
    conn: &mut Conn<'_>,
    derived: &BTreeMap<BatchId, BudgetRow>,
    differences: &mut Vec<Difference>,
) -> Result<(), TransactionError> {
    const TABLE: &str = "batch_budgets";
    let mut sums: BTreeMap<BatchId, Spending> = BTreeMap::new();
    let sql = "SELECT batch, CAST(sum(tokens) AS bigint), CAST(sum(cost_nusd) AS bigint) FROM run_usage GROUP BY batch";
    for mut row in conn.rows(sql, Vec::new()).await? {
        sums.insert(BatchId(row.uuid(0)?), spending_at(&row, 1)?);
    }
    let mut stored: BTreeMap<BatchId, (BudgetRow, Spending)> = BTreeMap::new();
    let sql = "SELECT batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets";
    for mut row in conn.rows(sql, Vec::new()).await? {
        let batch = BatchId(row.uuid(0)?);
        let used = spending_at(&row, 4)?;
        stored.insert(batch, (budget_at(&mut row, 1)?, used));
    }
    let all: Vec<BatchId> = stored.keys().chain(derived.keys()).chain(sums.keys()).copied().collect();
    for batch in all {
        let is =
            (derived.get(&batch).cloned().unwrap_or_default(), sums.get(&batch).copied().unwrap_or_default());
        let was = stored.get(&batch);
        // A row with no budget and no use equals none.
        if was.map_or_else(|| is == Default::default(), |was| *was == is) {
            continue;
        }
        let format = |row: &(BudgetRow, Spending)| format!("{row:?}");
        let was = was.map_or_else(|| "missing".to_owned(), format);
        differences.push(Difference::new(TABLE, &batch.to_string(), "(row)", &was, &format(&is)));
        let sql = "INSERT INTO batch_budgets (batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (batch) DO UPDATE SET tokens_max = excluded.tokens_max, \
                   cost_max_nusd = excluded.cost_max_nusd, spent = excluded.spent, tokens = excluded.tokens, \
                   cost_nusd = excluded.cost_nusd";
        let ((budget, spent), used) = &is;
        let args = vec![
            Arg::uuid(batch.0),
            budget_amount(budget.tokens),
            budget_amount(budget.cost_nusd),
            Arg::TextOrNull(spent.clone()),
            Arg::count(used.tokens),
            Arg::count(used.cost_nusd),
        ];
        conn.run(sql, args).await?;
        stored.insert(batch, is);
    }
    Ok(())
}
