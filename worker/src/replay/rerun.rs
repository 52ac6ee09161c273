//! Recorded tool calls run again: in a workspace of their own, behind walls, by the code that ran them first,
//! and what comes of them compared with the log turn by turn. No model is asked, nothing is recorded.
//!
//! What counts: how a call ended, the facts that decisions depend on, and the hash of the tree after each batch.
//! What is told but does not count: the text of a result, for tools print times; and `.git`, for commits carry
//! clocks. Each batch starts from the recorded tree, so that one difference does not make the next.
//!
//! Not run again, and told: calls that may reach beyond the workspace (`external`), calls whose outcome a crash
//! left unknown, and gates unless they are asked for. Their tree is taken from the log.

use std::{ops::RangeInclusive, path::PathBuf};

use docket_schema::{
    content::WorkspacePath,
    ids::{TreeHash, Turn},
    message::CallId,
    run::CorruptLog,
};
use serde::Serialize;

use super::divergence::FieldDifference;
use crate::{
    bootstrap::SandboxChoice,
    run::StartError,
    workspace::{RestoreError, SnapshotError},
};

/// How calls are run again.
#[derive(Debug, Clone)]
pub struct RerunOptions {
    /// A folder that is empty or not there; the caller removes it.
    pub folder: PathBuf,
    /// Folder for packs of bases.
    pub cache: PathBuf,
    /// Which walls. Recorded commands are a model's: there is no running them without.
    pub sandbox: SandboxChoice,
    /// The task's own test line.
    pub tests: Option<String>,
    /// Whether the final checks are run too.
    pub gates: GateRerun,
    /// The turns whose calls are run.
    pub turns: RangeInclusive<Turn>,
}

/// Whether the final checks are run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateRerun {
    /// They are.
    Run,
    /// Their results are taken from the log.
    Skip,
}

/// Why calls cannot be run again.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    /// No walls.
    #[error("recorded commands are run again behind walls only; take another sandbox than `none`")]
    NoSandbox,
    /// The log does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// No workspace, or no walls.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The workspace cannot be looked at.
    #[error("the workspace of the replay cannot be looked at")]
    Snapshot(#[from] SnapshotError),
    /// A recorded tree cannot be restored.
    #[error("a recorded tree cannot be restored")]
    Restore(#[from] RestoreError),
}

/// What was told while it goes on.
#[derive(Debug)]
pub enum RerunProgress<'a> {
    /// These tools are about to run.
    Runs {
        /// In this turn.
        turn: Turn,
        /// Their names.
        tools: Vec<&'a str>,
    },
    /// A turn is done.
    TurnDone(&'a TurnRerun),
}

/// What became of a turn.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TurnRerun {
    /// The turn.
    pub turn: Turn,
    /// Nothing that counts differs.
    pub ok: bool,
    /// Its setup lines, calls and gates, in order.
    pub calls: Vec<CallRerun>,
    /// Trees that differ, one for each batch of calls.
    pub trees: Vec<TreeRerun>,
    /// What the batches left in `.git` is not what was recorded. Does not count.
    pub git_differs: bool,
    /// The recorded tree at its end.
    pub tree: Option<TreeHash>,
}

/// What became of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRerun {
    /// The call; a setup line has none.
    pub call: Option<CallId>,
    /// The tool, the gate, or the setup line.
    pub tool: String,
    /// What was done with it.
    pub ran: CallRerunStatus,
    /// What counts and differs.
    pub differs: Vec<FieldDifference>,
    /// Its result reads otherwise. Does not count.
    pub content_differs: bool,
}

/// What was done with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRerunStatus {
    /// It was run.
    Again,
    /// It may reach beyond the workspace: not run.
    External,
    /// A crash left its outcome unknown when it was recorded: not run.
    Unknown,
    /// A gate, and gates were not asked for.
    Skipped,
}

/// A tree that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeRerun {
    /// As recorded.
    pub recorded: TreeHash,
    /// As it came about now.
    pub again: TreeHash,
    /// The first paths that differ.
    pub paths: Vec<WorkspacePath>,
}

/// Sums over a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RerunTotals {
    /// Turns looked at.
    pub turns: u32,
    /// Of these, turns in which something that counts differs.
    pub turns_differ: u32,
    /// Calls, gates and setup lines that were run.
    pub ran: u32,
    /// Those that were not.
    pub not_run: u32,
    /// Calls whose result reads otherwise.
    pub contents_differ: u32,
}
