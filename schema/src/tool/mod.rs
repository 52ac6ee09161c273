//! What of a tool call the log holds and decisions need: its recovery class, and the facts of its result.

mod changes;
mod facts;
mod network;
mod not_run;

pub use changes::{Changes, FileChanged, FileDiff, Hunk};
pub use facts::{
    ChildFacts, EditLevel, Exceeded, FileSeen, LineCounts, LinesShown, LintBefore, LintSeen, LintStatus,
    RecoveryClass, TestCounts, ToolFacts, ToolSet,
};
pub use network::{NetworkSeen, PLACES_MAX, PlaceReached, PlaceRefused};
pub use not_run::{CheckProgress, NotRun, NotRunCause};
