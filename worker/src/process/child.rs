//! Long-lived trusted children: the supervisor's run processes.
//!
//! Each child leads its own session, gets its secrets through stdin and dies with the supervisor, which two
//! mechanisms ensure. The kernel kills it when the thread that forked it ends; that thread lives as long as the
//! process ([`spawner`]), and the kill reaches even a stopped child. The child also holds the read end of a lifeline
//! pipe whose write end belongs to the handle, so dropping the handle closes it; [`SupervisorLifeline`] is the
//! child's side.

use std::{
    env,
    ffi::OsString,
    fs::{File, OpenOptions},
    io::{self, Read},
    os::{
        fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd},
        unix::{ffi::OsStrExt, fs::FileTypeExt, process::CommandExt},
    },
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    libc,
    sys::{
        prctl,
        signal::{Signal, kill, killpg},
    },
    unistd::{Pid, getpid, getppid, pipe2, setsid},
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, Command},
    time::timeout,
};

use super::{spawner, trusted::ChildExit};

/// Descriptor at which a child finds the read end of its lifeline.
pub const LIFELINE_FD: RawFd = 3;

/// Largest payload, in bytes. A run's orders and keys take a few kilobytes; a larger payload is a mistake.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;

/// A child that does not read its payload within this time is broken.
const PAYLOAD_TIMEOUT: Duration = Duration::from_secs(10);

/// Destination of a child's stdout and stderr.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChildLog {
    /// The supervisor's own stdout and stderr.
    Inherit,
    /// Discarded.
    Null,
    /// Appended to a file, which is created if it does not exist.
    Append(PathBuf),
}

/// Describes a child to start.
#[derive(Clone, Debug)]
pub struct ChildSpec {
    /// Absolute path of the program.
    pub program: PathBuf,
    /// Arguments after the program name. Every user of the host can see them: no secrets.
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// The environment. Nothing else is inherited except the names in `inherit`.
    pub env: Vec<(OsString, OsString)>,
    /// Names of variables to inherit, if set.
    pub inherit: Vec<OsString>,
    /// Bytes written to stdin, which is then closed. Secrets go here.
    pub stdin_payload: Vec<u8>,
    /// Destination of its output.
    pub log: ChildLog,
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum ChildError {
    /// The program path is relative, or an argument contains NUL.
    #[error("cannot pass {program} to the operating system: give an absolute path and arguments without NUL")]
    InvalidProgram { program: PathBuf },
    /// The payload exceeds its limit.
    #[error("the payload of {bytes} bytes exceeds the limit of {limit_bytes}: pass a path instead")]
    PayloadTooLarge { bytes: usize, limit_bytes: usize },
    #[error("cannot open the log {path}: check that its folder exists and is writable")]
    Log {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The operating system could not start the program.
    #[error("cannot start {program}: check that it exists and that the process limit is not reached")]
    Start {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The child started but did not read its payload. It was killed.
    #[error("{program} did not read its payload and was killed: check its log")]
    Payload {
        program: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// A started child. Dropping the handle kills the child's process group and closes the lifeline.
#[derive(Debug)]
pub struct ChildHandle {
    child: Child,
    pid: i32,
    exit: Option<ChildExit>,
    /// Never written to: closing it is the signal.
    _lifeline: OwnedFd,
}

/// Starts a child and writes its payload.
///
/// # Errors
/// Returns a [`ChildError`]; no child is left running.
pub async fn start_child(spec: ChildSpec) -> Result<ChildHandle, ChildError> {
    let ChildSpec { program, args, cwd, env, inherit, stdin_payload, log } = spec;
    if !program.is_absolute() || args.iter().any(|arg| arg.as_bytes().contains(&0)) {
        return Err(ChildError::InvalidProgram { program });
    }
    if stdin_payload.len() > PAYLOAD_BYTES_MAX {
        return Err(ChildError::PayloadTooLarge {
            bytes: stdin_payload.len(),
            limit_bytes: PAYLOAD_BYTES_MAX,
        });
    }
    let output = ChildOutput::from_log(log)?;
    let failed = |source| ChildError::Start { program: program.clone(), source };
    let inherited = inherit.into_iter().filter_map(|name| env::var_os(&name).map(|value| (name, value)));
    let command = build_command(&program, output)
        .map(|mut command| {
            command.args(args).current_dir(cwd).envs(inherited).envs(env);
            command
        })
        .map_err(failed)?;
    let mut handle = spawner::run_on_spawner_thread(move || spawn_child(command)).await.map_err(failed)?;
    let given = async {
        match handle.child.stdin.take() {
            Some(mut pipe) => pipe.write_all(&stdin_payload).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    let given = timeout(PAYLOAD_TIMEOUT, given).await;
    given.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())).or_else(|source| {
        // A child that exits without reading is reported through its exit status, like any other early exit.
        if source.kind() == io::ErrorKind::BrokenPipe {
            Ok(())
        } else {
            Err(ChildError::Payload { program, source })
        }
    })?;
    Ok(handle)
}

struct ChildOutput {
    stdout: Stdio,
    stderr: Stdio,
}

impl ChildOutput {
    fn from_log(log: ChildLog) -> Result<Self, ChildError> {
        match log {
            ChildLog::Inherit => Ok(Self { stdout: Stdio::inherit(), stderr: Stdio::inherit() }),
            ChildLog::Null => Ok(Self { stdout: Stdio::null(), stderr: Stdio::null() }),
            ChildLog::Append(path) => {
                let open = || {
                    let file = OpenOptions::new().append(true).create(true).open(&path)?;
                    Ok(Self { stdout: file.try_clone()?.into(), stderr: file.into() })
                };
                open().map_err(|source| ChildError::Log { path: path.clone(), source })
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "this module is one of the two that may start processes")]
fn build_command(program: &std::path::Path, output: ChildOutput) -> io::Result<std::process::Command> {
    let mut command = std::process::Command::new(program);
    command.env_clear().stdin(Stdio::piped()).stdout(output.stdout).stderr(output.stderr);
    Ok(command)
}

#[expect(unsafe_code, reason = "a descriptor with a fixed number can only be set up between fork and exec")]
fn spawn_child(mut command: std::process::Command) -> io::Result<ChildHandle> {
    let (theirs, ours) = pipe2(OFlag::O_CLOEXEC)?;
    let (read_end, supervisor) = (theirs.as_raw_fd(), getpid());
    // std reports a failed exec through its own pipe; occupying the lifeline's number keeps that pipe off it.
    let _placeholder = File::open("/dev/null")?;
    // SAFETY: only async-signal-safe calls, no allocation; `theirs` outlives the spawn.
    unsafe {
        command.pre_exec(move || {
            setsid()?;
            die_with_parent(supervisor)?;
            install_lifeline(read_end)?;
            close_other_fds()
        });
    }
    let child = Command::from(command).kill_on_drop(true).spawn()?;
    drop(theirs);
    let pid = child.id().ok_or(io::ErrorKind::NotFound)?.cast_signed();
    Ok(ChildHandle { child, pid, exit: None, _lifeline: ours })
}

/// Runs between fork and exec: the kernel kills this process when `supervisor` is gone, even if it is stopped and
/// cannot watch the lifeline. The setting cannot be lost: that would take executing a set-user-id program.
fn die_with_parent(supervisor: Pid) -> io::Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL)?;
    // The supervisor died after the fork: no signal would arrive any more.
    if getppid() == supervisor { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

/// Runs between fork and exec.
#[expect(unsafe_code, reason = "descriptors are plain numbers here")]
fn install_lifeline(read_end: RawFd) -> io::Result<()> {
    if read_end == LIFELINE_FD {
        // SAFETY: the pipe's read end, open in the forked child as it was in the parent.
        let fd = unsafe { BorrowedFd::borrow_raw(read_end) };
        fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
        return Ok(());
    }
    // SAFETY: dup2 on two numbers; whatever had the number before is close-on-exec and of no use to the child.
    if unsafe { libc::dup2(read_end, LIFELINE_FD) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Runs between fork and exec: descriptors that docket inherited may lack close-on-exec.
#[expect(unsafe_code, reason = "close_range has no wrapper in nix")]
fn close_other_fds() -> io::Result<()> {
    const FIRST: libc::c_uint = LIFELINE_FD.cast_unsigned() + 1;
    // SAFETY: plain numbers; nothing is closed before exec.
    let done = unsafe { libc::syscall(libc::SYS_close_range, FIRST, u32::MAX, libc::CLOSE_RANGE_CLOEXEC) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl ChildHandle {
    /// The process id, which is also the id of its group and session.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Waits for the child to exit; cancel-safe and may be called again. Kills the rest of its process group.
    ///
    /// # Errors
    /// The operating system lost track of the child, which should never happen.
    pub async fn wait(&mut self) -> io::Result<ChildExit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let exit = ChildExit::from(self.child.wait().await?);
        self.exit = Some(exit);
        // Immediately, because the group id may be reused once the group is empty.
        self.signal_group();
        Ok(exit)
    }

    /// Sends SIGTERM and kills the process group once `grace` has passed.
    ///
    /// # Errors
    /// Same as [`Self::wait`].
    pub async fn terminate(&mut self, grace: Duration) -> io::Result<ChildExit> {
        if self.exit.is_none() {
            // ESRCH: it exited in the meantime.
            let _ = kill(Pid::from_raw(self.pid), Signal::SIGTERM);
        }
        match timeout(grace, self.wait()).await {
            Ok(exit) => exit,
            Err(_passed) => {
                self.kill_group();
                self.wait().await
            }
        }
    }

    /// Kills the whole process group at once. [`Self::wait`] must still be called to reap the child.
    pub fn kill_group(&self) {
        if self.exit.is_none() {
            self.signal_group();
        }
    }

    fn signal_group(&self) {
        // ESRCH: the group is empty.
        let _ = killpg(Pid::from_raw(self.pid), Signal::SIGKILL);
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        self.kill_group();
    }
}

/// The child's side of the lifeline: exits this process when its supervisor is gone.
#[derive(Debug)]
pub struct SupervisorLifeline {
    pipe: File,
}

impl SupervisorLifeline {
    /// Takes ownership of descriptor [`LIFELINE_FD`]. Call it once, before anything else opens files. Returns `None`
    /// if the descriptor is not a pipe: this process was not started by a supervisor.
    #[expect(unsafe_code, reason = "takes ownership of an inherited descriptor by its number")]
    pub fn from_inherited_fd() -> Option<Self> {
        let meta = std::fs::metadata(format!("/proc/self/fd/{LIFELINE_FD}")).ok()?;
        if !meta.file_type().is_fifo() {
            return None;
        }
        // SAFETY: it is open, a pipe, and not owned by anything else according to this function's contract.
        let fd = unsafe { OwnedFd::from_raw_fd(LIFELINE_FD) };
        fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
        Some(Self { pipe: fd.into() })
    }

    /// Makes this process exit as soon as the supervisor is gone, without cleanup: recovery starts from the log. A
    /// dedicated thread notices even while the runtime is busy.
    ///
    /// # Errors
    /// The thread could not be created.
    /// When no thread can be made.
    pub fn exit_with_supervisor(mut self) -> io::Result<()> {
        let watch = move || {
            // Nothing is ever written: the read returns when the last write end is closed.
            let _ = self.pipe.read(&mut [0]);
            let _ = kill(getpid(), Signal::SIGKILL);
        };
        std::thread::Builder::new().name("lifeline".to_owned()).spawn(watch).map(|_| ())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;
    use crate::process::tests_support::wait_until_gone;

    fn shell_spec(line: &str, dir: &Path) -> ChildSpec {
        ChildSpec {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), line.into()],
            cwd: dir.to_owned(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into()), ("GIVEN".into(), "yes".into())],
            inherit: Vec::new(),
            stdin_payload: Vec::new(),
            log: ChildLog::Append(dir.join("log")),
        }
    }

    async fn read_when_written(path: &Path) -> String {
        for _ in 0..2_000 {
            match fs::read_to_string(path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("nothing in {}", path.display());
    }

    #[tokio::test]
    async fn payload_environment_and_descriptors_are_exact() {
        let dir = tempfile::tempdir().unwrap();
        let line = "cat; env | cut -d= -f1 | sort | tr '\\n' ' '; ls /proc/self/fd | tr '\\n' ' '; exit 5";
        let spec = ChildSpec { stdin_payload: b"secret ".to_vec(), ..shell_spec(line, dir.path()) };
        let spec = ChildSpec { inherit: vec!["HOME".into(), "NO_SUCH_NAME".into()], ..spec };
        let mut child = start_child(spec).await.unwrap();
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exit(5));
        assert_eq!(child.wait().await.unwrap(), ChildExit::Exit(5));
        let said = fs::read_to_string(dir.path().join("log")).unwrap();
        // The highest is `ls`'s own.
        assert!(said.starts_with("secret GIVEN HOME PATH ") && said.ends_with("0 1 2 3 4 "), "{said}");
        assert!(!said.contains("CARGO"), "{said}");
    }

    #[tokio::test]
    async fn child_leads_a_session_and_is_killed_with_its_group() {
        let dir = tempfile::tempdir().unwrap();
        let line = "trap '' TERM; sleep 600 & echo $! > pid; wait; while :; do sleep 600; done";
        let mut child = start_child(shell_spec(line, dir.path())).await.unwrap();
        let other: i32 = read_when_written(&dir.path().join("pid")).await.trim().parse().unwrap();
        let session = nix::unistd::getsid(Some(Pid::from_raw(child.pid()))).unwrap();
        assert_eq!(session.as_raw(), child.pid());
        assert_eq!(child.terminate(Duration::from_millis(50)).await.unwrap(), ChildExit::Signal(9));
        wait_until_gone(other).await;
    }

    #[tokio::test]
    async fn child_that_heeds_sigterm_ends_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let line = "trap 'exit 7' TERM; echo ready > ready; while :; do sleep 0.01; done";
        let mut child = start_child(shell_spec(line, dir.path())).await.unwrap();
        read_when_written(&dir.path().join("ready")).await;
        assert_eq!(child.terminate(Duration::from_secs(60)).await.unwrap(), ChildExit::Exit(7));
    }

    #[tokio::test]
    async fn dropping_the_handle_kills_the_group() {
        let dir = tempfile::tempdir().unwrap();
        let child = start_child(shell_spec("sleep 600 & echo $! > pid; wait", dir.path())).await.unwrap();
        let other: i32 = read_when_written(&dir.path().join("pid")).await.trim().parse().unwrap();
        let leader = child.pid();
        drop(child);
        wait_until_gone(leader).await;
        wait_until_gone(other).await;
    }

    /// Otherwise the kernel would kill it when that thread ends.
    #[test]
    fn child_outlives_the_thread_and_runtime_that_started_it() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = dir.path().to_owned();
        let asked = std::thread::spawn(move || {
            let line = "until [ -e go ]; do sleep 0.01; done; echo alive > alive";
            runtime().block_on(start_child(shell_spec(line, &folder))).unwrap()
        });
        let child = asked.join().unwrap();
        fs::write(dir.path().join("go"), "").unwrap();
        let said = runtime().block_on(read_when_written(&dir.path().join("alive")));
        assert_eq!(said, "alive\n");
        drop(child);
    }

    /// The lifeline shows a child its supervisor's death, so it must not close at any other time.
    #[tokio::test]
    async fn the_lifeline_closes_with_the_handle() {
        let dir = tempfile::tempdir().unwrap();
        // In its own session, so that killing the group does not reach the observer.
        let look = "setsid sh -c 'echo open > state; cat <&3; echo closed > state2' & wait";
        let child = start_child(shell_spec(look, dir.path())).await.unwrap();
        assert_eq!(read_when_written(&dir.path().join("state")).await, "open\n");
        assert!(!dir.path().join("state2").exists());
        drop(child);
        assert_eq!(read_when_written(&dir.path().join("state2")).await, "closed\n");
    }

    #[tokio::test]
    async fn start_failures_are_reported() {
        let dir = tempfile::tempdir().unwrap();
        let missing = ChildSpec { program: "/no/such".into(), ..shell_spec("", dir.path()) };
        assert!(matches!(start_child(missing).await, Err(ChildError::Start { .. })));
        let relative = ChildSpec { program: "sh".into(), ..shell_spec("", dir.path()) };
        assert!(matches!(start_child(relative).await, Err(ChildError::InvalidProgram { .. })));
        let log = ChildSpec { log: ChildLog::Append("/no/such/log".into()), ..shell_spec("", dir.path()) };
        assert!(matches!(start_child(log).await, Err(ChildError::Log { .. })));
        let large = ChildSpec { stdin_payload: vec![0; PAYLOAD_BYTES_MAX + 1], ..shell_spec("", dir.path()) };
        assert!(matches!(start_child(large).await, Err(ChildError::PayloadTooLarge { .. })));
    }
}
