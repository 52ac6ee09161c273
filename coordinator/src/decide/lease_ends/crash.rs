//! `crash`: the run process died while its supervisor lived. The run goes on at the next lease,
//! until it has killed its process too often: then the task is poison.

use docket_schema::{
    ids::Epoch,
    run::{FailureKind, RunOutcome},
    task::{DiscardWhy, TaskDiscarded, TaskRecord, TaskRunCrashed},
};

use super::standing::require_lease;
use crate::decide::{Plan, Rejection, RunWrite};

/// Counts the crash.
///
/// # Errors
/// The lease is not the asker's any more.
pub fn crash(record: &TaskRecord, epoch: Epoch, how: &str) -> Result<Plan, Rejection> {
    require_lease(record, epoch)?;
    let crashes = record.crashes.saturating_add(1);
    let poison = record.run.filter(|_| crashes >= record.spec.crashes_max);
    let Some(run) = poison else {
        return Ok(Plan {
            task: vec![TaskRunCrashed { epoch, how: how.to_owned() }.into()],
            run: record.run.map(RunWrite::shut),
            ..Plan::default()
        });
    };
    let message = format!("its process died {crashes} times, last by {how}");
    let ended = RunOutcome::Failed { why: FailureKind::Environment, message: message.clone() };
    Ok(Plan {
        task: vec![TaskDiscarded { run, why: DiscardWhy::Poison, message }.into()],
        run: Some(RunWrite::ended_by_coordinator(run, ended)),
        ..Plan::default()
    })
}
