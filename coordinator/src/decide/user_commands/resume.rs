//! `resume`: somebody wants a run gone on with from a turn's end, as a new run of the same task.

use docket_schema::{
    event::{NewEvent, TypedEvent as _},
    run::{Forked, RunEvent, RunOutcome},
    task::{TaskRecord, TaskResumed},
};

use crate::decide::{CommandPlan, CommandRejection, FenceAfter, RunCondition, RunWrite};

/// Makes the task available with the new run in hand, whose stream begins with `forked` and then
/// `edits`. A run in hand, also one a worker is at, ends as superseded and its stream closes first.
///
/// # Errors
/// The new run is the one it stands on.
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
            remedy: "give the new run an id of its own",
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
