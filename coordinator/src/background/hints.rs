//! Background jobs that exchange wake-up hints between the coordinators of a database.
//!
//! Nothing depends on hints for correctness: every waiter also polls, less often while hints arrive.

use std::{sync::Arc, time::Duration};

use crate::{
    app::AppState,
    clock::jittered_interval,
    error_chain::error_chain,
    store::{CoordinatorHints, HintListener, HintMessage},
};

/// Pause between two hints, so that a burst of appends sends one.
const SEND_PAUSE: Duration = Duration::from_millis(20);
/// How often this coordinator checks whether others listen. A new listener also announces itself.
const COUNT_INTERVAL: Duration = Duration::from_secs(5);
/// Pause before listening again.
const RECONNECT_PAUSE: Duration = Duration::from_millis(500);

/// Sends hints to the other coordinators until shutdown.
pub(crate) async fn send_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        let hint = tokio::select! {
            () = app.shutdown.cancelled() => return,
            hint = app.wakeups.next_hint() => hint,
        };
        if let Err(error) = hints.send(hint).await {
            tracing::debug!("cannot notify other coordinators: {}", error_chain(&error));
        }
        tokio::time::sleep(SEND_PAUSE).await;
    }
}

/// Receives hints from the other coordinators until shutdown.
pub(crate) async fn follow_hints(app: Arc<AppState>, hints: Arc<dyn CoordinatorHints>) {
    loop {
        match hints.open_listener().await {
            Ok(None) => return,
            Ok(Some(listener)) => {
                // Anything that happened before this is found by polling.
                app.wakeups.set_hears_hints(true);
                receive_hints(listener, &*hints, &app).await;
                app.wakeups.set_hears_hints(false);
                tracing::debug!("not receiving hints from other coordinators");
            }
            Err(error) => tracing::debug!("not receiving hints: {}", error_chain(&error)),
        }
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered_interval(RECONNECT_PAUSE)) => {}
        }
    }
}

/// Receives hints until the connection is lost.
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
                    tracing::debug!(
                        "cannot determine whether other coordinators listen: {}",
                        error_chain(&error)
                    );
                }
            }
            None => return,
        }
    }
}
