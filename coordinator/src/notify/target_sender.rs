//! Delivers to one target, one notification at a time, so that a slow target delays no other.

use std::{ops::ControlFlow, time::Duration};

use docket_schema::{
    ids::Timestamp,
    system::{NotificationRecord, NotificationsFold, SystemEvent},
};
use tokio_util::sync::CancellationToken;

use super::{DeliveryOutcome, NotificationMessage, NotificationTarget, NotifyContext};
use crate::{clock::jittered_interval, decide, error_chain::error_chain, system::FoldError};

/// Longest sleep: appends of other coordinators do not wake this job, and clocks can be stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How often a standby checks for the leader lease.
const STANDBY_POLL: Duration = Duration::from_secs(1);
/// Wait after a store failure.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// Grace for an attempt in progress at shutdown; an interrupted attempt is repeated by the next leader.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// Sends until `shutdown`.
pub(crate) async fn run_target_sender(
    desk: NotifyContext,
    target: NotificationTarget,
    shutdown: CancellationToken,
) {
    let mut news = desk.notifications.subscribe();
    let mut failing = false;
    let mut made = None;
    loop {
        drop(news.borrow_and_update());
        let wait = match run_step(&desk, &target, &mut made, &shutdown).await {
            Ok(SenderStep::Never) => return,
            Ok(SenderStep::AtOnce) => {
                failing = false;
                Duration::ZERO
            }
            Ok(SenderStep::After(wait)) => wait,
            Err(error) => {
                if !failing {
                    let name = &target.view.name;
                    tracing::error!(to = %name, "cannot notify a target: {}", error_chain(&error));
                }
                failing = true;
                jittered_interval(STORE_RETRY)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            // The fold outlives its subscribers.
            _ = news.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

enum SenderStep {
    AtOnce,
    After(Duration),
    Never,
}

/// An attempt that ended and is not recorded yet.
struct UnrecordedAttempt {
    record: NotificationRecord,
    result: decide::DeliveryAttemptResult,
    ended_at: Timestamp,
}

/// Makes and records one attempt. An attempt that could not be recorded stays in `made` and is recorded
/// before anything else is sent, so a store failure never causes repeated deliveries.
async fn run_step(
    desk: &NotifyContext,
    target: &NotificationTarget,
    made: &mut Option<UnrecordedAttempt>,
    shutdown: &CancellationToken,
) -> Result<SenderStep, FoldError> {
    if !desk.leader_lease.is_leader() {
        // Another coordinator leads now and handles what it finds in the log.
        *made = None;
        return Ok(SenderStep::After(jittered_interval(STANDBY_POLL)));
    }
    if made.is_none() {
        *made = match attempt_delivery(desk, target, shutdown).await? {
            ControlFlow::Continue(attempt) => Some(attempt),
            ControlFlow::Break(next) => return Ok(next),
        };
    }
    if let Some(attempt) = made {
        record_attempt(desk, target, attempt).await?;
        *made = None;
    }
    Ok(SenderStep::AtOnce)
}

/// Delivers the next due notification; returns what to do if nothing is.
async fn attempt_delivery(
    desk: &NotifyContext,
    target: &NotificationTarget,
    shutdown: &CancellationToken,
) -> Result<ControlFlow<SenderStep, UnrecordedAttempt>, FoldError> {
    // If the stream cannot be read, it could not be written either.
    desk.notifications.catch_up(&*desk.store).await?;
    let name = target.view.name.as_str();
    let next =
        desk.notifications.with_fold(|known| known.next_due(name).map(|(at, record)| (at, record.clone())));
    let Some((due_at, record)) = next else {
        return Ok(ControlFlow::Break(SenderStep::After(jittered_interval(SLEEP_MAX))));
    };
    let now = desk.clock.now();
    let attempts = record.delivery_to(name).map_or(0, |delivery| delivery.attempts);
    if due_at > now && !decide::is_due_time_too_far(due_at, attempts, target.retry_policy, now) {
        // Rounded up, so that the delivery is due on wake-up.
        let wait = Duration::from_millis(due_at.ms_since(now).saturating_add(1));
        return Ok(ControlFlow::Break(SenderStep::After(wait.min(jittered_interval(SLEEP_MAX)))));
    }
    let letter = NotificationMessage { record: record.clone(), attempt: attempts.saturating_add(1), now };
    let cut = async {
        shutdown.cancelled().await;
        tokio::time::sleep(SHUTDOWN_GRACE).await;
    };
    let sent = tokio::select! {
        sent = desk.notifier.send(name, letter) => sent,
        () = cut => return Ok(ControlFlow::Break(SenderStep::Never)),
    };
    Ok(ControlFlow::Continue(UnrecordedAttempt { record, result: sent, ended_at: desk.clock.now() }))
}

/// Records the result of an attempt if the notification still waits for one.
async fn record_attempt(
    desk: &NotifyContext,
    target: &NotificationTarget,
    UnrecordedAttempt { record, result, ended_at }: &UnrecordedAttempt,
) -> Result<(), FoldError> {
    let (name, id, now) = (target.view.name.as_str(), record.raised.id, *ended_at);
    let decide = |known: &NotificationsFold| {
        let record: Option<&NotificationRecord> = known.get(id);
        let event =
            record.and_then(|record| decide::attempt_event(record, name, result, target.retry_policy, now));
        Ok::<_, FoldError>(event)
    };
    // Decided before the write, so it is counted once even if another coordinator writes meanwhile.
    let outcome = delivery_outcome(record, target, result, now);
    if desk.notifications.change(&*desk.store, desk.clock.now(), decide).await?
        && let Some(outcome) = outcome
    {
        desk.metrics.count_attempt(target.view.kind, outcome);
        log_outcome(target, record, outcome, result);
    }
    Ok(())
}

fn delivery_outcome(
    record: &NotificationRecord,
    target: &NotificationTarget,
    sent: &decide::DeliveryAttemptResult,
    now: Timestamp,
) -> Option<DeliveryOutcome> {
    let event = decide::attempt_event(record, &target.view.name, sent, target.retry_policy, now)?;
    if matches!(event, SystemEvent::NotificationDelivered(_)) {
        return Some(DeliveryOutcome::Delivered);
    }
    let is_dead = matches!(event, SystemEvent::NotificationDeadLettered(_));
    Some(if is_dead { DeliveryOutcome::DeadLettered } else { DeliveryOutcome::Failed })
}

fn log_outcome(
    target: &NotificationTarget,
    record: &NotificationRecord,
    outcome: DeliveryOutcome,
    sent: &decide::DeliveryAttemptResult,
) {
    let (id, name) = (record.raised.id, &target.view.name);
    let why = match sent {
        decide::DeliveryAttemptResult::Delivered => "",
        decide::DeliveryAttemptResult::Failed { why, .. }
        | decide::DeliveryAttemptResult::Unsubscribed { why } => why,
    };
    match outcome {
        DeliveryOutcome::Delivered => tracing::info!(%id, to = %name, "a notification was delivered"),
        DeliveryOutcome::Failed => tracing::info!(%id, to = %name, "a notification could not be delivered: \
             {why}"),
        DeliveryOutcome::DeadLettered => {
            tracing::warn!(%id, to = %name, "a notification became a dead letter (docket notify): {why}");
        }
    }
}
