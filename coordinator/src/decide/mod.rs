//! Queue decisions: one file per command, each a pure function from a task's record (plus command and time)
//! to the resulting events, or a rejection. No I/O, clock or randomness: the store calls these inside its
//! transaction and writes the events.

mod delegate;
mod notify;
mod plan;
mod submit;

#[cfg(test)]
mod advice_tests;
#[cfg(test)]
mod continuation_tests;
#[cfg(test)]
mod delivery_tests;
pub(crate) mod lease_ends;
pub(crate) mod schedule;
#[cfg(test)]
mod transition_table;
pub(crate) mod user_commands;
pub(crate) mod waiting;

pub use delegate::{cancel_abandoned_child, child_ended, delegate};
pub use lease_ends::crash::record_crash;
pub use lease_ends::expire::expire;
pub use lease_ends::finish::{RetryPlan, RunFinish, finish_run, lease_end};
pub use lease_ends::lease::{LeaseRecipient, lease};
pub use lease_ends::lease_status::lease_lost_reason;
pub use lease_ends::release::{release, release_for_fault};
pub use notify::{
    DeliveryAttemptResult, DeliveryRetryPolicy, NotificationEffects, NotificationTrigger, RETRY_AFTER_MS_MAX,
    attempt_event, batch_end_counts, can_strand_dependents, dead_letter_events, effects_from_event,
    is_due_time_too_far, is_new_batch_end,
};
pub use plan::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};
pub use schedule::cron::{CronTimetable, TimetableError};
pub use schedule::fire::{MISSED_AFTER_MS, fire, settled_until};
pub use schedule::make_available::{CLOCK_SKEW_MAX_MS, is_backoff_too_long, make_available};
pub use submit::submit;
pub use user_commands::answer::{QuestionedRun, answer, answer_question};
pub use user_commands::cancel::cancel;
pub use user_commands::fork::fork;
pub use user_commands::pause::{pause, unpause};
pub use user_commands::reprioritize::reprioritize;
pub use user_commands::resume::resume;
pub use user_commands::retry::{DependencyRetry, retry};
pub use user_commands::review::{ResultVerdict, accept_result, record_delivery_step, reject_result};
pub use waiting::autoscaling::{WaitingGroup, WaitingTasks, WorkerLabels, desired_workers};
pub use waiting::budget::{BudgetDecision, check_budget};
pub use waiting::choose::{
    FairShareGroup, FairShareTurns, FairShares, FlowHead, LeaseCandidate, LeaseChoice, RunningCounts,
    choose_tasks,
};
pub use waiting::dependency::{dependency_ended, renew_dependency};
pub use waiting::explain::{
    DependencyStatus, RestartCommand, TaskSituation, explain_waiting, queue_claim_ms,
};
pub use waiting::unblock::unblock;
