//! `crash`: the run process died while its supervisor survived. The run resumes with the next lease until it
//! has crashed too often; then the task is discarded as poison.

use docket_schema::{
    ids::Epoch,
    run::{FailureKind, RunOutcome},
    task::{DiscardReason, TaskDiscarded, TaskRecord, TaskRunCrashed},
};

use super::lease_status::require_lease;
use crate::decide::{CommandPlan, CommandRejection, RunWrite};

/// Counts the crash.
///
/// # Errors
/// Rejected if the caller no longer holds the lease.
pub fn record_crash(record: &TaskRecord, epoch: Epoch, how: &str) -> Result<CommandPlan, CommandRejection> {
    require_lease(record, epoch)?;
    let crashes = record.crashes.saturating_add(1);
    let poison = record.run.filter(|_| crashes >= record.spec.crashes_max);
    let Some(run) = poison else {
        return Ok(CommandPlan {
            task_events: vec![TaskRunCrashed { epoch, how: how.to_owned() }.into()],
            run_write: record.run.map(RunWrite::unlease),
            ..CommandPlan::default()
        });
    };
    let message = format!("its process died {crashes} times, last by {how}");
    let ended = RunOutcome::Failed { why: FailureKind::Environment, message: message.clone() };
    Ok(CommandPlan {
        task_events: vec![TaskDiscarded { run, why: DiscardReason::Poison, message }.into()],
        run_write: Some(RunWrite::ended_by_coordinator(run, ended)),
        ..CommandPlan::default()
    })
}
