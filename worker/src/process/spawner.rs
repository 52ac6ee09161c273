//! A thread that starts long-lived children and lives as long as this process.
//!
//! The kernel sends a parent death signal when the *thread* that forked ends, and a runtime's thread may end at any
//! time. So all children with such a signal are forked here, by a thread that ends only with the process.

use std::{
    io,
    sync::{
        Mutex, PoisonError,
        mpsc::{SyncSender, sync_channel},
    },
};

use tokio::{runtime::Handle, sync::oneshot};

/// Most queued starts; no supervisor has that many slots.
const PENDING_STARTS_MAX: usize = 256;

type SpawnJob = Box<dyn FnOnce() + Send>;

/// Runs `work`, which forks, on the spawner thread.
///
/// # Errors
/// Returns the error of `work`, or that the thread could not be created.
pub(super) async fn run_on_spawner_thread<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let (tell, done) = oneshot::channel();
    // The caller's runtime watches the children.
    let runtime = Handle::current();
    let asked: SpawnJob = Box::new(move || {
        let _within = runtime.enter();
        // If the caller no longer waits, the result is dropped, which kills the started child.
        drop(tell.send(work()));
    });
    let sender = spawner_sender()?;
    // Wait for a full queue without blocking a runtime thread: it drains within moments.
    let mut asked = asked;
    loop {
        match sender.try_send(asked) {
            Ok(()) => break,
            Err(std::sync::mpsc::TrySendError::Full(back)) => {
                asked = back;
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
            Err(std::sync::mpsc::TrySendError::Disconnected(_)) => return Err(spawner_gone_error()),
        }
    }
    done.await.map_err(|_| spawner_gone_error())?
}

fn spawner_gone_error() -> io::Error {
    io::Error::other("the thread that starts processes is gone; start docket again")
}

/// Returns the channel to the thread, which the first call starts.
fn spawner_sender() -> io::Result<SyncSender<SpawnJob>> {
    static THREAD: Mutex<Option<SyncSender<SpawnJob>>> = Mutex::new(None);
    let mut thread = THREAD.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(sender) = &*thread {
        return Ok(sender.clone());
    }
    let (sender, works) = sync_channel::<SpawnJob>(PENDING_STARTS_MAX);
    // The sender in the static is never dropped: this loop ends with the process.
    let run = move || works.into_iter().for_each(|work| work());
    std::thread::Builder::new().name("spawner".to_owned()).spawn(run)?;
    *thread = Some(sender.clone());
    Ok(sender)
}
