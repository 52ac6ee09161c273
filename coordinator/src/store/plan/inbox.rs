//! Turns inbox rows into tasks, each independently: a rejected row delays no other. A row's removal and its
//! task's first event are one transaction.

use std::collections::BTreeSet;

use docket_schema::{ids::Timestamp, task::TaskSpec};

use super::submit::plan_submit;
use crate::store::{
    AppendError, InboxContent, InboxMove, InboxOutcome, NewTask,
    db::{DbConn, SqlArg, TransactionError},
    writer::WorkingSet,
};

/// Plans the consumption of `moves`.
pub(super) async fn plan_inbox(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    moves: &[InboxMove],
    now: Timestamp,
) -> Result<Vec<InboxOutcome>, TransactionError> {
    let ids = moves.iter().map(|one| one.row.clone()).collect();
    let mut here: BTreeSet<String> = lock_waiting_rows(conn, ids).await?.into_iter().collect();
    // Another command of this batch may have taken some already.
    here.retain(|row| !set.writes.inbox.contains_key(row));
    let mut moved = Vec::with_capacity(moves.len());
    for one in moves {
        if !here.remove(&one.row) {
            moved.push(InboxOutcome::Gone);
            continue;
        }
        let became = match &one.content {
            InboxContent::Invalid(reason) => InboxOutcome::Refused(reason.clone()),
            InboxContent::Task(task) => submit_inbox_task(set, conn, task, &one.by, now).await?,
        };
        let reason = match &became {
            InboxOutcome::Refused(reason) => Some(reason.clone()),
            InboxOutcome::Submitted(_) | InboxOutcome::Duplicate(_) | InboxOutcome::Gone => None,
        };
        set.writes.inbox.insert(one.row.clone(), reason);
        moved.push(became);
    }
    Ok(moved)
}

/// Returns those of `ids` that still wait. On PostgreSQL they are locked until the commit, and rows locked by
/// another coordinator are skipped. On SQLite the statement that removes a row detects that it is gone.
async fn lock_waiting_rows(conn: &mut DbConn<'_>, ids: Vec<String>) -> Result<Vec<String>, TransactionError> {
    let dialect = conn.dialect();
    let sql = format!(
        "SELECT id FROM inbox WHERE {} AND refused IS NULL ORDER BY id{}",
        dialect.any_text_sql("id", 1),
        dialect.lock_free_rows_sql()
    );
    let mut locked = Vec::new();
    for mut row in conn.query_rows(&sql, vec![SqlArg::Texts(ids)]).await? {
        locked.push(row.get_text(0)?);
    }
    Ok(locked)
}

async fn submit_inbox_task(
    set: &mut WorkingSet,
    conn: &mut DbConn<'_>,
    task: &NewTask,
    by: &str,
    now: Timestamp,
) -> Result<InboxOutcome, TransactionError> {
    let answer = plan_submit(set, conn, std::slice::from_ref(task), by, now).await?;
    Ok(match answer {
        Ok(submitted) => match submitted.first() {
            Some((holder, true)) => InboxOutcome::Duplicate(*holder),
            Some((id, false)) => InboxOutcome::Submitted(*id),
            None => InboxOutcome::Submitted(task.id),
        },
        Err(AppendError::Store(error)) => return Err(error.into()),
        Err(refused) => InboxOutcome::Refused(refusal_reason(&task.spec, &refused)),
    })
}

fn refusal_reason(spec: &TaskSpec, refused: &AppendError) -> String {
    match refused {
        AppendError::BlobMissing(blob) if spec.base.manifest.hash == *blob => {
            format!("no tree is stored under its base {blob}; enqueue it `like` a task that has one")
        }
        other => other.to_string(),
    }
}
