//! Tells people and programs elsewhere: one task reads the log on, one keeps the term, and each target has one of its own.

use std::sync::Arc;

use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{Lead, Office, keep_term};
use crate::{
    http::Api,
    notify::{Desk, Notifier, follow, send},
};

/// Starts them; they run until `shutdown`.
pub(crate) fn tell_of_news(
    tasks: &TaskTracker,
    api: &Arc<Api>,
    notifier: Arc<dyn Notifier>,
    shutdown: &CancellationToken,
) {
    let (store, clock, wakes) = (Arc::clone(&api.store), Arc::clone(&api.clock), Arc::clone(&api.wakes));
    let lease_length = Arc::clone(&api.lease_length);
    let lead = Arc::new(Lead::new(Office::Notifications, store, clock, wakes, lease_length));
    tasks.spawn(keep_term(Arc::clone(&lead), shutdown.clone()));
    let desk = Desk {
        store: Arc::clone(&api.store),
        clock: Arc::clone(&api.clock),
        table: Arc::clone(&api.notifications),
        notifier,
        meters: Arc::clone(&api.notify_meters),
        lead,
    };
    for target in desk.notifier.targets() {
        tasks.spawn(send(desk.clone(), target.clone(), shutdown.clone()));
    }
    tasks.spawn(follow(desk, shutdown.clone()));
}
