//! Connection limits, in total and per address. If there is no room, the oldest connection that never sent a
//! valid token is evicted, so an unauthenticated client cannot keep others out by staying connected.

use std::{
    collections::{BTreeMap, HashMap},
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, atomic::Ordering},
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::http::{AuthenticatedOnce, peer_network};

/// Limits connections; see the module.
pub(super) struct ConnectionLimiter {
    slots: Arc<Semaphore>,
    per_peer: u32,
    per_loopback: u32,
    active: Mutex<ActiveConnections>,
}

#[derive(Default)]
struct ActiveConnections {
    /// Number of connections of each address.
    per_address: HashMap<IpAddr, u32>,
    /// All connections not asked to leave, oldest first.
    by_age: BTreeMap<u64, ActiveConnection>,
    next_id: u64,
}

struct ActiveConnection {
    peer: IpAddr,
    authenticated: AuthenticatedOnce,
    evicted: CancellationToken,
}

impl ActiveConnections {
    /// Evicts the oldest connection, of `peer` or of all, that never sent a valid token. Returns whether
    /// there was one.
    fn evict_oldest(&mut self, peer: Option<IpAddr>) -> bool {
        let fits = |seated: &ActiveConnection| {
            peer.is_none_or(|peer| seated.peer == peer) && !seated.authenticated.0.load(Ordering::Relaxed)
        };
        let oldest = self.by_age.iter().find(|(_, seated)| fits(seated)).map(|(nth, _)| *nth);
        let left = oldest.and_then(|nth| self.by_age.remove(&nth));
        if let Some(ActiveConnection { evicted: leave, peer, .. }) = &left {
            leave.cancel();
            // From here on it no longer counts for its address.
            self.release_address(*peer);
        }
        left.is_some()
    }

    fn release_address(&mut self, peer: IpAddr) {
        if let Some(count) = self.per_address.get_mut(&peer) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.per_address.remove(&peer);
            }
        }
    }
}

impl ConnectionLimiter {
    /// Loopback may take three quarters, for run processes and workers, but never all.
    pub(super) fn new(all: u32, per_peer: u32) -> Arc<Self> {
        let loopback = per_peer.max(all / 4 * 3).min(all.saturating_sub(1)).max(1);
        let all = Arc::new(Semaphore::new(all as usize));
        Arc::new(Self { slots: all, per_peer, per_loopback: loopback, active: Mutex::default() })
    }

    /// Waits for a free slot and evicts a connection where possible. Returns `None` after shutdown.
    pub(super) async fn acquire_slot(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(room) = Arc::clone(&self.slots).try_acquire_owned() {
            return Some(room);
        }
        self.active.lock().unwrap_or_else(PoisonError::into_inner).evict_oldest(None);
        Arc::clone(&self.slots).acquire_owned().await.ok()
    }

    /// Takes a permit for `peer`; `None` if the address has its maximum, all with valid tokens.
    pub(super) fn acquire_permit(
        self: &Arc<Self>,
        peer: IpAddr,
        room: OwnedSemaphorePermit,
    ) -> Option<ConnectionPermit> {
        let most = if peer.to_canonical().is_loopback() { self.per_loopback } else { self.per_peer };
        let peer = peer_network(peer);
        let mut taken = self.active.lock().unwrap_or_else(PoisonError::into_inner);
        if taken.per_address.get(&peer).is_some_and(|count| *count >= most) && !taken.evict_oldest(Some(peer))
        {
            return None;
        }
        *taken.per_address.entry(peer).or_default() += 1;
        let nth = taken.next_id;
        taken.next_id += 1;
        let (proven, leave) = (AuthenticatedOnce::default(), CancellationToken::new());
        taken
            .by_age
            .insert(nth, ActiveConnection { peer, authenticated: proven.clone(), evicted: leave.clone() });
        Some(ConnectionPermit {
            limiter: Arc::clone(self),
            id: nth,
            authenticated: proven,
            evicted: leave,
            _room: room,
        })
    }
}

/// A connection's slot, released on drop.
pub(super) struct ConnectionPermit {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    /// To be set once a valid token was received.
    pub(super) authenticated: AuthenticatedOnce,
    /// Cancelled when the connection has to make room.
    pub(super) evicted: CancellationToken,
    _room: OwnedSemaphorePermit,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut taken = self.limiter.active.lock().unwrap_or_else(PoisonError::into_inner);
        // An evicted connection has already been subtracted.
        if let Some(ActiveConnection { peer, .. }) = taken.by_age.remove(&self.id) {
            taken.release_address(peer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip_addr(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    async fn acquire(seats: &Arc<ConnectionLimiter>, from: &str) -> Option<ConnectionPermit> {
        let room = seats.acquire_slot().await.expect("room");
        let seat = seats.acquire_permit(ip_addr(from), room)?;
        seat.authenticated.0.store(true, Ordering::Relaxed);
        Some(seat)
    }

    #[tokio::test]
    async fn connections_per_address_are_limited_and_reusable() {
        let seats = ConnectionLimiter::new(8, 2);
        let mut held = Vec::new();
        for _ in 0..2 {
            held.push(acquire(&seats, "10.0.0.1").await.expect("a seat"));
        }
        assert!(acquire(&seats, "10.0.0.1").await.is_none(), "two are its share");
        for _ in 0..6 {
            held.push(acquire(&seats, "127.0.0.1").await.expect("loopback has three quarters"));
        }
        assert_eq!(seats.slots.available_permits(), 0);
        held.clear();
        assert_eq!(seats.slots.available_permits(), 8);
        let taken = seats.active.lock().expect("lock");
        assert!(taken.per_address.is_empty() && taken.by_age.is_empty(), "nothing is remembered");
    }

    #[tokio::test]
    async fn only_unauthenticated_connections_are_evicted() {
        let seats = ConnectionLimiter::new(4, 2);
        let good = acquire(&seats, "10.0.0.1").await.expect("a seat");
        let idle = acquire(&seats, "10.0.0.1").await.expect("a seat");
        idle.authenticated.0.store(false, Ordering::Relaxed);
        let next = acquire(&seats, "10.0.0.1").await.expect("the idle one's");
        assert!(idle.evicted.is_cancelled() && !good.evicted.is_cancelled() && !next.evicted.is_cancelled());
        assert!(acquire(&seats, "10.0.0.1").await.is_none(), "both are good");
        drop(idle);
        assert!(acquire(&seats, "10.0.0.1").await.is_none(), "it was counted out once");
        let strangers = [acquire(&seats, "10.0.0.2").await, acquire(&seats, "10.0.0.3").await];
        let [Some(second), Some(third)] = strangers else { panic!("two more") };
        third.authenticated.0.store(false, Ordering::Relaxed);
        let leave = third.evicted.clone();
        let leaves = async move {
            leave.cancelled().await;
            drop(third);
        };
        let (room, ()) = tokio::join!(seats.acquire_slot(), leaves);
        assert!(room.is_some() && !second.evicted.is_cancelled());
    }
}
