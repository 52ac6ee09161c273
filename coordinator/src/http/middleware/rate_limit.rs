//! Rate limits: a token bucket for each token, each address, and each address that sends invalid
//! tokens.
//!
//! Invariants: memory is bounded; taking from a bucket costs some tens of nanoseconds, so that it
//! does not slow down the busiest appender. Each coordinator has its own buckets.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use docket_schema::{api::ProblemCode, ids::RunId};
use tokio::time::Instant;

use super::{api_error::ApiError, auth::Caller};

/// Maximum number of buckets of one kind. Further callers share one bucket.
const BUCKETS_MAX: usize = 16 * 1024;

/// Rate of an address relative to that of a token, because several tokens may share an address.
const PEER_FACTOR: u32 = 4;

/// The configured limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimits {
    /// Requests per second for a token, with a burst of the same size; an address may make four times
    /// as many.
    pub requests_per_second: u32,
    /// Invalid tokens per minute for an address, with a burst of the same size.
    pub auth_failures_per_minute: u32,
}

impl Default for RateLimits {
    /// Far above what any docket client needs, and far below a flood.
    fn default() -> Self {
        Self { requests_per_second: 10_000, auth_failures_per_minute: 60 }
    }
}

/// Identifies a bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::http) enum RateLimitKey {
    Token(String),
    Run(RunId),
    Peer(IpAddr),
    Shared,
}

impl RateLimitKey {
    /// Returns the key of an address. For IPv6 this is the network, because its owner has 2^64
    /// addresses.
    pub(in crate::http) fn for_peer(peer: IpAddr) -> Self {
        Self::Peer(peer_network(peer))
    }

    pub(in crate::http) fn for_caller(caller: &Caller) -> Option<Self> {
        match caller {
            Caller::Anonymous => None,
            Caller::ApiToken { name, .. } => Some(Self::Token(name.clone())),
            Caller::RunToken { run, .. } => Some(Self::Run(*run)),
        }
    }
}

/// Returns the network that counts as one peer.
pub(crate) fn peer_network(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V4(v4) => v4.into(),
        IpAddr::V6(v6) => std::net::Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64)).into(),
    }
}

/// Token buckets for requests and failed authentications.
pub(crate) struct RateLimiter {
    tokens: TokenBuckets,
    peers: TokenBuckets,
    auth_failures: TokenBuckets,
}

impl RateLimiter {
    pub(crate) fn new(rates: RateLimits) -> Self {
        let per_second = f64::from(rates.requests_per_second);
        let factor = f64::from(PEER_FACTOR);
        let failures = f64::from(rates.auth_failures_per_minute);
        Self {
            tokens: TokenBuckets::new(per_second, per_second * 2.0),
            peers: TokenBuckets::new(per_second * factor, per_second * factor * 2.0),
            auth_failures: TokenBuckets::new(failures / 60.0, failures),
        }
    }

    pub(in crate::http) fn check_request(&self, paced: RateLimitKey) -> Result<(), ApiError> {
        let buckets = if matches!(paced, RateLimitKey::Peer(_)) { &self.peers } else { &self.tokens };
        buckets.take_token(paced, Instant::now()).map_err(|wait| {
            ApiError::new(ProblemCode::TooMany, "request rate limit exceeded; send fewer requests")
                .with_retry_after(wait)
        })
    }

    pub(in crate::http) fn check_auth_failure(&self, peer: IpAddr) -> Result<(), ApiError> {
        self.auth_failures.take_token(RateLimitKey::for_peer(peer), Instant::now()).map_err(|wait| {
            ApiError::new(ProblemCode::TooMany, "too many invalid tokens from this address; wait")
                .with_retry_after(wait)
        })
    }
}

struct TokenBuckets {
    refill_per_second: f64,
    capacity: f64,
    buckets: Mutex<HashMap<RateLimitKey, TokenBucket>>,
}

#[derive(Clone, Copy)]
struct TokenBucket {
    tokens: f64,
    updated_at: Instant,
}

impl TokenBuckets {
    fn new(per_second: f64, most: f64) -> Self {
        Self { refill_per_second: per_second, capacity: most, buckets: Mutex::default() }
    }

    /// Takes a token, or returns the time until one is available.
    fn take_token(&self, paced: RateLimitKey, now: Instant) -> Result<(), Duration> {
        let mut all = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let mut key = paced;
        if all.len() >= BUCKETS_MAX && !all.contains_key(&key) {
            // Full buckets need not be remembered.
            all.retain(|_, bucket| self.tokens_at(*bucket, now) < self.capacity);
            if all.len() >= BUCKETS_MAX {
                key = RateLimitKey::Shared;
            }
        }
        let bucket = all.entry(key).or_insert(TokenBucket { tokens: self.capacity, updated_at: now });
        let left = self.tokens_at(*bucket, now);
        *bucket = TokenBucket { tokens: if left >= 1.0 { left - 1.0 } else { left }, updated_at: now };
        if left >= 1.0 {
            return Ok(());
        }
        Err(Duration::from_secs_f64(((1.0 - left) / self.refill_per_second).min(3600.0)))
    }

    fn tokens_at(&self, bucket: TokenBucket, now: Instant) -> f64 {
        let since = now.saturating_duration_since(bucket.updated_at).as_secs_f64();
        (bucket.tokens + since * self.refill_per_second).min(self.capacity)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_key(n: u128) -> RateLimitKey {
        RateLimitKey::Run(RunId(uuid::Uuid::from_u128(n)))
    }

    #[test]
    fn each_key_gets_its_own_burst_then_its_rate() {
        let buckets = TokenBuckets::new(10.0, 20.0);
        let start = Instant::now();
        assert_eq!((0..25).filter(|_| buckets.take_token(run_key(1), start).is_ok()).count(), 20);
        assert!(buckets.take_token(run_key(2), start).is_ok(), "another's is full");
        let wait = buckets.take_token(run_key(1), start).expect_err("empty");
        assert!(wait <= Duration::from_millis(100) && wait > Duration::from_millis(50), "{wait:?}");
        assert!(buckets.take_token(run_key(1), start + wait).is_ok());
        let later = start + Duration::from_secs(1);
        let given = (0..25).filter(|_| buckets.take_token(run_key(1), later).is_ok()).count();
        assert!((8..=10).contains(&given), "{given}");
        let much_later = start + Duration::from_secs(100);
        assert_eq!(
            (0..25).filter(|_| buckets.take_token(run_key(1), much_later).is_ok()).count(),
            20,
            "no more than a burst"
        );
    }

    #[test]
    fn bucket_count_is_bounded_and_the_rest_share_one() {
        let buckets = TokenBuckets::new(0.001, 2.0);
        let now = Instant::now();
        for n in 0..BUCKETS_MAX as u128 {
            buckets.take_token(run_key(n), now).expect("a bucket of its own");
        }
        let shared = (0..10).filter(|n| buckets.take_token(run_key(1 << 100 | n), now).is_ok()).count();
        assert_eq!(shared, 2, "ten strangers share one bucket");
        assert!(buckets.buckets.lock().expect("lock").len() <= BUCKETS_MAX + 1);
        assert!(buckets.take_token(run_key(0), now).is_ok(), "who has one keeps it");
        let refilled = now + Duration::from_secs(4000);
        buckets.take_token(run_key(1 << 101), refilled).expect("room again");
        assert!(buckets.buckets.lock().expect("lock").len() < 5, "full ones are forgotten");
    }

    #[test]
    fn ipv6_addresses_are_limited_per_network() {
        let of = |text: &str| peer_network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8::1"), of("2001:db8::ffff:1"));
        assert_ne!(of("2001:db8::1"), of("2001:db8:0:1::1"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
        assert_ne!(of("10.0.0.2"), of("10.0.0.1"));
    }
}
