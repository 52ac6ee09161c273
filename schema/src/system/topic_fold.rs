//! Common trait of the folds of system streams, [`TopicFold`], and the error of an event that does not fold,
//! [`TopicError`].

use super::SystemEvent;
use crate::{
    event::{DecodeError, EventRef, TypedEvent as _},
    ids::{Seq, StreamId, SystemTopic},
};

/// An event of a system stream does not fold.
#[derive(Debug, thiserror::Error)]
pub enum TopicError {
    /// The event cannot be decoded.
    #[error("event {seq} of {stream} cannot be read")]
    Decode {
        /// The stream.
        stream: StreamId,
        /// Its sequence number.
        seq: Seq,
        /// The cause.
        #[source]
        source: DecodeError,
    },
    /// The event is not the next one.
    #[error("event {seq} of {stream} follows event {head}")]
    Gap {
        /// The stream.
        stream: StreamId,
        /// Its sequence number.
        seq: Seq,
        /// The previous sequence number.
        head: Seq,
    },
    /// The event cannot follow the previous ones.
    #[error("event {seq} of {stream}: {what}")]
    Illegal {
        /// The stream.
        stream: StreamId,
        /// Its sequence number.
        seq: Seq,
        /// The problem.
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

    /// Returns the sequence number of the last folded event.
    fn head(&self) -> Seq;

    /// Folds the next event. Changes nothing on failure.
    fn apply(&mut self, event: &EventRef<'_>) -> Result<(), TopicError>;
}

/// Decodes the event if it is the one after `head`.
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

/// Returns the error for an event of another topic.
pub(super) fn wrong_topic_error(topic: SystemTopic, seq: Seq, event: &SystemEvent) -> TopicError {
    TopicError::illegal(topic, seq, format!("a {} belongs elsewhere", event.kind()))
}
