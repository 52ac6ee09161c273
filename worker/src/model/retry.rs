//! Delays between attempts of a failed model call. Pure: the run loop supplies the random number, waits and
//! records each failure; the client itself never retries.

use std::time::Duration;

use super::error::ModelError;

/// Attempts at one call until it counts as failed. With the cap of a single delay this outlasts an overload
/// of about two minutes; a longer one is left to the queue's retry, which does not occupy a worker.
pub const ATTEMPTS_MAX: u32 = 10;
/// Attempts that were cut or timed out: each may have been billed, or took minutes.
pub const CUT_ATTEMPTS_MAX: u32 = 4;
/// First delay, before jitter; it doubles with each attempt.
pub const BACKOFF_BASE_MS: u64 = 500;
/// Longest delay of our own choice, before jitter.
pub const BACKOFF_CAP_MS: u64 = 30_000;
/// Longest delay that a provider may request: beyond it the run fails and the queue retries it later.
pub const RETRY_AFTER_MAX_MS: u64 = 300_000;
/// Most that is added to a requested delay, so that many workers do not return at once.
pub const RETRY_AFTER_JITTER_MS: u64 = 250;

/// Returns the delay after failure number `attempt` (from 1), or `None` if the call has failed for good. A
/// delay requested by the provider is observed exactly, plus at most [`RETRY_AFTER_JITTER_MS`]; any other is
/// random between 0 and a bound that doubles (full jitter).
pub fn next_delay(attempt: u32, error: &ModelError, random: u64) -> Option<Duration> {
    if !error.is_retryable() || attempt >= max_attempts(error) {
        return None;
    }
    let ms = match error.retry_after_ms() {
        Some(ms) if ms > RETRY_AFTER_MAX_MS => return None,
        Some(ms) => ms + random % (RETRY_AFTER_JITTER_MS + 1),
        None => {
            let doublings = attempt.saturating_sub(1).min(16);
            let bound = (BACKOFF_BASE_MS << doublings).min(BACKOFF_CAP_MS);
            random % (bound + 1)
        }
    };
    Some(Duration::from_millis(ms))
}

const fn max_attempts(error: &ModelError) -> u32 {
    match error {
        ModelError::CutStream | ModelError::Timeout { .. } => CUT_ATTEMPTS_MAX,
        ModelError::RateLimited { .. }
        | ModelError::Overloaded { .. }
        | ModelError::Server { .. }
        | ModelError::Connect { .. } => ATTEMPTS_MAX,
        ModelError::SpendLimit { .. }
        | ModelError::Unauthorized { .. }
        | ModelError::KeyWithheld { .. }
        | ModelError::Forbidden { .. }
        | ModelError::NoKey { .. }
        | ModelError::InvalidRequest { .. }
        | ModelError::ContextTooLong { .. }
        | ModelError::Protocol { .. } => 1,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OVERLOADED: ModelError = ModelError::Overloaded { retry_after_ms: None };

    #[test]
    fn permanent_errors_are_never_retried() {
        let message = String::new();
        for error in [
            ModelError::SpendLimit { message: message.clone() },
            ModelError::Unauthorized { message: message.clone() },
            ModelError::KeyWithheld { status: 401 },
            ModelError::Forbidden { message: message.clone() },
            ModelError::NoKey { variable: "KEY" },
            ModelError::InvalidRequest { message: message.clone() },
            ModelError::ContextTooLong { message: message.clone() },
            ModelError::Protocol { detail: message },
            ModelError::RateLimited { retry_after_ms: Some(RETRY_AFTER_MAX_MS + 1) },
        ] {
            assert_eq!(next_delay(1, &error, 3), None, "{error}");
        }
    }

    #[test]
    fn attempts_are_limited() {
        assert!(next_delay(ATTEMPTS_MAX - 1, &OVERLOADED, 1).is_some());
        assert_eq!(next_delay(ATTEMPTS_MAX, &OVERLOADED, 1), None);
        assert!(next_delay(CUT_ATTEMPTS_MAX - 1, &ModelError::CutStream, 1).is_some());
        assert_eq!(next_delay(CUT_ATTEMPTS_MAX, &ModelError::CutStream, 1), None);
    }

    proptest! {
        #[test]
        fn demanded_wait_is_honored_and_own_wait_is_bounded(
            attempt in 1..ATTEMPTS_MAX, demanded in 0..=RETRY_AFTER_MAX_MS, random: u64,
        ) {
            let error = ModelError::RateLimited { retry_after_ms: Some(demanded) };
            let wait = next_delay(attempt, &error, random).expect("retryable").as_millis() as u64;
            prop_assert!((demanded..=demanded + RETRY_AFTER_JITTER_MS).contains(&wait));
            let wait = next_delay(attempt, &OVERLOADED, random).expect("retryable").as_millis() as u64;
            prop_assert!(wait <= BACKOFF_CAP_MS.min(BACKOFF_BASE_MS << (attempt - 1)));
        }
    }
}
