//! Sessions of the server that hold locks docket's sessions wait for, for the log when a writer is stuck.

use crate::store::{
    StoreError,
    db::{DbPool, SqlDialect},
};

/// Most sessions named.
const HOLDERS_MAX: usize = 5;

/// Names and states of other users' sessions are empty unless docket's role may read them.
const HOLDERS_SQL: &str = "SELECT DISTINCT holder.pid, holder.usename, holder.application_name, holder.state \
     FROM pg_stat_activity waiting \
     CROSS JOIN LATERAL unnest(pg_blocking_pids(waiting.pid)) AS blocking(pid) \
     JOIN pg_stat_activity holder ON holder.pid = blocking.pid \
     WHERE waiting.datname = current_database() AND waiting.application_name = 'docket' \
     AND waiting.wait_event_type = 'Lock' ORDER BY holder.pid";

/// Describes each session, and how to end it, on one line. Empty on SQLite, which cannot tell.
pub(crate) async fn find_lock_holders(db: &DbPool) -> Result<Vec<String>, StoreError> {
    if db.dialect() == SqlDialect::Sqlite {
        return Ok(Vec::new());
    }
    let rows = db.query("looking for holders of locks", HOLDERS_SQL, Vec::new()).await?;
    let mut holders = Vec::new();
    for mut row in rows.into_iter().take(HOLDERS_MAX) {
        let pid = row.get_i64(0)?;
        let [user, program, state] = [1, 2, 3].map(|at| row.get_text_or_null(at));
        let [user, program, state] = [user?, program?, state?].map(Option::unwrap_or_default);
        holders.push(format!(
            "session {pid} (user `{user}`, program `{program}`, {state}) holds a lock that is waited for; \
             SELECT pg_terminate_backend({pid}) ends it"
        ));
    }
    Ok(holders)
}
