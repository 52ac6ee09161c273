//! The timeline of a run as the API returns it: one row per turn.

use super::{
    folded_run::FoldedRun,
    run_history::{HistoryStatus, RunHistory},
    turn_summary::TurnSummary,
};
use crate::{
    api::{RunTimeline, TimelineTurn, ToolCount},
    ids::{RunId, Seq, TaskId},
    run::RunOutcome,
};

/// Cached rows of a timeline. Computing a row reads all texts of its turn, and only the newest turn can still
/// change.
#[derive(Debug, Clone, Default)]
pub struct TimelineRows(Vec<TimelineTurn>);

impl TimelineRows {
    /// Computes the rows of `run` that are new or may have changed since the last update.
    pub fn update(&mut self, run: &FoldedRun) {
        self.0.pop();
        let turns = run.turns().iter().filter(|turn| !turn.events.is_empty()).skip(self.0.len());
        self.0.extend(turns.map(|turn| build_row(run.history(), turn)));
    }

    /// Returns the rows from the one that contains the event at index `place` onward.
    pub fn rows_since(&self, run: &FoldedRun, place: usize) -> &[TimelineTurn] {
        let first = run.turns().partition_point(|turn| turn.events.end <= place);
        let newest = self.0.len().saturating_sub(1);
        self.0.get(first.min(newest)..).unwrap_or_default()
    }
}

/// Builds the timeline of a run from these rows; `head` is the last event of the run's own stream.
pub fn build_timeline(
    run: RunId,
    task: TaskId,
    head: Seq,
    folded: &FoldedRun,
    turns: Vec<TimelineTurn>,
) -> RunTimeline {
    let history = folded.history();
    let opening = history.starting_turn();
    let pins = folded.state().pins.as_deref();
    RunTimeline {
        run,
        task,
        head,
        engine: pins.map(|pins| pins.engine.to_string()),
        models: pins.map(|pins| pins.models.to_string()),
        commit: pins.and_then(|pins| pins.base.git.as_ref()).map(|git| git.commit.clone()),
        standing: history.status().label().to_owned(),
        why: status_reason(folded),
        opens_at: history.turns().get(opening.turn_index).map_or(0, |turn| turn.turn.0),
        opens_why: opening.reason,
        turns,
    }
}

fn status_reason(run: &FoldedRun) -> String {
    match run.history().status() {
        HistoryStatus::Ended(RunOutcome::Failed { message, .. }) => message.clone(),
        HistoryStatus::Blocked => {
            let asked = run.state().blocker.as_ref();
            asked.map_or_else(String::new, |asked| asked.question.text_or_size())
        }
        HistoryStatus::Open
        | HistoryStatus::Paused
        | HistoryStatus::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
            String::new()
        }
    }
}

fn build_row(history: &RunHistory, turn: &TurnSummary) -> TimelineTurn {
    let detail = history.turn_detail(turn);
    let last = history.turn_events(turn).last();
    let usage = turn.cost.usage;
    TimelineTurn {
        turn: turn.turn.0,
        phase: turn.phase.map(|phase| phase.as_str().to_owned()),
        role: turn.role.clone(),
        tools: turn
            .tools
            .iter()
            .map(|(name, calls)| ToolCount { name: name.clone(), calls: *calls })
            .collect(),
        fate: turn.outcome.label().into_owned(),
        failed: turn.outcome.is_failure(),
        ended: turn.end.is_some(),
        changed_files: turn.has_snapshot,
        input_tokens: usage.request_tokens(),
        output_tokens: usage.output_tokens,
        cost_nusd: turn.cost.nusd,
        cost_so_far_nusd: turn.cost_so_far.nusd,
        began_at: turn.began_at,
        ended_at: turn.ended_at,
        end_hash: last.map(|event| event.hash.to_string()).unwrap_or_default(),
        decided: detail.decision_digest(),
        results: detail.results_digest(),
    }
}
