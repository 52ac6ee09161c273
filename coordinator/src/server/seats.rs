//! How many connections there may be: in all, and from one address. Where there is no room, the oldest that
//! never brought a good token makes some, so that nobody without one keeps anybody out by staying.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::http::{Proven, network};

/// See the module.
pub(super) struct Seats {
    all: Arc<Semaphore>,
    per_peer: u32,
    loopback: u32,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    /// How many each address has.
    of: HashMap<IpAddr, u32>,
    /// All that are not asked to leave, the oldest first.
    seated: BTreeMap<u64, Seated>,
    next: u64,
}

struct Seated {
    peer: IpAddr,
    proven: Proven,
    leave: CancellationToken,
}

impl Taken {
    /// Asks the oldest that never brought a good token to leave, of `peer` or of all. Whether there was one.
    fn evict(&mut self, peer: Option<IpAddr>) -> bool {
        let fits = |seated: &Seated| {
            peer.is_none_or(|peer| seated.peer == peer) && !seated.proven.0.load(Ordering::Relaxed)
        };
        let oldest = self.seated.iter().find(|(_, seated)| fits(seated)).map(|(nth, _)| *nth);
        let left = oldest.and_then(|nth| self.seated.remove(&nth));
        if let Some(Seated { leave, peer, .. }) = &left {
            leave.cancel();
            // It does not count for its address from here on.
            self.give_back(*peer);
        }
        left.is_some()
    }

    fn give_back(&mut self, peer: IpAddr) {
        if let Some(count) = self.of.get_mut(&peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.of.remove(&peer);
            }
        }
    }
}

impl Seats {
    /// Whoever is on this machine may take three quarters: run processes and workers, and never all.
    pub(super) fn new(all: u32, per_peer: u32) -> Arc<Self> {
        let loopback = per_peer.max(all / 4 * 3).min(all.saturating_sub(1)).max(1);
        let all = Arc::new(Semaphore::new(all as usize));
        Arc::new(Self { all, per_peer, loopback, taken: Mutex::default() })
    }

    /// Waits until there is room for anybody, and makes some where that can be. `None` = never again.
    pub(super) async fn room(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(room) = Arc::clone(&self.all).try_acquire_owned() {
            return Some(room);
        }
        self.taken.lock().unwrap_or_else(PoisonError::into_inner).evict(None);
        Arc::clone(&self.all).acquire_owned().await.ok()
    }

    /// Takes a seat for `peer`; `None` where it has as many as it may, each with a good token.
    pub(super) fn take(self: &Arc<Self>, peer: IpAddr, room: OwnedSemaphorePermit) -> Option<Seat> {
        let most = if peer.to_canonical().is_loopback() { self.loopback } else { self.per_peer };
        let peer = network(peer);
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.of.get(&peer).is_some_and(|count| *count >= most) && !taken.evict(Some(peer)) {
            return None;
        }
        *taken.of.entry(peer).or_default() += 1;
        let nth = taken.next;
        taken.next += 1;
        let (proven, leave) = (Proven::default(), CancellationToken::new());
        taken.seated.insert(nth, Seated { peer, proven: proven.clone(), leave: leave.clone() });
        Some(Seat { seats: Arc::clone(self), nth, proven, leave, _room: room })
    }
}

/// A connection's place, until it is dropped.
pub(super) struct Seat {
    seats: Arc<Seats>,
    nth: u64,
    /// To be set once a good token came.
    pub(super) proven: Proven,
    /// Cancelled when the connection is to make room.
    pub(super) leave: CancellationToken,
    _room: OwnedSemaphorePermit,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.lock().unwrap_or_else(PoisonError::into_inner);
        // Whoever was asked to leave has been counted out.
        if let Some(Seated { peer, .. }) = taken.seated.remove(&self.nth) {
            taken.give_back(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    async fn seat(seats: &Arc<Seats>, from: &str) -> Option<Seat> {
        let room = seats.room().await.expect("room");
        let seat = seats.take(peer(from), room)?;
        seat.proven.0.store(true, Ordering::Relaxed);
        Some(seat)
    }

    #[tokio::test]
    async fn no_address_takes_all_and_what_is_given_back_is_free() {
        let seats = Seats::new(8, 2);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(seat(&seats, "10.0.0.1").await.expect("a seat"));
        }
        assert!(seat(&seats, "10.0.0.1").await.is_none(), "two are its share");
        for _ in 0..6 {
            held.push(seat(&seats, "127.0.0.1").await.expect("loopback has three quarters"));
        }
        assert_eq!(seats.all.available_permits(), 0);
        held.clear();
        assert_eq!(seats.all.available_permits(), 8);
        let taken = seats.taken.lock().expect("lock");
        assert!(taken.of.is_empty() && taken.seated.is_empty(), "nothing is remembered");
    }

    #[tokio::test]
    async fn who_never_brought_a_token_makes_room_and_who_did_does_not() {
        let seats = Seats::new(4, 2);
        let good = seat(&seats, "10.0.0.1").await.expect("a seat");
        let idle = seat(&seats, "10.0.0.1").await.expect("a seat");
        idle.proven.0.store(false, Ordering::Relaxed);
        let next = seat(&seats, "10.0.0.1").await.expect("the idle one's");
        assert!(idle.leave.is_cancelled() && !good.leave.is_cancelled() && !next.leave.is_cancelled());
        assert!(seat(&seats, "10.0.0.1").await.is_none(), "both are good");
        drop(idle);
        assert!(seat(&seats, "10.0.0.1").await.is_none(), "it was counted out once");
        let strangers = [seat(&seats, "10.0.0.2").await, seat(&seats, "10.0.0.3").await];
        let [Some(second), Some(third)] = strangers else { panic!("two more") };
        third.proven.0.store(false, Ordering::Relaxed);
        let leave = third.leave.clone();
        let leaves = async move {
            leave.cancelled().await;
            drop(third);
        };
        let (room, ()) = tokio::join!(seats.room(), leaves);
        assert!(room.is_some() && !second.leave.is_cancelled());
    }
}
