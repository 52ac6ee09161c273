//! Reading the tree of runs that share history. One statement: up to the root, then down.

use docket_schema::{event::TypedEvent as _, ids::RunId, run::RunEvent, wire::RunView};

use super::{
    StoreError,
    conn::{Arg, Db},
    fault::store_error,
    read::{RUN_VIEW_COLUMNS, run_view},
};

/// Every run of the tree that `run` belongs to, oldest id first, with the event it begins with; at
/// most `limit`. None where there is no such run.
pub(super) async fn lineage(
    db: &Db,
    run: RunId,
    limit: u32,
) -> Result<Vec<(RunView, Option<RunEvent>)>, StoreError> {
    let sql = format!(
        "WITH RECURSIVE up(id, parent) AS (SELECT id, parent FROM runs WHERE id = $1 \
         UNION SELECT p.id, p.parent FROM runs p JOIN up ON p.id = up.parent), \
         tree(id) AS (SELECT id FROM up WHERE parent IS NULL OR NOT EXISTS \
         (SELECT 1 FROM runs p WHERE p.id = up.parent) \
         UNION SELECT c.id FROM runs c JOIN tree ON c.parent = tree.id) \
         SELECT {RUN_VIEW_COLUMNS}, f.kind, f.version, f.payload FROM tree JOIN runs r ON r.id = tree.id \
         JOIN streams s ON s.id = r.stream_id LEFT JOIN events f ON f.stream_id = r.stream_id AND f.seq = 1 \
         ORDER BY r.id LIMIT $2"
    );
    let args = vec![Arg::Blob(run.0.as_bytes().to_vec()), Arg::Int(limit.into())];
    let rows = db.rows(&sql, args).await;
    let mut rows = rows.map_err(|source| store_error(db.dialect(), "reading a lineage", source))?;
    let mut runs = Vec::with_capacity(rows.len());
    for row in &mut rows {
        let view = run_view(row)?;
        let kind = row.text_or_null(13)?;
        let first = match kind {
            None => None,
            Some(kind) => {
                let version = u16::try_from(row.int(14)?).unwrap_or(u16::MAX);
                let event = RunEvent::decode(&kind, version, &row.text(15)?);
                let what = |error| StoreError::Corrupt { what: format!("run {}, event 1: {error}", view.id) };
                Some(event.map_err(what)?)
            }
        };
        runs.push((view, first));
    }
    Ok(runs)
}
