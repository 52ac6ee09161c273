//! Whether events make up a run with its whole lineage: what a file must hold, and what an import may write.

use std::collections::BTreeMap;

use crate::{
    event::{
        ChainError, DecodeError, Envelope, Head, PAYLOAD_BYTES_MAX, TypedEvent as _, verify_and_advance,
    },
    ids::{RunId, Seq, StreamId, TaskId},
    run::{CorruptLog, RunEvent, RunState},
    system::TaskRunRef,
    task::{FieldError, TaskEvent, TaskEventMeta, TaskRecord},
};

/// Most events of one export: what one transaction of PostgreSQL can number, with room to spare.
pub const EXPORT_EVENTS_MAX: u64 = 60_000;

/// Runs that may stand on each other in one export.
pub const EXPORT_RUNS_MAX: usize = 100;

/// Why events are no run with its lineage.
#[derive(Debug, thiserror::Error)]
pub enum LineageError {
    /// The hash chain does not hold.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// An event this build does not know.
    #[error("{stream}, event {seq} cannot be read")]
    Decode {
        /// The stream.
        stream: StreamId,
        /// The event.
        seq: Seq,
        /// What is wrong with it.
        #[source]
        source: DecodeError,
    },
    /// Events that cannot follow each other.
    #[error("{stream} does not fold")]
    Fold {
        /// The stream.
        stream: StreamId,
        /// Where and why.
        #[source]
        source: CorruptLog,
    },
    /// A task's specification that no submit would have taken.
    #[error("{stream}: its specification breaks a rule")]
    Spec {
        /// The stream.
        stream: StreamId,
        /// Which.
        #[source]
        source: FieldError,
    },
    /// What stands there belongs elsewhere.
    #[error("{stream}, event {seq}: {what}")]
    Misplaced {
        /// The stream.
        stream: StreamId,
        /// The event.
        seq: Seq,
        /// What is wrong.
        what: &'static str,
    },
    /// Something is not there.
    #[error("{what} of run {run} is not there")]
    Missing {
        /// What.
        what: &'static str,
        /// Whose.
        run: RunId,
    },
    /// There is too much of it.
    #[error(
        "an export holds at most {EXPORT_EVENTS_MAX} events and {EXPORT_RUNS_MAX} runs; this one has more"
    )]
    TooLong,
}

/// A stream of a lineage: which, and where it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineageStream {
    /// Which.
    pub stream: StreamId,
    /// Its last event here.
    pub head: Head,
}

/// Takes the events of a lineage one by one, and checks that each belongs where it stands: the chain of
/// every stream holds and begins at its beginning, every stream folds, each run stands on the end of the
/// run before it, and its task says that it is a run of it. See [`super`] for the order.
#[derive(Debug, Default)]
pub struct LineageValidator {
    events: u64,
    streams: Vec<LineageStream>,
    tasks: BTreeMap<TaskId, TaskRecord>,
    /// What the tasks say of their runs.
    declared_runs: BTreeMap<RunId, TaskRunRef>,
    /// What the runs say of their task, in order.
    runs: Vec<(RunId, TaskId)>,
    state: RunState,
}

impl LineageValidator {
    /// Takes the next event.
    ///
    /// # Errors
    /// [`LineageError`] says what does not hold; nothing more may be taken then.
    pub fn push(&mut self, event: &Envelope) -> Result<(), LineageError> {
        self.events += 1;
        if self.events > EXPORT_EVENTS_MAX || self.runs.len() > EXPORT_RUNS_MAX {
            return Err(LineageError::TooLong);
        }
        let misplaced = |what| misplaced_error(event, what);
        let payload = event.payload.as_str();
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(misplaced("its payload is longer than any that docket writes"));
        }
        if payload.bytes().any(|b| b == b'\n' || b == b'\r') {
            return Err(misplaced("its payload has a line break, which docket never writes"));
        }
        let goes_on = self.streams.last().is_some_and(|last| last.stream == event.stream);
        if !goes_on && self.streams.iter().any(|seen| seen.stream == event.stream) {
            return Err(misplaced("its stream was left and comes again"));
        }
        match event.stream {
            StreamId::Task(task) => self.apply_task_event(task, event, goes_on),
            StreamId::Run(run) => self.apply_run_event(run, event, goes_on),
            StreamId::Queue(_) | StreamId::System(_) => {
                Err(misplaced("only tasks and runs can be carried from one installation to another"))
            }
        }
    }

    fn verify_link(&mut self, event: &Envelope, goes_on: bool, begins_at: Head) -> Result<(), LineageError> {
        let head = match self.streams.last_mut().filter(|_| goes_on) {
            Some(stream) => &mut stream.head,
            None => {
                self.streams.push(LineageStream { stream: event.stream.clone(), head: begins_at });
                &mut self.streams.last_mut().expect("it was just put there").head
            }
        };
        *head = verify_and_advance(*head, event)?;
        Ok(())
    }

    fn apply_task_event(
        &mut self,
        task: TaskId,
        event: &Envelope,
        goes_on: bool,
    ) -> Result<(), LineageError> {
        self.verify_link(event, goes_on, Head::EMPTY)?;
        let typed = TaskEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|source| decode_error(event, source))?;
        let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
        let record = match (self.tasks.get_mut(&task), typed) {
            (None, TaskEvent::TaskSubmitted(first)) => {
                let source = first.spec.check();
                source.map_err(|source| LineageError::Spec { stream: event.stream.clone(), source })?;
                self.tasks.entry(task).or_insert(TaskRecord::from_submitted(task, meta, first))
            }
            (None, _) => return Err(misplaced_error(event, "a task does not begin like this")),
            (Some(record), typed) => {
                record.apply(meta, typed).map_err(|source| fold_error(event, source))?;
                record
            }
        };
        if let Some(run) = record.last_run {
            self.declared_runs.entry(run).or_insert(TaskRunRef { task, attempt: record.runs });
        }
        Ok(())
    }

    fn apply_run_event(&mut self, run: RunId, event: &Envelope, goes_on: bool) -> Result<(), LineageError> {
        let typed = RunEvent::decode(&event.kind, event.version, event.payload.as_str())
            .map_err(|source| decode_error(event, source))?;
        let mut begins_at = Head::EMPTY;
        if !goes_on {
            let (named, task) = match &typed {
                RunEvent::RunStarted(started) if self.runs.is_empty() => (started.run, started.task),
                RunEvent::Forked(forked) => {
                    let stands_on = self.streams.last().filter(|last| {
                        last.stream == StreamId::Run(forked.parent)
                            && last.head == Head { seq: forked.seq, hash: forked.hash }
                    });
                    if stands_on.is_none() {
                        return Err(misplaced_error(event, "what it stands on is not what stands before it"));
                    }
                    begins_at.hash = forked.hash;
                    (forked.run, forked.task)
                }
                _ => return Err(misplaced_error(event, "a run does not begin like this")),
            };
            if named != run {
                return Err(misplaced_error(event, "it names another run than the one it begins"));
            }
            self.runs.push((run, task));
        }
        self.verify_link(event, goes_on, begins_at)?;
        self.state.apply_envelope(event).map_err(|source| fold_error(event, source))
    }

    /// The streams taken so far, in order, and where each ends.
    pub fn streams(&self) -> &[LineageStream] {
        &self.streams
    }

    /// Each task as its events leave it.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.values()
    }

    /// The runs in order, the exported one last, and whose manieth run each is.
    ///
    /// # Errors
    /// [`LineageError::Lacking`]: there is no run, the last one is not `run`, or a task is not there or
    /// does not know its run.
    pub fn resolve_runs(&self, run: RunId) -> Result<Vec<(RunId, TaskRunRef)>, LineageError> {
        if self.runs.last().is_none_or(|(last, _)| *last != run) {
            return Err(LineageError::Missing { what: "the stream", run });
        }
        let place = |(run, task): &(RunId, TaskId)| {
            let told = self.declared_runs.get(run).filter(|told| told.task == *task).copied();
            told.map(|told| (*run, told)).ok_or(LineageError::Missing { what: "the task", run: *run })
        };
        self.runs.iter().map(place).collect()
    }

    /// What the run folds to.
    pub const fn run_state(&self) -> &RunState {
        &self.state
    }

    /// How many events were taken.
    pub const fn event_count(&self) -> u64 {
        self.events
    }
}

fn misplaced_error(event: &Envelope, what: &'static str) -> LineageError {
    LineageError::Misplaced { stream: event.stream.clone(), seq: event.seq, what }
}

fn decode_error(event: &Envelope, source: DecodeError) -> LineageError {
    LineageError::Decode { stream: event.stream.clone(), seq: event.seq, source }
}

fn fold_error(event: &Envelope, source: CorruptLog) -> LineageError {
    LineageError::Fold { stream: event.stream.clone(), source }
}
