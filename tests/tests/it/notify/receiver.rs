//! A receiver of webhooks: keeps what it gets, answers as a test says, and checks signatures by code of its own, so that
//! what docket signs is held against the specification and not against docket.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result, ensure};
use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode},
    routing::post,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use docket_tests::system::{Signal, send_signal, wait_until};
use serde_json::Value;

/// What was sent to it.
#[derive(Debug, Clone)]
pub(super) struct ReceivedRequest {
    /// Which hook, by the last part of the path.
    pub(super) hook: String,
    pub(super) id: String,
    timestamp: String,
    signatures: String,
    raw: Vec<u8>,
    pub(super) body: Value,
}

impl ReceivedRequest {
    pub(super) fn kind(&self) -> &str {
        self.body["type"].as_str().unwrap_or_default()
    }

    pub(super) fn data_field(&self, field: &str) -> &Value {
        &self.body["data"][field]
    }

    /// Whether one of its signatures is by this secret, over exactly what came.
    pub(super) fn is_signed_by(&self, secret: &str) -> Result<bool> {
        let key = STANDARD.decode(secret.strip_prefix("whsec_").context("a secret")?)?;
        let signed = [format!("{}.{}.", self.id, self.timestamp).as_bytes(), &self.raw].concat();
        let expected = format!("v1,{}", STANDARD.encode(hmac_sha256(&key, &signed)));
        Ok(self.signatures.split(' ').any(|signature| signature == expected))
    }
}

/// What it answers.
#[derive(Debug, Clone)]
pub(super) enum HookReply {
    /// This status, with these words.
    Status(u16, &'static str),
    /// Too many requests: come back after so many seconds.
    Later(&'static str),
    /// Moved.
    Moved,
    /// Nothing, ever.
    Never,
    /// It kills this process before it answers.
    Kills(i32),
}

#[derive(Default)]
struct ReceiverState {
    got: Vec<ReceivedRequest>,
    answers: BTreeMap<String, HookReply>,
}

/// See the module.
pub(super) struct WebhookReceiver {
    kept: Arc<Mutex<ReceiverState>>,
    pub(super) port: u16,
}

type SharedState = Arc<Mutex<ReceiverState>>;

fn lock_state(kept: &SharedState) -> std::sync::MutexGuard<'_, ReceiverState> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn receive_request(
    State(kept): State<SharedState>,
    Path(hook): Path<String>,
    headers: HeaderMap,
    body: bytes::Bytes,
) -> (StatusCode, HeaderMap, &'static str) {
    let header = |name: &str| headers.get(name).and_then(|v| v.to_str().ok()).unwrap_or_default().to_owned();
    let got = ReceivedRequest {
        hook: hook.clone(),
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp"),
        signatures: header("webhook-signature"),
        raw: body.to_vec(),
        body: serde_json::from_slice(&body).unwrap_or(Value::Null),
    };
    let answer = {
        let mut kept = lock_state(&kept);
        kept.got.push(got);
        kept.answers.get(&hook).cloned().unwrap_or(HookReply::Status(204, ""))
    };
    let mut more = HeaderMap::new();
    let mut set = |name: &'static str, value: &'static str| {
        more.insert(name, axum::http::HeaderValue::from_static(value));
    };
    let (status, words) = match answer {
        HookReply::Status(status, words) => (status, words),
        HookReply::Later(seconds) => {
            set("retry-after", seconds);
            (429, "later")
        }
        HookReply::Moved => {
            set("location", "/ok");
            (307, "")
        }
        HookReply::Never => std::future::pending().await,
        HookReply::Kills(pid) => {
            send_signal(pid, Signal::SIGKILL);
            (204, "")
        }
    };
    (StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), more, words)
}

impl WebhookReceiver {
    /// On a free port.
    pub(super) async fn start() -> Result<Self> {
        Self::start_on(0).await
    }

    /// On this port.
    pub(super) async fn start_on(port: u16) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
        let port = listener.local_addr()?.port();
        let kept = SharedState::default();
        let router = Router::new().route("/{hook}", post(receive_request)).with_state(Arc::clone(&kept));
        // It ends with the test's runtime.
        drop(tokio::spawn(async move { axum::serve(listener, router).await }));
        Ok(Self { kept, port })
    }

    /// From now on a hook answers so.
    pub(super) fn set_reply(&self, hook: &str, answer: HookReply) {
        lock_state(&self.kept).answers.insert(hook.to_owned(), answer);
    }

    /// What came to a hook.
    pub(super) fn received(&self, hook: &str) -> Vec<ReceivedRequest> {
        lock_state(&self.kept).got.iter().filter(|got| got.hook == hook).cloned().collect()
    }

    /// Waits for something to come to a hook.
    pub(super) async fn wait_for_request(
        &self,
        hook: &str,
        what: &str,
        is: impl Fn(&ReceivedRequest) -> bool,
    ) -> Result<ReceivedRequest> {
        let found = wait_until(what, async || self.received(hook).into_iter().find(|got| is(got))).await;
        found.with_context(|| format!("{:#?}", self.received(hook)))
    }
}

/// HMAC of RFC 2104 over [`sha256`].
fn hmac_sha256(key: &[u8], message: &[u8]) -> [u8; 32] {
    let mut block = [0; 64];
    if key.len() > block.len() {
        block[..32].copy_from_slice(&sha256(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let inner = [&block.map(|byte| byte ^ 0x36)[..], message].concat();
    sha256(&[&block.map(|byte| byte ^ 0x5c)[..], &sha256(&inner)].concat())
}

/// SHA-256 as FIPS 180-4 writes it down. Its constants are the fractional parts of roots of primes, found here.
fn sha256(message: &[u8]) -> [u8; 32] {
    let primes: Vec<u32> =
        (2..312_u32).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0)).collect();
    let fraction = |root: u128| u32::try_from(root & 0xffff_ffff).unwrap_or(0);
    // floor(root(prime) * 2^32), exactly, by halving.
    let root = |prime: u32, power: u32| {
        let scaled = u128::from(prime) << (32 * power);
        let (mut low, mut high) = (0_u128, 1_u128 << 40);
        while high - low > 1 {
            let middle = low.midpoint(high);
            if middle.checked_pow(power).is_some_and(|raised| raised <= scaled) {
                low = middle
            } else {
                high = middle
            }
        }
        fraction(low)
    };
    let mut state: Vec<u32> = primes.iter().take(8).map(|prime| root(*prime, 2)).collect();
    let rounds: Vec<u32> = primes.iter().take(64).map(|prime| root(*prime, 3)).collect();
    let mut padded = message.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(message.len() as u64 * 8).to_be_bytes());
    for chunk in padded.chunks(64) {
        let mut w: Vec<u32> = chunk.chunks(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]])).collect();
        for n in 16..64 {
            let (a, b) = (w[n - 15], w[n - 2]);
            let s0 = a.rotate_right(7) ^ a.rotate_right(18) ^ (a >> 3);
            let s1 = b.rotate_right(17) ^ b.rotate_right(19) ^ (b >> 10);
            w.push(w[n - 16].wrapping_add(s0).wrapping_add(w[n - 7]).wrapping_add(s1));
        }
        let mut v = state.clone();
        for n in 0..64 {
            let s1 = v[4].rotate_right(6) ^ v[4].rotate_right(11) ^ v[4].rotate_right(25);
            let choice = (v[4] & v[5]) ^ (!v[4] & v[6]);
            let one = v[7].wrapping_add(s1).wrapping_add(choice).wrapping_add(rounds[n]).wrapping_add(w[n]);
            let s0 = v[0].rotate_right(2) ^ v[0].rotate_right(13) ^ v[0].rotate_right(22);
            let two = s0.wrapping_add((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
            v = vec![one.wrapping_add(two), v[0], v[1], v[2], v[3].wrapping_add(one), v[4], v[5], v[6]];
        }
        state.iter_mut().zip(v).for_each(|(state, v)| *state = state.wrapping_add(v));
    }
    let mut hash = [0; 32];
    hash.chunks_mut(4).zip(state).for_each(|(four, word)| four.copy_from_slice(&word.to_be_bytes()));
    hash
}

/// The vector of the specification's own libraries, and FIPS 180-4's: the checker checks.
#[test]
fn signature_checker_matches_the_specification_vector() -> Result<()> {
    let hex = |hash: [u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    ensure!(hex(sha256(b"abc")) == abc, "{}", hex(sha256(b"abc")));
    let got = |timestamp: &str| ReceivedRequest {
        hook: String::new(),
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek".to_owned(),
        timestamp: timestamp.to_owned(),
        signatures: "v1,AAAA v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=".to_owned(),
        raw: br#"{"test": 2432232314}"#.to_vec(),
        body: Value::Null,
    };
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    ensure!(got("1614265330").is_signed_by(secret)? && !got("1614265331").is_signed_by(secret)?);
    Ok(())
}
