//! Asks that have a transaction of their own.

use docket_schema::ids::Timestamp;

use super::{
    LEASE_MS_MAX, StoreError, Taken, Term,
    ask::{Answered, Ask},
    budgets,
    conn::{Arg, Conn},
    desk::LoadError,
    gc::drop_untouched,
    inbox,
    permits::{call_ended, permit},
    rebuild::rebuild,
};
use crate::decide::CLOCKS_APART_MS;

/// Carries one out, within a transaction that the caller began and ends.
pub(super) async fn run_lone(conn: &mut Conn<'_>, ask: &Ask) -> Result<Answered, LoadError> {
    match ask {
        Ask::Secret { fresh } => Ok(Answered::Secret(Ok(secret(conn, fresh).await?))),
        Ask::Term(term) => Ok(Answered::Term(Ok(take_term(conn, term).await?))),
        Ask::Rebuild(seen) => Ok(Answered::Rebuild(Ok(rebuild(conn, seen).await?))),
        Ask::DropBlobs { hashes, untouched_since } => {
            Ok(Answered::DropBlobs(Ok(drop_untouched(conn, hashes, *untouched_since).await?)))
        }
        Ask::DrainWorker { incarnation } => {
            let sql = "UPDATE workers SET draining = 1 WHERE incarnation = $1";
            let args = vec![Arg::Blob(incarnation.0.as_bytes().to_vec())];
            Ok(Answered::DrainWorker(Ok(conn.run(sql, args).await? > 0)))
        }
        Ask::ActInbox { row, act } => Ok(Answered::ActInbox(Ok(inbox::act(conn, row, *act).await?))),
        Ask::Permit(ask) => Ok(Answered::Permit(Ok(permit(conn, ask).await?))),
        Ask::Reserve { caller, call } => {
            Ok(Answered::Reserve(Ok(budgets::reserve(conn, *caller, *call).await?)))
        }
        Ask::CountBatch { batch } => Ok(Answered::CountBatch(Ok(budgets::count(conn, *batch).await?))),
        Ask::CallEnded { run } => Ok(Answered::CallEnded(Ok(call_ended(conn, *run).await?))),
        Ask::Append(_)
        | Ask::Command(_)
        | Ask::Submit { .. }
        | Ask::Lease { .. }
        | Ask::Heartbeat { .. }
        | Ask::PutBlobs { .. }
        | Ask::TouchBlobs { .. }
        | Ask::Import(_)
        | Ask::TakeInbox { .. }
        | Ask::Remove(_)
        | Ask::Restore(_) => unreachable!("it is planned in a batch"),
    }
}

async fn secret(conn: &mut Conn<'_>, fresh: &[u8; 32]) -> Result<[u8; 32], LoadError> {
    let insert = "INSERT INTO meta (key, value) VALUES ('secret', $1) ON CONFLICT (key) DO NOTHING";
    conn.run(insert, vec![Arg::Blob(fresh.to_vec())]).await?;
    let mut rows = conn.rows("SELECT value FROM meta WHERE key = 'secret'", Vec::new()).await?;
    let row =
        rows.first_mut().ok_or_else(|| StoreError::Corrupt { what: "the secret is gone".to_owned() })?;
    Ok(row.fixed(0)?)
}

/// Takes a term, or continues one's own. What a term after a gap owes is given in the same transaction: one that
/// was begun and not kept must not pass for one that was held.
async fn take_term(conn: &mut Conn<'_>, term: &Term) -> Result<Taken, LoadError> {
    let sql = format!("SELECT until_at, holder FROM terms WHERE name = $1{}", conn.dialect().lock_rows());
    let mut before = conn.rows(&sql, vec![Arg::Word(term.name)]).await?;
    let before = match before.first_mut() {
        Some(row) => Some((Timestamp(row.int(0)?), row.text(1)?)),
        None => None,
    };
    let longest = term.now.plus_ms(term.longest_ms);
    let is_too_long = |until: Timestamp| until > longest.plus_ms(CLOCKS_APART_MS);
    if let Some((until, holder)) = &before
        && *holder != term.holder
        && is_too_long(*until)
    {
        let sql = "UPDATE terms SET until_at = $2 WHERE name = $1";
        conn.run(sql, vec![Arg::Word(term.name), Arg::Int(longest.0)]).await?;
        return Ok(Taken::ByAnother);
    }
    let sql = "INSERT INTO terms (name, holder, until_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE \
               SET holder = excluded.holder, until_at = excluded.until_at \
               WHERE terms.holder = excluded.holder OR terms.until_at <= $4";
    let args = vec![
        Arg::Word(term.name),
        Arg::Text(term.holder.clone()),
        Arg::Int(term.until.0),
        Arg::Int(term.now.0),
    ];
    if conn.run(sql, args).await? == 0 {
        return Ok(Taken::ByAnother);
    }
    let Some(trust) = term.trust else { return Ok(Taken::Ours { graced: None }) };
    let latest = Arg::Int(term.now.plus_ms(trust.lease_ms).0);
    let Some(window_ms) = trust.window_ms else {
        // The clock was stepped: no deadline says anything.
        let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND deadline_at <> $1";
        return Ok(Taken::Ours { graced: Some(conn.run(sql, vec![latest]).await?) });
    };
    let beyond = Arg::Int(term.now.plus_ms(LEASE_MS_MAX + CLOCKS_APART_MS).0);
    let follows_another =
        before.is_some_and(|(ended, _)| term.now <= ended.plus_ms(window_ms) && !is_too_long(ended));
    if follows_another {
        let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND deadline_at > $2";
        conn.run(sql, vec![latest, beyond]).await?;
        return Ok(Taken::Ours { graced: None });
    }
    let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND (deadline_at < $1 OR deadline_at > $2)";
    Ok(Taken::Ours { graced: Some(conn.run(sql, vec![latest, beyond]).await?) })
}
