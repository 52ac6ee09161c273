//! Background job that fires schedules. It sleeps until the next firing or until a schedule is changed on
//! this coordinator.

use std::{sync::Arc, time::Duration};

use crate::{app::AppState, clock::jittered_interval, error_chain::error_chain};

/// Longest sleep: changes made on other coordinators do not wake this one, and clocks can be stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);

/// Fires schedules until shutdown.
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
                // Rounded up, so that the firing is due on wake-up.
                let until_next = round.next_at.map(|at| at.ms_since(app.clock.now()).saturating_add(1));
                until_next.map_or(SLEEP_MAX, Duration::from_millis).min(jittered_interval(SLEEP_MAX))
            }
            Err(error) => {
                // Logged once per outage: without the store no route works either.
                if !failing {
                    tracing::error!("cannot fire schedules: {}", error_chain(&error));
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
