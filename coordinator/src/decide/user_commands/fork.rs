//! `fork`: a new task goes on from a turn's end of another task's run, which is not touched.

use docket_schema::{
    event::NewEvent,
    ids::RunId,
    task::{FieldError, ForkedFrom, TaskResumed, TaskSpec, TaskSubmitted},
};

use crate::decide::{CommandPlan, FenceAfter, RunCondition, RunWrite};

/// The task of `spec` with `run` in hand, whose stream begins with `events`: `Forked` first.
///
/// # Errors
/// The field of `spec` that breaks a rule.
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
