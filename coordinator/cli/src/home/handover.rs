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
    home::{DocketHome, HomeLock, HomeOwnership},
    output::error::CliResult,
};

/// How long a free lock is left to the sender of a request, which tries for it many times a second.
const TAKE_OVER_TIME_MAX: Duration = Duration::from_secs(5);
/// After so long a request that was not granted is made anew: runs may have seen the old one lapse.
const REQUEST_RENEW_AFTER: Duration = Duration::from_secs(30);

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
    lock: HomeLock,
    /// When the request was made that stands.
    requested_at: Option<Instant>,
}

impl UpClaim {
    /// With the lock of [`Home::lock_up`].
    pub(crate) const fn new(lock: HomeLock) -> Self {
        Self { lock, requested_at: None }
    }

    /// Whether a request stands, and has not stood for long.
    pub(crate) fn has_fresh_request(&self) -> bool {
        self.requested_at.is_some_and(|asked| asked.elapsed() < REQUEST_RENEW_AFTER)
    }

    /// Asks for the home.
    pub(crate) fn request_handover(&mut self) -> CliResult<()> {
        self.lock.write_text(&HandoverRequest { pid: std::process::id(), id: new_id() })?;
        self.requested_at = Some(Instant::now());
        Ok(())
    }

    /// Takes the request back: this process serves the home, or cannot.
    pub(crate) fn withdraw(&mut self) {
        if self.requested_at.take().is_some()
            && let Err(error) = self.lock.clear_text()
        {
            // Runs see it lapse.
            tracing::warn!(%error, "the request to serve the home is not taken back");
        }
    }
}

/// What a `docket run` knows of requests.
#[derive(Debug, Default)]
pub(crate) struct HandoverWatch {
    /// A request whose sender did not take the lock in time: it counts no more.
    lapsed: Option<HandoverRequest>,
    /// Since when the lock is free for the sender of a request.
    free_since: Option<Instant>,
}

impl HandoverWatch {
    /// The request that stands, if one does.
    pub(crate) fn open_request(&self, home: &DocketHome) -> Option<HandoverRequest> {
        match home.handover_request() {
            Ok(request) => request.filter(|request| self.lapsed.as_ref() != Some(request)),
            Err(failure) => {
                tracing::warn!(error = %failure.error, "requests to hand the home over cannot be read");
                None
            }
        }
    }

    /// Whether the lock is left to the sender of a request.
    pub(crate) fn should_leave_lock(&mut self, home: &DocketHome, now: Instant) -> bool {
        let Some(request) = self.open_request(home) else {
            self.free_since = None;
            return false;
        };
        match home.ownership() {
            Ok(HomeOwnership::Free) => {}
            Ok(HomeOwnership::Owned(owner)) if owner.address.is_some() => {
                self.free_since = None;
                return true;
            }
            // A command that has the home for a moment, or a process that begins to serve it.
            Ok(HomeOwnership::Owned(_) | HomeOwnership::Starting) | Err(_) => return true,
        }
        let since = *self.free_since.get_or_insert(now);
        if now.duration_since(since) < TAKE_OVER_TIME_MAX {
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

    fn open_home() -> (tempfile::TempDir, DocketHome) {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        (folder, home)
    }

    fn claim_up(home: &DocketHome) -> UpClaim {
        UpClaim::new(home.lock_for_up().expect("tries").expect("is free"))
    }

    #[test]
    fn handover_request_lasts_until_withdrawn_or_sender_ends() {
        let (_folder, home) = open_home();
        let run = HandoverWatch::default();
        assert_eq!(run.open_request(&home), None);
        let mut up = claim_up(&home);
        assert_eq!(run.open_request(&home), None, "a `docket up` that does not ask wants nothing");
        up.request_handover().expect("asks");
        assert!(up.has_fresh_request() && run.open_request(&home).is_some());
        up.withdraw();
        assert!(!up.has_fresh_request() && run.open_request(&home).is_none());
        up.request_handover().expect("asks");
        assert!(run.open_request(&home).is_some());
        drop(up);
        assert_eq!(run.open_request(&home), None);
    }

    #[test]
    fn free_lock_is_left_to_the_requester_for_a_limited_time() {
        let (_folder, home) = open_home();
        let (mut run, start) = (HandoverWatch::default(), Instant::now());
        assert!(!run.should_leave_lock(&home, start), "nobody asks");
        let mut up = claim_up(&home);
        up.request_handover().expect("asks");
        let serve = || {
            let mut lock = home.try_lock().expect("tries").expect("is free");
            let address = "http://127.0.0.1:1".to_owned();
            lock.announce_service(address, OwnerCommand::Up, "a store".to_owned()).expect("says");
            lock
        };
        let owner = serve();
        assert!(
            run.should_leave_lock(&home, start)
                && run.should_leave_lock(&home, start + 10 * TAKE_OVER_TIME_MAX)
        );
        drop(owner);
        let freed = start + 20 * TAKE_OVER_TIME_MAX;
        assert!(
            run.should_leave_lock(&home, freed)
                && run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX / 2)
        );
        // Another serves for a while: the sender has its whole time again.
        let owner = serve();
        assert!(run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX));
        drop(owner);
        let freed = freed + 2 * TAKE_OVER_TIME_MAX;
        assert!(run.should_leave_lock(&home, freed));
        // A command that has the home for a moment takes nothing of it.
        let moment = home.try_lock().expect("tries").expect("is free");
        assert!(run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX));
        drop(moment);
        assert!(!run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX), "it has lapsed");
        assert!(
            !run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX) && run.open_request(&home).is_none()
        );
        // A new one of the same process counts.
        up.request_handover().expect("asks");
        assert!(
            run.open_request(&home).is_some() && run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX)
        );
    }
}
