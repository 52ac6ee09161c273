//! The read model of a run for people and programs: turns with their calls, outcomes, changes and costs.
//!
//! [`RunHistory`] is folded event by event and holds a summary of each turn; [`TurnDetail`] holds everything
//! recorded in one turn and is read when a view shows it; [`FoldedRun`] adds the run's state and the end of
//! each turn. All of them work on any prefix of a log and are updated as it grows. Pure.

mod calls;
mod folded_run;
mod run_history;
mod skimmed_event;
#[cfg(test)]
mod tests;
mod timeline;
mod turn_detail;
mod turn_summary;

pub use calls::{CallOutcome, FinalCheck, ModelCall, ModelReply, ToolCall};
pub use folded_run::{FoldedRun, NoSuchTurn};
pub use run_history::{HistoryStatus, RunHistory, StartingTurn};
pub use skimmed_event::SkimmedEvent;
pub use timeline::{TimelineRows, build_timeline};
pub use turn_detail::{MessageSource, TurnDetail, TurnMessage, TurnNote, WorkspaceChange};
pub use turn_summary::{ModelCost, TurnOutcome, TurnSummary};
