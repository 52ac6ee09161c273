//! A terminal of the kind that `ssh` gives: the real binary on a pty, its screen as a terminal would show it.

use std::{
    ffi::OsStr,
    io::{Read as _, Write as _},
    num::NonZeroU16,
    path::Path,
    process::{Child, ExitStatus, Stdio},
    sync::{Arc, mpsc},
    time::Instant,
};

use anyhow::{Context as _, Result, bail};
use docket_tests::system::{Signal, WAIT_MAX, docket_binary, send_signal};
use nix::sys::termios::{LocalFlags, tcgetattr};
use pty_process::{
    Size,
    blocking::{Command, Pts, Pty},
};

/// Chunks of output that wait to be looked at.
const CHUNKS_MAX: usize = 1024;

/// Where standard error goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StderrTarget {
    /// To the terminal.
    Shown,
    /// Nowhere: what stands on the terminal is standard output alone.
    Elsewhere,
}

/// See the module.
pub(crate) struct TestTerminal {
    pty: Arc<Pty>,
    /// Held, so that the terminal can be looked at after its process has ended.
    pts: Option<Pts>,
    child: Child,
    output: mpsc::Receiver<Vec<u8>>,
    parser: vt100::Parser,
    /// All that was written to it.
    pub(crate) raw: Vec<u8>,
}

impl TestTerminal {
    /// Runs `docket ARGS` in `home` on a terminal of 80 columns and 24 rows.
    pub(crate) fn open(home: &Path, env: &[(&str, &str)], args: &[&str]) -> Result<Self> {
        Self::open_sized(home, env, args, (80, 24), StderrTarget::Shown)
    }

    /// The same on one of so many columns and rows.
    pub(crate) fn open_sized(
        home: &Path,
        env: &[(&str, &str)],
        args: &[&str],
        (columns, rows): (u16, u16),
        errors: StderrTarget,
    ) -> Result<Self> {
        let (pty, pts) = pty_process::blocking::open()?;
        pty.resize(Size::new(rows, columns))?;
        // Whoever runs the tests may ignore signals, as `nohup` does, and a child would too.
        let mut command = Command::new("env")
            .arg("--default-signal=HUP,INT,QUIT,TERM")
            .arg(docket_binary())
            .args(args)
            .current_dir(home)
            .env_remove("NO_COLOR")
            .env_remove("DOCKET_URL")
            .env("TERM", "xterm")
            .env("DOCKET_HOME", home)
            .envs(env.iter().map(|(name, value)| (OsStr::new(name), OsStr::new(value))));
        if errors == StderrTarget::Elsewhere {
            command = command.stderr(Stdio::null());
        }
        let child = command.spawn_borrowed(&pts)?;
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
        let mut parser = vt100::Parser::default();
        let cells = |count| NonZeroU16::new(count).context("a terminal has a size");
        parser.screen_mut().set_size(cells(rows)?, cells(columns)?);
        Ok(Self { pty, pts: Some(pts), child, output, parser, raw: Vec::new() })
    }

    /// The screen as text, a line for each row.
    pub(crate) fn screen(&self) -> String {
        let (_, columns) = self.parser.screen().size();
        self.parser.screen().rows(0, columns.get()).collect::<Vec<_>>().join("\n")
    }

    /// Its state beside the text.
    pub(crate) fn screen_state(&self) -> &vt100::Screen {
        self.parser.screen()
    }

    /// Types.
    pub(crate) fn press(&self, keys: &str) -> Result<()> {
        (&*self.pty).write_all(keys.as_bytes()).context("the terminal takes keys")
    }

    /// Makes it another size.
    pub(crate) fn resize(&mut self, columns: u16, rows: u16) -> Result<()> {
        let cells = |count| NonZeroU16::new(count).context("a terminal has a size");
        self.parser.screen_mut().set_size(cells(rows)?, cells(columns)?);
        self.pty.resize(Size::new(rows, columns)).context("the terminal takes another size")
    }

    /// Takes output until the screen is as it should be.
    pub(crate) fn wait_for_screen(&mut self, what: &str, fits: impl Fn(&str) -> bool) -> Result<String> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let screen = self.screen();
            if fits(&screen) {
                return Ok(screen);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            match self.output.recv_timeout(left) {
                Ok(chunk) => self.apply_output(&chunk),
                Err(_) => bail!("{what}: waited in vain; the screen is\n{screen}"),
            }
        }
    }

    /// [`Self::shows`] for texts that must all be there.
    pub(crate) fn wait_for_texts(&mut self, texts: &[&str]) -> Result<String> {
        self.wait_for_screen(&format!("{texts:?}"), |screen| texts.iter().all(|text| screen.contains(text)))
    }

    fn apply_output(&mut self, chunk: &[u8]) {
        self.raw.extend_from_slice(chunk);
        self.parser.process(chunk);
    }

    /// Whether typed keys are shown and taken line by line, as a shell wants them.
    pub(crate) fn is_cooked(&self) -> Result<bool> {
        let flags = tcgetattr(self.pts.as_ref().context("open until dropped")?)?.local_flags;
        Ok(flags.contains(LocalFlags::ECHO | LocalFlags::ICANON))
    }

    /// Waits for the end of the process, and gives that and [`Self::lines`], all of them.
    pub(crate) fn wait_for_lines(self) -> Result<(ExitStatus, Vec<String>)> {
        let (status, lines, ..) = self.wait_for_screen_output()?;
        Ok((status, lines))
    }

    /// The same, with all that was written, byte for byte, and what stands on the screen in the end.
    pub(crate) fn wait_for_screen_output(mut self) -> Result<(ExitStatus, Vec<String>, String, String)> {
        let deadline = Instant::now() + WAIT_MAX;
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if let Ok(chunk) = self.output.recv_timeout(std::time::Duration::from_millis(5)) {
                self.apply_output(&chunk);
            }
            if Instant::now() >= deadline {
                bail!("it does not end; the screen is\n{}", self.screen());
            }
        };
        // Whoever reads then comes to the end of what was written.
        drop(self.pts.take());
        while let Ok(chunk) = self.output.recv_timeout(WAIT_MAX) {
            self.apply_output(&chunk);
        }
        let raw = String::from_utf8_lossy(&self.raw).into_owned();
        Ok((status, self.output_lines(), raw, self.screen()))
    }

    /// All that was written to it as lines, without colours and with nothing but text; after the end of the process.
    pub(crate) fn output_lines(&self) -> Vec<String> {
        let text = String::from_utf8_lossy(&self.raw).replace('\r', "");
        let mut out = String::new();
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("\u{1b}[") {
            out.push_str(before);
            let end = after.find(|c: char| c.is_ascii_alphabetic()).map_or(after.len(), |at| at + 1);
            rest = &after[end..];
        }
        out.push_str(rest);
        out.lines().map(ToOwned::to_owned).collect()
    }

    /// Whether it is as it was before a program took it.
    pub(crate) fn is_restored(&self) -> Result<bool> {
        let state = self.screen_state();
        Ok(!state.alternate_screen() && !state.hide_cursor() && self.is_cooked()?)
    }

    /// Sends a signal to the process.
    pub(crate) fn send_signal(&self, signal: Signal) {
        send_signal(self.child.id().cast_signed(), signal);
    }

    /// Waits for the end of the process, and takes the rest of what it wrote.
    pub(crate) fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            if let Some(status) = self.child.try_wait()? {
                while let Ok(chunk) = self.output.recv_timeout(std::time::Duration::from_millis(50)) {
                    self.apply_output(&chunk);
                }
                return Ok(status);
            }
            if let Ok(chunk) = self.output.recv_timeout(std::time::Duration::from_millis(20)) {
                self.apply_output(&chunk);
            }
            if Instant::now() >= deadline {
                bail!("it does not end; the screen is\n{}", self.screen());
            }
        }
    }
}

impl Drop for TestTerminal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(self.pts.take());
    }
}
