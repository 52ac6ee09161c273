//! The future that the store answers with, and its errors.

use std::{future::Future, pin::Pin};

use docket_schema::{
    event::Head,
    ids::{BlobHash, Epoch, Seq, TaskId},
};

use crate::decide::CommandRejection;

/// A future that a store gives back: boxed, so that the rest of the coordinator holds one `dyn Store`.
pub type StoreFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The store cannot do it now. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It cannot be reached, or gave up: the same call may succeed later.
    #[error("the {backend} store is unavailable while {doing}{}", format_database_answer(source))]
    Unavailable {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// It answers, and takes no writes: the same call may succeed later, or elsewhere.
    #[error("the {backend} database is read-only ({doing}): {}", read_only_remedy(backend))]
    ReadOnly {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// No space is left.
    #[error("no space is left in the {backend} store while {doing}; free some, nothing was written")]
    Full {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// The database's own file is damaged, or is none.
    #[error(
        "the {backend} database is damaged, or is no database ({doing}); put a backup in its place, with `docket db restore FILE` where \
         it is the embedded one"
    )]
    Damaged {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
    /// What is stored is not what docket writes.
    #[error("the store holds something docket cannot have written ({what}); run `docket verify`")]
    Corrupt {
        /// What and where.
        what: String,
    },
    /// Another build of docket made the schema: a newer one, or one whose steps differ.
    #[error("the database's schema does not fit this build: {what}")]
    SchemaMismatch {
        /// What, and what helps.
        what: String,
    },
    /// The address or the server cannot be used, or a migration failed.
    #[error("the database's schema does not fit this build: {what}")]
    Schema {
        /// What, and what helps.
        what: String,
    },
    /// A fault of docket in its own SQL.
    #[error("a fault of docket in the {backend} store while {doing}")]
    Internal {
        /// `sqlite` or `postgres`.
        backend: &'static str,
        /// What was being done.
        doing: &'static str,
        /// Why.
        #[source]
        source: sqlx::Error,
    },
}

/// What the database itself said, where it answered: that a right or a database is missing is nothing that waiting
/// helps against. Holds no secret: the database names roles, databases and tables, and no password.
fn format_database_answer(source: &sqlx::Error) -> String {
    match source {
        sqlx::Error::Database(answer) => format!(" ({})", answer.message()),
        // The copy for one more request of a batch: see `copy_error` in `db/db_error.rs`.
        sqlx::Error::Protocol(copy) => match copy.strip_prefix(DATABASE_ANSWER_PREFIX) {
            Some(answer) => format!(" ({answer})"),
            None => String::new(),
        },
        _ => String::new(),
    }
}

fn read_only_remedy(backend: &str) -> &'static str {
    if backend == "postgres" {
        "the server is a standby, or a primary that was demoted; make its address lead to the primary"
    } else {
        "make the file and its folder writable for docket"
    }
}

/// How the copy of an error that the database answered with begins, as sqlx writes the error itself.
pub(crate) const DATABASE_ANSWER_PREFIX: &str = "error returned from database: ";

/// The store holds something that docket cannot have written.
pub(crate) const fn corrupt_error(what: String) -> StoreError {
    StoreError::Corrupt { what }
}

impl StoreError {
    /// Whether the database answered, and refused: it can be reached.
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
    /// The head is elsewhere.
    #[error("the stream's head is {}, not {expected}", head.seq)]
    WrongSeq {
        /// Where it was expected.
        expected: Seq,
        /// Where it is.
        head: Head,
    },
    /// The fence is open for another epoch: a higher one was leased.
    #[error("epoch {asked} is past: epoch {current} is in force")]
    Fenced {
        /// The epoch of the append.
        asked: Epoch,
        /// The epoch in force.
        current: Epoch,
    },
    /// The lease ended (expired, released, cancelled), and no other has begun.
    #[error("the lease under epoch {asked} has ended and no other has begun")]
    LeaseEnded {
        /// The epoch of the append.
        asked: Epoch,
    },
    /// The stream is closed: its run has ended.
    #[error("the stream is closed")]
    Closed,
    /// There is no such stream.
    #[error("there is no such stream")]
    StreamNotFound,
    /// A named blob is not stored.
    #[error("blob {0} is not stored; upload it first")]
    BlobMissing(BlobHash),
    /// A new task waits for one that nobody knows.
    #[error("there is no task {0} to wait for: submit it first, or before this one in the same request")]
    DependencyNotFound(TaskId),
    /// A new task has the id of another one.
    #[error(transparent)]
    TaskIdConflict(Box<TaskIdConflict>),
    /// The command that belongs to the append was rejected.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A task that was not stored, because another one with other content has its id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "task id {id} already exists with other content: `{existing}` (this request: `{requested}`); they differ in \
     `{field}`; choose another id for the new task"
)]
pub struct TaskIdConflict {
    /// The id.
    pub id: TaskId,
    /// Title of the task that has it, shortened.
    pub existing: String,
    /// Title of the task that wanted it, shortened.
    pub requested: String,
    /// The first field in which they differ.
    pub field: String,
}

/// A command on a task that was refused.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// There is no such task.
    #[error("there is no task {0}")]
    TaskNotFound(TaskId),
    /// The task's state does not allow it.
    #[error(transparent)]
    Rejected(#[from] CommandRejection),
    /// The run's part was refused.
    #[error("the run's part of the command was refused")]
    Append(#[source] Box<AppendError>),
    /// The store cannot.
    #[error(transparent)]
    Store(#[from] StoreError),
}
