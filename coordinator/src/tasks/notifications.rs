//! Tells people and programs elsewhere: one task reads the log on, one keeps the term, and each target has one of its own.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::{
    app::AppState,
    leases::{Office, keep_term},
    notify::{Desk, Notifier, follow, send},
};

/// Starts them; they run until the shutdown.
pub(crate) fn tell_of_news(tasks: &TaskTracker, app: &AppState, notifier: Arc<dyn Notifier>) {
    let lead = Arc::new(app.lead(Office::Notifications));
    tasks.spawn(keep_term(Arc::clone(&lead), app.shutdown.clone()));
    let desk = Desk {
        store: Arc::clone(&app.store),
        clock: Arc::clone(&app.clock),
        table: Arc::clone(&app.notifications),
        notifier,
        meters: Arc::clone(&app.notify_meters),
        lead,
    };
    for target in desk.notifier.targets() {
        tasks.spawn(send(desk.clone(), target.clone(), app.shutdown.clone()));
    }
    tasks.spawn(follow(desk, app.shutdown.clone()));
}
