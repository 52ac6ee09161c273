//! How a supervisor ended, and why it could not begin.

use std::{io, path::PathBuf};

use docket_schema::ids::IncarnationId;

use super::state::RunTally;
use crate::client::ClientError;

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorReport {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// How it ended.
    pub end: SupervisorEnd,
    /// How many of what.
    pub tally: RunTally,
}

/// How a supervisor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorEnd {
    /// It was asked to, and every run ended by itself.
    Drained,
    /// It was asked to, and had to kill runs that did not end in time.
    Killed,
    /// The coordinator will not have it: the reason, for a person.
    Refused(String),
}

impl std::fmt::Display for SupervisorReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunTally { started, finished, drained, faulted, crashed, lost, killed } = self.tally;
        write!(
            f,
            "{started} runs started: {finished} finished, {drained} given back, {faulted} given back for a fault of this worker, {crashed} died, {lost} lost, {killed} killed"
        )
    }
}

/// Why a supervisor could not begin.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The address is none, or no connection can be prepared.
    #[error("the worker cannot speak to the coordinator")]
    Client(#[source] ClientError),
    /// A folder cannot be made or locked.
    #[error("cannot use the folder {path}: it must be absolute, exist or be makeable, and be writable")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// The check of this host failed.
    #[error("this host cannot run tasks safely: {0}; `docket doctor` says more")]
    Preflight(String),
    /// Signals cannot be caught.
    #[error("cannot catch signals")]
    Signals(#[source] io::Error),
}
