//! `resume`: continues from the end of a turn of a run, as a new run of the same task.

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    run::{Forked, RunEvent, RunOutcome},
    task::{TaskRecord, TaskResumed},
};

use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// Makes the task available with the new run as its current run, whose stream starts with `forked` and then
/// `edits`. The current run, even if leased, ends as superseded and its stream closes first.
///
/// # Errors
/// Rejected if the new run is the one it continues from.
pub fn resume(
    record: &TaskRecord,
    by: &str,
    forked: Forked,
    edits: Vec<NewEvent>,
) -> Result<CommandPlan, CommandRejection> {
    let (run, parent) = (forked.run, forked.parent);
    if record.run == Some(run) || run == parent {
        return Err(CommandRejection::WrongState {
            state: record.state,
            remedy: "give the new run a new id",
        });
    }
    let turn = forked.turn;
    let mut events = vec![RunEvent::from(forked).encode(turn)];
    events.extend(edits);
    Ok(CommandPlan {
        task_events: vec![TaskResumed { by: by.to_owned(), run, parent }.into()],
        run_write: Some(RunWrite { run, condition: RunCondition::AtHead, events, fence: FenceAfter::Shut }),
        superseded_run: record.run.map(|old| RunWrite::ended_by_coordinator(old, RunOutcome::Superseded)),
        ..CommandPlan::default()
    })
}
