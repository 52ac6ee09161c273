//! OTLP JSON encoding of spans (opentelemetry-proto 1.x, `ExportTraceServiceRequest`), as a collector accepts
//! it at `/v1/traces`. Ids are hexadecimal and 64-bit numbers are strings, as required by the OTLP/HTTP
//! specification.

use std::fmt::Write as _;

use serde_json::{Value as Json, json};

use super::span::{AttributeValue, Span, SpanEvent, SpanKind};
use crate::ids::Timestamp;

/// The resource of the spans: the service, as named by its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceResource {
    /// `service.name`.
    pub service: String,
    /// `service.version`.
    pub version: String,
    /// Other attributes, by name.
    pub attributes: Vec<(String, String)>,
}

/// Builds one request with these spans.
pub fn export_request(resource: &TraceResource, spans: &[Span]) -> Json {
    let text = |name: &str, value: &str| json!({ "key": name, "value": { "stringValue": value } });
    let mut of = vec![text("service.name", &resource.service), text("service.version", &resource.version)];
    of.extend(resource.attributes.iter().map(|(name, value)| text(name, value)));
    let spans: Vec<Json> = spans.iter().map(span_json).collect();
    let scope = json!({ "name": "docket", "version": resource.version });
    json!({ "resourceSpans": [{ "resource": { "attributes": of }, "scopeSpans": [{ "scope": scope, "spans": spans }] }] })
}

fn span_json(span: &Span) -> Json {
    // SPAN_KIND_INTERNAL and SPAN_KIND_CLIENT.
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let mut told = json!({
        "traceId": to_hex(&span.trace.0),
        "spanId": to_hex(&span.id.0),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": format_nanos(span.began_at),
        "endTimeUnixNano": format_nanos(span.ended_at),
        "attributes": attributes_json(&span.attributes),
    });
    if let Some(parent) = span.parent {
        told["parentSpanId"] = to_hex(&parent.0).into();
    }
    if !span.events.is_empty() {
        told["events"] = span.events.iter().map(event_json).collect();
    }
    if let Some(error) = &span.error {
        // STATUS_CODE_ERROR.
        told["status"] = json!({ "code": 2, "message": error });
    }
    if let Some(trace) = span.link {
        let id =
            super::span::SpanId::from_run_and_name(crate::ids::RunId(uuid::Uuid::from_bytes(trace.0)), "run");
        told["links"] = json!([{ "traceId": to_hex(&trace.0), "spanId": to_hex(&id.0) }]);
    }
    told
}

fn event_json(moment: &SpanEvent) -> Json {
    json!({ "timeUnixNano": format_nanos(moment.at), "name": moment.name, "attributes": attributes_json(&moment.attributes) })
}

fn attributes_json(of: &[(&'static str, AttributeValue)]) -> Vec<Json> {
    of.iter().map(|(name, value)| json!({ "key": name, "value": value_json(value) })).collect()
}

fn value_json(value: &AttributeValue) -> Json {
    match value {
        AttributeValue::Text(text) => json!({ "stringValue": text }),
        AttributeValue::Int(number) => json!({ "intValue": number.to_string() }),
        AttributeValue::Double(number) => json!({ "doubleValue": number }),
        AttributeValue::Bool(yes) => json!({ "boolValue": yes }),
        AttributeValue::TextList(texts) => {
            let values: Vec<Json> = texts.iter().map(|text| json!({ "stringValue": text })).collect();
            json!({ "arrayValue": { "values": values } })
        }
    }
}

fn format_nanos(at: Timestamp) -> String {
    (i128::from(at.0).max(0) * 1000).to_string()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}
