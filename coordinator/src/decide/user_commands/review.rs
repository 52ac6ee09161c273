//! What whoever delivers a result tells, and what a person says of it.

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

/// Records a step of delivering `run`'s result. What was done elsewhere is recorded in any state: it was done.
///
/// # Errors
/// A claim is made of a task whose stream has gone on since the claimant looked.
pub fn record_delivery_step(
    record: &TaskRecord,
    by: &str,
    run: RunId,
    step: DeliveryStep,
) -> Result<CommandPlan, CommandRejection> {
    let by = by.to_owned();
    let event: TaskEvent = match step {
        DeliveryStep::Claimed { expected, .. } if expected != record.seq => {
            let remedy = "its log has gone on since; look at it again, somebody else may be delivering it";
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

/// What a person says of a result.
#[derive(Debug, Clone, Copy)]
pub struct ResultVerdict<'a> {
    /// Who.
    pub by: &'a str,
    /// The run whose result it is.
    pub run: RunId,
    /// Why.
    pub comment: &'a str,
}

/// A person takes the result of a run.
///
/// # Errors
/// The task is not done, or the run is not the one that did it.
pub fn accept_result(
    record: &TaskRecord,
    verdict: ResultVerdict<'_>,
) -> Result<CommandPlan, CommandRejection> {
    let ResultVerdict { by, run, comment } = verdict;
    require_completed_by(record, run)?;
    let accepted = TaskAccepted { run, by: by.to_owned(), comment: comment.to_owned() };
    Ok(CommandPlan { task_events: vec![accepted.into()], ..CommandPlan::default() })
}

/// A person does not take the result of a run: the task goes on with a new run that begins with `forked`.
///
/// # Errors
/// As [`accept`], and as [`resume`].
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

/// A result is judged once its task is done; what a failed run left is resumed, forked or applied, by those names.
fn require_completed_by(record: &TaskRecord, run: RunId) -> Result<(), CommandRejection> {
    let is_done = record.state == TaskState::Completed || record.is_undelivered();
    if !is_done {
        let remedy = "a result is accepted or rejected once its task is completed; `docket resume --hint` goes on \
                      with a run that came to something else";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    if record.last_run != Some(run) {
        let remedy = "that is not the run that completed it; name the task, or its last run";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    Ok(())
}
