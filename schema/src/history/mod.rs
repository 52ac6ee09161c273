//! A run as people and programs read it: its turns with their calls, outcomes, changes and costs.
//!
//! The one read model of a run. [`RunHistory`] is folded event by event and keeps a summary of each turn; [`TurnDetail`]
//! holds everything that the events of one turn say, and is read when a view shows it; [`FoldedRun`] adds the state
//! of the run and where its turns end. All of it works from any prefix of a log and grows with it. Pure.

mod call;
mod detail;
mod folded;
mod run_history;
mod skim;
mod summary;
#[cfg(test)]
mod tests;
mod timeline;

pub use call::{CallOutcome, FinalCheck, ModelCall, ModelReply, ToolCall};
pub use detail::{MessageSource, Milestone, TurnDetail, TurnMessage, WorkspaceChange};
pub use folded::{FoldedRun, NoSuchTurn};
pub use run_history::{HistoryStatus, Opening, RunHistory};
pub use skim::SkimmedEvent;
pub use summary::{Cost, TurnOutcome, TurnSummary};
pub use timeline::{TimelineRows, timeline};
