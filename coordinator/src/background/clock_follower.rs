//! Background job that keeps this coordinator's clock in sync with its source.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered_interval,
    error_chain::error_chain,
    leases::{ClockObservation, LeaderLease, check_clock},
};

/// How often the machine's own clock is read, and the database's during a clock step. Cheap.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the database's clock is read while it is steady.
const STEADY_DATABASE_INTERVAL: Duration = Duration::from_secs(5);

/// Follows the clock until shutdown.
pub(crate) async fn follow_clock(app: Arc<AppState>, lead: Arc<LeaderLease>) {
    // Only a store shared by several coordinators has hints, and a clock common to all of them.
    let usual =
        if app.store.coordinator_hints().is_some() { STEADY_DATABASE_INTERVAL } else { POLL_INTERVAL };
    let mut every = usual;
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered_interval(every)) => {}
        }
        match check_clock(&*app.store, &app.clock).await {
            Ok(Some(seen)) => {
                lead.handle_clock_observation(seen);
                every = if seen == ClockObservation::SharedStepped { POLL_INTERVAL } else { usual };
            }
            Ok(None) => every = POLL_INTERVAL,
            Err(error) => tracing::debug!("cannot compare the clock: {}", error_chain(&error)),
        }
    }
}
