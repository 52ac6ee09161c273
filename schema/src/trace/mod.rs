//! A run as a trace for observability tools: spans derived from its events, in OpenTelemetry's terms.
//!
//! Nothing is instrumented and nothing is lost in a crash: a trace is one more fold of the log. Ids follow from the
//! run and its events, so that spans sent twice are the same spans, whoever sends them. Names and attributes are those
//! of the semantic conventions for generative AI (`gen_ai.*`, release 1.41, status Development); what they have no
//! word for stands under `docket.*`. Spans hold no prompt, no answer, no argument and no output.

mod otlp;
mod run_spans;
mod span;

pub use otlp::{TraceResource, export_request};
pub use run_spans::RunSpans;
pub use span::{AttributeValue, Span, SpanEvent, SpanId, SpanKind, TraceId};
