//! What comes before the rules of any engine: wishes of people, limits, children that are out, calls that wait, checks that
//! can be mended or decide nothing, a compaction that has begun. Pure.

use docket_schema::run::{RunStarted, RunState};

use super::{
    super::{
        compaction,
        core::{decision::Decision, limits::wishes_and_limits},
    },
    delegation,
    tool_batch::run_tools,
    verification,
};

/// The decision that is due first. `time_max_ms` as for [`run_tools`].
pub(in crate::engine) fn due_first(run: &RunState, pins: &RunStarted, time_max_ms: u64) -> Option<Decision> {
    wishes_and_limits(run)
        .or_else(|| delegation::waits(run))
        .or_else(|| (!run.wanted.is_empty()).then(|| run_tools(run, pins, time_max_ms)))
        .or_else(|| verification::mend(run, pins))
        .or_else(|| verification::undecided(run, pins))
        .or_else(|| compaction::under_way(run, pins))
}
