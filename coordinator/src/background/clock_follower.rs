//! Keeps this coordinator's clock with its source.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered_interval,
    error_chain::error_chain,
    leases::{ClockObservation, LeaderLease, check_clock},
};

/// How often the machine's own clock is looked at, and the database's while it is stepped. Costs next to nothing.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How often the database's clock is asked for while it is steady.
const STEADY_DATABASE_INTERVAL: Duration = Duration::from_secs(5);

/// Runs until the shutdown.
pub(crate) async fn follow_clock(app: Arc<AppState>, lead: Arc<LeaderLease>) {
    // Only a store with coordinators elsewhere has hints for them, and a clock for all of them.
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
            Err(error) => tracing::debug!("the clock is not compared for now: {}", error_chain(&error)),
        }
    }
}
