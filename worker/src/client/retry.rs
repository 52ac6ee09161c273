//! Retries: repeats a call until it succeeds or its deadline passes.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::ClientError;

/// First delay: a coordinator that only restarts is back within tens of milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest delay: a worker must notice a coordinator's return well within a lease.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Delays between attempts: doubling from 50 ms to 2 s, each chosen from its upper half so that the runs of a
/// worker do not retry in step.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) fn next_pause(&mut self, jitter: u64) -> Duration {
        let full = PAUSE_MIN.saturating_mul(1 << self.attempts.min(10)).min(PAUSE_MAX);
        self.attempts = self.attempts.saturating_add(1);
        let half_us = full.as_micros() as u64 / 2;
        Duration::from_micros(half_us + jitter % (half_us + 1))
    }
}

/// Calls `op` until it succeeds, fails permanently, or `deadline` passes; then returns the last error. An
/// attempt in progress at the deadline is dropped, so `op` must be safe to repeat.
///
/// # Errors
/// The last error of `op`.
pub async fn retry_until<T, F, Fut>(deadline: Instant, op: F) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ClientError>>,
{
    retry_while(deadline, ClientError::is_retryable, op).await
}

/// Like [`retry_until`], but also waits while the store is full, for work that must not be lost.
///
/// # Errors
/// Those of [`retry_until`].
pub(crate) async fn retry_until_with_room<T, F, Fut>(deadline: Instant, op: F) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ClientError>>,
{
    let passes = |error: &ClientError| error.is_retryable() || error.is_storage_full();
    retry_while(deadline, passes, op).await
}

async fn retry_while<T, F, Fut>(
    deadline: Instant,
    passes: impl Fn(&ClientError) -> bool,
    mut op: F,
) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ClientError>>,
{
    let mut backoff = Backoff::default();
    let mut last = None;
    loop {
        let Ok(outcome) = tokio::time::timeout_at(deadline.into(), op()).await else {
            return Err(last.unwrap_or_else(deadline_error));
        };
        let error = match outcome {
            Err(error) if passes(&error) => error,
            Ok(_) | Err(_) => return outcome,
        };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(error);
        }
        last = Some(error);
        tokio::time::sleep(backoff.next_pause(crate::clock::random_jitter()).min(left)).await;
    }
}

fn deadline_error() -> ClientError {
    ClientError::Unreachable {
        doing: "complete the request",
        url: "the given address".to_owned(),
        source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use docket_schema::api::ProblemCode;

    use super::*;

    #[test]
    fn pauses_double_within_their_bounds() {
        let mut backoff = Backoff::default();
        for full_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            let pause = backoff.next_pause(u64::MAX / 3);
            let full = Duration::from_millis(full_ms);
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
    }

    fn problem_error(code: ProblemCode) -> ClientError {
        ClientError::Problem(Box::new(code.to_problem("no")))
    }

    #[tokio::test]
    async fn only_transient_errors_are_retried() {
        let calls = Cell::new(0);
        let far = Instant::now() + Duration::from_secs(60);
        let answer = retry_until(far, || {
            calls.set(calls.get() + 1);
            let n = calls.get();
            async move { if n < 3 { Err(problem_error(ProblemCode::Unavailable)) } else { Ok(n) } }
        })
        .await;
        assert_eq!(answer.unwrap(), 3);

        calls.set(0);
        let fenced = retry_until::<(), _, _>(far, || {
            calls.set(calls.get() + 1);
            async { Err(problem_error(ProblemCode::Fenced)) }
        })
        .await;
        assert_eq!((fenced.unwrap_err().problem_code(), calls.get()), (Some(ProblemCode::Fenced), 1));
    }

    #[tokio::test]
    async fn full_storage_is_retried_only_on_request() {
        let far = Instant::now() + Duration::from_secs(60);
        let full =
            retry_until::<(), _, _>(far, || async { Err(problem_error(ProblemCode::StorageFull)) }).await;
        assert_eq!(full.unwrap_err().problem_code(), Some(ProblemCode::StorageFull));
        let calls = Cell::new(0);
        let answer = retry_until_with_room(far, || {
            calls.set(calls.get() + 1);
            let n = calls.get();
            async move { if n < 3 { Err(problem_error(ProblemCode::StorageFull)) } else { Ok(n) } }
        });
        assert_eq!(answer.await.unwrap(), 3);
        let fenced =
            retry_until_with_room::<(), _, _>(far, || async { Err(problem_error(ProblemCode::Fenced)) });
        assert_eq!(fenced.await.unwrap_err().problem_code(), Some(ProblemCode::Fenced));
    }

    #[tokio::test]
    async fn deadline_returns_the_last_error() {
        let soon = Instant::now() + Duration::from_millis(20);
        let error = retry_until::<(), _, _>(soon, || async { Err(problem_error(ProblemCode::Unavailable)) })
            .await
            .unwrap_err();
        assert_eq!(error.problem_code(), Some(ProblemCode::Unavailable));
        let hung = retry_until::<(), _, _>(soon, std::future::pending).await.unwrap_err();
        assert!(hung.is_retryable());
    }
}
