//! What one call did on the network: counted as it goes, bounded, and limited in bytes.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use docket_schema::{
    policy::{AllowList, Place},
    tool::{NetworkSeen, PLACES_MAX, PlaceReached, PlaceRefused},
};
use tokio::time::{Instant, sleep_until};

use super::serve::IDLE;

/// Characters of a place that a program asked for, and of why it was refused.
const TEXT_CHARS_MAX: usize = 300;

/// The count of one call.
pub(super) struct Meter {
    pub(super) allow: Arc<AllowList>,
    count: Mutex<Count>,
}

#[derive(Default)]
struct Count {
    seen: NetworkSeen,
    bytes: u64,
}

impl Meter {
    pub(super) fn new(allow: Arc<AllowList>) -> Self {
        Self { allow, count: Mutex::default() }
    }

    fn count(&self) -> MutexGuard<'_, Count> {
        // Numbers are whole whoever panicked.
        self.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was seen so far.
    pub(super) fn seen(&self) -> NetworkSeen {
        self.count().seen.clone()
    }

    /// Notes a refusal.
    pub(super) fn refused(&self, place: &str, why: &str) {
        // Both hold what a program wrote.
        let shown = |text: &str| -> String {
            let plain = |c: char| if c.is_ascii_graphic() || c == ' ' { c } else { '?' };
            text.chars().take(TEXT_CHARS_MAX).map(plain).collect()
        };
        let (place, why) = (shown(place), shown(why));
        let mut count = self.count();
        let seen = &mut count.seen;
        match seen.refused.iter().position(|one| one.place == place && one.why == why) {
            Some(at) => seen.refused[at].times = seen.refused[at].times.saturating_add(1),
            None if seen.refused.len() < PLACES_MAX => {
                seen.refused.push(PlaceRefused { place, why, times: 1 });
            }
            None => seen.left_out = seen.left_out.saturating_add(1),
        }
    }

    /// Notes a connection to a place.
    pub(super) fn reached(&self, place: &Place) -> Line<'_> {
        let name = place.to_string();
        let mut count = self.count();
        let seen = &mut count.seen;
        let known = seen.reached.iter().position(|one| one.place == name);
        let at = match known {
            Some(at) => Some(at),
            None if seen.reached.len() < PLACES_MAX => {
                let one =
                    PlaceReached { place: name.clone(), connections: 0, sent_bytes: 0, received_bytes: 0 };
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
        Line { meter: self, name, at, heard: Mutex::new(Instant::now()) }
    }
}

/// One connection outwards.
pub(super) struct Line<'a> {
    meter: &'a Meter,
    name: String,
    at: Option<usize>,
    heard: Mutex<Instant>,
}

impl Line<'_> {
    /// Counts bytes that are about to be sent.
    ///
    /// # Errors
    /// They are more than the call may have.
    pub(super) fn sends(&self, bytes: usize) -> io::Result<()> {
        self.counts(bytes, |one| &mut one.sent_bytes)
    }

    /// Counts bytes that were received.
    ///
    /// # Errors
    /// As [`Line::sends`].
    pub(super) fn received(&self, bytes: usize) -> io::Result<()> {
        self.counts(bytes, |one| &mut one.received_bytes)
    }

    fn counts(&self, bytes: usize, of: impl Fn(&mut PlaceReached) -> &mut u64) -> io::Result<()> {
        *self.heard.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let bytes_max = self.meter.allow.bytes_max;
        let mut count = self.meter.count();
        count.bytes = count.bytes.saturating_add(bytes as u64);
        if count.bytes > bytes_max {
            drop(count);
            let why = format!("the {bytes_max} bytes are used up that one call may send and receive");
            self.meter.refused(&self.name, &why);
            return Err(io::Error::other(why));
        }
        if let Some(one) = self.at.and_then(|at| count.seen.reached.get_mut(at)) {
            *of(one) += bytes as u64;
        }
        Ok(())
    }

    /// Ends once nothing was sent or received for [`IDLE`].
    pub(super) async fn idle(&self) {
        loop {
            let heard = *self.heard.lock().unwrap_or_else(PoisonError::into_inner);
            sleep_until(heard + IDLE).await;
            if *self.heard.lock().unwrap_or_else(PoisonError::into_inner) == heard {
                return;
            }
        }
    }
}
