//! A `docket` on a terminal, as a user runs it: accepts keys and captures the screen output.

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    os::fd::{AsFd as _, OwnedFd},
    path::Path,
    process::ExitStatus,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use nix::{
    fcntl::{FcntlArg, FdFlag, fcntl},
    pty::{Winsize, openpty},
};

use super::{
    process::TestProgram,
    wait::{WAIT_MAX, poll_until},
};

/// A process on a terminal; see the module. Killed when dropped.
#[derive(Debug)]
pub struct DocketTerminal {
    child: tokio::process::Child,
    keys: std::fs::File,
    screen: Arc<Mutex<Vec<u8>>>,
    read_to: usize,
}

impl DocketTerminal {
    /// Starts `docket ARGS` on a terminal of 80 columns and 24 rows.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    pub fn start<A: AsRef<OsStr>>(cwd: &Path, env: &[(&str, &OsStr)], args: &[A]) -> Result<Self> {
        let size = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(&size, None)?;
        for end in [&pair.master, &pair.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
        }
        let slave = |end: &OwnedFd| end.as_fd().try_clone_to_owned();
        let mut command = tokio::process::Command::from(TestProgram::Docket.command());
        command.current_dir(cwd).envs(env.iter().copied()).args(args).kill_on_drop(true);
        command.stdin(slave(&pair.slave)?).stdout(slave(&pair.slave)?).stderr(pair.slave);
        let child = command.spawn().context("docket can be started")?;
        // The command holds the far end too, which would keep the screen open forever.
        drop(command);
        let screen = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut from) = (Arc::clone(&screen), std::fs::File::from(slave(&pair.master)?));
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            // A terminal whose other end is closed returns an error.
            while let Ok(count @ 1..) = from.read(&mut chunk) {
                seen.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(&chunk[..count]);
            }
        });
        Ok(Self { child, keys: pair.master.into(), screen, read_to: 0 })
    }

    /// Returns its pid.
    ///
    /// # Errors
    /// Returns an error if it has ended.
    pub fn pid(&self) -> Result<i32> {
        Ok(self.child.id().context("it has ended")?.cast_signed())
    }

    /// Types keys.
    ///
    /// # Errors
    /// Returns an error if the process is gone.
    pub fn send_keys(&mut self, keys: &str) -> Result<()> {
        Ok(self.keys.write_all(keys.as_bytes())?)
    }

    /// Waits until `text` is on the screen, after the text of the previous wait.
    ///
    /// # Errors
    /// Returns an error with the screen if it does not appear.
    pub async fn wait_for_text(&mut self, text: &str) -> Result<()> {
        let found =
            poll_until(text, || self.full_output()[self.read_to..].find(text).map(|at| self.read_to + at));
        let found = found.await;
        self.read_to = found.with_context(|| self.full_output())? + text.len();
        Ok(())
    }

    /// Returns all output so far.
    pub fn full_output(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap_or_else(PoisonError::into_inner)).into_owned()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Returns an error if it does not end.
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(WAIT_MAX, self.child.wait()).await;
        Ok(ended.with_context(|| format!("docket does not end: {}", self.full_output()))??)
    }
}
