//! Signed webhooks as in the Standard Webhooks specification: id, time and signature are headers; the signature
//! covers all three parts (id, time, body) and is given once per secret, so that a receiver can rotate secrets.

use std::{error::Error as _, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use docket_coordinator::notify::{DeliveryAttemptResult, NotificationMessage};
use docket_schema::ids::Timestamp;
use docket_worker::secret::Secret;
use hmac::{Hmac, KeyInit as _, Mac as _};
use reqwest::{Response, StatusCode, header};
use sha2::Sha256;
use url::Url;

use crate::config::decode_secret;

/// Connection timeout; the whole attempt is limited by the target's timeout.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of a reply that are read. It is shortened only after redaction, because part of a secret is still
/// secret.
const RESPONSE_BYTES_MAX: usize = 16 * 1024;

/// The keys that sign requests.
pub(crate) struct SigningKeys(Vec<Vec<u8>>);

impl SigningKeys {
    /// Derives the keys from secrets.
    pub(crate) fn from_secrets(secrets: &[Secret]) -> Self {
        Self(secrets.iter().filter_map(|secret| decode_secret(secret.expose())).collect())
    }

    /// Returns the value of the header `webhook-signature`.
    fn sign(&self, id: &str, seconds: i64, body: &[u8]) -> String {
        let signed = self.0.iter().filter_map(|key| {
            // HMAC accepts a key of any length.
            let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
            mac.update(format!("{id}.{seconds}.").as_bytes());
            mac.update(body);
            Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
        });
        signed.collect::<Vec<_>>().join(" ")
    }
}

/// Delivers notifications by signed HTTP requests.
pub(crate) struct WebhookNotifier {
    http: reqwest::Client,
    url: Url,
    keys: SigningKeys,
    timeout: Duration,
}

impl WebhookNotifier {
    pub(crate) fn new(url: Url, keys: SigningKeys, timeout: Duration) -> reqwest::Result<Self> {
        // Installed once per process; a second call finds it installed.
        drop(rustls::crypto::ring::default_provider().install_default());
        let http = reqwest::Client::builder()
            .connect_timeout(CONNECT_TIME_MAX.min(timeout))
            .timeout(timeout)
            // Redirects are not followed: a request signed for one receiver is not sent to another. A moved
            // receiver is changed in the settings.
            .redirect(reqwest::redirect::Policy::none())
            // A pooled connection would be dead by the next notification.
            .pool_max_idle_per_host(0)
            .user_agent(concat!("docket/", env!("CARGO_PKG_VERSION")))
            .build()?;
        Ok(Self { http, url, keys, timeout })
    }

    /// Makes one delivery attempt.
    pub(crate) async fn deliver(&self, letter: &NotificationMessage, body: Vec<u8>) -> DeliveryAttemptResult {
        let id = letter.record.raised.id.to_string();
        let seconds = letter.now.0.div_euclid(1_000_000);
        let request = self
            .http
            .post(self.url.clone())
            .header(header::CONTENT_TYPE, "application/json")
            .header("webhook-id", &id)
            .header("webhook-timestamp", seconds)
            .header("webhook-signature", self.keys.sign(&id, seconds, &body))
            .body(body);
        match request.send().await {
            Ok(answer) => outcome_from_response(answer, letter.now).await,
            Err(error) => {
                DeliveryAttemptResult::Failed { why: self.describe_send_error(error), retry_after_ms: None }
            }
        }
    }

    /// Describes the error without the URL, whose path may be secret.
    fn describe_send_error(&self, error: reqwest::Error) -> String {
        if error.is_timeout() {
            return format!("no reply within {} ms", self.timeout.as_millis());
        }
        let error = error.without_url();
        let mut cause = error.source();
        let mut words = error.to_string();
        while let Some(source) = cause {
            words = source.to_string();
            cause = source.source();
        }
        format!("cannot be reached: {words}")
    }
}

async fn outcome_from_response(answer: Response, now: Timestamp) -> DeliveryAttemptResult {
    let status = answer.status();
    if status.is_success() {
        return DeliveryAttemptResult::Delivered;
    }
    let header = |name| answer.headers().get(name).and_then(|value| value.to_str().ok());
    // Compares the date with the receiver's own clock, if it sends one: ours may differ.
    let here = header(header::DATE).and_then(parse_http_date).unwrap_or(now);
    let retry_after_ms = header(header::RETRY_AFTER).and_then(|after| parse_retry_after_ms(after, here));
    if status.is_redirection() {
        let why = format!("replied {status}; redirects are not followed: set `url` to the new address");
        return DeliveryAttemptResult::Failed { why, retry_after_ms };
    }
    let words = read_body_text(answer).await;
    let why =
        if words.is_empty() { format!("replied {status}") } else { format!("replied {status}: {words}") };
    if status == StatusCode::GONE {
        DeliveryAttemptResult::Unsubscribed { why }
    } else {
        DeliveryAttemptResult::Failed { why, retry_after_ms }
    }
}

/// Parses `Retry-After`: seconds or a date.
fn parse_retry_after_ms(text: &str, now: Timestamp) -> Option<u64> {
    let text = text.trim();
    if let Ok(seconds) = text.parse::<u64>() {
        return Some(seconds.saturating_mul(1000));
    }
    parse_http_date(text).map(|at| at.ms_since(now))
}

/// Parses an HTTP date.
fn parse_http_date(text: &str) -> Option<Timestamp> {
    chrono::DateTime::parse_from_rfc2822(text.trim()).ok().map(|at| Timestamp(at.timestamp_micros()))
}

/// Reads the reply's body as one line.
async fn read_body_text(mut answer: Response) -> String {
    let mut bytes = Vec::new();
    while let Ok(Some(chunk)) = answer.chunk().await {
        let room = RESPONSE_BYTES_MAX - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(room)]);
        if bytes.len() >= RESPONSE_BYTES_MAX {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signing_keys(texts: &[&str]) -> SigningKeys {
        let secrets: Vec<Secret> = texts.iter().filter_map(|text| Secret::new(text)).collect();
        SigningKeys::from_secrets(&secrets)
    }

    /// The test vector of the specification's own libraries.
    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn signature_matches_standard_webhooks_vector() {
        let sign = |keys: &SigningKeys, id: &str, body: &[u8]| keys.sign(id, 1_614_265_330, body);
        let (id, body) = ("msg_p5jXN8AQM9LWM0D4loKWxJek", br#"{"test": 2432232314}"#);
        assert_eq!(sign(&signing_keys(&[SECRET]), id, body), SIGNED);
        assert_ne!(sign(&signing_keys(&[SECRET]), "msg_other", body), SIGNED);
        assert_ne!(sign(&signing_keys(&[SECRET]), id, b"{}"), SIGNED);
        let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
        let both = sign(&signing_keys(&[other, SECRET]), id, body);
        let (first, second) = both.split_once(' ').expect("two");
        assert!(first.starts_with("v1,") && first != SIGNED && second == SIGNED, "{both}");
    }

    #[test]
    fn retry_after_is_seconds_or_http_date() {
        let now = Timestamp(1_700_000_000_000_000);
        assert_eq!(parse_retry_after_ms(" 120 ", now), Some(120_000));
        assert_eq!(parse_retry_after_ms("Tue, 14 Nov 2023 22:14:20 GMT", now), Some(60_000));
        assert_eq!(parse_retry_after_ms("Tue, 14 Nov 2000 22:14:20 GMT", now), Some(0));
        assert_eq!(parse_retry_after_ms("99999999999999999999", now), None);
        assert_eq!(parse_retry_after_ms("soon", now), None);
    }
}
