//! Validates that events form a run with its complete lineage: what an export must contain and an import may
//! write.

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

/// Maximum number of events in one export: the number that one PostgreSQL transaction can insert, with a
/// margin.
pub const EXPORT_EVENTS_MAX: u64 = 60_000;

/// Maximum number of runs in one export's lineage.
pub const EXPORT_RUNS_MAX: usize = 100;

/// Why events do not form a run with its lineage.
#[derive(Debug, thiserror::Error)]
pub enum LineageError {
    /// The hash chain is broken.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// This build does not know an event.
    #[error("{stream}, event {seq} cannot be read")]
    Decode {
        /// The stream.
        stream: StreamId,
        /// The event.
        seq: Seq,
        /// The cause.
        #[source]
        source: DecodeError,
    },
    /// Events do not fold.
    #[error("{stream} does not fold")]
    Fold {
        /// The stream.
        stream: StreamId,
        /// The failed event and the cause.
        #[source]
        source: CorruptLog,
    },
    /// A task's specification would not be accepted by a submit.
    #[error("{stream}: its specification is not valid")]
    Spec {
        /// The stream.
        stream: StreamId,
        /// The invalid field.
        #[source]
        source: FieldError,
    },
    /// An event or stream is in the wrong place.
    #[error("{stream}, event {seq}: {what}")]
    Misplaced {
        /// The stream.
        stream: StreamId,
        /// The event.
        seq: Seq,
        /// The problem.
        what: &'static str,
    },
    /// Something is missing.
    #[error("{what} of run {run} is missing")]
    Missing {
        /// The kind of object that is missing.
        what: &'static str,
        /// The run that needs it.
        run: RunId,
    },
    /// The export is too large.
    #[error(
        "an export holds at most {EXPORT_EVENTS_MAX} events and {EXPORT_RUNS_MAX} runs; this one has more"
    )]
    TooLong,
}

/// A stream of a lineage and its head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LineageStream {
    /// The stream.
    pub stream: StreamId,
    /// The stream's last event in the lineage.
    pub head: Head,
}

/// Validates the events of a lineage one by one: every stream's chain is unbroken from its beginning, every
/// stream folds, each run continues the end of the run before it, and its task lists it. See [`super`] for
/// the order.
#[derive(Debug, Default)]
pub struct LineageValidator {
    events: u64,
    streams: Vec<LineageStream>,
    tasks: BTreeMap<TaskId, TaskRecord>,
    /// The runs that the tasks list.
    declared_runs: BTreeMap<RunId, TaskRunRef>,
    /// The task that each run belongs to, in order.
    runs: Vec<(RunId, TaskId)>,
    state: RunState,
}

impl LineageValidator {
    /// Validates the next event.
    ///
    /// # Errors
    ///
    /// [`LineageError`]; no more events may be pushed then.
    pub fn push(&mut self, event: &Envelope) -> Result<(), LineageError> {
        self.events += 1;
        if self.events > EXPORT_EVENTS_MAX || self.runs.len() > EXPORT_RUNS_MAX {
            return Err(LineageError::TooLong);
        }
        let misplaced = |what| misplaced_error(event, what);
        let payload = event.payload.as_str();
        if payload.len() > PAYLOAD_BYTES_MAX {
            return Err(misplaced("its payload is longer than docket allows"));
        }
        if payload.bytes().any(|b| b == b'\n' || b == b'\r') {
            return Err(misplaced("its payload has a line break, which docket never writes"));
        }
        let goes_on = self.streams.last().is_some_and(|last| last.stream == event.stream);
        if !goes_on && self.streams.iter().any(|seen| seen.stream == event.stream) {
            return Err(misplaced("its stream is not contiguous"));
        }
        match event.stream {
            StreamId::Task(task) => self.apply_task_event(task, event, goes_on),
            StreamId::Run(run) => self.apply_run_event(run, event, goes_on),
            StreamId::Queue(_) | StreamId::System(_) => {
                Err(misplaced("only tasks and runs can be moved to another installation"))
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
            (None, _) => return Err(misplaced_error(event, "a task cannot start with this event")),
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
                        return Err(misplaced_error(event, "its parent is not the run before it"));
                    }
                    begins_at.hash = forked.hash;
                    (forked.run, forked.task)
                }
                _ => return Err(misplaced_error(event, "a run cannot start with this event")),
            };
            if named != run {
                return Err(misplaced_error(event, "it names a run other than the one it starts"));
            }
            self.runs.push((run, task));
        }
        self.verify_link(event, goes_on, begins_at)?;
        self.state.apply_envelope(event).map_err(|source| fold_error(event, source))
    }

    /// Returns the streams so far, in order, with their heads.
    pub fn streams(&self) -> &[LineageStream] {
        &self.streams
    }

    /// Returns the folded record of each task.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskRecord> {
        self.tasks.values()
    }

    /// Returns the runs in order, the exported one last, with the number of each within its task.
    ///
    /// # Errors
    ///
    /// [`LineageError::Missing`] if there is no run, if the last one is not `run`, or if a task is missing or
    /// does not list its run.
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

    /// Returns the folded state of the run.
    pub const fn run_state(&self) -> &RunState {
        &self.state
    }

    /// Returns the number of events so far.
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
