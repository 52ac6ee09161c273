//! Patience: the same call again until it is answered or its deadline passes.

use std::{
    future::Future,
    time::{Duration, Instant},
};

use super::ClientError;

/// First pause: a coordinator that only restarts is back within some tens of milliseconds.
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// Longest pause: a worker must notice a coordinator's return well within a lease.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Pauses between attempts: doubling from 50 ms to 2 s, each drawn from its upper half so that the
/// runs of a worker do not come back in step.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    attempts: u32,
}

impl Backoff {
    pub(crate) fn next(&mut self, jitter: u64) -> Duration {
        let full = PAUSE_MIN.saturating_mul(1 << self.attempts.min(10)).min(PAUSE_MAX);
        self.attempts = self.attempts.saturating_add(1);
        let half_us = full.as_micros() as u64 / 2;
        Duration::from_micros(half_us + jitter % (half_us + 1))
    }
}

/// Calls `op` until it succeeds, fails for good, or `deadline` passes; then the last error is given.
/// An attempt that is under way at the deadline is dropped, so `op` must be safe to repeat.
///
/// # Errors
/// Those of `op`.
pub async fn patiently<T, F, Fut>(deadline: Instant, op: F) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ClientError>>,
{
    again_while(deadline, ClientError::is_retryable, op).await
}

/// The same for work that must not be lost because the store has no room for a while: somebody makes some.
///
/// # Errors
/// As there.
pub(crate) async fn patiently_without_room<T, F, Fut>(deadline: Instant, op: F) -> Result<T, ClientError>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, ClientError>>,
{
    let passes = |error: &ClientError| error.is_retryable() || error.is_full();
    again_while(deadline, passes, op).await
}

async fn again_while<T, F, Fut>(
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
            return Err(last.unwrap_or_else(deadline_passed));
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
        tokio::time::sleep(backoff.next(crate::clock::jitter()).min(left)).await;
    }
}

fn deadline_passed() -> ClientError {
    ClientError::Unreachable {
        doing: "get an answer in time",
        url: "the address given".to_owned(),
        source: Box::new(std::io::Error::from(std::io::ErrorKind::TimedOut)),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use docket_schema::wire::ProblemCode;

    use super::*;

    #[test]
    fn pauses_double_within_their_bounds() {
        let mut backoff = Backoff::default();
        for full_ms in [50, 100, 200, 400, 800, 1600, 2000, 2000] {
            let pause = backoff.next(u64::MAX / 3);
            let full = Duration::from_millis(full_ms);
            assert!(pause >= full / 2 && pause <= full, "{pause:?} of {full:?}");
        }
    }

    fn refused(code: ProblemCode) -> ClientError {
        ClientError::Refused(Box::new(code.problem("no")))
    }

    #[tokio::test]
    async fn only_what_may_pass_is_tried_again() {
        let calls = Cell::new(0);
        let far = Instant::now() + Duration::from_secs(60);
        let answer = patiently(far, || {
            calls.set(calls.get() + 1);
            let n = calls.get();
            async move { if n < 3 { Err(refused(ProblemCode::Unavailable)) } else { Ok(n) } }
        })
        .await;
        assert_eq!(answer.unwrap(), 3);

        calls.set(0);
        let fenced = patiently::<(), _, _>(far, || {
            calls.set(calls.get() + 1);
            async { Err(refused(ProblemCode::Fenced)) }
        })
        .await;
        assert_eq!((fenced.unwrap_err().code(), calls.get()), (Some(ProblemCode::Fenced), 1));
    }

    #[tokio::test]
    async fn a_store_without_room_is_waited_for_where_that_is_asked_for() {
        let far = Instant::now() + Duration::from_secs(60);
        let full = patiently::<(), _, _>(far, || async { Err(refused(ProblemCode::StorageFull)) }).await;
        assert_eq!(full.unwrap_err().code(), Some(ProblemCode::StorageFull));
        let calls = Cell::new(0);
        let answer = patiently_without_room(far, || {
            calls.set(calls.get() + 1);
            let n = calls.get();
            async move { if n < 3 { Err(refused(ProblemCode::StorageFull)) } else { Ok(n) } }
        });
        assert_eq!(answer.await.unwrap(), 3);
        let fenced = patiently_without_room::<(), _, _>(far, || async { Err(refused(ProblemCode::Fenced)) });
        assert_eq!(fenced.await.unwrap_err().code(), Some(ProblemCode::Fenced));
    }

    #[tokio::test]
    async fn the_deadline_ends_it_with_the_last_error() {
        let soon = Instant::now() + Duration::from_millis(20);
        let error = patiently::<(), _, _>(soon, || async { Err(refused(ProblemCode::Unavailable)) })
            .await
            .unwrap_err();
        assert_eq!(error.code(), Some(ProblemCode::Unavailable));
        let hung = patiently::<(), _, _>(soon, std::future::pending).await.unwrap_err();
        assert!(hung.is_retryable());
    }
}
