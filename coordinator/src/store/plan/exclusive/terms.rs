//! Acquires terms and extends leases after a gap.

use docket_schema::ids::Timestamp;

use crate::{
    decide::CLOCK_SKEW_MAX_MS,
    store::{
        LEASE_MS_MAX, TermOutcome, TermRequest,
        db::{DbConn, SqlArg, TransactionError},
    },
};

/// Acquires a term or renews the caller's own. After a gap, leases are extended in the same transaction: a
/// term that was begun but not completed must not look like one that was held.
pub(crate) async fn acquire_term(
    conn: &mut DbConn<'_>,
    term: &TermRequest,
) -> Result<TermOutcome, TransactionError> {
    let sql = format!("SELECT until_at, holder FROM terms WHERE name = $1{}", conn.dialect().lock_rows_sql());
    let mut before = conn.query_rows(&sql, vec![SqlArg::StaticText(term.name)]).await?;
    let before = match before.first_mut() {
        Some(row) => Some((Timestamp(row.get_i64(0)?), row.get_text(1)?)),
        None => None,
    };
    let longest = term.now.plus_ms(term.max_term_ms);
    let is_too_long = |until: Timestamp| until > longest.plus_ms(CLOCK_SKEW_MAX_MS);
    if let Some((until, holder)) = &before
        && *holder != term.holder
        && is_too_long(*until)
    {
        let sql = "UPDATE terms SET until_at = $2 WHERE name = $1";
        conn.execute(sql, vec![SqlArg::StaticText(term.name), SqlArg::Int(longest.0)]).await?;
        return Ok(TermOutcome::HeldByOther);
    }
    let sql = "INSERT INTO terms (name, holder, until_at) VALUES ($1, $2, $3) ON CONFLICT (name) DO UPDATE \
               SET holder = excluded.holder, until_at = excluded.until_at \
               WHERE terms.holder = excluded.holder OR terms.until_at <= $4";
    let args = vec![
        SqlArg::StaticText(term.name),
        SqlArg::Text(term.holder.clone()),
        SqlArg::Int(term.until.0),
        SqlArg::Int(term.now.0),
    ];
    if conn.execute(sql, args).await? == 0 {
        return Ok(TermOutcome::HeldByOther);
    }
    let Some(trust) = term.deadline_trust else { return Ok(TermOutcome::Acquired { extended_leases: None }) };
    let latest = SqlArg::Int(term.now.plus_ms(trust.lease_ms).0);
    let Some(window_ms) = trust.max_gap_ms else {
        // The clock was stepped, so no deadline is reliable.
        let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND deadline_at <> $1";
        return Ok(TermOutcome::Acquired { extended_leases: Some(conn.execute(sql, vec![latest]).await?) });
    };
    let beyond = SqlArg::Int(term.now.plus_ms(LEASE_MS_MAX + CLOCK_SKEW_MAX_MS).0);
    let follows_another =
        before.is_some_and(|(ended, _)| term.now <= ended.plus_ms(window_ms) && !is_too_long(ended));
    if follows_another {
        let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND deadline_at > $2";
        conn.execute(sql, vec![latest, beyond]).await?;
        return Ok(TermOutcome::Acquired { extended_leases: None });
    }
    let sql = "UPDATE tasks SET deadline_at = $1 WHERE state = 'running' AND (deadline_at < $1 OR deadline_at > $2)";
    Ok(TermOutcome::Acquired { extended_leases: Some(conn.execute(sql, vec![latest, beyond]).await?) })
}
