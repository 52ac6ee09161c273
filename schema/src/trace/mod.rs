//! Traces for observability tools: spans derived from a run's events, in OpenTelemetry's terms.
//!
//! There is no instrumentation and nothing is lost in a crash: a trace is another fold of the log. Ids are
//! derived from the run and its events, so that spans sent twice are identical. Names and attributes follow
//! the semantic conventions for generative AI (`gen_ai.*`, release 1.41, status Development); attributes
//! without a convention are under `docket.*`. Spans contain no prompts, replies, arguments or outputs.

mod otlp;
mod run_spans;
mod span;

pub use otlp::{TraceResource, export_request};
pub use run_spans::RunSpans;
pub use span::{AttributeValue, Span, SpanEvent, SpanId, SpanKind, TraceId};
