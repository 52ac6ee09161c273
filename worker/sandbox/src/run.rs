//! Creates sandboxes and runs commands in them, from docket's side.
//!
//! Invariants: [`Sandbox::run`] returns only after every process of the call has ended (the init itself may still
//! be removing its mounts); dropping its future closes the socket that keeps the init alive; a missing report is an
//! error, never a success.

use std::{
    io,
    os::unix::net::UnixStream as StdUnixStream,
    path::{Component, Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use docket_schema::{policy::AllowList, tool::ExceededResource};
use serde::{Deserialize, Serialize};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::Mutex,
    time::Instant,
};

use super::{
    cgroup::Cgroup,
    config::{
        BackendChoice, CommandExit, CommandOutput, CommandSpec, InitProgram, InteractionMode, SandboxConfig,
    },
    error::SandboxError,
    execution::{CommandExecution, CommandIo, ExecutionLimits, KillReason},
    host::{HostReport, SandboxLayer, SandboxReport, find_bubblewrap, probe_host_with},
    init_pool::InitPool,
    limits::Limits,
    plan::{CommandPlan, FRAME_BYTES_MAX, InitReport, SandboxBackend, SandboxPlan, StdinSource, write_frame},
    protect::WorkspaceBaseline,
    quota::{DiskWatch, UsageHistory},
    rootfs, terminal,
};

/// Maximum number of foreign sockets and FIFOs that are covered; a workspace with more is refused.
const SPECIAL_FILES_MAX: usize = 128;

/// A self-test that takes longer means the host is not usable.
const SELF_TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// A probed host, and the backend whose self-tests passed on it. A supervisor passes it to its run processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedHost {
    backend: SandboxBackend,
    host: HostReport,
}

/// A prepared sandbox around one workspace. Cheap to clone; commands may run concurrently.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<SandboxInner>,
}

struct SandboxInner {
    plan: SandboxPlan,
    init_pool: Arc<InitPool>,
    host: HostReport,
    report: SandboxReport,
    /// The workspace on the host; `None` without isolation.
    host_workspace: Option<PathBuf>,
    limits: Limits,
    /// Usage when the workspace was last measured.
    usage_history: Arc<std::sync::Mutex<UsageHistory>>,
    /// Sockets and FIFOs that were in the workspace before the first command.
    special_files: OnceLock<Vec<PathBuf>>,
    /// bubblewrap resolves links of the workspace on the host, so no other command may change them meanwhile.
    exclusive: Mutex<()>,
}

impl Sandbox {
    /// Probes the host, builds the plan and runs harmless self-tests.
    ///
    /// # Errors
    /// Returns [`SandboxError::TooFewLayers`] if the host cannot provide namespaces and seccomp,
    /// [`SandboxError::SelfTestFailed`] if the isolation is not as expected, and other variants for an invalid
    /// configuration.
    pub async fn prepare(config: SandboxConfig) -> Result<Self, SandboxError> {
        let init = config.init_program.clone();
        let probed = tokio::task::spawn_blocking(move || probe_host_with(&init)).await;
        let host = probed.map_err(|_| SandboxError::InitLost { said: "the probe panicked".to_owned() })?;
        let none = config.backend == BackendChoice::None;
        let missing = host.missing_required_layers();
        if !none && !missing.is_empty() {
            let lines: Vec<String> =
                missing.iter().map(|m| format!("{}: {}", m.layer.name(), m.reason)).collect();
            return Err(SandboxError::TooFewLayers { missing: lines.join("; ") });
        }
        match (config.backend, find_bubblewrap()) {
            (BackendChoice::None, _) => Self::prepare_backend(&config, &host, SandboxBackend::None).await,
            (BackendChoice::Bubblewrap, None) => Err(SandboxError::BubblewrapNotInstalled),
            (BackendChoice::Bubblewrap, Some(_)) => {
                Self::prepare_backend(&config, &host, SandboxBackend::Bubblewrap).await
            }
            (BackendChoice::Namespaces, _) | (BackendChoice::Auto, None) => {
                Self::prepare_backend(&config, &host, SandboxBackend::Namespaces).await
            }
            // Both pass the same tests. Our own backend takes half the time per call and runs calls of one run in
            // parallel, so bubblewrap is the fallback for hosts on which ours cannot start.
            (BackendChoice::Auto, Some(_)) => {
                match Self::prepare_backend(&config, &host, SandboxBackend::Namespaces).await {
                    Err(SandboxError::SelfTestFailed { found, .. }) => {
                        tracing::info!(%found, "docket's own namespaces failed their self-tests, using bubblewrap");
                        Self::prepare_backend(&config, &host, SandboxBackend::Bubblewrap).await
                    }
                    other => other,
                }
            }
        }
    }

    /// Creates a sandbox on a host that was probed and self-tested when the worker started, so that this is not
    /// repeated for each run. A setup step that fails is still an error, and nothing is run.
    ///
    /// # Errors
    /// Returns [`SandboxError`] for an invalid configuration.
    pub fn for_checked_host(config: &SandboxConfig, checked: &CheckedHost) -> Result<Self, SandboxError> {
        Self::from_backend(config, &checked.host, checked.backend)
    }

    /// Returns the probed and tested host, for [`Sandbox::for_checked_host`] in another process of this host.
    pub fn checked_host(&self) -> CheckedHost {
        CheckedHost { backend: self.inner.plan.backend, host: self.inner.host.clone() }
    }

    async fn prepare_backend(
        config: &SandboxConfig,
        host: &HostReport,
        backend: SandboxBackend,
    ) -> Result<Self, SandboxError> {
        let sandbox = Self::from_backend(config, host, backend)?;
        sandbox.run_self_test(backend).await?;
        Ok(sandbox)
    }

    fn from_backend(
        config: &SandboxConfig,
        host: &HostReport,
        backend: SandboxBackend,
    ) -> Result<Self, SandboxError> {
        let plan =
            rootfs::build_plan(config, backend, find_bubblewrap(), host.has_layer(SandboxLayer::Landlock))?;
        let mut plan_frame = Vec::new();
        let bytes = serde_json::to_vec(&plan).map_err(SandboxError::EncodePlan)?;
        write_frame(&mut plan_frame, &bytes).map_err(SandboxError::FrameTooLarge)?;
        let walled = match backend {
            SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => Some(rootfs::host_workspace(&plan)),
            SandboxBackend::None => None,
        };
        let group = match host.has_layer(SandboxLayer::Cgroup) && walled.is_some() {
            true => Some(Cgroup::create(config.limits).map_err(SandboxError::Cgroup)?),
            false => None,
        };
        Ok(Self {
            inner: Arc::new(SandboxInner {
                report: host.sandbox_report(&plan, config.limits),
                init_pool: Arc::new(InitPool::new(
                    config.init_program.clone(),
                    plan_frame,
                    walled.clone(),
                    group,
                )),
                host: host.clone(),
                exclusive: Mutex::new(()),
                limits: config.limits,
                usage_history: Arc::default(),
                special_files: OnceLock::new(),
                plan,
                host_workspace: walled,
            }),
        })
    }

    /// Returns the layers that are really active.
    pub fn report(&self) -> &SandboxReport {
        &self.inner.report
    }

    /// Returns the workspace path as commands see it.
    pub fn workspace_inside(&self) -> &Path {
        &self.inner.plan.workspace
    }

    /// Runs one command until it and everything it started have ended.
    ///
    /// # Errors
    /// Returns [`SandboxError`] if the command could not be run; a command that ran and failed is not an error.
    pub async fn run(&self, spec: CommandSpec) -> Result<CommandOutput, SandboxError> {
        Box::pin(self.run_with_io(spec, CommandIo::default())).await
    }

    /// Like [`Sandbox::run`], with live input and output.
    ///
    /// # Errors
    /// Same as [`Sandbox::run`].
    pub async fn run_with_io(
        &self,
        spec: CommandSpec,
        heard: CommandIo,
    ) -> Result<CommandOutput, SandboxError> {
        let _alone = self.lock_exclusive().await;
        let begun = Instant::now();
        let baseline = self.capture_baseline().await?;
        let done = self.execute_call(&spec, heard, baseline.as_ref(), begun).await;
        // Restored in any case: changes the command left under protected names must not become the next baseline.
        let restored = self.restore_baseline(baseline).await;
        let (mut running, report) = done?;
        self.inner.init_pool.prepare_spare();
        let (cut, network) = (running.kill_reason, running.network.take());
        let (stdout, stderr) = (running.stdout.finish(), running.stderr.finish());
        let ended = match (cut, report) {
            (Some(KillReason::Exceeded(exceeded)), _) => CommandExit::Exceeded(exceeded),
            (Some(KillReason::TimedOut | KillReason::Stopped), None) => CommandExit::TimedOut,
            (_, report) => command_exit(report, &spec, || bubblewrap_messages(&stderr.bytes))?,
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut output =
            CommandOutput { exit: ended, stdout, stderr, duration_ms, restored_paths: Vec::new(), network };
        match restored {
            Ok(put_back) => {
                output.restored_paths = put_back;
                Ok(output)
            }
            Err(source) => {
                let path = self.inner.host_workspace.clone().unwrap_or_default();
                Err(SandboxError::RestoreFailed { path, output: Box::new(output), source })
            }
        }
    }

    async fn execute_call(
        &self,
        spec: &CommandSpec,
        heard: CommandIo,
        baseline: Option<&WorkspaceBaseline>,
        begun: Instant,
    ) -> Result<(CommandExecution, Option<InitReport>), SandboxError> {
        let inner = &self.inner;
        let orders = self.encode_call(spec, (TerminalMode::None, heard.stdin.is_some()), baseline)?;
        let failed = |source| self.start_error(source);
        let init = inner.init_pool.take_init().await.map_err(failed)?;
        let stop = heard.stop.clone();
        let mut running = CommandExecution::new(init, spec.keep_bytes_max, heard);
        let watch = inner.host_workspace.clone().map(|workspace| {
            let inits = Arc::clone(&inner.init_pool);
            DiskWatch::begin(workspace, inner.limits, Arc::clone(&inner.usage_history), move || {
                inits.deleted_file_bytes()
            })
        });
        let watch = watch.transpose().map_err(failed)?;
        let bounds = ExecutionLimits::begin(&inner.init_pool, watch, &inner.limits, stop);
        let told = running.run_to_end(&orders, (begun + spec.timeout, bounds), self.allowed_network(spec));
        let report = told.await.map_err(failed)?;
        if running.kill_reason == Some(KillReason::Exceeded(ExceededResource::Disk)) {
            // Late writes of this command must not count as growth of the next one, which may run to free space.
            inner.usage_history.lock().unwrap_or_else(PoisonError::into_inner).reset_baseline();
        }
        Ok((running, report))
    }

    fn start_error(&self, source: io::Error) -> SandboxError {
        SandboxError::StartFailed { program: self.inner.init_pool.program().program.clone(), source }
    }

    /// Records the state under protected names before a command.
    async fn capture_baseline(&self) -> Result<Option<WorkspaceBaseline>, SandboxError> {
        let Some(workspace) = self.inner.host_workspace.clone() else { return Ok(None) };
        let looked = tokio::task::spawn_blocking({
            let workspace = workspace.clone();
            move || WorkspaceBaseline::begin(&workspace)
        });
        let baseline =
            looked.await.map_err(io::Error::other).flatten().map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => SandboxError::WorkspaceBusy { path: workspace.clone() },
                _ => SandboxError::ProtectFailed { path: workspace.clone(), source },
            })?;
        // Later ones belong to the commands themselves, whose processes have ended.
        let ends =
            self.inner.special_files.get_or_init(|| baseline.protected_paths().special_files().to_vec());
        if ends.len() > SPECIAL_FILES_MAX {
            let source = io::Error::other(format!("it holds {} sockets and FIFOs: remove them", ends.len()));
            return Err(SandboxError::ProtectFailed { path: workspace, source });
        }
        Ok(Some(baseline))
    }

    /// Restores that state after the command.
    async fn restore_baseline(&self, baseline: Option<WorkspaceBaseline>) -> io::Result<Vec<String>> {
        let Some(baseline) = baseline else { return Ok(Vec::new()) };
        let restored = tokio::task::spawn_blocking(move || baseline.restore()).await;
        restored.map_err(io::Error::other).flatten()
    }

    /// Runs one command with a person, or a person's script, attached: its output goes to docket's own standard
    /// output and error as it arrives, nothing is kept, and `spec.timeout` does not apply. Dropping the future ends
    /// the command.
    ///
    /// # Errors
    /// Same as [`Sandbox::run`]; with [`InteractionMode::Terminal`], also if standard input or output is not a
    /// terminal.
    pub async fn run_interactive(
        &self,
        spec: CommandSpec,
        how: InteractionMode,
    ) -> Result<CommandExit, SandboxError> {
        let terminal = match how {
            InteractionMode::Terminal => TerminalMode::Own,
            InteractionMode::Pipes | InteractionMode::PipesToStderr => TerminalMode::None,
        };
        let _alone = self.lock_exclusive().await;
        let baseline = self.capture_baseline().await?;
        let frames = self.encode_call(&spec, (terminal, false), baseline.as_ref())?;
        let (inits, way_out) = (&self.inner.init_pool, self.allowed_network(&spec));
        let report = match how {
            InteractionMode::Terminal => terminal::relay_terminal(inits, &frames, way_out).await,
            InteractionMode::Pipes => terminal::relay_pipes(inits, (&frames, way_out), io::stdout()).await,
            InteractionMode::PipesToStderr => {
                terminal::relay_pipes(inits, (&frames, way_out), io::stderr()).await
            }
        };
        let path = self.inner.host_workspace.clone().unwrap_or_default();
        let restored = self.restore_baseline(baseline).await;
        restored.map_err(|source| SandboxError::ProtectFailed { path, source })?;
        command_exit(report.map_err(|source| self.start_error(source))?, &spec, String::new)
    }

    /// Returns the network access of a command: without isolation, there is no inside that needs a proxy.
    fn allowed_network(&self, spec: &CommandSpec) -> Option<Arc<AllowList>> {
        match self.inner.plan.backend {
            SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => spec.network.clone(),
            SandboxBackend::None => None,
        }
    }

    async fn lock_exclusive(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.inner.plan.backend {
            SandboxBackend::Bubblewrap => Some(self.inner.exclusive.lock().await),
            SandboxBackend::Namespaces | SandboxBackend::None => None,
        }
    }

    /// Validates a command and encodes it for the init.
    fn encode_call(
        &self,
        spec: &CommandSpec,
        (terminal, is_open): (TerminalMode, bool),
        baseline: Option<&WorkspaceBaseline>,
    ) -> Result<Vec<u8>, SandboxError> {
        if spec.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(SandboxError::EmptyCommand);
        }
        let stdin = match (is_open, &spec.stdin) {
            (true, _) => StdinSource::Open,
            (false, Some(_)) => StdinSource::Frame,
            (false, None) => StdinSource::Empty,
        };
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !spec.cwd.components().all(inside) {
            return Err(SandboxError::InvalidCwd { cwd: spec.cwd.clone() });
        }
        let given = spec.stdin.as_ref().filter(|_| stdin == StdinSource::Frame);
        let stdin_bytes = given.map_or(0, Vec::len);
        if stdin_bytes > FRAME_BYTES_MAX {
            return Err(SandboxError::StdinTooLarge { bytes: stdin_bytes, limit_bytes: FRAME_BYTES_MAX });
        }
        let call = CommandPlan {
            argv: spec.argv.clone(),
            cwd: spec.cwd.clone(),
            protected: baseline
                .map(|baseline| baseline.protected_paths().read_only_paths())
                .unwrap_or_default(),
            pinned: baseline.map(|baseline| baseline.protected_paths().pinned_paths()).unwrap_or_default(),
            covered: self.inner.special_files.get().cloned().unwrap_or_default(),
            stdin,
            terminal: terminal == TerminalMode::Own,
            no_proxy: self.allowed_network(spec).map(|allow| allow.no_proxy()),
            env: spec.env.clone(),
        };
        let bytes = serde_json::to_vec(&call).map_err(SandboxError::EncodePlan)?;
        let mut frames = Vec::with_capacity(bytes.len() + stdin_bytes + 8);
        let framed = write_frame(&mut frames, &bytes)
            .and_then(|()| given.map_or(Ok(()), |stdin| write_frame(&mut frames, stdin)));
        framed.map_err(SandboxError::FrameTooLarge)?;
        Ok(frames)
    }

    /// Returns the name of its control group.
    #[cfg(test)]
    pub(super) fn group_name(&self) -> Option<String> {
        self.inner.init_pool.group_name()
    }

    /// Checks the isolation from inside. Each line is one property; all must hold.
    #[cfg(test)]
    pub(super) async fn run_self_test_for_tests(&self) -> Result<(), SandboxError> {
        self.run_self_test(self.inner.plan.backend).await
    }

    async fn run_self_test(&self, backend: SandboxBackend) -> Result<(), SandboxError> {
        let failed = |found, source| SandboxError::SelfTestFailed { backend: backend.name(), found, source };
        let (line, want) = match backend {
            SandboxBackend::None => ("echo control", "control\n".to_owned()),
            SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => {
                (SELF_TEST_SCRIPT, SELF_TEST_OUTPUT.to_owned())
            }
        };
        let mut spec = CommandSpec::new(["/bin/sh", "-c", line]);
        spec.timeout = SELF_TEST_TIMEOUT;
        let out = self
            .run(spec)
            .await
            .map_err(|error| failed("it did not start".to_owned(), Some(Box::new(error))))?;
        let found = String::from_utf8_lossy(&out.stdout.bytes).into_owned();
        if out.exit == CommandExit::Exit(0) && found == want {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&out.stderr.bytes);
        Err(failed(format!("{:?}, saw {found:?}, said {:?}", out.exit, stderr.trim()), None))
    }
}

/// Whether a call has a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TerminalMode {
    None,
    Own,
}

/// Interprets a report; `said` describes the failure if there was none.
fn command_exit(
    report: Option<InitReport>,
    spec: &CommandSpec,
    said: impl FnOnce() -> String,
) -> Result<CommandExit, SandboxError> {
    match report {
        Some(InitReport::Exit(status)) => Ok(CommandExit::Exit(status)),
        Some(InitReport::Signal(signal)) => Ok(CommandExit::Signal(signal)),
        Some(InitReport::BadCwd) => Err(SandboxError::InvalidCwd { cwd: spec.cwd.clone() }),
        Some(InitReport::ExecFailed { errno }) => {
            let program = spec.argv[0].to_string_lossy().into_owned();
            Err(SandboxError::ExecuteFailed { program, source: io::Error::from_raw_os_error(errno) })
        }
        Some(InitReport::SetupFailed { step, errno }) => {
            Err(SandboxError::SetupFailed { step, source: io::Error::from_raw_os_error(errno) })
        }
        None => Err(SandboxError::InitLost { said: said() }),
    }
}

/// Extracts bubblewrap's own messages from stderr, which it shares with the command.
fn bubblewrap_messages(stderr: &[u8]) -> String {
    const LINES_MAX: usize = 4;
    let text = String::from_utf8_lossy(stderr);
    text.lines().filter(|line| line.starts_with("bwrap: ")).take(LINES_MAX).collect::<Vec<_>>().join("; ")
}

/// Uses sh builtins whenever possible: a self-test must not fail because a program is not installed.
const SELF_TEST_SCRIPT: &str = r#"
while read -r name value; do
  case "$name" in
    Uid:|Gid:) echo "$name" $value;; CapPrm:|CapBnd:|NoNewPrivs:|Seccomp:) echo "$name $value";;
  esac
done </proc/self/status
n=0; while read -r name rest; do case "$name" in *:) n=$((n+1)); echo "$name";; esac; done </proc/net/dev
pwd
(: >/usr/.docket-control) 2>/dev/null || echo read-only
(: >/.docket-control) 2>/dev/null || echo closed
[ -w . ] && echo writable
(: >/tmp/control) && echo scratch
for path in /root/.ssh /etc/shadow /sys/kernel /.old; do [ -e "$path" ] && echo "sees $path"; done
echo control
"#;

const SELF_TEST_OUTPUT: &str = "Uid: 1000 1000 1000 1000\nGid: 1000 1000 1000 1000\n\
CapPrm: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\nlo:\n\
/workspace\nread-only\nclosed\nwritable\nscratch\ncontrol\n";

/// Starts an init and passes it the socket. It is not killed on drop: the closed socket tells the init to end what
/// it started, which a killed init could not do without a pid namespace.
#[expect(clippy::disallowed_methods, reason = "this crate is one of the two places that may start processes")]
pub(super) fn spawn_init(
    init: &InitProgram,
    stdout: Stdio,
    stderr: Stdio,
) -> io::Result<(Child, UnixStream)> {
    let (ours, theirs) = StdUnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let child = Command::new(&init.program)
        .args(&init.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(stdout)
        .stderr(stderr)
        .process_group(0)
        .spawn()?;
    Ok((child, UnixStream::from_std(ours)?))
}
