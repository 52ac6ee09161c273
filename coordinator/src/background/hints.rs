//! Passes wake-ups between coordinators of one database.
//!
//! Nothing depends on it: everybody who waits polls as well, more slowly while this one hears the others.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered_interval,
    error_chain::error_chain,
    store::{CoordinatorHints, HintListener, HintMessage},
};

/// Between two hints that are sent: a burst of appends is one piece of news.
const SEND_PAUSE: Duration = Duration::from_millis(20);
/// How often it is looked whether others listen at all; who begins to says so.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Pause before it listens again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Tells the others. Runs until the shutdown.
pub(crate) async fn send_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        let hint = tokio::select! {
            () = app.shutdown.cancelled() => return,
            hint = app.wakeups.next_hint() => hint,
        };
        if let Err(error) = hints.send(hint).await {
            tracing::debug!("other coordinators are not told: {}", error_chain(&error));
        }
        tokio::time::sleep(SEND_PAUSE).await;
    }
}

/// Hears the others. Runs until the shutdown.
pub(crate) async fn follow_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        match hints.open_listener().await {
            Ok(None) => return,
            Ok(Some(listener)) => {
                // What came before is found by looking.
                app.wakeups.set_hears_hints(true);
                receive_hints(listener, &*hints, &app).await;
                app.wakeups.set_hears_hints(false);
                tracing::debug!("hints of other coordinators are not heard for now");
            }
            Err(error) => tracing::debug!("no hints for now: {}", error_chain(&error)),
        }
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered_interval(RECONNECT_PAUSE)) => {}
        }
    }
}

/// Until the connection is gone.
async fn receive_hints(mut listener: Box<dyn HintListener>, hints: &dyn CoordinatorHints, app: &AppState) {
    loop {
        let heard = tokio::select! {
            () = app.shutdown.cancelled() => return,
            heard = listener.next_message() => heard,
            () = tokio::time::sleep(jittered_interval(COUNT_INTERVAL)) => Some(HintMessage::ListenerPresent),
        };
        match heard {
            Some(HintMessage::Hint(hint)) => app.wakeups.receive_hint(hint),
            Some(HintMessage::ListenerPresent) => {
                if let Err(error) = hints.has_other_listener().await {
                    tracing::debug!("whether others listen is not known: {}", error_chain(&error));
                }
            }
            None => return,
        }
    }
}
