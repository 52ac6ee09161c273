//! Something dear that is made once for all who ask, by a task of its own: whoever asked first may go before it is made,
//! and neither ends the making nor lets it begin again.

use std::sync::Arc;

use tokio::{sync::Mutex, task::JoinHandle};

/// See the module.
#[derive(Debug)]
pub(super) struct Once<T>(Mutex<State<T>>);

#[derive(Debug)]
enum State<T> {
    NotYet,
    Making(JoinHandle<anyhow::Result<T>>),
    Made(Arc<T>),
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self(Mutex::new(State::NotYet))
    }
}

impl<T> Once<T> {
    /// What was made; `make` begins it where nobody has. Where that failed, whoever asks next begins anew.
    pub(super) async fn get(
        &self,
        make: impl FnOnce() -> JoinHandle<anyhow::Result<T>>,
    ) -> anyhow::Result<Arc<T>> {
        let mut state = self.0.lock().await;
        if matches!(*state, State::NotYet) {
            *state = State::Making(make());
        }
        let made = match &mut *state {
            State::Made(made) => return Ok(Arc::clone(made)),
            // One who is dropped here leaves the task where it is, for whoever comes next.
            State::Making(task) => task.await,
            State::NotYet => unreachable!("it was begun above"),
        };
        *state = State::NotYet;
        let made = Arc::new(made??);
        *state = State::Made(Arc::clone(&made));
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn one_who_goes_neither_ends_the_making_nor_repeats_it() {
        let (once, begun) = (Once::<u32>::default(), AtomicUsize::new(0));
        let (go, gone) = oneshot::channel::<u32>();
        let mut gone = Some(gone);
        let mut make = || {
            begun.fetch_add(1, Ordering::Relaxed);
            let gone = gone.take();
            tokio::spawn(async move { Ok(gone.expect("it is made once").await?) })
        };
        tokio::select! {
            biased;
            _ = once.get(&mut make) => panic!("nothing is made yet"),
            // The first one asked, and goes.
            () = std::future::ready(()) => {}
        }
        go.send(7).expect("the making goes on");
        assert_eq!(*once.get(&mut make).await.expect("made"), 7);
        assert_eq!(*once.get(&mut make).await.expect("made"), 7);
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn what_failed_is_made_anew() {
        let once = Once::<u32>::default();
        let fails = || tokio::spawn(async { anyhow::bail!("the disk is full") });
        assert!(once.get(fails).await.expect_err("it fails").to_string().contains("full"));
        let panics = || tokio::spawn(async { panic!("a fault") });
        assert!(once.get(panics).await.is_err());
        assert_eq!(*once.get(|| tokio::spawn(async { Ok(1) })).await.expect("made"), 1);
    }
}
