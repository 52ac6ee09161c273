//! A terminal of the kind that `ssh` gives: the real binary on a pty, its screen as a terminal would show it.

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    num::NonZeroU16,
    path::Path,
    process::{Child, ExitStatus},
    sync::{Arc, mpsc},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use docket_tests::system::{LONG, Signal, docket, send};
use nix::sys::termios::{LocalFlags, tcgetattr};
use pty_process::{
    Size,
    blocking::{Command, Pts, Pty},
};

/// Chunks of output that wait to be looked at.
const CHUNKS_MAX: usize = 1024;

/// See the module.
pub(super) struct Terminal {
    pty: Arc<Pty>,
    /// Held, so that the terminal can be looked at after its process has ended.
    pts: Option<Pts>,
    child: Child,
    output: mpsc::Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All that was written to it.
    pub(super) raw: Vec<u8>,
}

impl Terminal {
    /// Runs `docket ARGS` in `home` on a terminal of 80 columns and 24 rows.
    pub(super) fn open(home: &Path, env: &[(&str, &str)], args: &[&str]) -> Result<Self> {
        let (pty, pts) = pty_process::blocking::open()?;
        pty.resize(Size::new(24, 80))?;
        let child = Command::new(docket())
            .args(args)
            .current_dir(home)
            .env_remove("NO_COLOR")
            .env_remove("DOCKET_URL")
            .env("TERM", "xterm")
            .env("DOCKET_HOME", home)
            .envs(env.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))))
            .spawn_borrowed(&pts)?;
        let pty = Arc::new(pty);
        let (sender, output) = mpsc::sync_channel(CHUNKS_MAX);
        let reader = Arc::clone(&pty);
        // Ends with the terminal: its last writer closes when this value goes.
        std::thread::spawn(move || {
            let mut chunk = [0; 4096];
            while let Ok(read) = (&*reader).read(&mut chunk) {
                if read == 0 || sender.send(chunk[..read].to_vec()).is_err() {
                    break;
                }
            }
        });
        let parser = vt100::Parser::default();
        Ok(Self { pty, pts: Some(pts), child, output, parser, raw: Vec::new() })
    }

    /// The screen as text, a line for each row.
    pub(super) fn screen(&self) -> String {
        let (_, columns) = self.parser.screen().size();
        self.parser.screen().rows(0, columns.get()).collect::<Vec<_>>().join("\n")
    }

    /// Its state beside the text.
    pub(super) fn state(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Types.
    pub(super) fn press(&self, keys: &str) -> Result<()> {
        (&*self.pty).write_all(keys.as_bytes()).context("the terminal takes keys")
    }

    /// Makes it another size.
    pub(super) fn resize(&mut self, columns: u16, rows: u16) -> Result<()> {
        let cells = |count| NonZeroU16::new(count).context("a terminal has a size");
        self.parser.screen_mut().set_size(cells(rows)?, cells(columns)?);
        self.pty.resize(Size::new(rows, columns)).context("the terminal takes another size")
    }

    /// Takes output until the screen is as it should be.
    pub(super) fn shows(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + LONG;
        loop {
            let screen = self.screen();
            if fits(&screen) {
                return Ok(screen);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(chunk) => self.take(&chunk),
                Err(_) => bail!("{what}: waited in vain; the screen is\n{screen}"),
            }
        }
    }

    /// [`Self::shows`] for texts that must all be there.
    pub(super) fn shows_all(&mut self, texts: &[&str]) -> Result<String> {
        self.shows(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    fn take(&mut self, chunk: &[u8]) {
        self.raw.extend_from_slice(chunk);
        self.parser.process(chunk);
    }

    /// Whether typed keys are shown and taken line by line, as a shell wants them.
    pub(super) fn is_cooked(&self) -> Result<bool> {
        let flags = tcgetattr(self.pts.as_ref().context("open until dropped")?)?.local_flags;
        Ok(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON))
    }

    /// Sends a signal to the process.
    pub(super) fn signal(&self, signal: Signal) {
        send(self.child.id().cast_signed(), signal);
    }

    /// Waits for the end of the process, and takes the rest of what it wrote.
    pub(super) fn ended(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + LONG;
        loop {
            if let Some(status) = self.child.try_wait()? {
                while let Ok(chunk) = self.output.recv_timeout(std::time::Duration::from_millis(50)) {
                    self.take(&chunk);
                }
                return Ok(status);
            }
            if let Ok(chunk) = self.output.recv_timeout(std::time::Duration::from_millis(20)) {
                self.take(&chunk);
            }
            if Instant::now() >= deadline {
                bail!("it does not end; the screen is\n{}", self.screen());
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.pts.take());
    }
}
