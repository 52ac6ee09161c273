//! How a supervisor ended, and why it could not start.

use std::{io, path::PathBuf};

use docket_schema::ids::IncarnationId;

use super::state::RunTally;
use crate::client::ClientError;

/// The report of a supervisor that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SupervisorReport {
    /// This start of the worker.
    pub incarnation: IncarnationId,
    /// How it ended.
    pub end: SupervisorEnd,
    /// Counts of runs by how they ended.
    pub tally: RunTally,
}

/// How a supervisor ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SupervisorEnd {
    /// It was asked to, and every run ended by itself.
    Drained,
    /// It was asked to, and had to kill runs that did not end in time.
    Killed,
    /// The coordinator rejects it; the reason, for a person.
    Refused(String),
}

impl std::fmt::Display for SupervisorReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let RunTally { started, finished, drained, faulted, crashed, lost, killed } = self.tally;
        write!(
            f,
            "{started} runs started: {finished} finished, {drained} released, {faulted} released because of a fault of this worker, {crashed} died, {lost} lost, {killed} killed"
        )
    }
}

/// Why a supervisor could not start.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// The address is invalid, or no connection can be prepared.
    #[error("the worker cannot connect to the coordinator")]
    Client(#[source] ClientError),
    /// A folder cannot be created or locked.
    #[error("cannot use the folder {path}: it must be absolute and writable; it is created if missing")]
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
