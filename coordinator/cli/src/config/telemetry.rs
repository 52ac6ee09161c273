//! Settings of trace export. The environment variables are those of OpenTelemetry.

use super::keys::SettingKey;

/// Where traces of runs are sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TelemetrySettings {
    /// The address of an OTLP/HTTP collector, without `/v1/traces`; `None` = no traces are sent.
    pub(crate) endpoint: Option<String>,
    /// The `service.name` of exported traces.
    pub(crate) service_name: String,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        Self { endpoint: None, service_name: "docket".to_owned() }
    }
}

fn parse_endpoint(text: &str) -> Option<String> {
    let url = url::Url::parse(text).ok()?;
    let good = matches!(url.scheme(), "http" | "https") && url.has_host() && url.query().is_none();
    good.then(|| text.trim_end_matches('/').trim_end_matches("/v1/traces").to_owned())
}

/// The rows of these settings.
pub(super) static TELEMETRY_KEYS: [SettingKey; 2] = [
    SettingKey {
        name: "telemetry.otlp_endpoint",
        env: "OTEL_EXPORTER_OTLP_ENDPOINT",
        allowed: "an address like http://localhost:4318",
        set: |c, t| parse_endpoint(t).map(|at| c.telemetry.endpoint = Some(at)),
    },
    SettingKey {
        name: "telemetry.service_name",
        env: "OTEL_SERVICE_NAME",
        allowed: "a name",
        set: |c, t| (!t.trim().is_empty()).then(|| c.telemetry.service_name = t.trim().to_owned()),
    },
];
