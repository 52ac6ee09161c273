//! Makes tasks available whose schedule or backoff is over. Sleeps until the next one is due, or
//! until another task learns of an earlier one. Only under this coordinator's term
//! (`leases/leader_lease.rs`).
//!
//! A backoff that a clock decided which was ahead then would wait for as long as the clock was ahead. Such ones are looked
//! for where they can have come from: when a term begins, for what an earlier coordinator left, and after a step.

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

/// Tasks of one round; the next round follows at once while there are as many.
const ROUND_MAX: u32 = 500;
/// Tasks looked at together for backoffs that are too long.
const PAGE_TASKS: u32 = 250;
/// Longest sleep: a hint of another coordinator may be lost, and clocks are stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// The same where others are not heard, though there may be some.
const SLEEP_MAX_WITHOUT_HINTS: Duration = Duration::from_secs(1);

/// Runs until the shutdown.
pub(crate) async fn make_due_available(app: Arc<AppState>, lead: Arc<LeaderLease>) {
    let may_be_others = app.store.coordinator_hints().is_some();
    loop {
        let earlier = app.wakeups.wait_for_due();
        let longest =
            if may_be_others && !app.wakeups.hears_hints() { SLEEP_MAX_WITHOUT_HINTS } else { SLEEP_MAX };
        let round = async {
            // Who takes the term wakes this one.
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
                // Rounded up, so that it is due when this wakes.
                let ms = due_at.ms_since(app.clock.now()).saturating_add(1);
                Duration::from_millis(ms).min(jittered_interval(longest))
            }
            Err(error) => {
                tracing::warn!("due tasks are not looked at for now: {}", error_chain(&error));
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

/// Makes a task available, if its time has come by the state it is in then.
async fn make_one_available(app: &AppState, task: TaskId) -> Result<(), StoreError> {
    let now = app.clock.now();
    let decide: DecideFn = Box::new(move |record| Ok(decide::make_available(record, now)));
    match app.store.execute_command(task, decide, CommandBlobs::default(), now).await {
        Ok((record, _)) => app.wakeups.notify_state(record.state),
        Err(CommandError::Store(error)) => return Err(error),
        Err(CommandError::Rejected(_) | CommandError::TaskNotFound(_)) => {}
        Err(CommandError::Append(error)) => {
            tracing::error!(%task, "a due task could not be made available: {}", error_chain(&*error));
        }
    }
    Ok(())
}

/// Ends backoffs that are longer than any backoff lasts.
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
                    "a task waits longer than its backoff lasts: a clock was ahead when that was decided; it is due now"
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
