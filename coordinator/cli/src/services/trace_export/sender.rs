//! Sends requests to a collector, one at a time.

use std::time::Duration;

use anyhow::{Context as _, bail};
use docket_schema::trace::{Span, TraceResource, export_request};
use reqwest::{
    Response, StatusCode,
    header::{HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
};

/// Timeout of one request.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum delay that a collector may request.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(300);
/// Bytes of a rejection that are shown.
const MESSAGE_BYTES_MAX: usize = 300;
/// Bytes of a reply that are read.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The result of a request that was answered.
pub(super) enum SpanDelivery {
    /// Accepted.
    Accepted,
    /// Some spans were permanently rejected: their number and the collector's message.
    PartlyAccepted(String),
    /// Permanently rejected.
    Rejected(String),
}

/// Sends spans by OTLP over HTTP.
pub(super) struct OtlpSender {
    http: reqwest::Client,
    url: String,
    resource: TraceResource,
}

impl OtlpSender {
    /// Creates a sender to `endpoint`; other OpenTelemetry variables come from `env`.
    pub(super) fn new(
        endpoint: &str,
        service: &str,
        env: impl Fn(&str) -> Option<String>,
    ) -> anyhow::Result<Self> {
        let mut headers = HeaderMap::new();
        for (name, value) in parse_pairs(&env("OTEL_EXPORTER_OTLP_HEADERS").unwrap_or_default())? {
            let name = HeaderName::try_from(name.as_str())
                .context("OTEL_EXPORTER_OTLP_HEADERS has an invalid header name")?;
            let mut value = HeaderValue::try_from(value.as_str())
                .context("OTEL_EXPORTER_OTLP_HEADERS has an invalid header value")?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let attributes = parse_pairs(&env("OTEL_RESOURCE_ATTRIBUTES").unwrap_or_default())?;
        let resource = TraceResource {
            service: service.to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            attributes: attributes.into_iter().filter(|(name, _)| name != "service.name").collect(),
        };
        // Installed once per process; a second call finds it installed.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .timeout(RESPONSE_TIME_MAX)
            .default_headers(headers)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self { http, url: format!("{endpoint}/v1/traces"), resource })
    }

    /// Sends these spans.
    ///
    /// # Errors
    /// Fails when the collector is unavailable, asks to wait, or rejects the request because of our
    /// configuration; the same spans may be sent again once that is fixed.
    pub(super) async fn send(&self, spans: &[Span]) -> anyhow::Result<SpanDelivery> {
        let body = export_request(&self.resource, spans);
        // The URL may contain a password, and errors are logged.
        let sent = self.http.post(&self.url).json(&body).send().await.map_err(reqwest::Error::without_url);
        let mut answer = sent.context("cannot reach the collector")?;
        let status = answer.status();
        if status.is_success() {
            let body = read_body_prefix(&mut answer).await;
            return Ok(
                rejected_spans_message(&body).map_or(SpanDelivery::Accepted, SpanDelivery::PartlyAccepted)
            );
        }
        // The statuses that the OTLP/HTTP specification defines as retryable.
        if matches!(
            status,
            StatusCode::TOO_MANY_REQUESTS
                | StatusCode::BAD_GATEWAY
                | StatusCode::SERVICE_UNAVAILABLE
                | StatusCode::GATEWAY_TIMEOUT
        ) {
            let asked = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            if let Some(seconds) = asked {
                tokio::time::sleep(Duration::from_secs(seconds).min(RETRY_AFTER_MAX)).await;
            }
            bail!("the collector replied {status}");
        }
        if let Some(remedy) = status_remedy(status) {
            bail!("the collector replied {status}: {remedy}");
        }
        let body = read_body_prefix(&mut answer).await;
        let words = String::from_utf8_lossy(&body);
        let end = words.floor_char_boundary(MESSAGE_BYTES_MAX);
        Ok(SpanDelivery::Rejected(format!("{status} {}", &words[..end])))
    }
}

/// Reads the beginning of a reply's body.
async fn read_body_prefix(answer: &mut Response) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        let room = RESPONSE_BYTES_MAX - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() >= RESPONSE_BYTES_MAX {
            break;
        }
    }
    bytes
}

/// Returns the message about spans that a collector rejected from an accepted request: the `partialSuccess` of
/// OTLP, whose count is a JSON string, because Protobuf encodes 64-bit integers so.
fn rejected_spans_message(body: &[u8]) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_slice(body).ok()?;
    let partly = answer.get("partialSuccess")?;
    let count = match partly.get("rejectedSpans")? {
        serde_json::Value::String(count) => count.parse().ok()?,
        count => count.as_u64()?,
    };
    let why = partly.get("errorMessage").and_then(serde_json::Value::as_str).unwrap_or("it does not say why");
    let end = why.floor_char_boundary(MESSAGE_BYTES_MAX);
    (count > 0_u64).then(|| format!("{count} of them: {}", &why[..end]))
}

/// Returns the remedy for a status that is about our configuration rather than the spans: no other spans would
/// fare better.
fn status_remedy(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::PROXY_AUTHENTICATION_REQUIRED => Some(
            "put the required credentials into OTEL_EXPORTER_OTLP_HEADERS, e.g. `authorization=Bearer%20KEY`",
        ),
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Some(
            "this address does not accept traces; set `telemetry.otlp_endpoint` to an OTLP/HTTP endpoint, often port \
             4318, without `/v1/traces`",
        ),
        other if other.is_redirection() => {
            Some("it redirects; set `telemetry.otlp_endpoint` to the new address")
        }
        _ => None,
    }
}

/// Parses `name=value,name=value`, percent-encoded as in OpenTelemetry's variables.
fn parse_pairs(text: &str) -> anyhow::Result<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    let pair = |part: &str| {
        let (name, value) = part.split_once('=').context("OTEL_… must look like name=value,name=value")?;
        Ok((percent_decode(name.trim()), percent_decode(value.trim())))
    };
    parts.map(pair).collect()
}

fn percent_decode(text: &str) -> String {
    // A form decoder would turn + into a blank, which is wrong for these variables.
    let text = text.replace('+', "%2B");
    let decoded = url::form_urlencoded::parse(text.as_bytes()).next();
    decoded.map_or_else(String::new, |(name, _)| name.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_span_count_is_parsed_from_string_or_number() {
        let told = |body: &str| rejected_spans_message(body.as_bytes());
        for none in
            ["", "{}", "<p>", r#"{"partialSuccess":{}}"#, r#"{"partialSuccess":{"rejectedSpans":"0"}}"#]
        {
            assert_eq!(told(none), None, "{none}");
        }
        let some = r#"{"partialSuccess":{"rejectedSpans":"3","errorMessage":"too old"}}"#;
        assert_eq!(told(some).as_deref(), Some("3 of them: too old"));
        assert_eq!(told(&some.replace("\"3\"", "3")), told(some));
    }

    #[test]
    fn otel_variables_are_percent_decoded() {
        let read = |text: &str| parse_pairs(text).expect("pairs");
        assert_eq!(read(""), []);
        assert_eq!(
            read("api-key=a%20b+c, x = y ,"),
            [("api-key".to_owned(), "a b+c".to_owned()), ("x".to_owned(), "y".to_owned())]
        );
        assert!(parse_pairs("nothing").is_err());
    }

    #[test]
    fn invalid_header_error_names_the_variable() {
        let env = |name: &str| (name == "OTEL_EXPORTER_OTLP_HEADERS").then(|| "a b=c".to_owned());
        drop(rustls::crypto::ring::default_provider().install_default());
        let error = OtlpSender::new("http://localhost:4318", "docket", env).err().expect("refused");
        assert!(error.to_string().contains("OTEL_EXPORTER_OTLP_HEADERS"), "{error}");
    }
}
