//! A run as people and programs read it: its turns with their calls, outcomes, changes and costs.
//!
//! The one read model of a run. [`RunHistory`] is folded event by event and keeps a summary of each turn; [`TurnDetail`]
//! holds everything that the events of one turn say, and is read when a view shows it; [`FoldedRun`] adds the state
//! of the run and where its turns end. All of it works from any prefix of a log and grows with it. Pure.

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
