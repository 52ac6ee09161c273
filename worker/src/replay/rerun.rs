//! Reruns recorded tool calls in a separate sandboxed workspace, with the code that first ran them, and compares the
//! results with the log turn by turn. No model is called, nothing is recorded.
//!
//! What counts: how a call ended, the facts that decisions depend on, and the tree hash after each batch. Reported
//! but not counted: the text of a result, because tools print times; and `.git`, because commits contain timestamps.
//! Each batch starts from the recorded tree, so that one difference does not cause the next.
//!
//! Reported but not rerun: calls that may have external effects (`external`), calls whose outcome a crash left
//! unknown, and gates unless they are requested. Their tree is taken from the log.

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

/// Options of a rerun.
#[derive(Debug, Clone)]
pub struct RerunOptions {
    /// A folder that is empty or does not exist; the caller removes it.
    pub folder: PathBuf,
    /// Folder for packs of bases.
    pub cache: PathBuf,
    /// The sandbox. Recorded commands were written by a model and never run without one.
    pub sandbox: SandboxChoice,
    /// The task's own test command.
    pub tests: Option<String>,
    /// Whether the final checks are run too.
    pub gates: GateRerun,
    /// The turns whose calls are rerun.
    pub turns: RangeInclusive<Turn>,
}

/// Whether the final checks are rerun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GateRerun {
    /// Run them.
    Run,
    /// Take their results from the log.
    Skip,
}

/// Why calls cannot be rerun.
#[derive(Debug, thiserror::Error)]
pub enum RerunError {
    /// There is no sandbox.
    #[error("recorded commands are rerun only in a sandbox; choose a sandbox other than `none`")]
    NoSandbox,
    /// The log does not fold.
    #[error("the run's log does not fold")]
    Corrupt(#[from] CorruptLog),
    /// The workspace or the sandbox cannot be created.
    #[error(transparent)]
    Start(#[from] StartError),
    /// The workspace cannot be read.
    #[error("the replay's workspace cannot be read")]
    Snapshot(#[from] SnapshotError),
    /// A recorded tree cannot be restored.
    #[error("a recorded tree cannot be restored")]
    Restore(#[from] RestoreError),
}

/// Progress of a rerun.
#[derive(Debug)]
pub enum RerunProgress<'a> {
    /// These tools are about to run.
    Runs {
        /// Their turn.
        turn: Turn,
        /// Their names.
        tools: Vec<&'a str>,
    },
    /// A turn is done.
    TurnDone(&'a TurnRerun),
}

/// The result of a turn.
#[derive(Debug, Clone, Default, Serialize)]
pub struct TurnRerun {
    /// The turn.
    pub turn: Turn,
    /// Nothing that counts differs.
    pub ok: bool,
    /// Its setup lines, calls and gates, in order.
    pub calls: Vec<CallRerun>,
    /// Trees that differ, at most one per batch of calls.
    pub trees: Vec<TreeRerun>,
    /// The batches left `.git` different from the record. Does not count.
    pub git_differs: bool,
    /// The recorded tree at its end.
    pub tree: Option<TreeHash>,
}

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CallRerun {
    /// The call; `None` for a setup line.
    pub call: Option<CallId>,
    /// The tool, the gate, or the setup line.
    pub tool: String,
    /// Whether it was rerun.
    pub ran: CallRerunStatus,
    /// Differences that count.
    pub differs: Vec<FieldDifference>,
    /// The text of its result differs. Does not count.
    pub content_differs: bool,
}

/// Whether a call was rerun, and why not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CallRerunStatus {
    /// It was rerun.
    Again,
    /// Not rerun: it may have external effects.
    External,
    /// Not rerun: a crash left its outcome unknown when it was recorded.
    Unknown,
    /// A gate, and gates were not requested.
    Skipped,
}

/// A tree that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeRerun {
    /// The recorded tree.
    pub recorded: TreeHash,
    /// The tree of the rerun.
    pub again: TreeHash,
    /// The first paths that differ.
    pub paths: Vec<WorkspacePath>,
}

/// Totals of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RerunTotals {
    /// Turns compared.
    pub turns: u32,
    /// Turns in which something that counts differs.
    pub turns_differ: u32,
    /// Calls, gates and setup lines that were rerun.
    pub ran: u32,
    /// Those that were not.
    pub not_run: u32,
    /// Calls whose result text differs.
    pub contents_differ: u32,
}
