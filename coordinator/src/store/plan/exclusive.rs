//! Commands with a separate transaction. They read and write the database directly, without a working set.

mod budgets;
mod permits;
mod terms;

use crate::store::{
    InboxAction,
    api::corrupt_error,
    blobs::gc::drop_untouched,
    db::{DbConn, SqlArg, TransactionError},
    verify::rebuild_projections,
    writer::{ChangeInboxRow, DrainWorker, ExclusiveCommand, ReadSecret},
};

/// Executes a command within a transaction that the caller begins and ends.
pub(crate) async fn run_exclusive(
    conn: &mut DbConn<'_>,
    command: &mut ExclusiveCommand,
) -> Result<(), TransactionError> {
    match command {
        ExclusiveCommand::ChangeInboxRow(request) => {
            request.reply = Some(Ok(apply_inbox_action(conn, &request.command).await?));
        }
        ExclusiveCommand::EndCall(request) => {
            request.reply = Some(Ok(permits::end_call(conn, request.command.run).await?));
        }
        ExclusiveCommand::CountBatchUsage(request) => {
            request.reply = Some(Ok(budgets::count_batch_usage(conn, request.command.batch).await?));
        }
        ExclusiveCommand::DrainWorker(request) => {
            request.reply = Some(Ok(drain_worker(conn, &request.command).await?));
        }
        ExclusiveCommand::DropBlobs(request) => {
            let command = &request.command;
            let dropped = drop_untouched(conn, &command.hashes, command.untouched_since).await?;
            request.reply = Some(Ok(dropped));
        }
        ExclusiveCommand::TakePermit(request) => {
            request.reply = Some(Ok(permits::take_permit(conn, &request.command).await?));
        }
        ExclusiveCommand::RebuildProjections(request) => {
            request.reply = Some(Ok(rebuild_projections(conn, &request.command.progress).await?));
        }
        ExclusiveCommand::ReserveBudget(request) => {
            let command = &request.command;
            request.reply = Some(Ok(budgets::reserve_budget(conn, command.caller, command.call).await?));
        }
        ExclusiveCommand::ReadSecret(request) => {
            request.reply = Some(Ok(read_secret(conn, &request.command).await?));
        }
        ExclusiveCommand::RequestTerm(request) => {
            request.reply = Some(Ok(terms::acquire_term(conn, &request.command).await?));
        }
    }
    Ok(())
}

async fn apply_inbox_action(
    conn: &mut DbConn<'_>,
    command: &ChangeInboxRow,
) -> Result<bool, TransactionError> {
    let sql = match command.action {
        InboxAction::Drop => "DELETE FROM inbox WHERE id = $1",
        InboxAction::Retry => "UPDATE inbox SET refused = NULL, refused_at = NULL WHERE id = $1",
    };
    Ok(conn.execute(sql, vec![SqlArg::Text(command.row.clone())]).await? > 0)
}

async fn drain_worker(conn: &mut DbConn<'_>, command: &DrainWorker) -> Result<bool, TransactionError> {
    let sql = "UPDATE workers SET draining = 1 WHERE incarnation = $1";
    Ok(conn.execute(sql, vec![SqlArg::from_uuid(command.incarnation.0)]).await? > 0)
}

async fn read_secret(conn: &mut DbConn<'_>, command: &ReadSecret) -> Result<[u8; 32], TransactionError> {
    let insert = "INSERT INTO meta (key, value) VALUES ('secret', $1) ON CONFLICT (key) DO NOTHING";
    conn.execute(insert, vec![SqlArg::Blob(command.fresh.to_vec())]).await?;
    let mut rows = conn.query_rows("SELECT value FROM meta WHERE key = 'secret'", Vec::new()).await?;
    let row = rows.first_mut().ok_or_else(|| corrupt_error("the secret is gone".to_owned()))?;
    Ok(row.get_array(0)?)
}
