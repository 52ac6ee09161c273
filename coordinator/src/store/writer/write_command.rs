//! Commands of a writer, each with the sender of its own reply.
//!
//! There are two sets: a [`BatchCommand`] shares a transaction with others, an [`ExclusiveCommand`] has a
//! separate one. [`PendingCommand`] ties a command to the sender of exactly its reply type, so that replies
//! cannot be mixed up. A writer decides a request (`plan/`) and commits, and only then is the reply sent
//! (`write_queue.rs`); the command is kept until then, because a failed batch is decided again, command by
//! command.

use std::sync::Arc;

use docket_schema::{
    api::LeaseRequest,
    content::BlobRef,
    event::NewEvent,
    ids::{BatchId, BlobHash, Epoch, IncarnationId, Position, RunId, StreamId, TaskId, Timestamp},
    system::{MaxCallCost, PermitCost, StreamsArchived},
    task::TaskRecord,
};
use tokio::sync::oneshot;

use crate::store::{
    AppendCondition, AppendError, AppendOutcome, ArchiveError, BudgetReservation, CommandError, DecideFn,
    HeartbeatOutcome, ImportError, ImportOutcome, InboxAction, InboxMove, InboxOutcome, LeaseOutcome,
    NewTask, PermitOutcome, ProjectionDifference, RebuildProgress, RestoreError, RestoreRequest, RunImport,
    StoreError, TermOutcome, TermRequest, WorkerHeartbeat, blobs::PackedBlob,
};

/// A command, with the types of its reply.
pub(crate) trait WriteCommand: Send + Sized + 'static {
    type Done: Send;
    type Error: ReplyError;
    /// Description of the operation, for errors.
    const DOING: &'static str;

    /// Wraps the request in its set.
    fn into_set(request: PendingCommand<Self>) -> WriteRequest;
}

/// Reply to a command.
type CommandReply<C> = Result<<C as WriteCommand>::Done, <C as WriteCommand>::Error>;

/// Error of a reply: a refusal or a store failure.
pub(crate) trait ReplyError: From<StoreError> + Send {
    /// Returns the store failure; `None` for a refusal.
    fn store_error(&self) -> Option<&StoreError>;
}

/// A command sent to a writer.
pub(crate) struct PendingCommand<C: WriteCommand> {
    pub(crate) command: C,
    /// The decision, sent once it is committed.
    pub(crate) reply: Option<CommandReply<C>>,
    sender: Option<oneshot::Sender<CommandReply<C>>>,
}

impl<C: WriteCommand> PendingCommand<C> {
    /// Creates a request and the receiver of its reply. The receiver ends without a reply if the writer has
    /// ended.
    pub(crate) fn channel(command: C) -> (WriteRequest, oneshot::Receiver<CommandReply<C>>) {
        let (sender, receiver) = oneshot::channel();
        (C::into_set(Self { command, reply: None, sender: Some(sender) }), receiver)
    }
}

/// The part of a request that does not depend on its command.
pub(crate) trait PendingReply {
    /// Returns a description of the operation, for errors.
    fn describe_operation(&self) -> &'static str;

    fn is_decided(&self) -> bool;

    /// Withdraws a decision that was not written.
    fn clear_reply(&mut self);

    /// Decides that the store cannot execute the command.
    fn fail_with(&mut self, error: StoreError);

    /// Returns why the store failed; `None` if the command was executed or refused.
    fn store_error(&self) -> Option<&StoreError>;

    /// Sends the reply. The receiver may be gone.
    fn send_reply(&mut self);
}

impl<C: WriteCommand> PendingReply for PendingCommand<C> {
    fn describe_operation(&self) -> &'static str {
        C::DOING
    }

    fn is_decided(&self) -> bool {
        self.reply.is_some()
    }

    fn clear_reply(&mut self) {
        self.reply = None;
    }

    fn fail_with(&mut self, error: StoreError) {
        self.reply = Some(Err(error.into()));
    }

    fn store_error(&self) -> Option<&StoreError> {
        self.reply.as_ref()?.as_ref().err()?.store_error()
    }

    fn send_reply(&mut self) {
        if let (Some(sender), Some(reply)) = (self.sender.take(), self.reply.take()) {
            let _ = sender.send(reply);
        }
    }
}

impl ReplyError for StoreError {
    fn store_error(&self) -> Option<&StoreError> {
        Some(self)
    }
}

impl ReplyError for CommandError {
    fn store_error(&self) -> Option<&StoreError> {
        match self {
            Self::Store(error) => Some(error),
            Self::Append(error) => error.store_error(),
            Self::Rejected(_) | Self::TaskNotFound(_) => None,
        }
    }
}

macro_rules! reply_errors {
    ($($error:ty),*) => {
        $(impl ReplyError for $error {
            fn store_error(&self) -> Option<&StoreError> {
                if let Self::Store(error) = self { Some(error) } else { None }
            }
        })*
    };
}

reply_errors!(AppendError, ImportError, ArchiveError, RestoreError);

/// Defines a set of commands: `NAME(COMMAND) -> DONE, ERROR: WHAT IT IS DOING`.
macro_rules! command_set {
    (
        $(#[$doc:meta])*
        $set:ident: $($name:ident($command:ty) -> $done:ty, $error:ty: $doing:literal;)*
    ) => {
        $(#[$doc])*
        pub(crate) enum $set {
            // Boxed, because a request is moved through a queue and from batch to batch.
            $($name(Box<PendingCommand<$command>>),)*
        }

        impl $set {
            /// Returns the request, regardless of its command.
            pub(crate) fn pending(&self) -> &dyn PendingReply {
                match self {
                    $(Self::$name(request) => &**request,)*
                }
            }

            /// Returns the request, regardless of its command.
            pub(crate) fn pending_mut(&mut self) -> &mut dyn PendingReply {
                match self {
                    $(Self::$name(request) => &mut **request,)*
                }
            }
        }

        $(impl WriteCommand for $command {
            type Done = $done;
            type Error = $error;
            const DOING: &'static str = $doing;

            fn into_set(request: PendingCommand<Self>) -> WriteRequest {
                WriteRequest::from($set::$name(Box::new(request)))
            }
        })*

        impl From<$set> for WriteRequest {
            fn from(command: $set) -> Self {
                Self::$set(command)
            }
        }
    };
}

/// A command of either set.
pub(crate) enum WriteRequest {
    BatchCommand(BatchCommand),
    ExclusiveCommand(ExclusiveCommand),
}

command_set! {
    /// Commands that share a transaction: each is decided on the working set, then all are written together.
    BatchCommand:
    Append(AppendCommand) -> AppendOutcome, AppendError: "appending";
    Task(TaskCommand) -> (TaskRecord, Option<AppendOutcome>), CommandError: "writing a command";
    Submit(SubmitTasks) -> Vec<(TaskId, bool)>, AppendError: "submitting tasks";
    Lease(LeaseTasks) -> LeaseOutcome, StoreError: "leasing tasks";
    Heartbeat(RenewLeases) -> HeartbeatOutcome, StoreError: "renewing leases";
    PutBlobs(PutBlobs) -> (), StoreError: "storing blobs";
    TouchBlobs(TouchBlobs) -> Vec<BlobHash>, StoreError: "touching blobs";
    Import(ImportStreams) -> ImportOutcome, ImportError: "importing a run";
    ConsumeInbox(TakeInbox) -> Vec<InboxOutcome>, StoreError: "taking tasks from the inbox";
    RemoveArchived(RemoveStreams) -> (), ArchiveError: "removing archived streams";
    Restore(RestoreStreams) -> (), RestoreError: "restoring streams from the archive";
}

command_set! {
    /// Commands with a separate transaction, which read and write the database directly.
    ExclusiveCommand:
    ChangeInboxRow(ChangeInboxRow) -> bool, StoreError: "changing the inbox";
    EndCall(EndCall) -> (), StoreError: "rate-limiting a model provider";
    CountBatchUsage(CountBatchUsage) -> bool, StoreError: "counting the usage of a batch";
    DrainWorker(DrainWorker) -> bool, StoreError: "draining a worker";
    DropBlobs(DropBlobs) -> Vec<BlobRef>, StoreError: "deleting blobs";
    TakePermit(TakePermit) -> PermitOutcome, StoreError: "rate-limiting a model provider";
    RebuildProjections(RebuildProjections) -> Vec<ProjectionDifference>, StoreError: "rebuilding projections";
    ReserveBudget(ReserveBudget) -> BudgetReservation, StoreError: "counting the usage of a batch";
    ReadSecret(ReadSecret) -> [u8; 32], StoreError: "reading the secret";
    RequestTerm(TermRequest) -> TermOutcome, StoreError: "taking a term";
}

impl BatchCommand {
    /// Returns the caller's time.
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Self::Append(request) => request.command.now,
            Self::Task(request) => request.command.now,
            Self::Submit(request) => request.command.now,
            Self::Lease(request) => request.command.now,
            Self::Heartbeat(request) => request.command.now,
            Self::PutBlobs(request) => request.command.now,
            Self::TouchBlobs(request) => request.command.now,
            Self::Import(request) => request.command.now,
            Self::ConsumeInbox(request) => request.command.now,
            Self::RemoveArchived(request) => request.command.now,
            Self::Restore(request) => request.command.now,
        }
    }

    /// Shifts the reply's positions, which count from 0 while a batch is decided, to the transaction's base.
    pub(crate) fn shift_positions(&mut self, base: u64) {
        let appended = if let Self::Append(request) = self {
            request.reply.as_mut().and_then(|reply| reply.as_mut().ok())
        } else if let Self::Task(request) = self {
            request.reply.as_mut().and_then(|reply| reply.as_mut().ok()?.1.as_mut())
        } else {
            None
        };
        if let Some(appended) = appended.filter(|appended| !appended.was_repeated) {
            appended.position = Position(appended.position.0 + base);
        }
    }
}

impl ExclusiveCommand {
    /// Whether cached heads and records may be wrong afterwards. The other commands change no stream and no
    /// task record.
    pub(crate) const fn invalidates_working_set(&self) -> bool {
        matches!(self, Self::RebuildProjections(_))
    }
}

/// Returns the latest time among the commands.
pub(crate) fn latest_now(batch: &[&mut BatchCommand]) -> Timestamp {
    batch.iter().map(|command| command.now()).max().unwrap_or_default()
}

/// Describes a batch's operation, for errors: that of its first command.
pub(crate) fn describe_batch(batch: &[&mut BatchCommand]) -> &'static str {
    batch.first().map_or("writing", |command| command.pending().describe_operation())
}

/// [`LogAppend`](crate::store::LogAppend) with compressed blobs.
pub(crate) struct AppendCommand {
    pub(crate) stream: StreamId,
    pub(crate) condition: AppendCondition,
    pub(crate) events: Vec<NewEvent>,
    pub(crate) blobs: Vec<PackedBlob>,
    pub(crate) required_blobs: Vec<BlobHash>,
    pub(crate) now: Timestamp,
}

pub(crate) struct TaskCommand {
    pub(crate) task: TaskId,
    pub(crate) decide: DecideFn,
    pub(crate) blobs: Vec<PackedBlob>,
    pub(crate) required_blobs: Vec<BlobHash>,
    pub(crate) now: Timestamp,
}

pub(crate) struct SubmitTasks {
    pub(crate) tasks: Vec<NewTask>,
    pub(crate) by: String,
    pub(crate) now: Timestamp,
}

pub(crate) struct LeaseTasks {
    pub(crate) request: LeaseRequest,
    pub(crate) runs: Vec<RunId>,
    pub(crate) lease_ms: u64,
    pub(crate) now: Timestamp,
}

pub(crate) struct RenewLeases {
    pub(crate) heartbeat: WorkerHeartbeat,
    pub(crate) lease_ms: u64,
    pub(crate) now: Timestamp,
}

pub(crate) struct PutBlobs {
    pub(crate) blobs: Vec<PackedBlob>,
    pub(crate) now: Timestamp,
}

pub(crate) struct TouchBlobs {
    pub(crate) hashes: Vec<BlobHash>,
    pub(crate) now: Timestamp,
}

pub(crate) struct ImportStreams {
    pub(crate) import: RunImport,
    pub(crate) now: Timestamp,
}

pub(crate) struct TakeInbox {
    pub(crate) moves: Vec<InboxMove>,
    pub(crate) now: Timestamp,
}

pub(crate) struct RemoveStreams {
    pub(crate) archived: StreamsArchived,
    pub(crate) now: Timestamp,
}

pub(crate) struct RestoreStreams {
    pub(crate) restore: RestoreRequest,
    pub(crate) now: Timestamp,
}

pub(crate) struct ChangeInboxRow {
    pub(crate) row: String,
    pub(crate) action: InboxAction,
}

pub(crate) struct EndCall {
    pub(crate) run: RunId,
}

pub(crate) struct CountBatchUsage {
    pub(crate) batch: BatchId,
}

pub(crate) struct DrainWorker {
    pub(crate) incarnation: IncarnationId,
}

pub(crate) struct DropBlobs {
    pub(crate) hashes: Vec<BlobHash>,
    pub(crate) untouched_since: Timestamp,
}

pub(crate) struct TakePermit {
    pub(crate) provider: String,
    pub(crate) caller: (RunId, Epoch),
    pub(crate) cost: PermitCost,
    pub(crate) now: Timestamp,
    pub(crate) until: Timestamp,
}

pub(crate) struct RebuildProjections {
    pub(crate) progress: Arc<RebuildProgress>,
}

pub(crate) struct ReserveBudget {
    pub(crate) caller: (RunId, Epoch),
    pub(crate) call: MaxCallCost,
}

pub(crate) struct ReadSecret {
    pub(crate) fresh: [u8; 32],
}
