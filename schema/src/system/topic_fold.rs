//! What the folds of system streams have in common: [`TopicFold`], and [`TopicError`] for an event that does not fold.

use super::SystemEvent;
use crate::{
    event::{DecodeError, EventRef, TypedEvent as _},
    ids::{Seq, StreamId, SystemTopic},
};

/// An event of a system stream that does not fold.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// It cannot be read.
    #[error("event {seq} of {stream} cannot be read")]
    Decode {
        /// The stream.
        stream: StreamId,
        /// Its place.
        seq: Seq,
        /// Why.
        #[source]
        source: DecodeError,
    },
    /// It is not the next one.
    #[error("event {seq} of {stream} follows event {head}")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// Its place.
        seq: Seq,
        /// The one before it.
        head: Seq,
    },
    /// It does not follow from what stands before it.
    #[error("event {seq} of {stream}: {what}")]
    Illegal {
        /// The stream.
        stream: StreamId,
        /// Its place.
        seq: Seq,
        /// What is wrong.
        what: String,
    },
}

impl TopicError {
    pub(super) const fn illegal(topic: SystemTopic, seq: Seq, what: String) -> Self {
        Self::Illegal { stream: StreamId::System(topic), seq, what }
    }
}

/// The fold of a system stream.
pub trait TopicFold: Default {
    /// The stream's topic.
    const TOPIC: SystemTopic;

    /// Seq of the last event folded.
    fn head(&self) -> Seq;

    /// Folds the next event. Where that fails, nothing is changed.
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError>;
}

/// The event, if it is the one after `head`.
pub(super) fn decode_next(
    topic: SystemTopic,
    head: Seq,
    event: &EventRef<'_>,
) -> Result<SystemEvent, TopicError> {
    let (stream, seq) = (StreamId::System(topic), event.seq);
    if seq != head.next() {
        return Err(TopicError::Gap { stream, seq, head });
    }
    decode_topic_event(topic, event)
}

/// Decodes an event of a system stream.
pub fn decode_topic_event(topic: SystemTopic, event: &EventRef<'_>) -> Result<SystemEvent, TopicError> {
    SystemEvent::decode(event.kind, event.version, event.payload).map_err(|source| TopicError::Decode {
        stream: StreamId::System(topic),
        seq: event.seq,
        source,
    })
}

/// An event of another topic.
pub(super) fn wrong_topic_error(topic: SystemTopic, seq: Seq, event: &SystemEvent) -> TopicError {
    TopicError::illegal(topic, seq, format!("a {} belongs elsewhere", event.kind()))
}
