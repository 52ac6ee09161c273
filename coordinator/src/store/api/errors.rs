//! Errors of the store, and the future type of its methods.

use std::{future::Future, pin::Pin};

use docket_schema::{
    event::Head,
    ids::{BlobHash, Epoch, Seq, TaskId},
};

use crate::decide::CommandRejection;

/// A boxed future returned by the store, so that the rest of the coordinator can use `dyn Store`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A failure of the store. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached or gave up: the same call may succeed later.
    #[error("the {backend} store is unavailable while {doing}{}", format_database_answer(source))]
    Unavailable {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        doing: &'static str,
        /// Cause.
        #[source]
        source: sqlx::Error,
    },
    /// The database accepts no writes: the same call may succeed later or on another server.
    #[error("the {backend} database is read-only ({doing}): {}", read_only_remedy(backend))]
    ReadOnly {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        doing: &'static str,
        /// Cause.
        #[source]
        source: sqlx::Error,
    },
    /// The disk is full.
    #[error("the {backend} store has no space left ({doing}); free some, nothing was written")]
    Full {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        doing: &'static str,
        /// Cause.
        #[source]
        source: sqlx::Error,
    },
    /// The database file is damaged or is not a database.
    #[error(
        "the {backend} database is damaged or not a database ({doing}); restore a backup, with `docket db \
         restore FILE` for the embedded one"
    )]
    Damaged {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        doing: &'static str,
        /// Cause.
        #[source]
        source: sqlx::Error,
    },
    /// The stored data is not something docket writes.
    #[error("the store contains data that docket cannot have written ({what}); run `docket verify`")]
    Corrupt {
        /// The problem and its place.
        what: String,
    },
    /// The schema was made by another build of docket: a newer one, or one whose migration steps differ.
    #[error("the database's schema does not match this build: {what}")]
    SchemaMismatch {
        /// The problem and its remedy.
        what: String,
    },
    /// The address or the server cannot be used, or a migration failed.
    #[error("the database's schema does not match this build: {what}")]
    Schema {
        /// The problem and its remedy.
        what: String,
    },
    /// A bug in docket's own SQL.
    #[error("internal error in the {backend} store while {doing}")]
    Internal {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        doing: &'static str,
        /// Cause.
        #[source]
        source: sqlx::Error,
    },
}

/// Formats the database's own message, if it replied: waiting does not help against a missing privilege or
/// database. Contains no secret: the database names roles, databases and tables, but no password.
fn format_database_answer(source: &sqlx::Error) -> String {
    match source {
        sqlx::Error::Database(answer) => format!(" ({})", answer.message()),
        // A copy for another request of the batch; see `copy_error` in `db/db_error.rs`.
        sqlx::Error::Protocol(copy) => match copy.strip_prefix(DATABASE_ANSWER_PREFIX) {
            Some(answer) => format!(" ({answer})"),
            None => String::new(),
        },
        _ => String::new(),
    }
}

fn read_only_remedy(backend: &str) -> &'static str {
    if backend == "postgres" {
        "the server is a standby or a demoted primary; point its address to the primary"
    } else {
        "make the file and its folder writable for docket"
    }
}

/// Prefix of a copied database error, as sqlx formats the original.
pub(crate) const DATABASE_ANSWER_PREFIX: &str = "error returned from database: ";

/// Creates the error for stored data that docket cannot have written.
pub(crate) const fn corrupt_error(what: String) -> StoreError {
    StoreError::Corrupt { what }
}

impl StoreError {
    /// Whether the database replied with the error, so it can be reached.
    pub const fn is_from_database(&self) -> bool {
        match self {
            Self::Unavailable { source, .. }
            | Self::ReadOnly { source, .. }
            | Self::Full { source, .. }
            | Self::Damaged { source, .. }
            | Self::Internal { source, .. } => matches!(source, sqlx::Error::Database(_)),
            Self::Corrupt { .. } | Self::SchemaMismatch { .. } | Self::Schema { .. } => false,
        }
    }
}

/// An append that was refused. Nothing of it was written.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The stream's head is not the expected one.
    #[error("the stream's head is {}, not {expected}", head.seq)]
    WrongSeq {
        /// Expected head.
        expected: Seq,
        /// Actual head.
        head: Head,
    },
    /// The fence is open for another epoch: a higher one was leased.
    #[error("epoch {asked} is past: epoch {current} is in force")]
    Fenced {
        /// Epoch of the append.
        asked: Epoch,
        /// Current epoch.
        current: Epoch,
    },
    /// The lease ended (expired, released, cancelled), and no other has begun.
    #[error("the lease under epoch {asked} has ended and no other has begun")]
    LeaseEnded {
        /// Epoch of the append.
        asked: Epoch,
    },
    /// The stream is closed: its run has ended.
    #[error("the stream is closed")]
    Closed,
    /// The stream does not exist.
    #[error("the stream does not exist")]
    StreamNotFound,
    /// A required blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// A new task depends on an unknown one.
    #[error("dependency {0} does not exist: submit it first, or before this task in the same request")]
    DependencyNotFound(TaskId),
    /// A new task has the id of another task.
    #[error(transparent)]
    TaskIdConflict(Box<TaskIdConflict>),
    /// The command that belongs to the append was rejected.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A task that was not stored because its id belongs to a task with other content.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "task id {id} already exists with other content: `{existing}` (this request: `{requested}`); they differ in \
     `{field}`; choose another id for the new task"
)]
pub struct TaskIdConflict {
    pub id: TaskId,
    /// Title of the existing task, shortened.
    pub existing: String,
    /// Title of the rejected task, shortened.
    pub requested: String,
    /// First field that differs.
    pub field: String,
}

/// A command on a task that was refused.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// The task does not exist.
    #[error("task {0} does not exist")]
    TaskNotFound(TaskId),
    /// The task's state does not allow the command.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The append to the run's stream was refused.
    #[error("the run's part of the command was refused")]
    Append(#[source] Box<AppendError>),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}
