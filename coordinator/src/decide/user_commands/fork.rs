//! `fork`: a new task continues from the end of a turn of another task's run, which is not changed.

use docket_schema::{
    event::NewEvent,
    ids::RunId,
    task::{FieldError, ForkedFrom, TaskResumed, TaskSpec, TaskSubmitted},
};

use crate::decide::{CommandPlan, FenceAfter, RunCondition, RunWrite};

/// Plans the task of `spec` with `run` as its current run, whose stream starts with `events` (`Forked`
/// first).
///
/// # Errors
/// Names the field of `spec` that is invalid.
pub fn fork(
    spec: TaskSpec,
    by: &str,
    from: ForkedFrom,
    run: RunId,
    events: Vec<NewEvent>,
) -> Result<CommandPlan, FieldError> {
    spec.check()?;
    let (by, parent) = (by.to_owned(), from.run);
    Ok(CommandPlan {
        task_events: vec![
            TaskSubmitted { spec, by: by.clone(), forked_from: Some(from), delegated_by: None }.into(),
            TaskResumed { by, run, parent }.into(),
        ],
        run_write: Some(RunWrite { run, condition: RunCondition::AtHead, events, fence: FenceAfter::Shut }),
        ..CommandPlan::default()
    })
}
