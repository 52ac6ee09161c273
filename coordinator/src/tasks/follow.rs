//! Keeps this coordinator's clock with its source.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered,
    error_chain::error_chain,
    leases::{ClockSeen, Lead, check_clock},
};

/// How often the machine's own clock is looked at, and the database's while it is stepped. Costs next to nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the database's clock is asked for while it is steady.
const ASK_EVERY: Duration = Duration::from_secs(5);

/// Runs until the shutdown.
pub(crate) async fn follow_clock(app: Arc<AppState>, lead: Arc<Lead>) {
    // Only a store with coordinators elsewhere has hints for them, and a clock for all of them.
    let usual = if app.store.hints().is_some() { ASK_EVERY } else { LOOK_EVERY };
    let mut every = usual;
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(every)) => {}
        }
        match check_clock(&*app.store, &app.clock).await {
            Ok(Some(seen)) => {
                lead.heed(seen);
                every = if seen == ClockSeen::SharedStepped { LOOK_EVERY } else { usual };
            }
            Ok(None) => every = LOOK_EVERY,
            Err(error) => tracing::debug!("the clock is not compared for now: {}", error_chain(&error)),
        }
    }
}
