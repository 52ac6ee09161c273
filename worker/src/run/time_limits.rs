//! How long the steps of a run process may take: what it notes for its supervisor before each of them, and when its budget of
//! time ends.

use std::time::{Duration, Instant};

use docket_schema::run::RunState;

use crate::{
    engine,
    model::{FIRST_EVENT_TIME_MAX, IDLE_TIMEOUT},
};

/// What the driver does with an answer once it is there, in the same step: it is folded, and its parts are placed.
const ANSWER_SLACK: Duration = Duration::from_secs(10);
/// Longest that a model call takes until its answer begins.
pub(super) const CALL_START_TIME_MAX: Duration = FIRST_EVENT_TIME_MAX.saturating_add(ANSWER_SLACK);
/// Longest silence within an answer.
pub(super) const SILENCE_TIME_MAX: Duration = IDLE_TIMEOUT.saturating_add(ANSWER_SLACK);
/// Longest that an append may take with all its uploads, or a walk of the workspace: the coordinator may be
/// away for a whole lease, a disk may be slow.
pub(super) const RECORD_TIME_MAX: Duration = Duration::from_secs(900);
/// What a call takes beyond its own time limit: ending its processes, reading what it left.
const CALL_SLACK: Duration = Duration::from_secs(60);

/// The longest that the open calls and checks may take, from the limits that were pinned: one after the other, and a look
/// at the workspace after them. A model call has a limit of its own.
pub(super) fn calls_time_max(state: &RunState) -> Duration {
    let settings = state.pins.as_ref().map(|pins| &pins.settings);
    let call =
        settings.map_or(0, |settings| settings.command_timeout_ms_max.max(settings.command_timeout_ms));
    // A mending is a fix, the check once more, and the fix behind what patterns wrote.
    let mends = 2 * state.open_gates.iter().filter(|open| !open.step.is_check()).count();
    let calls = u32::try_from(state.open_tools.len() + state.open_gates.len() + mends).unwrap_or(u32::MAX);
    let calls = (Duration::from_millis(call) + CALL_SLACK).saturating_mul(calls);
    calls.saturating_add(lint_time_max(state)).saturating_add(RECORD_TIME_MAX)
}

/// The longest that the linters of a batch of edits may take.
fn lint_time_max(state: &RunState) -> Duration {
    let Some(pins) = state.pins.as_ref().filter(|_| !state.open_tools.is_empty()) else {
        return Duration::ZERO;
    };
    // Once before the edits, once behind them.
    let linters = u32::try_from(pins.linters.len()).unwrap_or(u32::MAX).saturating_mul(2);
    (Duration::from_millis(pins.settings.lint_timeout_ms) + CALL_SLACK).saturating_mul(linters)
}

/// When what calls may use of the run's budget of time ends, if it has one and works on from now.
pub(super) fn time_budget_deadline(state: &RunState) -> Option<Instant> {
    let pins = state.pins.as_ref()?;
    let time_max_ms = pins.settings.time_max_ms;
    let for_calls = engine::find_engine(&pins.engine)
        .map_or(time_max_ms, |engine| engine.call_time_budget_ms(state, time_max_ms));
    let left_ms = for_calls.saturating_sub(state.model_attempts.spending(&state.totals).worked_ms);
    (time_max_ms > 0).then(|| Instant::now().checked_add(Duration::from_millis(left_ms))).flatten()
}
