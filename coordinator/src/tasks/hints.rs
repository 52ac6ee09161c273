//! Passes wake-ups between coordinators of one database.
//!
//! Nothing depends on it: everybody who waits polls as well, more slowly while this one hears the others.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered,
    error_chain::error_chain,
    store::{CoordinatorHints, Heard, HintListener},
};

/// Between two hints that are sent: a burst of appends is one piece of news.
const APART: Duration = Duration::from_millis(20);
/// How often it is looked whether others listen at all; who begins to says so.
const COUNT_EVERY: Duration = Duration::from_secs(5);
/// Pause before it listens again.
const AGAIN: Duration = Duration::from_millis(500);

/// Tells the others. Runs until the shutdown.
pub(crate) async fn send_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        let hint = tokio::select! {
            () = app.shutdown.cancelled() => return,
            hint = app.wakes.to_tell() => hint,
        };
        if let Err(error) = hints.send(hint).await {
            tracing::debug!("other coordinators are not told: {}", error_chain(&error));
        }
        tokio::time::sleep(APART).await;
    }
}

/// Hears the others. Runs until the shutdown.
pub(crate) async fn follow_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        match hints.listen().await {
            Ok(None) => return,
            Ok(Some(listener)) => {
                // What came before is found by looking.
                app.wakes.hears(true);
                hear(listener, &*hints, &app).await;
                app.wakes.hears(false);
                tracing::debug!("hints of other coordinators are not heard for now");
            }
            Err(error) => tracing::debug!("no hints for now: {}", error_chain(&error)),
        }
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered(AGAIN)) => {}
        }
    }
}

/// Until the connection is gone.
async fn hear(mut listener: Box<dyn HintListener>, hints: &dyn CoordinatorHints, app: &AppState) {
    loop {
        let heard = tokio::select! {
            () = app.shutdown.cancelled() => return,
            heard = listener.next() => heard,
            () = tokio::time::sleep(jittered(COUNT_EVERY)) => Some(Heard::Coordinator),
        };
        match heard {
            Some(Heard::Hint(hint)) => app.wakes.heard(hint),
            Some(Heard::Coordinator) => {
                if let Err(error) = hints.count().await {
                    tracing::debug!("whether others listen is not known: {}", error_chain(&error));
                }
            }
            None => return,
        }
    }
}
