//! Making a sandbox and running commands in it: the docket side.
//!
//! Invariants: [`Sandbox::run`] returns only after every process of the call has ended (the init itself may
//! still be taking its mounts apart); dropping its future closes the socket that keeps the init alive; a report that never came is an error,
//! never a success.

use std::{
    io,
    os::unix::net::UnixStream as StdUnixStream,
    path::{Component, Path, PathBuf},
    process::Stdio,
    sync::{Arc, OnceLock, PoisonError},
    time::Duration,
};

use docket_schema::{policy::AllowList, tool::Exceeded};
use serde::{Deserialize, Serialize};
use tokio::{
    net::UnixStream,
    process::{Child, Command},
    sync::Mutex,
    time::Instant,
};

use super::{
    cgroup::Cgroup,
    config::{Attended, BackendChoice, CommandOutput, CommandSpec, Ended, InitProgram, SandboxConfig},
    error::SandboxError,
    host::{HostReport, Layer, SandboxReport, bubblewrap, probe_host_with},
    inits::Inits,
    limits::Limits,
    plan::{Backend, Call, FRAME_BYTES_MAX, InitReport, Plan, Stdin, write_frame},
    protect::Baseline,
    quota::{Known, Watch},
    root,
    running::{Bounds, Cut, Heard, Running},
    terminal,
};

/// Sockets and FIFOs of others that are covered; a workspace with more is none.
const ENDS_MAX: usize = 128;

/// A control that takes longer says that the host is not usable.
const CONTROL_TIMEOUT: Duration = Duration::from_secs(30);

/// A host as it was probed, and the backend whose controls passed on it. Handed by a supervisor to
/// its run processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checked {
    backend: Backend,
    host: HostReport,
}

/// A prepared sandbox around one workspace. Cheap to clone; commands may run at once.
#[derive(Clone)]
pub struct Sandbox {
    inner: Arc<Inner>,
}

struct Inner {
    plan: Plan,
    inits: Arc<Inits>,
    host: HostReport,
    report: SandboxReport,
    /// The workspace on the host; `None` without walls.
    walled: Option<PathBuf>,
    limits: Limits,
    /// What the workspace held when it was measured last.
    known: Arc<std::sync::Mutex<Known>>,
    /// Sockets and FIFOs that were in the workspace before the first command.
    ends: OnceLock<Vec<PathBuf>>,
    /// bubblewrap resolves links of the workspace on the host, so nothing may change them meanwhile.
    alone: Mutex<()>,
}

impl Sandbox {
    /// Probes the host, builds the plan and runs harmless controls.
    ///
    /// # Errors
    /// [`SandboxError::TooFewLayers`] where the host cannot give namespaces and seccomp,
    /// [`SandboxError::Control`] where a wall is not where it should be, and what is wrong with the
    /// configuration.
    pub async fn prepare(config: SandboxConfig) -> Result<Self, SandboxError> {
        let init = config.init_program.clone();
        let probed = tokio::task::spawn_blocking(move || probe_host_with(&init)).await;
        let host = probed.map_err(|_| SandboxError::Lost { said: "the probe panicked".to_owned() })?;
        let none = config.backend == BackendChoice::None;
        let missing = host.missing_for_walls();
        if !none && !missing.is_empty() {
            let lines: Vec<String> =
                missing.iter().map(|m| format!("{}: {}", m.layer.name(), m.reason)).collect();
            return Err(SandboxError::TooFewLayers { missing: lines.join("; ") });
        }
        match (config.backend, bubblewrap()) {
            (BackendChoice::None, _) => Self::with(&config, &host, Backend::None).await,
            (BackendChoice::Bubblewrap, None) => Err(SandboxError::NoBubblewrap),
            (BackendChoice::Bubblewrap, Some(_)) => Self::with(&config, &host, Backend::Bubblewrap).await,
            (BackendChoice::Namespaces, _) | (BackendChoice::Auto, None) => {
                Self::with(&config, &host, Backend::Namespaces).await
            }
            // Both hold against the same battery; our own takes half the time of a call and runs
            // calls of one run side by side, so bubblewrap is what stands in where ours cannot start.
            (BackendChoice::Auto, Some(_)) => match Self::with(&config, &host, Backend::Namespaces).await {
                Err(SandboxError::Control { found, .. }) => {
                    tracing::info!(%found, "docket's own namespaces failed their controls, taking bubblewrap");
                    Self::with(&config, &host, Backend::Bubblewrap).await
                }
                other => other,
            },
        }
    }

    /// A sandbox on a host that was probed, and whose walls passed their controls, when the worker
    /// started: neither is done again for each run. Every step of a wall's making that fails is an
    /// error all the same, and runs nothing.
    ///
    /// # Errors
    /// [`SandboxError`] for what is wrong with the configuration.
    pub fn on(config: &SandboxConfig, checked: &Checked) -> Result<Self, SandboxError> {
        Self::planned(config, &checked.host, checked.backend)
    }

    /// What was probed and checked, for [`Sandbox::on`] in another process of this host.
    pub fn checked(&self) -> Checked {
        Checked { backend: self.inner.plan.backend, host: self.inner.host.clone() }
    }

    async fn with(config: &SandboxConfig, host: &HostReport, backend: Backend) -> Result<Self, SandboxError> {
        let sandbox = Self::planned(config, host, backend)?;
        sandbox.control(backend).await?;
        Ok(sandbox)
    }

    fn planned(config: &SandboxConfig, host: &HostReport, backend: Backend) -> Result<Self, SandboxError> {
        let plan = root::plan(config, backend, bubblewrap(), host.has(Layer::Landlock))?;
        let mut plan_frame = Vec::new();
        let bytes = serde_json::to_vec(&plan).map_err(SandboxError::Plan)?;
        write_frame(&mut plan_frame, &bytes).map_err(SandboxError::Frame)?;
        let walled = match backend {
            Backend::Bubblewrap | Backend::Namespaces => Some(root::source_of_workspace(&plan)),
            Backend::None => None,
        };
        let group = match host.has(Layer::Cgroup) && walled.is_some() {
            true => Some(Cgroup::make(config.limits).map_err(SandboxError::Limits)?),
            false => None,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                report: host.report(&plan, config.limits),
                inits: Arc::new(Inits::new(config.init_program.clone(), plan_frame, walled.clone(), group)),
                host: host.clone(),
                alone: Mutex::new(()),
                limits: config.limits,
                known: Arc::default(),
                ends: OnceLock::new(),
                plan,
                walled,
            }),
        })
    }

    /// The layers that are really there.
    pub fn report(&self) -> &SandboxReport {
        &self.inner.report
    }

    /// The workspace as commands see it.
    pub fn workspace_inside(&self) -> &Path {
        &self.inner.plan.workspace
    }

    /// Runs one command to its end and the end of everything it started.
    ///
    /// # Errors
    /// [`SandboxError`]; a command that ran and failed is no error.
    pub async fn run(&self, spec: CommandSpec) -> Result<CommandOutput, SandboxError> {
        Box::pin(self.run_heard(spec, Heard::default())).await
    }

    /// The same, with somebody who hears what it says as it comes.
    ///
    /// # Errors
    /// As [`Sandbox::run`].
    pub async fn run_heard(&self, spec: CommandSpec, heard: Heard) -> Result<CommandOutput, SandboxError> {
        let _alone = self.alone().await;
        let begun = Instant::now();
        let baseline = self.look().await?;
        let done = self.run_on(&spec, heard, baseline.as_ref(), begun).await;
        // However it went: what the command left under protected names must not be the next one's beginning.
        let restored = self.restore(baseline).await;
        let (mut running, report) = done?;
        self.inner.inits.make_ready();
        let (cut, network) = (running.cut, running.network.take());
        let (stdout, stderr) = (running.stdout.finish(), running.stderr.finish());
        let ended = match (cut, report) {
            (Some(Cut::Exceeded(exceeded)), _) => Ended::Exceeded(exceeded),
            (Some(Cut::TimedOut | Cut::Stopped), None) => Ended::TimedOut,
            (_, report) => ended(report, &spec, || of_bubblewrap(&stderr.bytes))?,
        };
        let duration_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        let mut output = CommandOutput { ended, stdout, stderr, duration_ms, put_back: Vec::new(), network };
        match restored {
            Ok(put_back) => {
                output.put_back = put_back;
                Ok(output)
            }
            Err(source) => {
                let path = self.inner.walled.clone().unwrap_or_default();
                Err(SandboxError::NotRestored { path, output: Box::new(output), source })
            }
        }
    }

    async fn run_on(
        &self,
        spec: &CommandSpec,
        heard: Heard,
        baseline: Option<&Baseline>,
        begun: Instant,
    ) -> Result<(Running, Option<InitReport>), SandboxError> {
        let inner = &self.inner;
        let orders = self.orders(spec, (Terminal::None, heard.stdin.is_some()), baseline)?;
        let failed = |source| self.not_started(source);
        let init = inner.inits.take().await.map_err(failed)?;
        let stop = heard.stop.clone();
        let mut running = Running::new(init, spec.keep_bytes_max, heard);
        let watch = inner.walled.clone().map(|workspace| {
            let inits = Arc::clone(&inner.inits);
            Watch::begin(workspace, inner.limits, Arc::clone(&inner.known), move || inits.unnamed_bytes())
        });
        let watch = watch.transpose().map_err(failed)?;
        let bounds = Bounds::begin(&inner.inits, watch, &inner.limits, stop);
        let told = running.tell(&orders, (begun + spec.timeout, bounds), self.way_out(spec));
        let report = told.await.map_err(failed)?;
        if running.cut == Some(Cut::Exceeded(Exceeded::Disk)) {
            // What it still wrote before it was gone is not the next one's growth, which may be there to make room.
            inner.known.lock().unwrap_or_else(PoisonError::into_inner).forget();
        }
        Ok((running, report))
    }

    fn not_started(&self, source: io::Error) -> SandboxError {
        SandboxError::Start { program: self.inner.inits.program().program.clone(), source }
    }

    /// What stands under protected names before a command.
    async fn look(&self) -> Result<Option<Baseline>, SandboxError> {
        let Some(workspace) = self.inner.walled.clone() else { return Ok(None) };
        let looked = tokio::task::spawn_blocking({
            let workspace = workspace.clone();
            move || Baseline::begin(&workspace)
        });
        let baseline =
            looked.await.map_err(io::Error::other).flatten().map_err(|source| match source.kind() {
                io::ErrorKind::WouldBlock => SandboxError::Busy { path: workspace.clone() },
                _ => SandboxError::Protect { path: workspace.clone(), source },
            })?;
        // Those that come later are the commands' own: nobody is behind them any more.
        let ends = self.inner.ends.get_or_init(|| baseline.before().ends_of_others().to_vec());
        if ends.len() > ENDS_MAX {
            let source = io::Error::other(format!("it holds {} sockets and FIFOs: remove them", ends.len()));
            return Err(SandboxError::Protect { path: workspace, source });
        }
        Ok(Some(baseline))
    }

    /// The same after it.
    async fn restore(&self, baseline: Option<Baseline>) -> io::Result<Vec<String>> {
        let Some(baseline) = baseline else { return Ok(Vec::new()) };
        let restored = tokio::task::spawn_blocking(move || baseline.end()).await;
        restored.map_err(io::Error::other).flatten()
    }

    /// Runs one command with a person, or a script of a person's, at it: what it says goes to docket's own
    /// standard output and error as it comes, nothing is kept, and `spec.timeout` does not hold. Dropping
    /// the future ends the command.
    ///
    /// # Errors
    /// As [`Sandbox::run`]; with [`Attended::Terminal`] also where standard input or output is none.
    pub async fn attend(&self, spec: CommandSpec, how: Attended) -> Result<Ended, SandboxError> {
        let terminal = match how {
            Attended::Terminal => Terminal::Own,
            Attended::Pipes | Attended::Aside => Terminal::None,
        };
        let _alone = self.alone().await;
        let baseline = self.look().await?;
        let frames = self.orders(&spec, (terminal, false), baseline.as_ref())?;
        let (inits, way_out) = (&self.inner.inits, self.way_out(&spec));
        let report = match how {
            Attended::Terminal => terminal::relay(inits, &frames, way_out).await,
            Attended::Pipes => terminal::pass(inits, (&frames, way_out), io::stdout()).await,
            Attended::Aside => terminal::pass(inits, (&frames, way_out), io::stderr()).await,
        };
        let path = self.inner.walled.clone().unwrap_or_default();
        let restored = self.restore(baseline).await;
        restored.map_err(|source| SandboxError::Protect { path, source })?;
        ended(report.map_err(|source| self.not_started(source))?, &spec, String::new)
    }

    /// What of the network a command gets: without walls there is no inside from which a way would lead.
    fn way_out(&self, spec: &CommandSpec) -> Option<Arc<AllowList>> {
        match self.inner.plan.backend {
            Backend::Bubblewrap | Backend::Namespaces => spec.network.clone(),
            Backend::None => None,
        }
    }

    async fn alone(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match self.inner.plan.backend {
            Backend::Bubblewrap => Some(self.inner.alone.lock().await),
            Backend::Namespaces | Backend::None => None,
        }
    }

    /// Checks a command and writes it down for the init.
    fn orders(
        &self,
        spec: &CommandSpec,
        (terminal, is_open): (Terminal, bool),
        baseline: Option<&Baseline>,
    ) -> Result<Vec<u8>, SandboxError> {
        if spec.argv.first().is_none_or(|program| program.is_empty()) {
            return Err(SandboxError::EmptyCommand);
        }
        let stdin = match (is_open, &spec.stdin) {
            (true, _) => Stdin::Open,
            (false, Some(_)) => Stdin::Frame,
            (false, None) => Stdin::Empty,
        };
        let inside = |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if !spec.cwd.components().all(inside) {
            return Err(SandboxError::Cwd { cwd: spec.cwd.clone() });
        }
        let given = spec.stdin.as_ref().filter(|_| stdin == Stdin::Frame);
        let stdin_bytes = given.map_or(0, Vec::len);
        if stdin_bytes > FRAME_BYTES_MAX {
            return Err(SandboxError::StdinTooLarge { bytes: stdin_bytes, limit_bytes: FRAME_BYTES_MAX });
        }
        let call = Call {
            argv: spec.argv.clone(),
            cwd: spec.cwd.clone(),
            protected: baseline.map(|baseline| baseline.before().to_lay()).unwrap_or_default(),
            pinned: baseline.map(|baseline| baseline.before().to_pin()).unwrap_or_default(),
            covered: self.inner.ends.get().cloned().unwrap_or_default(),
            stdin,
            terminal: terminal == Terminal::Own,
            no_proxy: self.way_out(spec).map(|allow| allow.no_proxy()),
            env: spec.env.clone(),
        };
        let bytes = serde_json::to_vec(&call).map_err(SandboxError::Plan)?;
        let mut frames = Vec::with_capacity(bytes.len() + stdin_bytes + 8);
        let framed = write_frame(&mut frames, &bytes)
            .and_then(|()| given.map_or(Ok(()), |stdin| write_frame(&mut frames, stdin)));
        framed.map_err(SandboxError::Frame)?;
        Ok(frames)
    }

    /// The name of its control group.
    #[cfg(test)]
    pub(super) fn group_name(&self) -> Option<String> {
        self.inner.inits.group_name()
    }

    /// Looks at the walls from inside. Each line is one property; all must hold.
    #[cfg(test)]
    pub(super) async fn control_for_tests(&self) -> Result<(), SandboxError> {
        self.control(self.inner.plan.backend).await
    }

    async fn control(&self, backend: Backend) -> Result<(), SandboxError> {
        let failed = |found, source| SandboxError::Control { backend: backend.name(), found, source };
        let (line, want) = match backend {
            Backend::None => ("echo control", "control\n".to_owned()),
            Backend::Bubblewrap | Backend::Namespaces => (CONTROL, CONTROL_WANT.to_owned()),
        };
        let mut spec = CommandSpec::new(["/bin/sh", "-c", line]);
        spec.timeout = CONTROL_TIMEOUT;
        let out = self
            .run(spec)
            .await
            .map_err(|error| failed("it did not start".to_owned(), Some(Box::new(error))))?;
        let found = String::from_utf8_lossy(&out.stdout.bytes).into_owned();
        if out.ended == Ended::Exit(0) && found == want {
            return Ok(());
        }
        let stderr = String::from_utf8_lossy(&out.stderr.bytes);
        Err(failed(format!("{:?}, saw {found:?}, said {:?}", out.ended, stderr.trim()), None))
    }
}

/// Whether a call has a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Terminal {
    None,
    Own,
}

/// What a report means; `said` is what is known where none came.
fn ended(
    report: Option<InitReport>,
    spec: &CommandSpec,
    said: impl FnOnce() -> String,
) -> Result<Ended, SandboxError> {
    match report {
        Some(InitReport::Exit(status)) => Ok(Ended::Exit(status)),
        Some(InitReport::Signal(signal)) => Ok(Ended::Signal(signal)),
        Some(InitReport::BadCwd) => Err(SandboxError::Cwd { cwd: spec.cwd.clone() }),
        Some(InitReport::ExecFailed { errno }) => {
            let program = spec.argv[0].to_string_lossy().into_owned();
            Err(SandboxError::Execute { program, source: io::Error::from_raw_os_error(errno) })
        }
        Some(InitReport::SetupFailed { step, errno }) => {
            Err(SandboxError::Setup { step, source: io::Error::from_raw_os_error(errno) })
        }
        None => Err(SandboxError::Lost { said: said() }),
    }
}

/// What bubblewrap itself said, for it shares stderr with the command; nothing of the command's own.
fn of_bubblewrap(stderr: &[u8]) -> String {
    const LINES_MAX: usize = 4;
    let text = String::from_utf8_lossy(stderr);
    text.lines().filter(|line| line.starts_with("bwrap: ")).take(LINES_MAX).collect::<Vec<_>>().join("; ")
}

/// Uses builtins of sh wherever it can: a control must not fail for a program that is not installed.
const CONTROL: &str = r#"
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

const CONTROL_WANT: &str = "Uid: 1000 1000 1000 1000\nGid: 1000 1000 1000 1000\n\
CapPrm: 0000000000000000\nCapBnd: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\nlo:\n\
/workspace\nread-only\nclosed\nwritable\nscratch\ncontrol\n";

/// Starts an init and gives the socket to it. Not killed when dropped: the closed socket tells the init to
/// end what it started, which a killed init could not do without a pid namespace.
#[expect(clippy::disallowed_methods, reason = "this crate is one of the two places that may start processes")]
pub(super) fn start_init(
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
