//! The handover of a home: a `docket run` that serves it leaves that to a `docket up`.
//!
//! A run answers at a port that nobody knows beforehand. `docket up` answers where people, programs and workers look for
//! it. So a `docket up` that finds a run serving its home asks for the home, in the file whose lock makes it the one
//! `docket up` there. The run ends its coordinator in order, releases the home's lock and goes on as a member. Invariants:
//! a request stands only while its sender lives; while one stands, runs leave a free lock to its sender, but for
//! [`TAKE_MAX`] at most, so that the home is not left unserved by a sender that was stopped.

use std::time::{Duration, Instant};

use docket_coordinator::clock::new_id;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    home::{Home, Lock, Ownership},
    output::fail::Outcome,
};

/// How long a free lock is left to the sender of a request, which tries for it many times a second.
const TAKE_MAX: Duration = Duration::from_secs(5);
/// After so long a request that was not granted is made anew: runs may have seen the old one lapse.
const ASK_AGAIN: Duration = Duration::from_secs(30);

/// A `docket up` wants to serve the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandoverRequest {
    /// Its process.
    pid: u32,
    /// The id of this request. In a container, the next `docket up` may have the same process id.
    id: Uuid,
}

/// The claim to be the one `docket up` of a home, and its requests to serve it.
#[derive(Debug)]
pub(crate) struct UpClaim {
    lock: Lock,
    /// When the request was made that stands.
    asked: Option<Instant>,
}

impl UpClaim {
    /// With the lock of [`Home::lock_up`].
    pub(crate) const fn new(lock: Lock) -> Self {
        Self { lock, asked: None }
    }

    /// Whether a request stands, and has not stood for long.
    pub(crate) fn is_asking(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < ASK_AGAIN)
    }

    /// Asks for the home.
    pub(crate) fn ask(&mut self) -> Outcome<()> {
        self.lock.say(&HandoverRequest { pid: std::process::id(), id: new_id() })?;
        self.asked = Some(Instant::now());
        Ok(())
    }

    /// Takes the request back: this process serves the home, or cannot.
    pub(crate) fn withdraw(&mut self) {
        if self.asked.take().is_some()
            && let Err(error) = self.lock.unsay()
        {
            // Runs see it lapse.
            tracing::warn!(%error, "the request to serve the home is not taken back");
        }
    }
}

/// What a `docket run` knows of requests.
#[derive(Debug, Default)]
pub(crate) struct Yielding {
    /// A request whose sender did not take the lock in time: it counts no more.
    lapsed: Option<HandoverRequest>,
    /// Since when the lock is free for the sender of a request.
    free_since: Option<Instant>,
}

impl Yielding {
    /// The request that stands, if one does.
    pub(crate) fn request(&self, home: &Home) -> Option<HandoverRequest> {
        match home.handover_request() {
            Ok(request) => request.filter(|request| self.lapsed.as_ref() != Some(request)),
            Err(failure) => {
                tracing::warn!(error = %failure.error, "requests to hand the home over cannot be read");
                None
            }
        }
    }

    /// Whether the lock is left to the sender of a request.
    pub(crate) fn leaves_lock(&mut self, home: &Home, now: Instant) -> bool {
        let Some(request) = self.request(home) else {
            self.free_since = None;
            return false;
        };
        match home.ownership() {
            Ok(Ownership::Free) => {}
            Ok(Ownership::Owned(owner)) if owner.address.is_some() => {
                self.free_since = None;
                return true;
            }
            // A command that has the home for a moment, or a process that begins to serve it.
            Ok(Ownership::Owned(_) | Ownership::Starting) | Err(_) => return true,
        }
        let since = *self.free_since.get_or_insert(now);
        if now.duration_since(since) < TAKE_MAX {
            return true;
        }
        tracing::warn!(pid = request.pid, "`docket up` asked for the home and does not take it");
        (self.lapsed, self.free_since) = (Some(request), None);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::OwnerCommand;

    fn home() -> (tempfile::TempDir, Home) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = Home::open(Some(folder.path())).expect("opens");
        (folder, home)
    }

    fn claim(home: &Home) -> UpClaim {
        UpClaim::new(home.lock_up().expect("tries").expect("is free"))
    }

    #[test]
    fn a_request_stands_until_it_is_taken_back_or_its_sender_ends() {
        let (_folder, home) = home();
        let run = Yielding::default();
        assert_eq!(run.request(&home), None);
        let mut up = claim(&home);
        assert_eq!(run.request(&home), None, "a `docket up` that does not ask wants nothing");
        up.ask().expect("asks");
        assert!(up.is_asking() && run.request(&home).is_some());
        up.withdraw();
        assert!(!up.is_asking() && run.request(&home).is_none());
        up.ask().expect("asks");
        assert!(run.request(&home).is_some());
        drop(up);
        assert_eq!(run.request(&home), None);
    }

    #[test]
    fn a_free_lock_is_left_to_the_sender_of_a_request_for_a_while() {
        let (_folder, home) = home();
        let (mut run, start) = (Yielding::default(), Instant::now());
        assert!(!run.leaves_lock(&home, start), "nobody asks");
        let mut up = claim(&home);
        up.ask().expect("asks");
        let serve = || {
            let mut lock = home.try_lock().expect("tries").expect("is free");
            let address = "http://127.0.0.1:1".to_owned();
            lock.announce_service(address, OwnerCommand::Up, "a store".to_owned()).expect("says");
            lock
        };
        let owner = serve();
        assert!(run.leaves_lock(&home, start) && run.leaves_lock(&home, start + 10 * TAKE_MAX));
        drop(owner);
        let freed = start + 20 * TAKE_MAX;
        assert!(run.leaves_lock(&home, freed) && run.leaves_lock(&home, freed + TAKE_MAX / 2));
        // Another serves for a while: the sender has its whole time again.
        let owner = serve();
        assert!(run.leaves_lock(&home, freed + TAKE_MAX));
        drop(owner);
        let freed = freed + 2 * TAKE_MAX;
        assert!(run.leaves_lock(&home, freed));
        // A command that has the home for a moment takes nothing of it.
        let moment = home.try_lock().expect("tries").expect("is free");
        assert!(run.leaves_lock(&home, freed + TAKE_MAX));
        drop(moment);
        assert!(!run.leaves_lock(&home, freed + TAKE_MAX), "it has lapsed");
        assert!(!run.leaves_lock(&home, freed + TAKE_MAX) && run.request(&home).is_none());
        // A new one of the same process counts.
        up.ask().expect("asks");
        assert!(run.request(&home).is_some() && run.leaves_lock(&home, freed + TAKE_MAX));
    }
}
