//! Rows of dependencies, queue settings, budgets and the inbox written by a batch.

use super::{
    batch_writes::{BatchWrites, DependencyChange},
    row_write::{
        ColumnKind::{Blob, Int, Text},
        RowWrite,
    },
};
use crate::store::db::{SqlArg, row::budget_limit_arg};

/// Added and removed dependencies.
pub(crate) fn dependency_writes(writes: &BatchWrites) -> [RowWrite; 2] {
    let mut begins = RowWrite::insert(
        "INSERT INTO task_dependencies (dependency, task) {rows} ON CONFLICT (dependency, task) DO NOTHING",
        &[Blob, Blob],
    )
    .sharing_within_table("task_dependencies");
    let mut ends = RowWrite::update(
        "WITH u(dependency, task) AS ({rows}) DELETE FROM task_dependencies d USING u \
         WHERE d.dependency = u.dependency AND d.task = u.task",
        "DELETE FROM task_dependencies WHERE dependency = ?1 AND task = ?2",
        &[Blob, Blob],
    )
    .sharing_within_table("task_dependencies");
    for ((on, task), waits) in &writes.dependencies {
        let write = match waits {
            DependencyChange::Added => &mut begins,
            DependencyChange::Removed => &mut ends,
        };
        write.cells.extend([on, task].map(|id| SqlArg::from_uuid(id.0)));
    }
    [begins, ends]
}

pub(crate) fn queue_writes(writes: &BatchWrites) -> RowWrite {
    let mut write = RowWrite::insert(
        "INSERT INTO queues (name, paused, running_max) {rows} ON CONFLICT (name) DO UPDATE SET \
         paused = excluded.paused, running_max = excluded.running_max",
        &[Text, Int, Int],
    )
    .sharing_across_tables("queues");
    for (name, settings) in &writes.queues {
        write.cells.extend([
            SqlArg::Text(name.as_str().to_owned()),
            SqlArg::Int(settings.paused.into()),
            SqlArg::IntOrNull(settings.running_max.map(i64::from)),
        ]);
    }
    write
}

pub(crate) fn budget_writes(writes: &BatchWrites) -> RowWrite {
    let mut write = RowWrite::insert(
        "INSERT INTO batch_budgets (batch, tokens_max, cost_max_nusd, spent) {rows} ON CONFLICT (batch) DO UPDATE SET \
         tokens_max = excluded.tokens_max, cost_max_nusd = excluded.cost_max_nusd, spent = excluded.spent",
        &[Blob, Int, Int, Text],
    );
    for (batch, (budget, spent)) in &writes.budgets {
        write.cells.extend([
            SqlArg::from_uuid(batch.0),
            budget_limit_arg(budget.tokens),
            budget_limit_arg(budget.cost_nusd),
            SqlArg::TextOrNull(spent.clone()),
        ]);
    }
    write
}

/// Rows of the inbox that became tasks, and rejected rows.
pub(crate) fn inbox_writes(writes: &BatchWrites) -> [RowWrite; 2] {
    let mut taken = RowWrite::update(
        "WITH u(id) AS ({rows}) DELETE FROM inbox i USING u WHERE i.id = u.id",
        "DELETE FROM inbox WHERE id = ?1 AND refused IS NULL",
        &[Text],
    )
    .with_required_change();
    let mut refused = RowWrite::update(
        "WITH u(id, refused, at) AS ({rows}) UPDATE inbox i SET refused = u.refused, refused_at = u.at FROM u \
         WHERE i.id = u.id",
        "UPDATE inbox SET refused = ?2, refused_at = ?3 WHERE id = ?1",
        &[Text, Text, Int],
    );
    for (row, reason) in &writes.inbox {
        match reason {
            None => taken.cells.push(SqlArg::Text(row.clone())),
            Some(reason) => refused.cells.extend([
                SqlArg::Text(row.clone()),
                SqlArg::Text(reason.clone()),
                SqlArg::Int(writes.now.0),
            ]),
        }
    }
    [taken, refused]
}
