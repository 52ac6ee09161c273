//! Single flight: an expensive value is computed once for all callers, in its own background task. A caller
//! that goes away neither stops nor restarts the computation.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinHandle};

/// A value that is computed at most once.
#[derive(Debug)]
pub(super) struct SingleFlight<T>(Mutex<FlightState<T>>);

#[derive(Debug)]
enum FlightState<T> {
    Idle,
    Running(JoinHandle<anyhow::Result<T>>),
    Done(Arc<T>),
}

impl<T> Default for SingleFlight<T> {
    fn default() -> Self {
        Self(Mutex::new(FlightState::Idle))
    }
}

impl<T> SingleFlight<T> {
    /// Returns the value; the first caller starts `make`. After a failure the next caller starts it again.
    pub(super) async fn get_or_start(
        &self,
        make: impl FnOnce() -> JoinHandle<anyhow::Result<T>>,
    ) -> anyhow::Result<Arc<T>> {
        let mut state = self.0.lock().await;
        if matches!(*state, FlightState::Idle) {
            *state = FlightState::Running(make());
        }
        let made = match &mut *state {
            FlightState::Done(made) => return Ok(Arc::clone(made)),
            // A caller dropped here leaves the task running for the next one.
            FlightState::Running(task) => task.await,
            FlightState::Idle => unreachable!("it was begun above"),
        };
        *state = FlightState::Idle;
        let made = Arc::new(made??);
        *state = FlightState::Done(Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn dropped_caller_neither_cancels_nor_restarts_the_work() {
        let (once, begun) = (SingleFlight::<u32>::default(), AtomicUsize::new(0));
        let (go, gone) = oneshot::channel::<u32>();
        let mut gone = Some(gone);
        let mut make = || {
            begun.fetch_add(1, Ordering::Relaxed);
            let gone = gone.take();
            tokio::spawn(async move { Ok(gone.expect("it is made once").await?) })
        };
        tokio::select! {
            biased;
            _ = once.get_or_start(&mut make) => panic!("nothing is made yet"),
            // The first caller asks and goes away.
            () = std::future::ready(()) => {}
        }
        go.send(7).expect("the computation continues");
        assert_eq!(*once.get_or_start(&mut make).await.expect("made"), 7);
        assert_eq!(*once.get_or_start(&mut make).await.expect("made"), 7);
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn failed_work_is_retried_by_the_next_caller() {
        let once = SingleFlight::<u32>::default();
        let fails = || tokio::spawn(async { anyhow::bail!("the disk is full") });
        assert!(once.get_or_start(fails).await.expect_err("it fails").to_string().contains("full"));
        let panics = || tokio::spawn(async { panic!("a fault") });
        assert!(once.get_or_start(panics).await.is_err());
        assert_eq!(*once.get_or_start(|| tokio::spawn(async { Ok(1) })).await.expect("made"), 1);
    }
}
