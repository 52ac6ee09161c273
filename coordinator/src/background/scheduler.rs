//! Background job that makes tasks available when their scheduled time or backoff has passed. It sleeps until
//! the next one is due or until an earlier one becomes known, and works only under the maintenance lease
//! (`leases/leader_lease.rs`).
//!
//! A backoff computed with a clock that was ahead would last as long as the clock was ahead. Such backoffs
//! are searched for when a leader lease begins (left by an earlier coordinator) and after a clock step.

use std::{sync::Arc, time::Duration};

use docket_schema::{
    api::{TaskQuery, TaskStates},
    ids::{TaskId, Timestamp},
    task::TaskState,
};

use crate::{
    app::AppState,
    clock::jittered_interval,
    decide,
    error_chain::error_chain,
    leases::LeaderLease,
    store::{CommandBlobs, CommandError, DecideFn, StoreError},
};

/// Tasks per round; a full round is followed by the next at once.
const ROUND_MAX: u32 = 500;
/// Tasks per page when looking for excessive backoffs.
const PAGE_TASKS: u32 = 250;
/// Longest sleep: a hint from another coordinator can be lost, and clocks can be stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// Longest sleep while hints from other coordinators are not received.
const SLEEP_MAX_WITHOUT_HINTS: Duration = Duration::from_secs(1);

/// Makes due tasks available until shutdown.
pub(crate) async fn make_due_available(app: Arc<AppState>, lead: Arc<LeaderLease>) {
    let may_be_others = app.store.coordinator_hints().is_some();
    loop {
        let earlier = app.wakeups.wait_for_due();
        let longest =
            if may_be_others && !app.wakeups.hears_hints() { SLEEP_MAX_WITHOUT_HINTS } else { SLEEP_MAX };
        let round = async {
            // Acquiring the leader lease wakes this job.
            if !lead.is_leader() {
                return Ok(SchedulerStep::Later(None));
            }
            if lead.owes_recheck() {
                end_excessive_waits(&app).await?;
                lead.mark_rechecked();
            }
            run_round(&app).await
        };
        let wait = match round.await {
            Ok(SchedulerStep::AtOnce) => Duration::ZERO,
            Ok(SchedulerStep::Later(None)) => jittered_interval(longest),
            Ok(SchedulerStep::Later(Some(due_at))) => {
                // Rounded up, so that the task is due on wake-up.
                let ms = due_at.ms_since(app.clock.now()).saturating_add(1);
                Duration::from_millis(ms).min(jittered_interval(longest))
            }
            Err(error) => {
                tracing::warn!("cannot look for due tasks: {}", error_chain(&error));
                jittered_interval(SLEEP_MAX / 5)
            }
        };
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = earlier => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

enum SchedulerStep {
    AtOnce,
    Later(Option<Timestamp>),
}

async fn run_round(app: &AppState) -> Result<SchedulerStep, StoreError> {
    let (due, next_at) = app.store.list_due_tasks(app.clock.now(), ROUND_MAX).await?;
    let full = due.len() >= ROUND_MAX as usize;
    for task in due {
        make_one_available(app, task).await?;
    }
    Ok(if full { SchedulerStep::AtOnce } else { SchedulerStep::Later(next_at) })
}

/// Makes a task available if it is still due in its current state.
async fn make_one_available(app: &AppState, task: TaskId) -> Result<(), StoreError> {
    let now = app.clock.now();
    let decide: DecideFn = Box::new(move |record| Ok(decide::make_available(record, now)));
    match app.store.execute_command(task, decide, CommandBlobs::default(), now).await {
        Ok((record, _)) => app.wakeups.notify_state(record.state),
        Err(CommandError::Store(error)) => return Err(error),
        Err(CommandError::Rejected(_) | CommandError::TaskNotFound(_)) => {}
        Err(CommandError::Append(error)) => {
            tracing::error!(%task, "could not make a due task available: {}", error_chain(&*error));
        }
    }
    Ok(())
}

/// Ends backoffs longer than any backoff can be.
async fn end_excessive_waits(app: &AppState) -> Result<(), StoreError> {
    let mut query = TaskQuery {
        state: TaskStates::from_states([TaskState::Retryable, TaskState::Blocked]),
        limit: Some(PAGE_TASKS),
        ..TaskQuery::default()
    };
    loop {
        let page = app.store.list_tasks(query.clone()).await?;
        for record in page.tasks {
            if decide::is_backoff_too_long(&record, app.clock.now()) {
                tracing::warn!(
                    task = %record.id,
                    until = %record.available_at,
                    "a task waits longer than its backoff, because a clock was ahead when the wait was \
                     computed; it is due now"
                );
                make_one_available(app, record.id).await?;
            }
        }
        match page.next {
            Some(next) => query.before = Some(next),
            None => return Ok(()),
        }
    }
}
