//! The wall clock of a process under test, which a test can set while it runs.
//!
//! Uses libfaketime (Debian's `faketime`), preloaded into the process. Clocks that count since boot are
//! unaffected, as on a real machine whose clock is set.

use std::{
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::scenario_limit::print_notice;

/// Where distributions install the library: each architecture has its own folder.
const LIBRARY_FOLDER: &str = "/usr/lib";
const LIBRARY_FILE: &str = "faketime/libfaketimeMT.so.1";

/// A settable clock; see the module. Any number of processes may share it, as on one machine.
#[derive(Debug)]
pub struct SettableClock {
    library: PathBuf,
    folder: tempfile::TempDir,
}

impl SettableClock {
    /// Creates a clock with the correct time. Returns `None`, with a notice, if the library is not installed;
    /// in CI, that is a failure.
    ///
    /// # Errors
    /// Returns an error if its file cannot be written.
    ///
    /// # Panics
    /// Panics if `CI` is set and the library is not installed.
    pub fn new() -> Result<Option<Self>> {
        let Some(library) = find_library(Path::new(LIBRARY_FOLDER)) else {
            let said =
                "no libfaketime here (Debian: faketime): whole processes with a stepped clock are NOT tested";
            assert!(std::env::var_os("CI").is_none(), "{said}");
            print_notice(said);
            return Ok(None);
        };
        let folder = tempfile::Builder::new().prefix("docket-clock-").tempdir()?;
        // A server that runs as another user reads it too.
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755))?;
        let clock = Self { library, folder };
        clock.set_ahead(0)?;
        Ok(Some(clock))
    }

    fn clock_file(&self) -> PathBuf {
        self.folder.path().join("offset")
    }

    /// Sets the clock this many seconds ahead of the true time, or behind it if negative.
    ///
    /// # Errors
    /// Returns an error if its file cannot be written.
    pub fn set_ahead(&self, seconds: i64) -> Result<()> {
        let fresh = self.folder.path().join("fresh");
        std::fs::write(&fresh, format!("{seconds:+}\n"))?;
        // Renamed into place, so that a process that reads it meanwhile finds the old or the new
        // one.
        std::fs::rename(&fresh, self.clock_file()).context("the offset takes the place of the one before")
    }

    /// Returns the environment variables of a process that uses this clock.
    pub fn environment(&self) -> Vec<(String, String)> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        [
            ("LD_PRELOAD", path(&self.library)),
            ("FAKETIME_TIMESTAMP_FILE", path(&self.clock_file())),
            ("FAKETIME_NO_CACHE", "1".to_owned()),
            ("FAKETIME_DONT_FAKE_MONOTONIC", "1".to_owned()),
            ("NO_FAKE_STAT", "1".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }
}

fn find_library(under: &Path) -> Option<PathBuf> {
    let folders = std::fs::read_dir(under).ok()?.flatten().map(|entry| entry.path());
    folders.map(|folder| folder.join(LIBRARY_FILE)).find(|file| file.is_file())
}
