//! Decisions that come before the rules of any engine: requests of people, limits, running children, waiting calls,
//! checks that can be fixed or are undecided, a compaction in progress. Pure.

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

/// Returns the decision that is due first. `time_max_ms` as for [`next_tool_batch`].
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
