//! The inbox: what applications enqueued within transactions of their own, and how it is taken out again.
//!
//! A row's removal and its task's first event are one transaction. Whoever takes rows locks them and steps over those
//! that another coordinator has; on SQLite the statement that removes a row notices that it is gone.

use docket_schema::{
    ids::{TaskId, Timestamp},
    wire::InboxRow,
};

use super::{
    NewTask, StoreError,
    conn::{Arg, Conn, Db, Row},
    desk::{LoadError, Staged},
    read::rows,
    write::{
        Kind::{Int, Text},
        Write,
    },
};

/// A row on its way out of the inbox.
#[derive(Debug, Clone)]
pub struct InboxMove {
    /// Its id, as it stands there.
    pub row: String,
    /// Who submits its task.
    pub by: String,
    /// What it was found to be.
    pub found: InboxFound,
}

/// What a row of the inbox was found to be.
#[derive(Debug, Clone)]
pub enum InboxFound {
    /// A task, checked.
    Task(Box<NewTask>),
    /// None, and why.
    NoTask(String),
}

/// What became of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboxMoved {
    /// It is a task now, or was one already.
    Submitted(TaskId),
    /// It is gone: this task holds its deduplication key.
    Duplicate(TaskId),
    /// It stays, with the reason.
    Refused(String),
    /// Another coordinator has it, or somebody dropped it.
    Elsewhere,
}

/// What somebody does to a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InboxAct {
    /// It is taken out, and no task is made of it.
    Drop,
    /// It is looked at once more.
    Retry,
}

const COLUMNS: &str = "id, spec, submitted_by, created_at, refused, refused_at";

fn inbox_row(row: &mut Row) -> Result<InboxRow, StoreError> {
    Ok(InboxRow {
        id: row.text(0)?,
        spec: row.text(1)?,
        submitted_by: row.text(2)?,
        created_at: Timestamp(row.int(3)?),
        refused: row.text_or_null(4)?,
        refused_at: row.int_or_null(5)?.map(Timestamp),
    })
}

/// See [`waiting`].
pub(super) const WAITING: &str = "SELECT id, spec, submitted_by, created_at, refused, refused_at FROM inbox \
     WHERE refused IS NULL ORDER BY created_at, id LIMIT $1";

/// Rows that wait to be taken, oldest first. By `inbox_waiting`: asked each second.
pub(super) async fn waiting(db: &Db, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let args = vec![Arg::Int(limit.into())];
    rows(db, "reading the inbox", WAITING, args).await?.iter_mut().map(inbox_row).collect()
}

/// All rows, oldest first.
pub(super) async fn all(db: &Db, limit: u32) -> Result<Vec<InboxRow>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM inbox ORDER BY created_at, id LIMIT $1");
    let args = vec![Arg::Int(limit.into())];
    rows(db, "reading the inbox", &sql, args).await?.iter_mut().map(inbox_row).collect()
}

/// How many rows wait, and how many were refused.
pub(super) async fn counts(db: &Db) -> Result<(u64, u64), StoreError> {
    let sql = "SELECT count(*), count(refused) FROM inbox";
    let found = rows(db, "counting the inbox", sql, Vec::new()).await?;
    let count = |at| found.first().map_or(Ok(0), |row| row.count(at));
    let (all, refused) = (count(0)?, count(1)?);
    Ok((all.saturating_sub(refused), refused))
}

/// Those of `ids` that wait still; on PostgreSQL locked until the commit, and without those that another has.
pub(super) async fn lock_waiting(conn: &mut Conn<'_>, ids: Vec<String>) -> Result<Vec<String>, LoadError> {
    let dialect = conn.dialect();
    let sql = format!(
        "SELECT id FROM inbox WHERE {} AND refused IS NULL ORDER BY id{}",
        dialect.any_text("id", 1),
        dialect.lock_free_rows()
    );
    let mut locked = Vec::new();
    for mut row in conn.rows(&sql, vec![Arg::Texts(ids)]).await? {
        locked.push(row.text(0)?);
    }
    Ok(locked)
}

/// Carries out what somebody does to a row; `false` = there is no such row.
pub(super) async fn act(conn: &mut Conn<'_>, row: &str, act: InboxAct) -> Result<bool, sqlx::Error> {
    let sql = match act {
        InboxAct::Drop => "DELETE FROM inbox WHERE id = $1",
        InboxAct::Retry => "UPDATE inbox SET refused = NULL, refused_at = NULL WHERE id = $1",
    };
    Ok(conn.run(sql, vec![Arg::Text(row.to_owned())]).await? > 0)
}

/// Rows that are tasks now, and rows that are none.
pub(super) fn inbox(staged: &Staged) -> [Write; 2] {
    let mut taken = Write::update(
        "WITH u(id) AS ({rows}) DELETE FROM inbox i USING u WHERE i.id = u.id",
        "DELETE FROM inbox WHERE id = ?1 AND refused IS NULL",
        &[Text],
    )
    .that_must_change();
    let mut refused = Write::update(
        "WITH u(id, refused, at) AS ({rows}) UPDATE inbox i SET refused = u.refused, refused_at = u.at FROM u \
         WHERE i.id = u.id",
        "UPDATE inbox SET refused = ?2, refused_at = ?3 WHERE id = ?1",
        &[Text, Text, Int],
    );
    for (row, reason) in &staged.inbox {
        match reason {
            None => taken.cells.push(Arg::Text(row.clone())),
            Some(reason) => refused.cells.extend([
                Arg::Text(row.clone()),
                Arg::Text(reason.clone()),
                Arg::Int(staged.now.0),
            ]),
        }
    }
    [taken, refused]
}
