//! Execution of one command: passes the plan to its init, reads the output and watches the limits until every
//! process has ended.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use docket_schema::{
    policy::AllowList,
    tool::{ExceededResource, NetworkActivity},
};
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    net::{UnixStream, unix::OwnedReadHalf},
    process::{Child, ChildStderr, ChildStdout},
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{
    capture::{OutputListener, StreamCapture},
    cgroup::KernelInterventions,
    fd_passing,
    init_pool::{InitPool, SandboxInit},
    limits::Limits,
    plan::{InitReport, read_json_frame},
    proxy::CallProxy,
    quota::{CHECK_INTERVAL, DiskWatch},
};

/// How long the kernel may take to end a namespace after the deadline before docket kills the init
/// itself.
const END_GRACE: Duration = Duration::from_secs(5);

/// Maximum size of an init's report, which is one small frame.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// Number of refused forks after which a command is ended. A build that asks for a few too many copes or
/// fails by itself; one that keeps asking is a fork bomb.
const REFUSED_FORKS_MAX: u64 = 64;

/// Why docket ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillReason {
    /// Its timeout passed.
    TimedOut,
    /// It exceeded a limit.
    Exceeded(ExceededResource),
    /// The caller requested its end.
    Stopped,
}

/// Live input and output of a command.
#[derive(Default)]
pub struct CommandIo {
    /// Receives standard output.
    pub stdout: Option<OutputListener>,
    /// Receives standard error.
    pub stderr: Option<OutputListener>,
    /// Receives the writing end of the command's standard input, a pipe; `CommandSpec::stdin` must not be set
    /// then. The command sees end of file once the writing end is dropped.
    pub stdin: Option<oneshot::Sender<OwnedFd>>,
    /// Ends the command in the same orderly way as its timeout.
    pub stop: Option<watch::Receiver<bool>>,
}

/// A started init and its output.
pub(super) struct CommandExecution {
    child: Child,
    control: Option<UnixStream>,
    pub(super) stdout: StreamCapture<ChildStdout>,
    pub(super) stderr: StreamCapture<ChildStderr>,
    pub(super) kill_reason: Option<KillReason>,
    /// Receives the writing end of the command's input.
    stdin: Option<oneshot::Sender<OwnedFd>>,
    /// The network activity of a call with network access.
    pub(super) network: Option<NetworkActivity>,
}

/// Limits of one command.
pub(super) struct ExecutionLimits {
    inits: Arc<InitPool>,
    /// Counters before the command.
    interventions_before: KernelInterventions,
    /// Without isolation, nothing is watched.
    disk_watch: Option<DiskWatch>,
    output_bytes: u64,
    stop: Option<watch::Receiver<bool>>,
}

impl ExecutionLimits {
    /// Starts watching the limits.
    pub(super) fn begin(
        inits: &Arc<InitPool>,
        watch: Option<DiskWatch>,
        limits: &Limits,
        stop: Option<watch::Receiver<bool>>,
    ) -> Self {
        let output_bytes = if watch.is_some() { limits.output_bytes } else { u64::MAX };
        Self {
            inits: Arc::clone(inits),
            interventions_before: inits.interventions(),
            disk_watch: watch,
            output_bytes,
            stop,
        }
    }

    /// Completes when a limit is exceeded, and never before.
    async fn wait_until_exceeded(&mut self) -> ExceededResource {
        loop {
            sleep(CHECK_INTERVAL).await;
            if let Some(exceeded) = self.check_limits().await {
                return exceeded;
            }
        }
    }

    async fn check_limits(&mut self) -> Option<ExceededResource> {
        let now = self.inits.interventions();
        if now.oom_kills > self.interventions_before.oom_kills {
            return Some(ExceededResource::Memory);
        }
        if now.refused_forks.saturating_sub(self.interventions_before.refused_forks) >= REFUSED_FORKS_MAX {
            return Some(ExceededResource::Processes);
        }
        let mut watch = self.disk_watch.take()?;
        // If the workspace cannot be measured now, the next check tries again.
        let looked =
            tokio::task::spawn_blocking(move || (watch.check_usage().unwrap_or(None), watch)).await.ok();
        let (exceeded, watch) = looked?;
        self.disk_watch = Some(watch);
        exceeded
    }
}

impl CommandExecution {
    pub(super) fn new(init: SandboxInit, keep_bytes_max: usize, heard: CommandIo) -> Self {
        let SandboxInit { mut child, control, .. } = init;
        Self {
            stdout: StreamCapture::with_listener(child.stdout.take(), keep_bytes_max, heard.stdout),
            stderr: StreamCapture::with_listener(child.stderr.take(), keep_bytes_max, heard.stderr),
            control: Some(control),
            child,
            kill_reason: None,
            stdin: heard.stdin,
            network: None,
        }
    }

    /// Sends the plan and waits until the init has ended. Returns `None` if it ended without a
    /// report.
    pub(super) async fn run_to_end(
        &mut self,
        orders: &[u8],
        (deadline, mut bounds): (Instant, ExecutionLimits),
        way_out: Option<Arc<AllowList>>,
    ) -> io::Result<Option<InitReport>> {
        let Some(control) = self.control.take() else { return Ok(None) };
        let (answers, mut out) = control.into_split();
        // An init that dies early breaks this pipe; the missing report reveals it.
        let give = async {
            let _ = out.write_all(orders).await;
        };
        tokio::select! {
            () = give => {}
            () = sleep_until(deadline) => {}
        }
        if let Some(wants) = self.stdin.take() {
            let taken = tokio::select! {
                taken = fd_passing::recv_fd(answers.as_ref()) => taken?,
                () = sleep_until(deadline) => None,
            };
            // If the receiver is gone, dropping the end closes it.
            taken.map(|end| wants.send(end));
        }
        let mut uplink = tokio::select! {
            taken = accept_proxy(&answers, way_out) => taken?,
            () = sleep_until(deadline) => None,
        };
        let mut answers = capture_report(answers);
        let mut out = Some(out);
        let mut kill_at = None;
        let output_bytes = bounds.output_bytes;
        let stopped = wait_for_stop(bounds.stop.take());
        let mut stopped = pin!(stopped);
        {
            let mut crossed = pin!(bounds.wait_until_exceeded());
            // The report comes after the last process of the call has ended, so all output is in the pipes by
            // that time.
            while !answers.has_complete_frame() {
                let wrote = self.stdout.total_bytes() + self.stderr.total_bytes();
                let cut = tokio::select! {
                    _status = self.child.wait() => break,
                    step = self.stdout.read_chunk(), if self.stdout.is_open() => step.map(|()| None)?,
                    step = self.stderr.read_chunk(), if self.stderr.is_open() => step.map(|()| None)?,
                    step = answers.read_chunk(), if answers.is_open() => step.map(|()| None)?,
                    () = CallProxy::serve(&mut uplink), if uplink.is_some() => None,
                    () = sleep_until(deadline), if self.kill_reason.is_none() => Some(KillReason::TimedOut),
                    () = &mut stopped, if self.kill_reason.is_none() => Some(KillReason::Stopped),
                    exceeded = &mut crossed, if self.kill_reason.is_none() => Some(KillReason::Exceeded(exceeded)),
                    () = sleep_until(kill_at.unwrap_or(deadline)), if kill_at.is_some() => {
                        self.child.start_kill()?;
                        kill_at = None;
                        None
                    }
                };
                let cut = cut.or_else(|| {
                    (wrote > output_bytes).then_some(KillReason::Exceeded(ExceededResource::Output))
                });
                if let (Some(cut), None) = (cut, self.kill_reason) {
                    // The init sees end of file and exits, and the kernel ends its namespace. If the outer
                    // process were killed first, no process would wait for that.
                    self.kill_reason = Some(cut);
                    kill_at = Some(Instant::now() + END_GRACE);
                    drop(out.take());
                }
            }
        }
        self.network = uplink.map(CallProxy::finish);
        self.stdout.drain()?;
        self.stderr.drain()?;
        answers.drain()?;
        if self.kill_reason.is_none() {
            self.kill_reason = bounds.check_limits().await.map(KillReason::Exceeded);
        }
        Ok(parse_report(answers))
    }
}

/// Completes when the caller requests the command's end.
async fn wait_for_stop(stop: Option<watch::Receiver<bool>>) {
    if let Some(mut stop) = stop
        && stop.wait_for(|stop| *stop).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// Accepts the proxy of a call that has network access.
pub(super) async fn accept_proxy(
    answers: &OwnedReadHalf,
    way_out: Option<Arc<AllowList>>,
) -> io::Result<Option<CallProxy>> {
    match way_out {
        Some(allow) => CallProxy::accept_from_init(answers.as_ref(), allow).await,
        None => Ok(None),
    }
}

/// Captures the single report of an init.
pub(super) fn capture_report(answers: OwnedReadHalf) -> StreamCapture<ReportSocket> {
    StreamCapture::new(Some(ReportSocket(answers)), REPORT_BYTES_MAX)
}

/// Parses the report, if one arrived.
pub(super) fn parse_report(answers: StreamCapture<ReportSocket>) -> Option<InitReport> {
    read_json_frame(&mut &answers.finish().bytes[..]).ok()
}

/// The reading half of the socket, with the descriptor that a final non-blocking read needs.
pub(super) struct ReportSocket(OwnedReadHalf);

impl AsFd for ReportSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let socket: &UnixStream = self.0.as_ref();
        socket.as_fd()
    }
}

impl AsyncRead for ReportSocket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}
