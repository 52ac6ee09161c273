//! Records the network activity of one call, in bounded memory, and limits its bytes.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use docket_schema::{
    policy::{AllowList, HostPort},
    tool::{NETWORK_HOSTS_MAX, NetworkActivity, ReachedHost, RefusedHost},
};
use tokio::time::{Instant, sleep_until};

use super::connection::IDLE_TIMEOUT;

/// Maximum length in characters of a recorded target and of a refusal reason.
const TEXT_CHARS_MAX: usize = 300;

/// The meter of one call.
pub(super) struct NetworkMeter {
    pub(super) allow_list: Arc<AllowList>,
    usage: Mutex<NetworkUsage>,
}

#[derive(Default)]
struct NetworkUsage {
    seen: NetworkActivity,
    bytes: u64,
}

impl NetworkMeter {
    pub(super) fn new(allow: Arc<AllowList>) -> Self {
        Self { allow_list: allow, usage: Mutex::default() }
    }

    fn lock_usage(&self) -> MutexGuard<'_, NetworkUsage> {
        // The counters stay consistent even if a holder of the lock panicked.
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the activity so far.
    pub(super) fn snapshot(&self) -> NetworkActivity {
        self.lock_usage().seen.clone()
    }

    /// Records a refusal.
    pub(super) fn record_refusal(&self, place: &str, why: &str) {
        // Both contain text written by a program.
        let shown = |text: &str| -> String {
            let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
            text.chars().take(TEXT_CHARS_MAX).map(plain).collect()
        };
        let (place, why) = (shown(place), shown(why));
        let mut count = self.lock_usage();
        let seen = &mut count.seen;
        match seen.refused.iter().position(|one| one.place == place && one.why == why) {
            Some(at) => seen.refused[at].times = seen.refused[at].times.saturating_add(1),
            None if seen.refused.len() < NETWORK_HOSTS_MAX => {
                seen.refused.push(RefusedHost { place, why, times: 1 });
            }
            None => seen.left_out = seen.left_out.saturating_add(1),
        }
    }

    /// Records a connection to a target.
    pub(super) fn record_connection(&self, place: &HostPort) -> MeteredConnection<'_> {
        let name = place.to_string();
        let mut count = self.lock_usage();
        let seen = &mut count.seen;
        let known = seen.reached.iter().position(|one| one.place == name);
        let at = match known {
            Some(at) => Some(at),
            None if seen.reached.len() < NETWORK_HOSTS_MAX => {
                let one =
                    ReachedHost { place: name.clone(), connections: 0, sent_bytes: 0, received_bytes: 0 };
                seen.reached.push(one);
                Some(seen.reached.len() - 1)
            }
            None => None,
        };
        match at {
            Some(at) => seen.reached[at].connections = seen.reached[at].connections.saturating_add(1),
            None => seen.left_out = seen.left_out.saturating_add(1),
        }
        drop(count);
        MeteredConnection { meter: self, name, index: at, last_activity: Mutex::new(Instant::now()) }
    }
}

/// One outgoing connection.
pub(super) struct MeteredConnection<'a> {
    meter: &'a NetworkMeter,
    name: String,
    index: Option<usize>,
    last_activity: Mutex<Instant>,
}

impl MeteredConnection<'_> {
    /// Counts bytes that are about to be sent.
    ///
    /// # Errors
    /// Returns an error if the call exceeds its limit.
    pub(super) fn count_sent(&self, bytes: usize) -> io::Result<()> {
        self.count_bytes(bytes, |one| &mut one.sent_bytes)
    }

    /// Counts received bytes.
    ///
    /// # Errors
    /// Returns an error if the call exceeds its limit.
    pub(super) fn count_received(&self, bytes: usize) -> io::Result<()> {
        self.count_bytes(bytes, |one| &mut one.received_bytes)
    }

    fn count_bytes(&self, bytes: usize, of: impl Fn(&mut ReachedHost) -> &mut u64) -> io::Result<()> {
        *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let bytes_max = self.meter.allow_list.bytes_max;
        let mut count = self.meter.lock_usage();
        count.bytes = count.bytes.saturating_add(bytes as u64);
        if count.bytes > bytes_max {
            drop(count);
            let why = format!("the {bytes_max} bytes are used up that one call may send and receive");
            self.meter.record_refusal(&self.name, &why);
            return Err(io::Error::other(why));
        }
        if let Some(one) = self.index.and_then(|at| count.seen.reached.get_mut(at)) {
            *of(one) += bytes as u64;
        }
        Ok(())
    }

    /// Completes once nothing was sent or received for [`IDLE_TIMEOUT`].
    pub(super) async fn wait_until_idle(&self) {
        loop {
            let heard = *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner);
            sleep_until(heard + IDLE_TIMEOUT).await;
            if *self.last_activity.lock().unwrap_or_else(PoisonError::into_inner) == heard {
                return;
            }
        }
    }
}
