//! A span: what took how long, within what, and how it ended.

use crate::ids::{RunId, Timestamp};

/// All spans of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(pub [u8; 16]);

impl TraceId {
    /// The trace of a run: its id, so that whoever has one finds the other.
    pub const fn from_run(run: RunId) -> Self {
        Self(run.0.into_bytes())
    }
}

/// One span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub [u8; 8]);

impl SpanId {
    /// The span of this name in a run. The same whenever it is derived.
    pub fn from_run_and_name(run: RunId, name: &str) -> Self {
        let mut hasher = blake3::Hasher::new();
        hasher.update(run.0.as_bytes());
        hasher.update(name.as_bytes());
        let mut id = [0; 8];
        id.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(id)
    }
}

/// Where the work of a span is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Here.
    Internal,
    /// By a server that is asked.
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
    /// Yes or no.
    Bool(bool),
    /// Texts in order.
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

/// Something that happened at one moment of a span.
#[derive(Debug, Clone, PartialEq)]
pub struct SpanEvent {
    /// What.
    pub name: &'static str,
    /// When.
    pub at: Timestamp,
    /// More of it.
    pub attributes: Vec<(&'static str, AttributeValue)>,
}

/// See the module.
#[derive(Debug, Clone, PartialEq)]
pub struct Span {
    /// The run's trace.
    pub trace: TraceId,
    /// Its id.
    pub id: SpanId,
    /// The span it is part of.
    pub parent: Option<SpanId>,
    /// Its name: of few values, as the conventions want it.
    pub name: String,
    /// Where its work is done.
    pub kind: SpanKind,
    /// When it began.
    pub began_at: Timestamp,
    /// When it ended; never before it began.
    pub ended_at: Timestamp,
    /// What is known of it.
    pub attributes: Vec<(&'static str, AttributeValue)>,
    /// What happened in it.
    pub events: Vec<SpanEvent>,
    /// Why it failed; none where it did not.
    pub error: Option<String>,
    /// The run whose history this one shares.
    pub link: Option<TraceId>,
}
