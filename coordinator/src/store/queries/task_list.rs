//! Task lists: which index walks answer a query, and how far one page goes.
//!
//! Tasks are listed by id, newest first. Three indexes have that order: by batch, by state, and all tasks. A
//! query uses one of them (or one walk per state) and applies its other filters to the tasks it meets, at
//! most [`SCANNED_MAX`] per page: a filter that matches few tasks costs more pages, never a longer statement.

use docket_schema::{
    api::{TaskPage, TaskQuery, TaskStates},
    ids::TaskId,
    task::{TaskRecord, TaskState},
};
use uuid::Uuid;

use crate::store::{
    StoreError,
    db::{
        DbPool, SqlArg, SqlDialect,
        row::{TASK_COLUMNS, TASK_TABLES, read_task_row},
    },
};

const DOING: &str = "listing tasks";

/// Tasks per page: default and maximum.
const PAGE_TASKS: (u32, u32) = (100, 1000);
/// Most tasks examined per page when filters are applied.
const SCANNED_MAX: i64 = 10_000;
/// Tasks read at once when their specifications are needed: each may be large.
const SPEC_PAGE_TASKS: usize = 250;

/// A statement and its arguments.
type SqlWithArgs = (String, Vec<SqlArg>);

/// A walk along one index, from `before` downwards.
struct IndexWalk {
    index_key: Option<(&'static str, SqlArg)>,
}

/// Filters applied to each task of a walk.
struct TaskFilters {
    dialect: SqlDialect,
    sql: String,
    args: Vec<SqlArg>,
}

/// Returns the walks of a query. A query for a worker's tasks walks along running tasks, since no other has a
/// worker.
fn index_walks(query: &TaskQuery) -> Vec<IndexWalk> {
    if let Some(batch) = query.batch {
        return vec![IndexWalk { index_key: Some(("t.batch", SqlArg::from_uuid(batch.0))) }];
    }
    match wanted_states(query) {
        None => vec![IndexWalk { index_key: None }],
        Some(states) => states
            .iter()
            .map(|state| IndexWalk { index_key: Some(("t.state", SqlArg::Text(state.as_str().to_owned()))) })
            .collect(),
    }
}

fn wanted_states(query: &TaskQuery) -> Option<Vec<TaskState>> {
    let asked = query.state.as_ref().map(TaskStates::as_slice);
    match (&query.worker, asked) {
        (None, asked) => asked.map(<[_]>::to_vec),
        (Some(_), None) => Some(vec![TaskState::Running]),
        (Some(_), Some(asked)) => {
            Some(asked.iter().copied().filter(|state| *state == TaskState::Running).collect())
        }
    }
}

impl TaskFilters {
    fn from_query(query: &TaskQuery, dialect: SqlDialect) -> Self {
        let mut tried = Self { dialect, sql: String::new(), args: Vec::new() };
        if query.batch.is_some()
            && let Some(states) = wanted_states(query)
        {
            let words = states.iter().map(|state| state.as_str().to_owned()).collect();
            tried.add_filter(SqlArg::Texts(words), |n| dialect.any_text_sql("t.state", n));
        }
        if let Some(queue) = &query.queue {
            tried.add_filter(SqlArg::Text(queue.as_str().to_owned()), |n| format!("t.queue = ${n}"));
        }
        if let Some(engine) = &query.engine {
            tried.add_filter(SqlArg::Text(engine.clone()), |n| format!("t.engine = ${n}"));
        }
        if let Some(worker) = &query.worker {
            tried.add_filter(SqlArg::Text(worker.clone()), |n| {
                format!("t.worker IN (SELECT w.incarnation FROM workers w WHERE w.name = ${n})")
            });
        }
        if let Some(since) = query.since {
            tried.add_filter(SqlArg::Int(since.0), |n| format!("t.submitted_at >= ${n}"));
        }
        if let Some(until) = query.until {
            tried.add_filter(SqlArg::Int(until.0), |n| format!("t.submitted_at < ${n}"));
        }
        tried
    }

    /// Arguments follow those of the walk: bound, count, and at most one of its own.
    fn add_filter(&mut self, arg: SqlArg, test: impl FnOnce(u8) -> String) {
        let n = u8::try_from(self.args.len() + 4).unwrap_or(u8::MAX);
        self.args.push(arg);
        self.sql.push_str(" AND ");
        self.sql.push_str(&test(n));
    }
}

impl IndexWalk {
    /// Selects from `before` down to `floor`, at most `count` matching tasks.
    fn page_statement(&self, before: TaskId, floor: TaskId, count: i64, tried: &TaskFilters) -> SqlWithArgs {
        // The third argument is the index's own; a walk along all tasks uses it for the floor.
        let (along, own) = self.index_condition(floor);
        let and_floor = if self.index_key.is_some() {
            format!(" AND t.id >= ${}", tried.args.len() + 4)
        } else {
            String::new()
        };
        let part = format!("t.id < $1 AND {along}{and_floor}");
        let sql = match (tried.dialect, tried.args.is_empty()) {
            (SqlDialect::Sqlite, _) | (SqlDialect::Postgres, true) => format!(
                "SELECT {TASK_COLUMNS} FROM {TASK_TABLES} WHERE {part}{} ORDER BY t.id DESC LIMIT $2",
                tried.sql
            ),
            // A planner that expects few matches would read the whole table and sort.
            (SqlDialect::Postgres, false) => format!(
                "SELECT {TASK_COLUMNS} FROM (SELECT * FROM tasks t WHERE {part} ORDER BY t.id DESC \
                 LIMIT {SCANNED_MAX}) t JOIN events f ON f.stream_id = t.stream_id AND f.seq = 1 \
                 WHERE TRUE{} ORDER BY t.id DESC LIMIT $2",
                tried.sql
            ),
        };
        let mut args = vec![SqlArg::from_uuid(before.0), SqlArg::Int(count), own];
        args.extend(tried.args.iter().cloned());
        if self.index_key.is_some() {
            args.push(SqlArg::from_uuid(floor.0));
        }
        (sql, args)
    }

    /// Selects the last task that a page of this walk examines.
    fn floor_statement(&self, before: TaskId) -> SqlWithArgs {
        let (along, own) = self.index_condition(TaskId(Uuid::nil()));
        let sql = format!(
            "SELECT t.id FROM tasks t WHERE t.id < $1 AND {along} ORDER BY t.id DESC LIMIT 1 OFFSET $2"
        );
        (sql, vec![SqlArg::from_uuid(before.0), SqlArg::Int(SCANNED_MAX - 1), own])
    }

    fn index_condition(&self, floor: TaskId) -> (String, SqlArg) {
        match &self.index_key {
            None => ("t.id >= $3".to_owned(), SqlArg::from_uuid(floor.0)),
            Some((column, own)) => (format!("{column} = $3"), own.clone()),
        }
    }
}

/// Reads a page of tasks.
pub(crate) async fn list_tasks(db: &DbPool, query: TaskQuery) -> Result<TaskPage, StoreError> {
    let limit = query.limit.unwrap_or(PAGE_TASKS.0).clamp(1, PAGE_TASKS.1) as usize;
    let (walks, tried) = (index_walks(&query), TaskFilters::from_query(&query, db.dialect()));
    let reads_specs = query.title.is_some() || query.model.is_some();
    let mut before = query.before.unwrap_or(TaskId(Uuid::max()));
    let floor =
        if reads_specs || !tried.args.is_empty() { find_page_floor(db, &walks, before).await? } else { None };
    let bottom = floor.unwrap_or(TaskId(Uuid::nil()));
    let step = if reads_specs { SPEC_PAGE_TASKS } else { limit };
    let mut found: Vec<TaskRecord> = Vec::new();
    loop {
        let mut met: Vec<TaskRecord> = Vec::new();
        for walk in &walks {
            let (sql, args) = walk.page_statement(before, bottom, step as i64, &tried);
            for row in &mut db.query(DOING, &sql, args).await? {
                met.push(read_task_row(row)?.0);
            }
        }
        met.sort_unstable_by_key(|task| std::cmp::Reverse(task.id));
        met.truncate(step);
        let is_last = met.len() < step;
        before = met.last().map_or(before, |task| task.id);
        found.extend(met.into_iter().filter(|task| query.matches_spec(&task.spec)));
        if found.len() >= limit {
            found.truncate(limit);
            let next = found.last().map(|task| task.id);
            return Ok(TaskPage { tasks: found, next, waits: Vec::new() });
        }
        if is_last {
            return Ok(TaskPage { tasks: found, next: floor, waits: Vec::new() });
        }
    }
}

/// Finds the id down to which every walk of this page has gone.
async fn find_page_floor(
    db: &DbPool,
    walks: &[IndexWalk],
    before: TaskId,
) -> Result<Option<TaskId>, StoreError> {
    let mut floor = None;
    for walk in walks {
        let (sql, args) = walk.floor_statement(before);
        for row in &mut db.query(DOING, &sql, args).await? {
            floor = floor.max(Some(TaskId(row.get_uuid(0)?)));
        }
    }
    Ok(floor)
}

/// Returns the database's plans for a page's statements.
pub(crate) async fn explain_task_list(db: &DbPool, query: TaskQuery) -> Result<Vec<String>, StoreError> {
    let (explain, column) = match db.dialect() {
        SqlDialect::Sqlite => ("EXPLAIN QUERY PLAN", 3),
        SqlDialect::Postgres => ("EXPLAIN", 0),
    };
    let (walks, tried) = (index_walks(&query), TaskFilters::from_query(&query, db.dialect()));
    let (before, bottom) = (query.before.unwrap_or(TaskId(Uuid::max())), TaskId(Uuid::nil()));
    let mut said = Vec::new();
    for walk in &walks {
        for (sql, args) in [walk.page_statement(before, bottom, 100, &tried), walk.floor_statement(before)] {
            for row in &mut db.query(DOING, &format!("{explain} {sql}"), args).await? {
                said.push(row.get_text(column)?);
            }
        }
    }
    Ok(said)
}
