//! Starts and owns processes; no other part of this crate does.
//!
//! A [`RunningProcess`] that is dropped is killed, together with the run processes it started. Its
//! standard error goes to a file, so that it can be shown when a test fails and no pipe fills up.

use std::{
    ffi::{OsStr, OsString},
    fs::File,
    path::{Path, PathBuf},
    process::{ExitStatus, Output, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    process::{Child, ChildStdout},
};

use super::{
    binary::{docket_bench_binary, docket_binary},
    procfs::{Signal, child_pids, send_signal},
    wait::WAIT_MAX,
};

/// Maximum size of a displayed log: its end says why.
const TAIL_BYTES_MAX: usize = 6 * 1024;
/// Time limit for a killed process to end on a busy machine.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Programs that tests start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestProgram {
    /// The binary under test.
    Docket,
    /// The developers' benchmark of it.
    DocketBench,
    /// The cargo that runs the test.
    Cargo,
    /// git, to create sample repositories.
    Git,
    /// systemd's own check of units.
    SystemdAnalyze,
    /// Python, to check our output with third-party programs.
    Python,
    /// Node, to drive a browser.
    Node,
    /// Prometheus' own check of rules, configurations and series.
    Promtool,
    /// The shell of a reader of the documentation, for which our completion script is written.
    Bash,
    /// The test itself, in separate namespaces.
    Unshare,
    /// The binary under test, in the network namespace of another machine.
    Nsenter,
    /// Configures the system's networks.
    Ip,
    /// Displays manual pages.
    Groff,
}

impl TestProgram {
    fn path(self) -> OsString {
        match self {
            Self::Docket => docket_binary().into(),
            Self::DocketBench => docket_bench_binary().into(),
            Self::Cargo => std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            Self::Git => "git".into(),
            Self::SystemdAnalyze => "systemd-analyze".into(),
            Self::Python => "python3".into(),
            Self::Node => "node".into(),
            Self::Promtool => "promtool".into(),
            Self::Bash => "bash".into(),
            Self::Unshare => "unshare".into(),
            Self::Nsenter => "nsenter".into(),
            Self::Ip => "ip".into(),
            Self::Groff => "groff".into(),
        }
    }

    /// Returns whether a variable of this process is withheld from the program.
    fn is_variable_withheld(self, name: &str) -> bool {
        match self {
            // Settings of the caller's machine must not decide a test.
            Self::Docket | Self::DocketBench | Self::Nsenter => {
                let others = ["DATABASE_URL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "RUST_LOG"];
                name.starts_with("DOCKET_") || name.starts_with("OTEL_") || others.contains(&name)
            }
            Self::Bash => {
                let others = ["ENV", "CDPATH"];
                let by_beginning = ["BASH", "GIT_", "PG", "XDG_", "SSL_CERT_"];
                Self::Docket.is_variable_withheld(name)
                    || name.to_lowercase().ends_with("_proxy")
                    || others.contains(&name)
                    || by_beginning.iter().any(|prefix| name.starts_with(prefix))
            }
            // Cargo sets variables about the test's package. Build scripts that read them (ring's)
            // would run again, with everything that depends on them.
            Self::Cargo => {
                let of_the_test =
                    ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "CARGO_PRIMARY_"];
                of_the_test.iter().any(|prefix| name.starts_with(prefix))
            }
            Self::Git => name.starts_with("GIT_"),
            Self::SystemdAnalyze => name.starts_with("SYSTEMD_"),
            Self::Python => name.starts_with("PYTHON") && name != "PYTHONPATH",
            Self::Node => name.starts_with("NODE_"),
            // The inner test must equal the outer one.
            Self::Unshare | Self::Ip | Self::Promtool | Self::Groff => false,
        }
    }

    /// Starts it with pipes for standard input and output. It ends with the caller.
    ///
    /// # Errors
    /// Returns an error if it does not start.
    pub fn spawn_with_pipes(
        self,
        cwd: &Path,
        env: &[(&str, &OsStr)],
        args: &[&str],
    ) -> Result<tokio::process::Child> {
        let mut command = tokio::process::Command::from(self.command());
        command.args(args).current_dir(cwd).envs(env.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true);
        Ok(command.spawn()?)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "tests of whole processes start processes, here and nowhere else"
    )]
    pub fn command(self) -> std::process::Command {
        let mut command = std::process::Command::new(self.path());
        command.stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| self.is_variable_withheld(name)) {
                command.env_remove(name);
            }
        }
        command
    }
}

/// A process that has ended, and its output.
#[derive(Debug, Clone)]
pub struct FinishedProcess {
    status: ExitStatus,
    pub stdout: String,
    /// Standard output, byte for byte.
    pub bytes: Vec<u8>,
    pub stderr: String,
}

impl FinishedProcess {
    fn from_output(output: Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        Self { status: output.status, stdout, bytes: output.stdout, stderr }
    }

    /// Returns whether it exited with 0.
    pub fn success(&self) -> bool {
        self.status.success()
    }

    /// Returns its exit status; `None` if a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// Returns its output if it exited with 0.
    ///
    /// # Errors
    /// Returns an error with both outputs otherwise.
    pub fn into_stdout(self) -> Result<String> {
        if self.success() {
            return Ok(self.stdout);
        }
        bail!("{}\n{}\n{}", self.status, self.stdout, self.stderr)
    }
}

/// Runs a program to its end on this thread.
pub(super) fn run_blocking<'a>(
    tool: TestProgram,
    cwd: &Path,
    args: impl IntoIterator<Item = &'a OsStr>,
) -> FinishedProcess {
    let finished = try_run_blocking(tool, cwd, args);
    finished.unwrap_or_else(|error| panic!("{tool:?} cannot be started: {error}"))
}

/// The same for a program that may not be installed.
pub(super) fn try_run_blocking<'a>(
    tool: TestProgram,
    cwd: &Path,
    args: impl IntoIterator<Item = &'a OsStr>,
) -> std::io::Result<FinishedProcess> {
    tool.command().current_dir(cwd).args(args).output().map(FinishedProcess::from_output)
}

/// Runs a program to its end.
///
/// # Errors
/// Returns an error if it cannot be started or does not end within [`WAIT_MAX`]
/// (it is then killed).
pub async fn run_program<A: AsRef<OsStr>>(
    tool: TestProgram,
    cwd: &Path,
    env: &[(&str, &OsStr)],
    args: &[A],
) -> Result<FinishedProcess> {
    let mut command = tokio::process::Command::from(tool.command());
    command.current_dir(cwd).envs(env.iter().copied()).args(args).kill_on_drop(true);
    let shown: Vec<_> = args.iter().map(|arg| arg.as_ref().to_string_lossy().into_owned()).collect();
    let output = tokio::time::timeout(WAIT_MAX, command.output()).await;
    let output = output.with_context(|| format!("{tool:?} {shown:?} does not end"))?;
    Ok(FinishedProcess::from_output(output.with_context(|| format!("{tool:?} cannot be started"))?))
}

/// Runs a program to its end with `input` on its standard input, through a pipe.
///
/// # Errors
/// Returns an error if it cannot be started or does not end within [`WAIT_MAX`]
/// (it is then killed).
pub async fn run_with_input<A: AsRef<OsStr>>(
    tool: TestProgram,
    cwd: &Path,
    env: &[(&str, &OsStr)],
    args: &[A],
    input: &[u8],
) -> Result<FinishedProcess> {
    run_with_input_within(WAIT_MAX, tool, cwd, (env, args), input).await
}

/// The same for a program that does many things, each with its own limit.
///
/// # Errors
/// Returns an error if it cannot be started or does not end within `most` (it is then killed).
pub async fn run_with_input_within<A: AsRef<OsStr>>(
    most: Duration,
    tool: TestProgram,
    cwd: &Path,
    (env, args): (&[(&str, &OsStr)], &[A]),
    input: &[u8],
) -> Result<FinishedProcess> {
    let mut command = tokio::process::Command::from(tool.command());
    command.current_dir(cwd).envs(env.iter().copied()).args(args).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("{tool:?} cannot be started"))?;
    let mut pipe = child.stdin.take().context("a pipe to it")?;
    let feed = async move {
        // A program that has read enough closes its end; its output shows the result.
        let _ = pipe.write_all(input).await;
    };
    let both = async { tokio::join!(feed, child.wait_with_output()).1 };
    let output = tokio::time::timeout(most, both).await;
    Ok(FinishedProcess::from_output(output.with_context(|| format!("{tool:?} does not end"))??))
}

/// A long-running `docket` process. When dropped, it is killed with its children.
#[derive(Debug)]
pub struct RunningProcess {
    child: Child,
    pid: i32,
    log: PathBuf,
    // Held open: if it were closed, the process would get errors on output.
    stdout: BufReader<ChildStdout>,
}

impl RunningProcess {
    /// Starts `docket ARGS` in `home`, and waits for its first line of output.
    ///
    /// # Errors
    /// Returns an error with the process's own output if it ends before it prints a line.
    pub async fn start_docket(
        name: &str,
        home: &Path,
        env: &[(&str, &OsStr)],
        args: &[&str],
    ) -> Result<(Self, String)> {
        Self::start_program(TestProgram::Docket, name, home, env, args).await
    }

    /// Like [`Self::start_docket`], for another program.
    ///
    /// # Errors
    /// See [`Self::start_docket`].
    pub async fn start_program(
        tool: TestProgram,
        name: &str,
        home: &Path,
        env: &[(&str, &OsStr)],
        args: &[&str],
    ) -> Result<(Self, String)> {
        let log = home.join(format!("{name}.log"));
        let stderr = File::options().create(true).append(true).open(&log)?;
        let mut command = tokio::process::Command::from(tool.command());
        command.current_dir(home).env("DOCKET_HOME", home).envs(env.iter().copied()).args(args);
        command.stdout(Stdio::piped()).stderr(stderr).kill_on_drop(true);
        let mut child = command.spawn().context("docket cannot be started")?;
        let pid = child.id().context("it has ended already")?.cast_signed();
        let stdout = child.stdout.take().context("its output is a pipe")?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        let said = tokio::time::timeout(WAIT_MAX, stdout.read_line(&mut line)).await;
        let process = Self { child, pid, log, stdout };
        match said {
            Ok(Ok(read)) if read > 0 => Ok((process, line)),
            Ok(_) => bail!("`docket {args:?}` ended before it began:\n{}", process.log_tail()),
            Err(_) => bail!("`docket {args:?}` printed nothing:\n{}", process.log_tail()),
        }
    }

    /// Returns its next line of output.
    ///
    /// # Errors
    /// Returns an error if there is no more output.
    pub async fn next_line(&mut self) -> Result<String> {
        let mut line = String::new();
        let said = tokio::time::timeout(WAIT_MAX, self.stdout.read_line(&mut line)).await;
        let read = said.with_context(|| format!("no more output:\n{}", self.log_tail()))??;
        if read > 0 { Ok(line) } else { bail!("it has ended:\n{}", self.log_tail()) }
    }

    pub const fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns its exit status if it has ended.
    pub fn try_exit_status(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Waits for its end.
    ///
    /// # Errors
    /// Returns an error if it does not end within [`WAIT_MAX`].
    pub async fn wait(&mut self) -> Result<ExitStatus> {
        let ended = tokio::time::timeout(WAIT_MAX, self.child.wait()).await;
        Ok(ended.with_context(|| format!("process {} does not end:\n{}", self.pid, self.log_tail()))??)
    }

    /// Sends kill -9 and waits until it is gone.
    ///
    /// # Errors
    /// See [`Self::wait`].
    pub async fn kill(&mut self) -> Result<()> {
        if self.try_exit_status().is_none() {
            send_signal(self.pid, Signal::SIGKILL);
        }
        self.wait().await.map(|_| ())
    }

    /// Returns everything it wrote to standard error.
    pub fn read_log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Returns the end of its log, for messages.
    pub fn log_tail(&self) -> String {
        let log = self.read_log();
        let from = log.ceil_char_boundary(log.len().saturating_sub(TAIL_BYTES_MAX));
        format!("--- {}\n{}", self.log.display(), &log[from..])
    }
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        if self.try_exit_status().is_some() {
            return;
        }
        // The children are ours to end: they would die with it, but not before this returns.
        for child in child_pids(self.pid) {
            send_signal(child, Signal::SIGKILL);
        }
        send_signal(self.pid, Signal::SIGKILL);
        // Its files are closed when this returns, because the next process takes the lock of its
        // home.
        let until = Instant::now() + KILL_TIMEOUT;
        while self.try_exit_status().is_none() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}
