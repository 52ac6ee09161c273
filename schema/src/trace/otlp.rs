//! Spans as OTLP's JSON form (opentelemetry-proto 1.x, `ExportTraceServiceRequest`): what a collector takes at
//! `/v1/traces`. Ids are hexadecimal, 64-bit numbers are texts, as the specification of OTLP/HTTP wants it.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::span::{Moment, Span, SpanKind, Value};
use crate::ids::Timestamp;

/// What the spans are of: the service, as its owner names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resource {
    /// `service.name`.
    pub service: String,
    /// `service.version`.
    pub version: String,
    /// Others, by their names.
    pub attributes: Vec<(String, String)>,
}

/// One request with these spans.
pub fn export_request(resource: &Resource, spans: &[Span]) -> Json {
    let text = |name: &str, value: &str| json!({ "key": name, "value": { "stringValue": value } });
    let mut of = vec![text("service.name", &resource.service), text("service.version", &resource.version)];
    of.extend(resource.attributes.iter().map(|(name, value)| text(name, value)));
    let spans: Vec<Json> = spans.iter().map(span).collect();
    let scope = json!({ "name": "docket", "version": resource.version });
    json!({ "resourceSpans": [{ "resource": { "attributes": of }, "scopeSpans": [{ "scope": scope, "spans": spans }] }] })
}

fn span(span: &Span) -> Json {
    // SPAN_KIND_INTERNAL and SPAN_KIND_CLIENT.
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let mut told = json!({
        "traceId": hex(&span.trace.0),
        "spanId": hex(&span.id.0),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.began_at),
        "endTimeUnixNano": nanos(span.ended_at),
        "attributes": attributes(&span.attributes),
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = hex(&parent.0).into();
    }
    if !span.moments.is_empty() {
        told["events"] = span.moments.iter().map(moment).collect();
    }
    if let Some(error) = &span.error {
        // STATUS_CODE_ERROR.
        told["status"] = json!({ "code": 2, "message": error });
    }
    if let Some(trace) = span.link {
        let id = super::span::SpanId::of(crate::ids::RunId(uuid::Uuid::from_bytes(trace.0)), "run");
        told["links"] = json!([{ "traceId": hex(&trace.0), "spanId": hex(&id.0) }]);
    }
    told
}

fn moment(moment: &Moment) -> Json {
    json!({ "timeUnixNano": nanos(moment.at), "name": moment.name, "attributes": attributes(&moment.attributes) })
}

fn attributes(of: &[(&'static str, Value)]) -> Vec<Json> {
    of.iter().map(|(name, value)| json!({ "key": name, "value": any(value) })).collect()
}

fn any(value: &Value) -> Json {
    match value {
        Value::Text(text) => json!({ "stringValue": text }),
        Value::Int(number) => json!({ "intValue": number.to_string() }),
        Value::Double(number) => json!({ "doubleValue": number }),
        Value::Bool(yes) => json!({ "boolValue": yes }),
        Value::Texts(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({ "stringValue": text })).collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}

fn nanos(at: Timestamp) -> String {
    (i128::from(at.0).max(0) * 1000).to_string()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
