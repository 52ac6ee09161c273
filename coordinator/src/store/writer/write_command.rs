//! What a caller asks the writer, and what it answers.
//!
//! An ask is kept whole until its transaction is committed: a batch that fails is tried again one by one.

use std::sync::Arc;

use bytes::Bytes;
use docket_schema::{
    content::BlobRef,
    event::NewEvent,
    ids::{BatchId, BlobHash, Epoch, IncarnationId, Position, RunId, StreamId, TaskId, Timestamp},
    system::{CallCost, PermitCost, StreamsArchived},
    task::TaskRecord,
    wire::LeaseRequest,
};
use tokio::sync::oneshot;

use super::{
    AppendError, Appended, ArchiveError, CommandError, Condition, Decide, Difference, Heartbeat, Import,
    ImportError, Imported, InboxAct, InboxMove, InboxMoved, Leased, NewBlob, NewTask, Permitted, Rebuilding,
    Renewed, Reserved, Restore, RestoreError, StoreError, Taken, Term,
};

/// Level of zstd: what is stored is mostly text of some KiB, written on the way of an append.
const ZSTD_LEVEL: i32 = 1;

/// Blobs up to this size, in bytes, are compressed where they are: moving them to another thread costs more.
const PACK_HERE_BYTES_MAX: usize = 64 * 1024;

/// A blob as it is stored.
#[derive(Debug, Clone)]
pub(super) struct PackedBlob {
    pub(super) hash: BlobHash,
    pub(super) bytes: u64,
    pub(super) data: Bytes,
}

/// Compresses blobs before they reach the writer, whose time is everybody's.
pub(super) async fn pack(blobs: Vec<NewBlob>) -> Result<Vec<PackedBlob>, StoreError> {
    let total: usize = blobs.iter().map(|blob| blob.bytes.len()).sum();
    if total <= PACK_HERE_BYTES_MAX {
        return blobs.into_iter().map(pack_one).collect();
    }
    tokio::task::spawn_blocking(move || blobs.into_iter().map(pack_one).collect())
        .await
        .expect("compressing does not panic")
}

fn pack_one(blob: NewBlob) -> Result<PackedBlob, StoreError> {
    let data = zstd::bulk::compress(&blob.bytes, ZSTD_LEVEL).map_err(|e| StoreError::Corrupt {
        what: format!("blob {} cannot be compressed: {e}", blob.blob.hash),
    })?;
    Ok(PackedBlob { hash: blob.blob.hash, bytes: blob.blob.bytes, data: data.into() })
}

/// An append whose blobs are packed.
#[derive(Debug)]
pub(super) struct AskAppend {
    pub(super) stream: StreamId,
    pub(super) condition: Condition,
    pub(super) events: Vec<NewEvent>,
    pub(super) blobs: Vec<PackedBlob>,
    pub(super) names: Vec<BlobHash>,
    pub(super) now: Timestamp,
}

/// A command.
pub(super) struct AskCommand {
    pub(super) task: TaskId,
    pub(super) decide: Decide,
    pub(super) blobs: Vec<PackedBlob>,
    pub(super) names: Vec<BlobHash>,
    pub(super) now: Timestamp,
}

/// An import.
#[derive(Debug)]
pub(super) struct AskImport {
    pub(super) import: Import,
    pub(super) now: Timestamp,
}

/// A permit.
#[derive(Debug)]
pub(super) struct AskPermit {
    pub(super) provider: String,
    pub(super) caller: (RunId, Epoch),
    pub(super) cost: PermitCost,
    pub(super) now: Timestamp,
    pub(super) until: Timestamp,
}

/// What is asked.
pub(super) enum Ask {
    Append(AskAppend),
    Command(AskCommand),
    Submit { tasks: Vec<NewTask>, by: String, now: Timestamp },
    Lease { request: LeaseRequest, runs: Vec<RunId>, lease_ms: u64, now: Timestamp },
    Heartbeat { beat: Heartbeat, lease_ms: u64, now: Timestamp },
    PutBlobs { blobs: Vec<PackedBlob>, now: Timestamp },
    TouchBlobs { hashes: Vec<BlobHash>, now: Timestamp },
    Import(Box<AskImport>),
    Remove(Box<(StreamsArchived, Timestamp)>),
    Restore(Box<(Restore, Timestamp)>),
    DropBlobs { hashes: Vec<BlobHash>, untouched_since: Timestamp },
    DrainWorker { incarnation: IncarnationId },
    TakeInbox { moves: Vec<InboxMove>, now: Timestamp },
    ActInbox { row: String, act: InboxAct },
    Permit(Box<AskPermit>),
    CallEnded { run: RunId },
    Reserve { caller: (RunId, Epoch), call: CallCost },
    CountBatch { batch: BatchId },
    Secret { fresh: [u8; 32] },
    Term(Term),
    Rebuild(Arc<Rebuilding>),
}

impl Ask {
    /// Has a transaction of its own.
    pub(super) const fn is_lone(&self) -> bool {
        match self {
            Self::Secret { .. }
            | Self::Term(_)
            | Self::Rebuild(_)
            | Self::DrainWorker { .. }
            | Self::ActInbox { .. }
            | Self::Permit(_)
            | Self::CallEnded { .. }
            | Self::Reserve { .. }
            | Self::CountBatch { .. }
            | Self::DropBlobs { .. } => true,
            Self::Append(_)
            | Self::Command(_)
            | Self::Submit { .. }
            | Self::Lease { .. }
            | Self::Heartbeat { .. }
            | Self::PutBlobs { .. }
            | Self::TouchBlobs { .. }
            | Self::Import(_)
            | Self::TakeInbox { .. }
            | Self::Remove(_)
            | Self::Restore(_) => false,
        }
    }

    /// The stream of an append.
    pub(super) const fn appends_to(&self) -> Option<&StreamId> {
        if let Self::Append(ask) = self { Some(&ask.stream) } else { None }
    }

    /// The caller's time; 0 where it has none.
    pub(super) const fn now(&self) -> Timestamp {
        match self {
            Self::Append(ask) => ask.now,
            Self::Command(ask) => ask.now,
            Self::Import(ask) => ask.now,
            Self::Remove(ask) => ask.1,
            Self::Restore(ask) => ask.1,
            Self::Permit(ask) => ask.now,
            Self::Submit { now, .. }
            | Self::Lease { now, .. }
            | Self::Heartbeat { now, .. }
            | Self::PutBlobs { now, .. }
            | Self::TouchBlobs { now, .. }
            | Self::TakeInbox { now, .. } => *now,
            Self::Secret { .. }
            | Self::Term(_)
            | Self::Rebuild(_)
            | Self::DropBlobs { .. }
            | Self::ActInbox { .. }
            | Self::CallEnded { .. }
            | Self::Reserve { .. }
            | Self::CountBatch { .. }
            | Self::DrainWorker { .. } => Timestamp(0),
        }
    }

    /// For errors.
    pub(super) const fn doing(&self) -> &'static str {
        match self {
            Self::Append(_) => "appending",
            Self::Command(_) => "writing a command",
            Self::Submit { .. } => "submitting tasks",
            Self::Lease { .. } => "leasing tasks",
            Self::Heartbeat { .. } => "renewing leases",
            Self::PutBlobs { .. } => "storing blobs",
            Self::TouchBlobs { .. } => "touching blobs",
            Self::Import(_) => "importing a run",
            Self::Remove(_) => "removing archived streams",
            Self::Restore(_) => "bringing streams back from the archive",
            Self::DropBlobs { .. } => "dropping blobs",
            Self::DrainWorker { .. } => "draining a worker",
            Self::TakeInbox { .. } => "taking tasks from the inbox",
            Self::ActInbox { .. } => "changing the inbox",
            Self::Permit(_) | Self::CallEnded { .. } => "pacing a model provider",
            Self::Reserve { .. } | Self::CountBatch { .. } => "counting what a batch uses",
            Self::Secret { .. } => "reading the secret",
            Self::Term(_) => "taking a term",
            Self::Rebuild(_) => "rebuilding projections",
        }
    }

    /// The answer where the store cannot do it.
    pub(super) fn failed(&self, error: StoreError) -> Answered {
        match self {
            Self::Append(_) => Answered::Append(Err(error.into())),
            Self::Command(_) => Answered::Command(Box::new(Err(error.into()))),
            Self::Submit { .. } => Answered::Submit(Err(error.into())),
            Self::Lease { .. } => Answered::Lease(Err(error)),
            Self::Heartbeat { .. } => Answered::Heartbeat(Err(error)),
            Self::PutBlobs { .. } => Answered::PutBlobs(Err(error)),
            Self::TouchBlobs { .. } => Answered::TouchBlobs(Err(error)),
            Self::Import(_) => Answered::Import(Err(error.into())),
            Self::Remove(_) => Answered::Remove(Err(error.into())),
            Self::Restore(_) => Answered::Restore(Err(error.into())),
            Self::DropBlobs { .. } => Answered::DropBlobs(Err(error)),
            Self::DrainWorker { .. } => Answered::DrainWorker(Err(error)),
            Self::TakeInbox { .. } => Answered::TakeInbox(Err(error)),
            Self::ActInbox { .. } => Answered::ActInbox(Err(error)),
            Self::Permit(_) => Answered::Permit(Err(error)),
            Self::CallEnded { .. } => Answered::CallEnded(Err(error)),
            Self::Reserve { .. } => Answered::Reserve(Err(error)),
            Self::CountBatch { .. } => Answered::CountBatch(Err(error)),
            Self::Secret { .. } => Answered::Secret(Err(error)),
            Self::Term(_) => Answered::Term(Err(error)),
            Self::Rebuild(_) => Answered::Rebuild(Err(error)),
        }
    }
}

/// What is answered, in the kind of the ask.
pub(super) enum Answered {
    Append(Result<Appended, AppendError>),
    Command(Box<Result<(TaskRecord, Option<Appended>), CommandError>>),
    Submit(Result<Vec<(TaskId, bool)>, AppendError>),
    Lease(Result<Leased, StoreError>),
    Heartbeat(Result<Renewed, StoreError>),
    PutBlobs(Result<(), StoreError>),
    TouchBlobs(Result<Vec<BlobHash>, StoreError>),
    Import(Result<Imported, ImportError>),
    Remove(Result<(), ArchiveError>),
    Restore(Result<(), RestoreError>),
    DropBlobs(Result<Vec<BlobRef>, StoreError>),
    DrainWorker(Result<bool, StoreError>),
    TakeInbox(Result<Vec<InboxMoved>, StoreError>),
    ActInbox(Result<bool, StoreError>),
    Permit(Result<Permitted, StoreError>),
    CallEnded(Result<(), StoreError>),
    Reserve(Result<Reserved, StoreError>),
    CountBatch(Result<bool, StoreError>),
    Secret(Result<[u8; 32], StoreError>),
    Term(Result<Taken, StoreError>),
    Rebuild(Result<Vec<Difference>, StoreError>),
}

impl Answered {
    /// Why the store could not do it; a refusal is no fault.
    pub(super) fn fault(&self) -> Option<&StoreError> {
        match self {
            Self::Append(answer) => append_fault(answer.as_ref().err()?),
            Self::Submit(answer) => append_fault(answer.as_ref().err()?),
            Self::Command(answer) => match answer.as_ref() {
                Err(CommandError::Store(error)) => Some(error),
                Err(CommandError::Append(error)) => append_fault(error),
                Err(CommandError::Rejected(_) | CommandError::NoTask(_)) | Ok(_) => None,
            },
            Self::Import(answer) => {
                if let Err(ImportError::Store(error)) = answer {
                    Some(error)
                } else {
                    None
                }
            }
            Self::Remove(answer) => {
                if let Err(ArchiveError::Store(error)) = answer {
                    Some(error)
                } else {
                    None
                }
            }
            Self::Restore(answer) => {
                if let Err(RestoreError::Store(error)) = answer {
                    Some(error)
                } else {
                    None
                }
            }
            Self::Lease(answer) => answer.as_ref().err(),
            Self::Heartbeat(answer) => answer.as_ref().err(),
            Self::PutBlobs(answer) => answer.as_ref().err(),
            Self::TouchBlobs(answer) => answer.as_ref().err(),
            Self::DropBlobs(answer) => answer.as_ref().err(),
            Self::DrainWorker(answer) => answer.as_ref().err(),
            Self::TakeInbox(answer) => answer.as_ref().err(),
            Self::ActInbox(answer) => answer.as_ref().err(),
            Self::Permit(answer) => answer.as_ref().err(),
            Self::CallEnded(answer) => answer.as_ref().err(),
            Self::Reserve(answer) => answer.as_ref().err(),
            Self::CountBatch(answer) => answer.as_ref().err(),
            Self::Term(answer) => answer.as_ref().err(),
            Self::Secret(answer) => answer.as_ref().err(),
            Self::Rebuild(answer) => answer.as_ref().err(),
        }
    }

    /// While a batch is planned, positions count from 0; the commit says where the batch begins.
    pub(super) fn place(&mut self, base: u64) {
        let appended = match self {
            Self::Append(Ok(appended)) => Some(appended),
            Self::Command(answer) => match answer.as_mut() {
                Ok((_, appended)) => appended.as_mut(),
                Err(_) => None,
            },
            Self::Append(Err(_))
            | Self::Submit(_)
            | Self::Lease(_)
            | Self::Heartbeat(_)
            | Self::PutBlobs(_)
            | Self::TouchBlobs(_)
            | Self::Import(_)
            | Self::Remove(_)
            | Self::Restore(_)
            | Self::DropBlobs(_)
            | Self::DrainWorker(_)
            | Self::TakeInbox(_)
            | Self::ActInbox(_)
            | Self::Permit(_)
            | Self::CallEnded(_)
            | Self::Reserve(_)
            | Self::CountBatch(_)
            | Self::Secret(_)
            | Self::Term(_)
            | Self::Rebuild(_) => None,
        };
        if let Some(appended) = appended.filter(|appended| !appended.repeated) {
            appended.position = Position(appended.position.0 + base);
        }
    }
}

const fn append_fault(error: &AppendError) -> Option<&StoreError> {
    if let AppendError::Store(error) = error { Some(error) } else { None }
}

/// The latest time that any of the asks names.
pub(super) fn now_of(asks: &[&Ask]) -> Timestamp {
    asks.iter().map(|ask| ask.now()).max().unwrap_or_default()
}

/// An ask on its way to the writer.
pub(super) struct Job {
    pub(super) ask: Ask,
    pub(super) reply: oneshot::Sender<Answered>,
}
