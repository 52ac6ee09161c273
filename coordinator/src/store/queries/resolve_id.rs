//! Resolution of abbreviated ids.

use docket_schema::{
    api::ResolveResponse,
    ids::{RunId, StreamId, TaskId},
};
use uuid::Uuid;

use crate::store::{
    StoreError,
    api::corrupt_error,
    db::{DbPool, SqlArg, SqlDialect},
};

/// Most ids of each kind that an abbreviation may match.
const MATCHES_MAX: i64 = 20;

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 32;

const DOING: &str = "resolving an id";

/// Finds tasks and runs whose ids begin with these digits, otherwise those whose ids end with them, otherwise
/// archived streams in the same way.
pub(crate) async fn resolve_id(db: &DbPool, digits: String) -> Result<ResolveResponse, StoreError> {
    let digits: String = digits.chars().filter(|c| *c != '-').map(|c| c.to_ascii_lowercase()).collect();
    let none = ResolveResponse { tasks: Vec::new(), runs: Vec::new(), archived: Vec::new() };
    let legal =
        !digits.is_empty() && digits.len() <= ID_DIGITS && digits.bytes().all(|b| b.is_ascii_hexdigit());
    if !legal {
        return Ok(none);
    }
    let bound = |filler: &str| {
        let full = format!("{digits}{}", filler.repeat(ID_DIGITS - digits.len()));
        Uuid::try_parse(&full).map(SqlArg::from_uuid).map_err(|_| corrupt_error(format!("digits {full}")))
    };
    let hex = match db.dialect() {
        SqlDialect::Sqlite => "lower(hex(id))",
        SqlDialect::Postgres => "encode(id, 'hex')",
    };
    let begins = "id >= $1 AND id <= $2 ORDER BY id LIMIT $3".to_owned();
    let ends = format!("{hex} LIKE $1 ORDER BY id LIMIT $2");
    let ways = [
        (begins, vec![bound("0")?, bound("f")?, SqlArg::Int(MATCHES_MAX)]),
        (ends, vec![SqlArg::Text(format!("%{digits}")), SqlArg::Int(MATCHES_MAX)]),
    ];
    for (condition, args) in &ways {
        let tasks = find_ids(db, "tasks", condition, args.clone()).await?;
        let runs = find_ids(db, "runs", condition, args.clone()).await?;
        if !tasks.is_empty() || !runs.is_empty() {
            let tasks = tasks.into_iter().map(TaskId).collect();
            return Ok(ResolveResponse { tasks, runs: runs.into_iter().map(RunId).collect(), ..none });
        }
    }
    for (condition, args) in ways {
        let archived = find_archived(db, &condition, args).await?;
        if !archived.is_empty() {
            return Ok(ResolveResponse { archived, ..none });
        }
    }
    Ok(none)
}

async fn find_archived(db: &DbPool, condition: &str, args: Vec<SqlArg>) -> Result<Vec<StreamId>, StoreError> {
    let corrupt = |name: &str| corrupt_error(format!("an archived stream named `{name}`"));
    let sql = format!("SELECT name FROM archived_streams WHERE {condition}");
    db.query(DOING, &sql, args)
        .await?
        .iter_mut()
        .map(|row| row.get_text(0).and_then(|name| name.parse().map_err(|_| corrupt(&name))))
        .collect()
}

async fn find_ids(
    db: &DbPool,
    table: &str,
    condition: &str,
    args: Vec<SqlArg>,
) -> Result<Vec<Uuid>, StoreError> {
    let sql = format!("SELECT id FROM {table} WHERE {condition}");
    db.query(DOING, &sql, args).await?.iter_mut().map(|row| row.get_uuid(0)).collect()
}
