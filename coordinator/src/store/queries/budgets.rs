//! Reads of what is set for batches, and of what was counted of their runs.

use docket_schema::{ids::BatchId, system::Spending, wire::BatchBudget};

use crate::store::{
    StoreError,
    db::{
        Arg, Db,
        row::{budget_at, spending_at},
    },
};

/// A batch's budget, and what was counted of its runs.
pub(crate) async fn read_budget(db: &Db, batch: BatchId) -> Result<(BatchBudget, Spending), StoreError> {
    let sql =
        "SELECT tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets WHERE batch = $1";
    match db.query("reading a batch's budget", sql, vec![Arg::uuid(batch.0)]).await?.first_mut() {
        None => Ok((BatchBudget::default(), Spending::default())),
        Some(row) => {
            let used = spending_at(row, 3)?;
            let (budget, spent) = budget_at(row, 0)?;
            Ok((BatchBudget { budget, spent }, used))
        }
    }
}

/// Whether any batch has a budget.
pub(crate) async fn has_budgets(db: &Db) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM batch_budgets WHERE tokens_max IS NOT NULL OR cost_max_nusd IS NOT NULL LIMIT 1";
    Ok(!db.query("looking for budgets", sql, Vec::new()).await?.is_empty())
}
