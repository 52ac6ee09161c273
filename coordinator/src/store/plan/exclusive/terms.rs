//! Takes terms, and gives leases the time that they are owed after a gap.

use docket_schema::ids::Timestamp;

use crate::{
    decide::CLOCKS_APART_MS,
    store::{
        LEASE_MS_MAX, Taken, Term,
        db::{Arg, Conn, TransactionError},
    },
};

/// Takes a term, or continues one's own. The time that leases are owed after a gap is given in the same transaction:
/// a term that was begun and not kept must not pass for one that was held.
pub(crate) async fn take_term(conn: &mut Conn<'_>, term: &Term) -> Result<Taken, TransactionError> {
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
