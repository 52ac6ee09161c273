//! `finish`: the lease holder appends the events that end or block its run, and the task changes state in the
//! same transaction.

use docket_schema::{
    content::Content,
    event::{NewEvent, TypedEvent as _},
    ids::{Epoch, RunId, Seq, Timestamp},
    run::{BlockedReason, FailureKind, RunBlocked, RunEvent, RunOutcome},
    task::{
        DiscardReason, LeaseEnd, TaskBlocked, TaskBlockedReason, TaskCancelled, TaskCompleted, TaskDiscarded,
        TaskEvent, TaskRecord, TaskRunFailed,
    },
};

use super::lease_status::lease_lost_reason;
use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// Longest question repeated in a task's row, in characters: a line or two in a list.
const QUESTION_CHARS_MAX: usize = 500;

/// Consecutive outage waits after which a run must be resumed by a person. With the usual backoff about half
/// a day has passed.
pub(in crate::decide) const OUTAGES_MAX: u32 = 20;

/// An append that ends a lease.
#[derive(Debug, Clone, PartialEq)]
pub struct RunFinish {
    pub run: RunId,
    /// Head of the run's stream as the holder knows it.
    pub seq: Seq,
    /// The lease's epoch.
    pub epoch: Epoch,
    /// The events; the last one determines how the lease ends.
    pub events: Vec<NewEvent>,
    /// Random value from the caller; spreads the retries of runs that failed together.
    pub jitter: u64,
    /// The next attempt of a run that continues another run's history.
    pub retry_plan: Option<RetryPlan>,
}

/// The next attempt of a run that continues another run's history: from the same turn, with the same user
/// messages.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPlan {
    /// The next run.
    pub run: RunId,
    /// First events of its stream: `Forked`, then a person's edits.
    pub events: Vec<NewEvent>,
}

/// Returns how an append ends its lease; `None` if it does not. Only the last event can end it.
pub fn lease_end(events: &[NewEvent]) -> Option<LeaseEnd> {
    let last = events.last()?;
    let decoded = RunEvent::decode(&last.kind, last.version, last.payload.as_str());
    if let Ok(RunEvent::RunEnded(ended)) = decoded {
        Some(LeaseEnd::Ended(ended.result))
    } else if let Ok(RunEvent::RunBlocked(blocked)) = decoded {
        Some(LeaseEnd::Blocked(match blocked.why {
            BlockedReason::Child => TaskBlockedReason::Child,
            BlockedReason::Provider if (1..=OUTAGES_MAX).contains(&blocked.outages) => {
                TaskBlockedReason::Outage
            }
            BlockedReason::Provider => TaskBlockedReason::Provider,
            BlockedReason::Budget => TaskBlockedReason::Budget,
            BlockedReason::Model
            | BlockedReason::Policy
            | BlockedReason::Escalated
            | BlockedReason::Unverified => TaskBlockedReason::Person,
        }))
    } else if let Ok(RunEvent::RunPaused(_)) = decoded {
        Some(LeaseEnd::Blocked(TaskBlockedReason::Paused))
    } else {
        None
    }
}

/// Plans the end of a run. If the lease is no longer valid, only the run's part is planned: the store gives a
/// repetition the original reply and rejects anything else.
///
/// # Errors
/// Rejected if the events do not end a lease, or end it in a way that is not the holder's to decide.
pub fn finish_run(
    record: &TaskRecord,
    settling: &RunFinish,
    now: Timestamp,
) -> Result<CommandPlan, CommandRejection> {
    let wrong = |remedy| CommandRejection::WrongState { state: record.state, remedy };
    let write = |fence| RunWrite {
        run: settling.run,
        condition: RunCondition::Holder(settling.seq, settling.epoch),
        events: settling.events.clone(),
        fence,
    };
    if lease_lost_reason(record, settling.epoch).is_some() || record.run != Some(settling.run) {
        return Ok(CommandPlan {
            task_events: Vec::new(),
            run_write: Some(write(FenceAfter::Unchanged)),
            ..CommandPlan::default()
        });
    }
    let end =
        lease_end(&settling.events).ok_or(wrong("the last event must end the run, block it or pause it"))?;
    let (event, fence) = match end {
        LeaseEnd::Ended(outcome) => (ended_event(record, settling, outcome, now)?, FenceAfter::Closed),
        LeaseEnd::Blocked(why) => {
            let asked = blocked_event(&settling.events);
            let message = asked.as_ref().and_then(|asked| shorten_question(&asked.question));
            let unverified = asked.as_ref().and_then(unverified_question);
            let outages = asked.map_or(0, |asked| asked.outages);
            let backoff = record.spec.backoff;
            let wake_at = (why == TaskBlockedReason::Outage)
                .then(|| now.plus_ms(backoff.delay_ms(outages, settling.jitter)));
            (TaskBlocked { run: settling.run, why, message, wake_at, unverified }.into(), FenceAfter::Shut)
        }
        LeaseEnd::Crashed(_) | LeaseEnd::Released(_) | LeaseEnd::Expired => {
            return Err(wrong("a run's events do not say this"));
        }
    };
    let is_next = |run| matches!(&event, TaskEvent::TaskRunFailed(failed) if failed.next == Some(run));
    let next = settling.retry_plan.as_ref().filter(|again| is_next(again.run)).map(|again| RunWrite {
        run: again.run,
        condition: RunCondition::AtHead,
        events: again.events.clone(),
        fence: FenceAfter::Shut,
    });
    Ok(CommandPlan {
        task_events: vec![event],
        run_write: Some(write(fence)),
        retry_run: next,
        ..CommandPlan::default()
    })
}

/// Returns what a blocked run waits for.
fn blocked_event(events: &[NewEvent]) -> Option<RunBlocked> {
    let last = events.last()?;
    match RunEvent::decode(&last.kind, last.version, last.payload.as_str()) {
        Ok(RunEvent::RunBlocked(blocked)) => Some(blocked),
        Ok(_) | Err(_) => None,
    }
}

/// Returns the reason why a run that asks a person about its final checks is unverified: the first line of
/// its question.
fn unverified_question(asked: &RunBlocked) -> Option<String> {
    let Content::Text(text) = &asked.question else { return None };
    let line = text.lines().next().filter(|_| asked.why == BlockedReason::Unverified)?;
    Some(truncate_text(line))
}

/// Returns the reason why a successful run is unverified.
fn unverified_reason(events: &[NewEvent]) -> Option<String> {
    let last = events.last()?;
    match RunEvent::decode(&last.kind, last.version, last.payload.as_str()) {
        Ok(RunEvent::RunEnded(ended)) => ended.unverified.map(|why| truncate_text(&why.reason)),
        Ok(_) | Err(_) => None,
    }
}

/// Shortens the question for the task's row; the full text is in the run's log.
fn shorten_question(question: &Content) -> Option<String> {
    match question {
        Content::Text(text) => Some(truncate_text(text)),
        Content::B64(_) | Content::Blob(_) => None,
    }
}

/// Truncates text that is too long and marks the omission.
fn truncate_text(text: &str) -> String {
    match text.char_indices().nth(QUESTION_CHARS_MAX) {
        None => text.to_owned(),
        Some(_) => text.chars().take(QUESTION_CHARS_MAX - 1).chain(['…']).collect(),
    }
}

fn ended_event(
    record: &TaskRecord,
    settling: &RunFinish,
    outcome: RunOutcome,
    now: Timestamp,
) -> Result<TaskEvent, CommandRejection> {
    let run = settling.run;
    match outcome {
        RunOutcome::Succeeded => {
            Ok(TaskCompleted { run, unverified: unverified_reason(&settling.events) }.into())
        }
        RunOutcome::Cancelled => {
            Ok(TaskCancelled { by: "run".to_owned(), reason: "the run was asked to end".to_owned() }.into())
        }
        RunOutcome::Failed { why, message } => {
            let failures = record.failures.saturating_add(1);
            // Another run would have the same budget or hit the same configuration error, so a retry is
            // pointless.
            let vain = matches!(why, FailureKind::Limit | FailureKind::Configuration);
            if failures >= record.spec.attempts_max || vain {
                return Ok(TaskDiscarded { run, why: DiscardReason::Failures, message }.into());
            }
            let retry_at = now.plus_ms(record.spec.backoff.delay_ms(failures, settling.jitter));
            // Work done before it, and a person's messages, are not part of the failure.
            let next = settling.retry_plan.as_ref().map(|again| again.run);
            Ok(TaskRunFailed { run, why, message, retry_at, next }.into())
        }
        RunOutcome::Superseded => Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "a run is superseded by the coordinator alone",
        }),
    }
}
