//! How many connections there may be: in all, and from one address.

use std::{
    collections::HashMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::http::network;

/// See the module.
pub(super) struct Seats {
    all: Arc<Semaphore>,
    per_peer: u32,
    loopback: u32,
    taken: Mutex<HashMap<IpAddr, u32>>,
}

impl Seats {
    /// Whoever is on this machine may take three quarters: run processes and workers, and never all.
    pub(super) fn new(all: u32, per_peer: u32) -> Arc<Self> {
        let loopback = per_peer.max(all / 4 * 3).min(all.saturating_sub(1)).max(1);
        let all = Arc::new(Semaphore::new(all as usize));
        Arc::new(Self { all, per_peer, loopback, taken: Mutex::default() })
    }

    /// Waits until there is room for anybody. `None` = never again.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// Takes a seat for `peer`; `None` where it has as many as it may.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, room: OwnedSemaphorePermit) -> Option<Seat> {
        let (peer, most) = if peer.to_canonical().is_loopback() {
            (network(peer), self.loopback)
        } else {
            (network(peer), self.per_peer)
        };
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let count = taken.entry(peer).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Seat { seats: Arc::clone(self), peer, _room: room })
    }
}

/// A connection's place, until it is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    peer: IpAddr,
    _room: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_address_takes_all_and_what_is_given_back_is_free() {
        let seats = Seats::new(8, 2);
        let peer = |text: &str| text.parse::<IpAddr>().expect("an address");
        let mut held = Vec::new();
        for _ in 0..2 {
            let room = seats.room().await.expect("room");
            held.push(seats.take(peer("10.0.0.1"), room).expect("a seat"));
        }
        let room = seats.room().await.expect("room");
        assert!(seats.take(peer("10.0.0.1"), room).is_none(), "two are its share");
        for _ in 0..6 {
            let room = seats.room().await.expect("room");
            held.push(seats.take(peer("127.0.0.1"), room).expect("loopback has three quarters"));
        }
        assert_eq!(seats.all.available_permits(), 0);
        held.clear();
        assert_eq!(seats.all.available_permits(), 8);
        assert!(seats.taken.lock().expect("lock").is_empty(), "nothing is remembered");
    }
}
