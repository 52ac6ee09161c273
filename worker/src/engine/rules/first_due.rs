//! What comes before the rules of any engine: wishes of people, limits, children that are out, calls that wait, checks that
//! can be mended or decide nothing, a compaction that has begun. Pure.

use docket_schema::run::{RunStarted, RunState};

use super::{
    super::{
        compaction,
        core::{decision::Decision, limits::decide_requests_and_limits},
    },
    delegation,
    tool_batch::next_tool_batch,
    verification,
};

/// The decision that is due first. `time_max_ms` as for [`run_tools`].
pub(in crate::engine) fn first_due_decision(
    run: &RunState,
    pins: &RunStarted,
    time_max_ms: u64,
) -> Option<Decision> {
    decide_requests_and_limits(run)
        .or_else(|| delegation::wait_for_children(run))
        .or_else(|| (!run.pending_calls.is_empty()).then(|| next_tool_batch(run, pins, time_max_ms)))
        .or_else(|| verification::fix_checks(run, pins))
        .or_else(|| verification::resolve_undecided_checks(run, pins))
        .or_else(|| compaction::continue_compaction(run, pins))
}
