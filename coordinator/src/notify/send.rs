//! Tells one target, a notification at a time: a slow one holds up no other.

use std::{ops::ControlFlow, time::Duration};

use docket_schema::{
    ids::Timestamp,
    system::{NotificationRecord, Notifications, SystemEvent},
};
use tokio_util::sync::CancellationToken;

use super::{Desk, Letter, Outcome, Target};
use crate::{clock::jittered, decide, error_chain::error_chain, system::FoldError};

/// Longest sleep: another coordinator's appends wake nobody here, and clocks are stepped.
const SLEEP_MAX: Duration = Duration::from_secs(5);
/// How often it is looked whether the term is ours.
const STAND_BY: Duration = Duration::from_secs(1);
/// Wait after the store failed.
const STORE_RETRY: Duration = Duration::from_secs(2);
/// How long an attempt under way may take when the coordinator ends; one that is cut is made again by the next.
const END_GRACE: Duration = Duration::from_secs(2);

/// Runs until `shutdown`.
pub(crate) async fn send(desk: Desk, target: Target, shutdown: CancellationToken) {
    let mut news = desk.table.subscribe();
    let mut failing = false;
    let mut made = None;
    loop {
        drop(news.borrow_and_update());
        let wait = match step(&desk, &target, &mut made, &shutdown).await {
            Ok(Next::Never) => return,
            Ok(Next::AtOnce) => {
                failing = false;
                Duration::ZERO
            }
            Ok(Next::After(wait)) => wait,
            Err(error) => {
                if !failing {
                    let name = &target.view.name;
                    tracing::error!(to = %name, "a target is not told for now: {}", error_chain(&error));
                }
                failing = true;
                jittered(STORE_RETRY)
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => return,
            // The table outlives its readers.
            _ = news.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

enum Next {
    AtOnce,
    After(Duration),
    Never,
}

/// An attempt that ended, and is not in the log yet.
struct Made {
    record: NotificationRecord,
    sent: decide::Sent,
    at: Timestamp,
}

/// One attempt, in the log. An attempt that the log did not take is kept in `made`: it is written before anything else is
/// sent, so that no failure of the store has a target told again and again.
async fn step(
    desk: &Desk,
    target: &Target,
    made: &mut Option<Made>,
    shutdown: &CancellationToken,
) -> Result<Next, FoldError> {
    if !desk.lead.is_ours() {
        // Another tells now, and makes of it what it finds.
        *made = None;
        return Ok(Next::After(jittered(STAND_BY)));
    }
    if made.is_none() {
        *made = match attempt(desk, target, shutdown).await? {
            ControlFlow::Continue(attempt) => Some(attempt),
            ControlFlow::Break(next) => return Ok(next),
        };
    }
    if let Some(attempt) = made {
        write(desk, target, attempt).await?;
        *made = None;
    }
    Ok(Next::AtOnce)
}

/// Tells what is due; what to do instead where nothing is.
async fn attempt(
    desk: &Desk,
    target: &Target,
    shutdown: &CancellationToken,
) -> Result<ControlFlow<Next, Made>, FoldError> {
    // Where the stream cannot be read it could not be written either.
    desk.table.catch_up(&*desk.store).await?;
    let name = target.view.name.as_str();
    let next = desk.table.with(|known| known.next_for(name).map(|(at, record)| (at, record.clone())));
    let Some((due_at, record)) = next else {
        return Ok(ControlFlow::Break(Next::After(jittered(SLEEP_MAX))));
    };
    let now = desk.clock.now();
    let attempts = record.to(name).map_or(0, |delivery| delivery.attempts);
    if due_at > now && !decide::waits_too_long_to_tell(due_at, attempts, target.retries, now) {
        // Rounded up, so that it is due when this wakes.
        let wait = Duration::from_millis(due_at.ms_since(now).saturating_add(1));
        return Ok(ControlFlow::Break(Next::After(wait.min(jittered(SLEEP_MAX)))));
    }
    let letter = Letter { record: record.clone(), attempt: attempts.saturating_add(1), now };
    let cut = async {
        shutdown.cancelled().await;
        tokio::time::sleep(END_GRACE).await;
    };
    let sent = tokio::select! {
        sent = desk.notifier.send(name, letter) => sent,
        () = cut => return Ok(ControlFlow::Break(Next::Never)),
    };
    Ok(ControlFlow::Continue(Made { record, sent, at: desk.clock.now() }))
}

/// Writes what became of an attempt, where it waits for one still.
async fn write(desk: &Desk, target: &Target, Made { record, sent, at }: &Made) -> Result<(), FoldError> {
    let (name, id, now) = (target.view.name.as_str(), record.raised.id, *at);
    let decide = |known: &Notifications| {
        let record: Option<&NotificationRecord> = known.get(id);
        let event = record.and_then(|record| decide::attempted(record, name, sent, target.retries, now));
        Ok::<_, FoldError>(event)
    };
    // What to count is decided before it is written: once, whoever else writes meanwhile.
    let outcome = outcome(record, target, sent, now);
    if desk.table.change(&*desk.store, desk.clock.now(), decide).await?
        && let Some(outcome) = outcome
    {
        desk.meters.count(target.view.kind, outcome);
        told(target, record, outcome, sent);
    }
    Ok(())
}

fn outcome(
    record: &NotificationRecord,
    target: &Target,
    sent: &decide::Sent,
    now: Timestamp,
) -> Option<Outcome> {
    let event = decide::attempted(record, &target.view.name, sent, target.retries, now)?;
    if matches!(event, SystemEvent::NotificationDelivered(_)) {
        return Some(Outcome::Delivered);
    }
    let is_dead = matches!(event, SystemEvent::NotificationDeadLettered(_));
    Some(if is_dead { Outcome::DeadLettered } else { Outcome::Failed })
}

fn told(target: &Target, record: &NotificationRecord, outcome: Outcome, sent: &decide::Sent) {
    let (id, name) = (record.raised.id, &target.view.name);
    let why = match sent {
        decide::Sent::Taken => "",
        decide::Sent::Refused { why, .. } | decide::Sent::Gone { why } => why,
    };
    match outcome {
        Outcome::Delivered => tracing::info!(%id, to = %name, "a notification was delivered"),
        Outcome::Failed => tracing::info!(%id, to = %name, "a notification was not taken: {why}"),
        Outcome::DeadLettered => {
            tracing::warn!(%id, to = %name, "a notification is a dead letter (docket notify): {why}");
        }
    }
}
