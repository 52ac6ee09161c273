//! Time limits of a run process's steps, announced to its supervisor before each step, and the end of its time
//! budget.

use std::time::{Duration, Instant};

use docket_schema::run::RunState;

use crate::{
    engine,
    model::{FIRST_EVENT_TIME_MAX, IDLE_TIMEOUT},
};

/// Time for the processing of a reply in the same step: it is folded, and its parts are stored.
const ANSWER_SLACK: Duration = Duration::from_secs(10);
/// Longest wait until a model's reply begins.
pub(super) const CALL_START_TIME_MAX: Duration = FIRST_EVENT_TIME_MAX.saturating_add(ANSWER_SLACK);
/// Longest silence within a reply.
pub(super) const SILENCE_TIME_MAX: Duration = IDLE_TIMEOUT.saturating_add(ANSWER_SLACK);
/// Longest time for an append with all its uploads, or for a scan of the workspace: the coordinator may be
/// unavailable for a whole lease, and a disk may be slow.
pub(super) const RECORD_TIME_MAX: Duration = Duration::from_secs(900);
/// Time a call needs beyond its own limit, to end its processes and read their output.
const CALL_SLACK: Duration = Duration::from_secs(60);

/// Returns the longest time that the open calls and checks may take by their pinned limits: one after the other, then
/// a scan of the workspace. A model call has its own limit.
pub(super) fn calls_time_max(state: &RunState) -> Duration {
    let settings = state.pins.as_ref().map(|pins| &pins.settings);
    let call =
        settings.map_or(0, |settings| settings.command_timeout_ms_max.max(settings.command_timeout_ms));
    // A fix is the fix itself, another check, and the fix after what patterns wrote.
    let mends = 2 * state.open_gates.iter().filter(|open| !open.step.is_check()).count();
    let calls = u32::try_from(state.open_tools.len() + state.open_gates.len() + mends).unwrap_or(u32::MAX);
    let calls = (Duration::from_millis(call) + CALL_SLACK).saturating_mul(calls);
    calls.saturating_add(lint_time_max(state)).saturating_add(RECORD_TIME_MAX)
}

/// Returns the longest time that the linters of a batch of edits may take.
fn lint_time_max(state: &RunState) -> Duration {
    let Some(pins) = state.pins.as_ref().filter(|_| !state.open_tools.is_empty()) else {
        return Duration::ZERO;
    };
    // Once before the edits, once after them.
    let linters = u32::try_from(pins.linters.len()).unwrap_or(u32::MAX).saturating_mul(2);
    (Duration::from_millis(pins.settings.lint_timeout_ms) + CALL_SLACK).saturating_mul(linters)
}

/// Returns when the run's time budget ends, if it has one and works continuously from now.
pub(super) fn time_budget_deadline(state: &RunState) -> Option<Instant> {
    let pins = state.pins.as_ref()?;
    let time_max_ms = pins.settings.time_max_ms;
    let for_calls = engine::find_engine(&pins.engine)
        .map_or(time_max_ms, |engine| engine.call_time_budget_ms(state, time_max_ms));
    let left_ms = for_calls.saturating_sub(state.model_attempts.spending(&state.totals).worked_ms);
    (time_max_ms > 0).then(|| Instant::now().checked_add(Duration::from_millis(left_ms))).flatten()
}
