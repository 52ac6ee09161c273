//! `review`: records delivery steps of a result and a person's verdict on it.

use docket_schema::{
    api::DeliveryStep,
    event::NewEvent,
    ids::RunId,
    run::Forked,
    task::{
        TaskAccepted, TaskDelivered, TaskDeliveryBlocked, TaskDeliveryClaimed, TaskDeliveryHookRan,
        TaskDeliveryRequested, TaskEvent, TaskNeededNoDelivery, TaskRecord, TaskRejected, TaskState,
    },
};

use super::resume::resume;
use crate::decide::{CommandPlan, CommandRejection};

/// Records a delivery step of `run`'s result. Steps already done elsewhere are recorded in any state.
///
/// # Errors
/// Rejected if a delivery is claimed and the task's stream has grown since the claimant read it.
pub fn record_delivery_step(
    record: &TaskRecord,
    by: &str,
    run: RunId,
    step: DeliveryStep,
) -> Result<CommandPlan, CommandRejection> {
    let by = by.to_owned();
    let event: TaskEvent = match step {
        DeliveryStep::Claimed { expected, .. } if expected != record.seq => {
            let remedy = "its log has grown since; check it again, because someone else may be delivering \
                 the result";
            return Err(CommandRejection::WrongState { state: record.state, remedy });
        }
        DeliveryStep::Claimed { deliverer, term_ms, expected: _, push, hook } => {
            TaskDeliveryClaimed { run, deliverer, term_ms, push, hook, by }.into()
        }
        DeliveryStep::Needless {} => TaskNeededNoDelivery { run, by }.into(),
        DeliveryStep::Requested { branch, commit, remote } => {
            TaskDeliveryRequested { run, branch, commit, remote, by }.into()
        }
        DeliveryStep::Delivered { branch, commit, remote } => {
            TaskDelivered { run, branch, commit, remote, by }.into()
        }
        DeliveryStep::Blocked { branch, why, paths, kept, message } => {
            TaskDeliveryBlocked { run, branch, why, paths, kept, message, by }.into()
        }
        DeliveryStep::HookRan { commit, exit, output } => {
            TaskDeliveryHookRan { run, commit, exit, output, by }.into()
        }
    };
    Ok(CommandPlan { task_events: vec![event], ..CommandPlan::default() })
}

/// A person's verdict on a result.
#[derive(Debug, Clone, Copy)]
pub struct ResultVerdict<'a> {
    /// Name of the person.
    pub by: &'a str,
    pub run: RunId,
    pub comment: &'a str,
}

/// Records that a person accepts a run's result.
///
/// # Errors
/// Rejected if the task is not completed, or was completed by another run.
pub fn accept_result(
    record: &TaskRecord,
    verdict: ResultVerdict<'_>,
) -> Result<CommandPlan, CommandRejection> {
    let ResultVerdict { by, run, comment } = verdict;
    require_completed_by(record, run)?;
    let accepted = TaskAccepted { run, by: by.to_owned(), comment: comment.to_owned() };
    Ok(CommandPlan { task_events: vec![accepted.into()], ..CommandPlan::default() })
}

/// Records that a person rejects a run's result: the task continues with a new run that starts with `forked`.
///
/// # Errors
/// Like [`accept_result`] and [`resume`].
pub fn reject_result(
    record: &TaskRecord,
    verdict: ResultVerdict<'_>,
    forked: Forked,
    edits: Vec<NewEvent>,
) -> Result<CommandPlan, CommandRejection> {
    let ResultVerdict { by, run, comment } = verdict;
    require_completed_by(record, run)?;
    let mut plan = resume(record, by, forked, edits)?;
    let rejected = TaskRejected { run, by: by.to_owned(), comment: comment.to_owned() };
    plan.task_events.insert(0, rejected.into());
    Ok(plan)
}

/// Results are reviewed only after completion; the work of a failed run is resumed, forked or applied through
/// those commands.
fn require_completed_by(record: &TaskRecord, run: RunId) -> Result<(), CommandRejection> {
    let is_done = record.state == TaskState::Completed || record.is_undelivered();
    if !is_done {
        let remedy = "a result can be accepted or rejected only once its task is completed; `docket resume \
             --hint` continues a run that ended otherwise";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    if record.last_run != Some(run) {
        let remedy = "a different run completed it; name the task, or its last run";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    Ok(())
}
