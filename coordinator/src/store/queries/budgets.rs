//! Reads of batch budgets and counted usage.

use docket_schema::{api::BatchBudget, ids::BatchId, system::BatchSpending};

use crate::store::{
    StoreError,
    db::{
        DbPool, SqlArg,
        row::{read_budget, read_spending},
    },
};

/// Reads a batch's budget and the usage counted for its runs.
pub(crate) async fn read_batch_budget(
    db: &DbPool,
    batch: BatchId,
) -> Result<(BatchBudget, BatchSpending), StoreError> {
    let sql =
        "SELECT tokens_max, cost_max_nusd, spent, tokens, cost_nusd FROM batch_budgets WHERE batch = $1";
    match db.query("reading a batch's budget", sql, vec![SqlArg::from_uuid(batch.0)]).await?.first_mut() {
        None => Ok((BatchBudget::default(), BatchSpending::default())),
        Some(row) => {
            let used = read_spending(row, 3)?;
            let (budget, spent) = read_budget(row, 0)?;
            Ok((BatchBudget { budget, spent }, used))
        }
    }
}

/// Whether any batch has a budget.
pub(crate) async fn has_budgets(db: &DbPool) -> Result<bool, StoreError> {
    let sql = "SELECT 1 FROM batch_budgets WHERE tokens_max IS NOT NULL OR cost_max_nusd IS NOT NULL LIMIT 1";
    Ok(!db.query("looking for budgets", sql, Vec::new()).await?.is_empty())
}
