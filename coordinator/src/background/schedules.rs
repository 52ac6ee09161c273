//! Fires schedules. Sleeps until the next firing, or somebody changes a schedule here.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain};

/// Longest sleep: what other coordinators set wakes nobody here, and clocks are stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Runs until the shutdown.
pub(crate) async fn fire_schedules(app: Arc<AppState>) {
    let mut failing = false;
    loop {
        let changed = app.wakeups.wait_for_schedules();
        let now = app.clock.now();
        let wait = match app.schedules.fire_due(&*app.store, now).await {
            Ok(round) => {
                failing = false;
                if round.submitted > 0 {
                    tracing::info!(tasks = round.submitted, "schedules fired");
                    app.wakeups.notify_task_available();
                }
                // Rounded up, so that it is due when this wakes.
                let until_next = round.next_at.map(|at| at.ms_since(app.clock.now()).saturating_add(1));
                until_next.map_or(SLEEP_MAX, Duration::from_millis).min(jittered_interval(SLEEP_MAX))
            }
            Err(error) => {
                // Once, not each time: without the store no route does anything either.
                if !failing {
                    tracing::error!("schedules do not fire for now: {}", error_chain(&error));
                }
                failing = true;
                jittered_interval(SLEEP_MAX)
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = changed => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}
