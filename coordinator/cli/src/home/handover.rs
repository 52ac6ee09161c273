//! Handover of a home: a `docket run` that serves the home hands it over to a `docket up`.
//!
//! A run listens on a random port, whereas `docket up` listens where people, programs and workers look for it.
//! When `docket up` finds that a run serves its home, it writes a request into its own lock file. The run shuts
//! down its coordinator, releases the home's lock and continues as a member. Invariants: a request is valid
//! only while its sender lives; while one is open, runs leave a free lock to its sender, but at most for
//! [`TAKE_OVER_TIME_MAX`], so that a stopped sender does not leave the home unserved.

use std::time::{Duration, Instant};

use docket_coordinator::clock::new_id;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    home::{DocketHome, HomeLock, HomeOwnership},
    output::error::CliResult,
};

/// How long a free lock is left to the sender of a request, which tries to take it many times per second.
const TAKE_OVER_TIME_MAX: Duration = Duration::from_secs(5);
/// After this time an ungranted request is written again: runs may have treated the old one as lapsed.
const REQUEST_RENEW_AFTER: Duration = Duration::from_secs(30);

/// A request of `docket up` to serve the home.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HandoverRequest {
    pid: u32,
    /// The id of this request. In a container, the next `docket up` may have the same process id.
    id: Uuid,
}

/// The claim to be the single `docket up` of a home, with its requests to serve it.
#[derive(Debug)]
pub(crate) struct UpClaim {
    lock: HomeLock,
    /// When the open request was written.
    requested_at: Option<Instant>,
}

impl UpClaim {
    /// Creates the claim with the lock of [`DocketHome::lock_for_up`].
    pub(crate) const fn new(lock: HomeLock) -> Self {
        Self { lock, requested_at: None }
    }

    /// Whether a request is open and not yet old.
    pub(crate) fn has_fresh_request(&self) -> bool {
        self.requested_at.is_some_and(|asked| asked.elapsed() < REQUEST_RENEW_AFTER)
    }

    /// Requests the home.
    pub(crate) fn request_handover(&mut self) -> CliResult<()> {
        self.lock.write_text(&HandoverRequest { pid: std::process::id(), id: new_id() })?;
        self.requested_at = Some(Instant::now());
        Ok(())
    }

    /// Withdraws the request: this process serves the home, or cannot.
    pub(crate) fn withdraw(&mut self) {
        if self.requested_at.take().is_some()
            && let Err(error) = self.lock.clear_text()
        {
            // Runs will see it lapse.
            tracing::warn!(%error, "the request to serve the home could not be withdrawn");
        }
    }
}

/// Tracks handover requests for a `docket run`.
#[derive(Debug, Default)]
pub(crate) struct HandoverWatch {
    /// A request whose sender did not take the lock in time; it is ignored.
    lapsed: Option<HandoverRequest>,
    /// Since when the lock has been free for the sender of a request.
    free_since: Option<Instant>,
}

impl HandoverWatch {
    /// Returns the open request, if any.
    pub(crate) fn open_request(&self, home: &DocketHome) -> Option<HandoverRequest> {
        match home.handover_request() {
            Ok(request) => request.filter(|request| self.lapsed.as_ref() != Some(request)),
            Err(failure) => {
                tracing::warn!(error = %failure.error, "cannot read handover requests");
                None
            }
        }
    }

    /// Whether to leave the lock to the sender of a request.
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
            // A short command, or a process that is starting to serve it.
            Ok(HomeOwnership::Owned(_) | HomeOwnership::Starting) | Err(_) => return true,
        }
        let since = *self.free_since.get_or_insert(now);
        if now.duration_since(since) < TAKE_OVER_TIME_MAX {
            return true;
        }
        tracing::warn!(pid = request.pid, "`docket up` requested the home but does not take it");
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
        assert_eq!(run.open_request(&home), None, "a `docket up` without a request gets no preference");
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
        assert!(!run.should_leave_lock(&home, start), "there is no request");
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
        // Another process serves for a while: the sender's time starts again.
        let owner = serve();
        assert!(run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX));
        drop(owner);
        let freed = freed + 2 * TAKE_OVER_TIME_MAX;
        assert!(run.should_leave_lock(&home, freed));
        // A short command does not use up any of it.
        let moment = home.try_lock().expect("tries").expect("is free");
        assert!(run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX));
        drop(moment);
        assert!(!run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX), "it has lapsed");
        assert!(
            !run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX) && run.open_request(&home).is_none()
        );
        // A new request of the same process is valid.
        up.request_handover().expect("asks");
        assert!(
            run.open_request(&home).is_some() && run.should_leave_lock(&home, freed + TAKE_OVER_TIME_MAX)
        );
    }
}
