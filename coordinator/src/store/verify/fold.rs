//! Folds of a stream's events during verification, and the blobs they reference.

use docket_schema::{
    blob_refs::{self, BlobReference},
    event::{EventRef, TypedEvent as _},
    ids::StreamId,
    run::{CorruptLog, RunEvent, RunState},
    system::{TokensFold, TopicError, TopicFold as _},
    task::{TaskEvent, TaskEventMeta, TaskRecord},
};

/// The fold of a stream.
#[derive(Debug)]
pub enum StreamFold {
    /// A kind of stream without a fold.
    None,
    /// A task, once submitted.
    Task(Option<Box<TaskRecord>>),
    /// A run.
    Run(Box<RunState>),
    /// The API tokens.
    Tokens(TokensFold),
}

/// Why an event does not fold.
pub(super) enum StreamFoldError {
    Corrupt(CorruptLog),
    Tokens(TopicError),
    NotSubmitted(&'static str),
}

impl From<CorruptLog> for StreamFoldError {
    fn from(error: CorruptLog) -> Self {
        Self::Corrupt(error)
    }
}

impl StreamFoldError {
    pub(super) fn describe(&self) -> String {
        match self {
            Self::NotSubmitted(kind) => format!("a task begins with {kind}"),
            Self::Corrupt(error) => error_chain(error),
            Self::Tokens(error) => error_chain(error),
        }
    }
}

fn error_chain(error: &dyn std::error::Error) -> String {
    let (mut text, mut cause) = (error.to_string(), error.source());
    while let Some(source) = cause {
        text = format!("{text}: {source}");
        cause = source.source();
    }
    text
}

impl StreamFold {
    /// Folds an event and collects the blobs it references. Each event is decoded once, which is most of the
    /// work.
    pub(super) fn apply_event(
        &mut self,
        stream: &StreamId,
        event: &EventRef<'_>,
        named: &mut Vec<BlobReference>,
    ) -> Result<(), StreamFoldError> {
        let unread = |source| CorruptLog::Decode { seq: event.seq, source };
        match self {
            Self::None => {
                // An event unknown to this build does not fold either.
                drop(blob_refs::collect_event_blobs(stream, event, named));
                Ok(())
            }
            Self::Tokens(tokens) => tokens.apply(event).map_err(StreamFoldError::Tokens),
            Self::Run(state) => {
                let typed = RunEvent::decode(event.kind, event.version, event.payload).map_err(unread)?;
                blob_refs::collect_run_event_blobs(&typed, named);
                Ok(state.apply(event.into(), typed)?)
            }
            Self::Task(record) => {
                let typed = TaskEvent::decode(event.kind, event.version, event.payload).map_err(unread)?;
                blob_refs::collect_task_event_blobs(&typed, named);
                let meta = TaskEventMeta { seq: event.seq, hash: event.hash, recorded_at: event.recorded_at };
                match (record.as_deref_mut(), typed, stream) {
                    (Some(record), typed, _) => Ok(record.apply(meta, typed)?),
                    (None, TaskEvent::TaskSubmitted(first), StreamId::Task(id)) => {
                        *record = Some(Box::new(TaskRecord::from_submitted(*id, meta, first)));
                        Ok(())
                    }
                    (None, other, _) => Err(StreamFoldError::NotSubmitted(other.kind())),
                }
            }
        }
    }
}
