//! Rate limits of model providers: one row each, advanced by every permit.
//!
//! Not a projection: a row says when the next call may be made and is meaningless once that time has passed.
//! Rows exist only for limits that were set and used.

use docket_schema::ids::{RunId, Timestamp};

use crate::{
    decide::CLOCK_SKEW_MAX_MS,
    store::{
        PermitOutcome,
        api::corrupt_error,
        db::{DbConn, SqlArg, SqlDialect, TransactionError},
        writer::TakePermit,
    },
};

/// Takes a provider's next free slot for a call, if it is early enough and the concurrency limit allows it.
pub(crate) async fn take_permit(
    conn: &mut DbConn<'_>,
    command: &TakePermit,
) -> Result<PermitOutcome, TransactionError> {
    let TakePermit { provider, caller, cost, now, until } = command;
    let (greatest, lock) = match conn.dialect() {
        SqlDialect::Sqlite => ("max", ""),
        SqlDialect::Postgres => ("greatest", " FOR UPDATE"),
    };
    let name = || SqlArg::Text(provider.clone());
    // The previous call's tokens beyond its estimate are added to the tokens taken. The row is locked from
    // here on: calls admitted by another coordinator are counted below.
    let look = format!(
        "SELECT {greatest}(requests_at, tokens_at + $2, $3), taken_at FROM provider_limits WHERE provider = $1{lock}"
    );
    let args = || vec![name(), SqlArg::Int(cost.correction_us), SqlArg::Int(now.0)];
    let mut found = conn.query_rows(&look, args()).await?;
    if found.is_empty() {
        let make = "INSERT INTO provider_limits (provider, requests_at, tokens_at, taken_at) VALUES ($1, 0, 0, 0) \
                    ON CONFLICT (provider) DO NOTHING";
        conn.execute(make, vec![name()]).await?;
        found = conn.query_rows(&look, args()).await?;
    }
    let latest = now.plus_ms(CLOCK_SKEW_MAX_MS);
    if found.first().map_or(Ok(false), |row| row.get_i64(1).map(|taken_at| taken_at > latest.0))? {
        // Written by a clock that was ahead: the remaining wait at that time is the remaining wait now.
        let set_back = "UPDATE provider_limits SET requests_at = requests_at - (taken_at - $2), \
                        tokens_at = tokens_at - (taken_at - $2), taken_at = $2 WHERE provider = $1";
        conn.execute(set_back, vec![name(), SqlArg::Int(now.0)]).await?;
        found = conn.query_rows(&look, args()).await?;
    }
    let Some(row) = found.first() else {
        let what = format!("the row of provider `{provider}` cannot be made");
        return Err(corrupt_error(what).into());
    };
    let free = Timestamp(row.get_i64(0)?);
    if free > *until {
        return Ok(PermitOutcome::NotBefore(free));
    }
    let (run, epoch) = *caller;
    let run = || SqlArg::from_uuid(run.0);
    if let Some(max) = cost.concurrent {
        let sql = "SELECT count(*) FROM provider_calls c JOIN tasks t ON t.id = c.task \
                   WHERE c.provider = $1 AND c.run <> $2 AND t.state = 'running' AND t.epoch = c.epoch";
        let under_way = conn.query_rows(sql, vec![name(), run()]).await?;
        if under_way.first().map_or(Ok(0), |row| row.get_u64(0))? >= u64::from(max) {
            return Ok(PermitOutcome::AtConcurrencyLimit);
        }
        let sql = "INSERT INTO provider_calls (run, task, epoch, provider) SELECT id, task, $2, $3 FROM runs WHERE id = $1 \
                   ON CONFLICT (run) DO UPDATE SET epoch = excluded.epoch, provider = excluded.provider";
        conn.execute(sql, vec![run(), SqlArg::Int(epoch.0 as i64), name()]).await?;
    }
    let take =
        "UPDATE provider_limits SET requests_at = $2, tokens_at = $3, taken_at = $4 WHERE provider = $1";
    let [requests_at, tokens_at] =
        [cost.requests_us, cost.tokens_us].map(|us| SqlArg::Int(free.0.saturating_add(us)));
    conn.execute(take, vec![name(), requests_at, tokens_at, SqlArg::Int(now.0)]).await?;
    Ok(PermitOutcome::GrantedAt(free))
}

/// Removes the call of a run that has ended, and calls of dead runs.
pub(crate) async fn end_call(conn: &mut DbConn<'_>, run: RunId) -> Result<(), TransactionError> {
    let sql = "DELETE FROM provider_calls WHERE run = $1 OR NOT EXISTS (SELECT 1 FROM tasks t \
               WHERE t.id = provider_calls.task AND t.state = 'running' AND t.epoch = provider_calls.epoch)";
    conn.execute(sql, vec![SqlArg::from_uuid(run.0)]).await?;
    Ok(())
}
