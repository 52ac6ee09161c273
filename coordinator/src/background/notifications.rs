//! Starts the notification jobs: one follows the log, one maintains the leader lease, and each target has its
//! own sender.

use std::sync::Arc;

use tokio_util::task::TaskTracker;

use crate::{
    app::AppState,
    leases::{LeaderRole, maintain_leadership},
    notify::{Notifier, NotifyContext, run_log_follower, run_target_sender},
};

/// Spawns the jobs, which run until shutdown.
pub(crate) fn start_notifications(tasks: &TaskTracker, app: &AppState, notifier: Arc<dyn Notifier>) {
    let lead = Arc::new(app.new_leader_lease(LeaderRole::Notifications));
    tasks.spawn(maintain_leadership(Arc::clone(&lead), app.shutdown.clone()));
    let desk = NotifyContext {
        store: Arc::clone(&app.store),
        clock: Arc::clone(&app.clock),
        notifications: Arc::clone(&app.notifications),
        notifier,
        metrics: Arc::clone(&app.notify_metrics),
        leader_lease: lead,
    };
    for target in desk.notifier.targets() {
        tasks.spawn(run_target_sender(desk.clone(), target.clone(), app.shutdown.clone()));
    }
    tasks.spawn(run_log_follower(desk, app.shutdown.clone()));
}
