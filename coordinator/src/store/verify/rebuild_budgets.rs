//! Rebuild of batch budgets and usage.

use std::collections::BTreeMap;

use docket_schema::{
    event::Envelope,
    ids::{BatchId, RunId},
    system::BatchSpending,
};

use crate::store::{
    ProjectionDifference, StoreError,
    db::{
        DbConn, SqlArg, TransactionError,
        row::{BudgetRow, budget_limit_arg, read_budget, read_spending},
    },
    writer::event_spending,
};

/// The usage counted for a run, and the sum of its events up to that point.
#[derive(Debug, Default)]
pub(crate) struct RunUsageCheck {
    counted_seq: u64,
    stored: BatchSpending,
    derived: BatchSpending,
}

impl RunUsageCheck {
    /// Loads the usage counted for a run, if any.
    pub(crate) async fn load(conn: &mut DbConn<'_>, run: RunId) -> Result<Option<Self>, TransactionError> {
        let sql = "SELECT counted_seq, tokens, cost_nusd FROM run_usage WHERE run = $1";
        let found = conn.query_rows(sql, vec![SqlArg::from_uuid(run.0)]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let (counted, used) = (row.get_u64(0)?, read_spending(row, 1)?);
        Ok(Some(Self { counted_seq: counted, stored: used, derived: BatchSpending::default() }))
    }

    /// Adds an event of the run.
    pub(crate) fn add_event(&mut self, event: &Envelope) -> Result<(), StoreError> {
        if event.seq.0 <= self.counted_seq {
            self.derived = self.derived.plus(event_spending(event)?);
        }
        Ok(())
    }

    /// Compares and corrects the row.
    pub(crate) async fn compare_and_correct(
        self,
        conn: &mut DbConn<'_>,
        run: RunId,
        differences: &mut Vec<ProjectionDifference>,
    ) -> Result<(), TransactionError> {
        if self.stored == self.derived {
            return Ok(());
        }
        let (was, is) = (format!("{:?}", self.stored), format!("{:?}", self.derived));
        differences.push(ProjectionDifference::new(
            "run_usage",
            &run.to_string(),
            "tokens, cost_nusd",
            &was,
            &is,
        ));
        let sql = "UPDATE run_usage SET tokens = $2, cost_nusd = $3 WHERE run = $1";
        conn.execute(
            sql,
            vec![
                SqlArg::from_uuid(run.0),
                SqlArg::from_u64(self.derived.tokens),
                SqlArg::from_u64(self.derived.cost_nusd),
            ],
        )
        .await?;
        Ok(())
    }
}

/// Compares the budgets of batches, and the sums over their runs, with the log and corrects them.
pub(crate) async fn rebuild_budgets(
    conn: &mut DbConn<'_>,
    derived: &BTreeMap<BatchId, BudgetRow>,
    differences: &mut Vec<ProjectionDifference>,
) -> Result<(), TransactionError> {
    const TABLE: &str = "batch_budgets";
    let mut sums: BTreeMap<BatchId, BatchSpending> = BTreeMap::new();
    let sql = "SELECT batch, CAST(sum(tokens) AS bigint), CAST(sum(cost_nusd) AS bigint) FROM run_usage GROUP BY batch";
    for mut row in conn.query_rows(sql, Vec::new()).await? {
        sums.insert(BatchId(row.get_uuid(0)?), read_spending(&row, 1)?);
    }
    let mut stored: BTreeMap<BatchId, (BudgetRow, BatchSpending)> = BTreeMap::new();
    let sql = "SELECT batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets";
    for mut row in conn.query_rows(sql, Vec::new()).await? {
        let batch = BatchId(row.get_uuid(0)?);
        let used = read_spending(&row, 4)?;
        stored.insert(batch, (read_budget(&mut row, 1)?, used));
    }
    let all: Vec<BatchId> = stored.keys().chain(derived.keys()).chain(sums.keys()).copied().collect();
    for batch in all {
        let is =
            (derived.get(&batch).cloned().unwrap_or_default(), sums.get(&batch).copied().unwrap_or_default());
        let was = stored.get(&batch);
        // A row with no budget and no usage equals a missing row.
        if was.map_or_else(|| is == Default::default(), |was| *was == is) {
            continue;
        }
        let format = |row: &(BudgetRow, BatchSpending)| format!("{row:?}");
        let was = was.map_or_else(|| "missing".to_owned(), format);
        differences.push(ProjectionDifference::new(TABLE, &batch.to_string(), "(row)", &was, &format(&is)));
        let sql = "INSERT INTO batch_budgets (batch, tokens_max, cost_max_nusd, spent, tokens, cost_nusd) \
                   VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (batch) DO UPDATE SET tokens_max = excluded.tokens_max, \
                   cost_max_nusd = excluded.cost_max_nusd, spent = excluded.spent, tokens = excluded.tokens, \
                   cost_nusd = excluded.cost_nusd";
        let ((budget, spent), used) = &is;
        let args = vec![
            SqlArg::from_uuid(batch.0),
            budget_limit_arg(budget.tokens),
            budget_limit_arg(budget.cost_nusd),
            SqlArg::TextOrNull(spent.clone()),
            SqlArg::from_u64(used.tokens),
            SqlArg::from_u64(used.cost_nusd),
        ];
        conn.execute(sql, args).await?;
        stored.insert(batch, is);
    }
    Ok(())
}
