//! Commands that have a transaction of their own. They read and write the database themselves, without a working set.

mod budgets;
mod permits;
mod terms;

use crate::store::{
    InboxAct,
    api::corrupt,
    blobs::gc::drop_untouched,
    db::{Arg, Conn, TransactionError},
    verify::rebuild,
    writer::{ActInbox, DrainWorker, ExclusiveCommand, ReadSecret},
};

/// Carries a command out, within a transaction that the caller began and ends.
pub(crate) async fn run_exclusive(
    conn: &mut Conn<'_>,
    command: &mut ExclusiveCommand,
) -> Result<(), TransactionError> {
    match command {
        ExclusiveCommand::ActInbox(request) => {
            request.reply = Some(Ok(act_inbox(conn, &request.command).await?));
        }
        ExclusiveCommand::CallEnded(request) => {
            request.reply = Some(Ok(permits::end_call(conn, request.command.run).await?));
        }
        ExclusiveCommand::CountBatch(request) => {
            request.reply = Some(Ok(budgets::count_batch(conn, request.command.batch).await?));
        }
        ExclusiveCommand::DrainWorker(request) => {
            request.reply = Some(Ok(drain_worker(conn, &request.command).await?));
        }
        ExclusiveCommand::DropBlobs(request) => {
            let command = &request.command;
            let dropped = drop_untouched(conn, &command.hashes, command.untouched_since).await?;
            request.reply = Some(Ok(dropped));
        }
        ExclusiveCommand::Permit(request) => {
            request.reply = Some(Ok(permits::take_permit(conn, &request.command).await?));
        }
        ExclusiveCommand::Rebuild(request) => {
            request.reply = Some(Ok(rebuild(conn, &request.command.seen).await?));
        }
        ExclusiveCommand::Reserve(request) => {
            let command = &request.command;
            request.reply = Some(Ok(budgets::reserve(conn, command.caller, command.call).await?));
        }
        ExclusiveCommand::Secret(request) => {
            request.reply = Some(Ok(read_secret(conn, &request.command).await?));
        }
        ExclusiveCommand::Term(request) => {
            request.reply = Some(Ok(terms::take_term(conn, &request.command).await?));
        }
    }
    Ok(())
}

async fn act_inbox(conn: &mut Conn<'_>, command: &ActInbox) -> Result<bool, TransactionError> {
    let sql = match command.act {
        InboxAct::Drop => "DELETE FROM inbox WHERE id = $1",
        InboxAct::Retry => "UPDATE inbox SET refused = NULL, refused_at = NULL WHERE id = $1",
    };
    Ok(conn.run(sql, vec![Arg::Text(command.row.clone())]).await? > 0)
}

async fn drain_worker(conn: &mut Conn<'_>, command: &DrainWorker) -> Result<bool, TransactionError> {
    let sql = "UPDATE workers SET draining = 1 WHERE incarnation = $1";
    Ok(conn.run(sql, vec![Arg::uuid(command.incarnation.0)]).await? > 0)
}

async fn read_secret(conn: &mut Conn<'_>, command: &ReadSecret) -> Result<[u8; 32], TransactionError> {
    let insert = "INSERT INTO meta (key, value) VALUES ('secret', $1) ON CONFLICT (key) DO NOTHING";
    conn.run(insert, vec![Arg::Blob(command.fresh.to_vec())]).await?;
    let mut rows = conn.rows("SELECT value FROM meta WHERE key = 'secret'", Vec::new()).await?;
    let row = rows.first_mut().ok_or_else(|| corrupt("the secret is gone".to_owned()))?;
    Ok(row.fixed(0)?)
}
