//! Runs one short trusted program: starts it, writes its input, reads its output up to a limit and waits until a
//! deadline.
//!
//! For docket's own use only. Invariants: the program is an absolute path; the environment is exactly the one given;
//! the process group is dead when [`run_trusted`] returns or its future is dropped; never more than the given number
//! of bytes is held.

use std::{
    ffi::OsString,
    io,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::Command,
    time::{Instant, timeout_at},
};

/// Most stderr that is kept, in bytes: enough for any message that a person reads, small enough for an error.
const STDERR_BYTES_MAX: usize = 64 * 1024;

/// How long the pipes are read after the program ended. A grandchild that holds a pipe open must not delay the
/// caller; the program's own output is in the pipe already.
const DRAIN_GRACE: Duration = Duration::from_secs(1);

/// One call of a trusted program.
#[derive(Clone, Debug)]
pub struct TrustedSpec {
    /// Absolute path; `PATH` is not searched.
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// The complete environment: nothing is inherited.
    pub env: Vec<(OsString, OsString)>,
    /// Bytes written to stdin, which is then closed.
    pub stdin: Vec<u8>,
    /// Time limit after which the process group is killed.
    pub timeout: Duration,
    /// Limit of stdout; exceeding it ends the program with [`TrustedError::OutputTooLarge`].
    pub stdout_bytes_max: usize,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildExit {
    /// It exited with this status.
    Exit(i32),
    /// It was killed by this signal.
    Signal(i32),
}

impl From<ExitStatus> for ChildExit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Exit(code),
            (None, Some(signal)) => Self::Signal(signal),
            // wait() without WUNTRACED reports only these two.
            (None, None) => Self::Exit(status.into_raw()),
        }
    }
}

/// Output of a trusted program. A nonzero status is not an error here: the caller knows what it means.
#[derive(Clone, Debug)]
pub struct TrustedOutput {
    pub exit: ChildExit,
    /// The complete stdout.
    pub stdout: Vec<u8>,
    /// The beginning of stderr.
    pub stderr: Vec<u8>,
}

impl TrustedOutput {
    pub fn is_success(&self) -> bool {
        self.exit == ChildExit::Exit(0)
    }
}

/// Why a trusted program could not be run to its end.
#[derive(Debug, thiserror::Error)]
pub enum TrustedError {
    /// The program path was relative; `PATH` is never searched.
    #[error("{program} is not an absolute path: give the full path of the program")]
    NotAbsolute { program: PathBuf },
    /// The operating system could not start it.
    #[error(
        "cannot start {program} in {cwd}: check that both exist and that the process limit is not reached"
    )]
    Start {
        program: PathBuf,
        cwd: PathBuf,
        #[source]
        source: io::Error,
    },
    /// Reading, writing or waiting failed after the start.
    #[error("lost contact with {program} while it ran")]
    Io {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The deadline passed; the process group was killed.
    #[error(
        "{program} did not end within {timeout_ms} ms and was killed: try again or check for a stalled file system"
    )]
    TimedOut { program: PathBuf, timeout_ms: u128 },
    /// The output exceeded its limit; the process group was killed.
    #[error("{program} wrote more than {limit_bytes} bytes and was killed: request less at a time")]
    OutputTooLarge { program: PathBuf, limit_bytes: usize },
}

/// Kills a process group when it goes out of scope, so that a dropped future leaves no process behind.
struct ProcessGroupGuard {
    leader: Pid,
}

impl Drop for ProcessGroupGuard {
    fn drop(&mut self) {
        // ESRCH means that the group is empty already. The leader is reaped at most an instant before, and its group
        // id cannot be reused as long as a member lives.
        let _ = killpg(self.leader, Signal::SIGKILL);
    }
}

/// Runs one trusted program to its end.
///
/// # Errors
/// See [`TrustedError`]. No process of its group is left running.
pub async fn run_trusted(spec: TrustedSpec) -> Result<TrustedOutput, TrustedError> {
    let TrustedSpec { program, args, cwd, env, stdin, timeout, stdout_bytes_max } = spec;
    if !program.is_absolute() {
        return Err(TrustedError::NotAbsolute { program });
    }
    let mut child = start_process(&program, &args, &cwd, &env).map_err(|source| TrustedError::Start {
        program: program.clone(),
        cwd: cwd.clone(),
        source,
    })?;
    let lost = |source| TrustedError::Io { program: program.clone(), source };
    let leader = child.id().ok_or_else(|| lost(io::ErrorKind::NotFound.into()))?;
    let _group = ProcessGroupGuard { leader: Pid::from_raw(leader.cast_signed()) };
    let deadline = Instant::now() + timeout;

    let mut stdin_pipe = child.stdin.take();
    let feed = async move {
        if let Some(pipe) = stdin_pipe.as_mut() {
            // A program that needs less than its input closes stdin early; its status says whether that was right.
            let _ = pipe.write_all(&stdin).await;
        }
        drop(stdin_pipe);
    };
    let mut out = BoundedReader::new(child.stdout.take(), stdout_bytes_max, OverflowPolicy::Fail);
    let mut err = BoundedReader::new(child.stderr.take(), STDERR_BYTES_MAX, OverflowPolicy::Truncate);
    let status = {
        tokio::pin!(feed);
        let mut fed = false;
        loop {
            tokio::select! {
                status = child.wait() => break status.map_err(lost)?,
                () = &mut feed, if !fed => fed = true,
                step = out.read_chunk(), if out.is_open() => step.map_err(lost)?,
                step = err.read_chunk(), if err.is_open() => step.map_err(lost)?,
                () = tokio::time::sleep_until(deadline) => {
                    return Err(TrustedError::TimedOut { program, timeout_ms: timeout.as_millis() });
                }
            }
            if out.has_overflowed {
                return Err(TrustedError::OutputTooLarge { program, limit_bytes: stdout_bytes_max });
            }
        }
    };
    let drain = async {
        while out.is_open() && !out.has_overflowed {
            out.read_chunk().await?;
        }
        while err.is_open() {
            err.read_chunk().await?;
        }
        Ok(())
    };
    match timeout_at(Instant::now() + DRAIN_GRACE, drain).await {
        Ok(drained) => drained.map_err(lost)?,
        Err(_held_open) => {}
    }
    if out.has_overflowed {
        return Err(TrustedError::OutputTooLarge { program, limit_bytes: stdout_bytes_max });
    }
    Ok(TrustedOutput { exit: status.into(), stdout: out.bytes, stderr: err.bytes })
}

#[expect(clippy::disallowed_methods, reason = "this module is one of the two that may start processes")]
fn start_process(
    program: &Path,
    args: &[OsString],
    cwd: &Path,
    env: &[(OsString, OsString)],
) -> io::Result<tokio::process::Child> {
    Command::new(program)
        .args(args)
        .current_dir(cwd)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

/// What happens to bytes beyond the limit.
enum OverflowPolicy {
    Fail,
    Truncate,
}

struct BoundedReader<R> {
    pipe: Option<R>,
    bytes: Vec<u8>,
    limit: usize,
    on_overflow: OverflowPolicy,
    has_overflowed: bool,
    chunk: Box<[u8; READ_BYTES]>,
}

/// The kernel's default pipe size: one read empties it.
const READ_BYTES: usize = 64 * 1024;

impl<R: AsyncRead + Unpin> BoundedReader<R> {
    fn new(pipe: Option<R>, limit: usize, excess: OverflowPolicy) -> Self {
        Self {
            pipe,
            bytes: Vec::new(),
            limit,
            on_overflow: excess,
            has_overflowed: false,
            chunk: Box::new([0; READ_BYTES]),
        }
    }

    fn is_open(&self) -> bool {
        self.pipe.is_some()
    }

    /// Reads once. Cancel-safe: bytes are stored in the same poll that received them.
    async fn read_chunk(&mut self) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_mut() else { return Ok(()) };
        let read = pipe.read(&mut self.chunk[..]).await?;
        if read == 0 {
            self.pipe = None;
            return Ok(());
        }
        let room = self.limit - self.bytes.len();
        if read > room {
            match self.on_overflow {
                OverflowPolicy::Fail => self.has_overflowed = true,
                OverflowPolicy::Truncate => {}
            }
        }
        self.bytes.extend_from_slice(&self.chunk[..read.min(room)]);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_spec(line: &str) -> TrustedSpec {
        TrustedSpec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), line.into()],
            cwd: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: Vec::new(),
            timeout: Duration::from_secs(20),
            stdout_bytes_max: 1024 * 1024,
        }
    }

    #[tokio::test]
    async fn status_output_and_environment_are_exact() {
        let out = run_trusted(TrustedSpec {
            stdin: b"in".to_vec(),
            ..shell_spec("cat; env | sort; echo e >&2; exit 7")
        })
        .await
        .unwrap();
        assert_eq!(out.exit, ChildExit::Exit(7));
        let text = String::from_utf8(out.stdout).unwrap();
        let names: Vec<&str> =
            text.trim_start_matches("in").lines().filter_map(|l| l.split('=').next()).collect();
        assert!(names.iter().all(|n| ["PATH", "PWD", "OLDPWD", "SHLVL", "_"].contains(n)), "{names:?}");
        assert_eq!(out.stderr, b"e\n");
        assert_eq!(run_trusted(shell_spec("kill -9 $$")).await.unwrap().exit, ChildExit::Signal(9));
    }

    #[tokio::test]
    async fn flood_is_refused_and_large_output_is_complete() {
        let flood = TrustedSpec { stdout_bytes_max: 1000, ..shell_spec("yes") };
        assert!(matches!(
            run_trusted(flood).await,
            Err(TrustedError::OutputTooLarge { limit_bytes: 1000, .. })
        ));
        let bytes: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
        let out = run_trusted(TrustedSpec { stdin: bytes.clone(), ..shell_spec("cat") }).await.unwrap();
        assert!(out.is_success() && out.stdout == bytes);
    }

    #[tokio::test]
    async fn deadline_kills_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let line = "sleep 600 & echo $! > pid; wait";
        let spec =
            TrustedSpec { cwd: dir.path().into(), timeout: Duration::from_millis(300), ..shell_spec(line) };
        assert!(matches!(run_trusted(spec).await, Err(TrustedError::TimedOut { .. })));
        let pid: i32 = std::fs::read_to_string(dir.path().join("pid")).unwrap().trim().parse().unwrap();
        crate::process::tests_support::wait_until_gone(pid).await;
    }

    #[tokio::test]
    async fn grandchild_holding_the_pipe_does_not_block_the_caller() {
        let out = run_trusted(shell_spec("sleep 600 & echo done")).await.unwrap();
        assert_eq!(out.stdout, b"done\n");
    }

    #[tokio::test]
    async fn relative_and_missing_programs_are_distinguished() {
        let relative = TrustedSpec { program: "sh".into(), ..shell_spec("true") };
        assert!(matches!(run_trusted(relative).await, Err(TrustedError::NotAbsolute { .. })));
        let missing = TrustedSpec { program: "/no/such".into(), ..shell_spec("true") };
        assert!(matches!(run_trusted(missing).await, Err(TrustedError::Start { .. })));
    }
}
