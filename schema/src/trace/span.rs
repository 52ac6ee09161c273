//! A span: a timed operation, its parent, and its outcome.

use crate::ids::{RunId, Timestamp};

/// All spans of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

impl TraceId {
    /// Returns the trace id of a run. It equals the run's id, so that either can be found from the other.
    pub const fn from_run(run: RunId) -> Self {
        Self(run.0.into_bytes())
    }
}

/// One span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// Returns the id of the span with this name in a run. It is always the same.
    pub fn from_run_and_name(run: RunId, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(run.0.as_bytes());
        hasher.update(name.as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(id)
    }
}

/// Where a span's work is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// In this process.
    Internal,
    /// On a server that is called.
    Client,
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum AttributeValue {
    /// Text.
    Text(String),
    /// A whole number.
    Int(i64),
    /// A number.
    Double(f64),
    /// A Boolean.
    Bool(bool),
    /// An array of texts.
    TextList(Vec<String>),
}

impl From<&str> for AttributeValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for AttributeValue {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for AttributeValue {
    fn from(number: u64) -> Self {
        Self::Int(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<u32> for AttributeValue {
    fn from(number: u32) -> Self {
        Self::Int(i64::from(number))
    }
}

impl From<bool> for AttributeValue {
    fn from(yes: bool) -> Self {
        Self::Bool(yes)
    }
}

/// An event within a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// The event's name.
    pub name: &'static str,
    /// When it happened.
    pub at: Timestamp,
    /// Its attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// A span. See the module documentation.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The run's trace.
    pub trace: TraceId,
    /// The span's id.
    pub id: SpanId,
    /// The parent span.
    pub parent: Option<SpanId>,
    /// Its name, of low cardinality as the conventions require.
    pub name: String,
    /// Where its work is done.
    pub kind: SpanKind,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended; never before it began.
    pub ended_at: Timestamp,
    /// Its attributes.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// Events within the span.
    pub events: Vec<SpanEvent>,
    /// The error; none if it did not fail.
    pub error: Option<String>,
    /// The run whose history this one shares.
    pub link: Option<TraceId>,
}
