//! One command under way: its init is told what to do, its outputs are read, its bounds are watched, until all of it
//! has ended.

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
    tool::{Exceeded, NetworkSeen},
};
use tokio::{
    io::{AsyncRead, AsyncWriteExt, ReadBuf},
    net::{UnixStream, unix::OwnedReadHalf},
    process::{Child, ChildStderr, ChildStdout},
    sync::{oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

use super::{
    capture::{Capture, Listener},
    cgroup::Interventions,
    hand,
    inits::{Init, Inits},
    limits::Limits,
    plan::{InitReport, read_json},
    proxy::Uplink,
    quota::{LOOK_EVERY, Watch},
};

/// How long the kernel may take to end a namespace after its deadline before the init itself is killed.
const END_GRACE: Duration = Duration::from_secs(5);

/// An init's report is one small frame.
const REPORT_BYTES_MAX: usize = 64 * 1024;

/// Processes the kernel may refuse to one command before it is ended. A build that asks for a few too many copes, or
/// fails by itself; what goes on asking is a bomb.
const REFUSED_MAX: u64 = 64;

/// Why docket ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Its time was over.
    TimedOut,
    /// It used too much.
    Exceeded(Exceeded),
    /// Whoever asked for it wants its end.
    Stopped,
}

/// Who hears a command's outputs as they come.
#[derive(Default)]
pub struct Heard {
    /// Its standard output.
    pub stdout: Option<Listener>,
    /// Its standard error.
    pub stderr: Option<Listener>,
    /// Takes the writing end of its standard input, a pipe; `CommandSpec::stdin` is not given then. The command sees
    /// the end of its input once that is dropped.
    pub stdin: Option<oneshot::Sender<OwnedFd>>,
    /// Ends the command as its deadline would, in order.
    pub stop: Option<watch::Receiver<bool>>,
}

/// An init that was started and what comes out of it.
pub(super) struct Running {
    child: Child,
    control: Option<UnixStream>,
    pub(super) stdout: Capture<ChildStdout>,
    pub(super) stderr: Capture<ChildStderr>,
    pub(super) cut: Option<Cut>,
    /// Who wants the writing end of the command's input.
    stdin: Option<oneshot::Sender<OwnedFd>>,
    /// What the call did on the network, where it had it.
    pub(super) network: Option<NetworkSeen>,
}

/// What one command is held to.
pub(super) struct Bounds {
    inits: Arc<Inits>,
    /// What the kernel had done before.
    before: Interventions,
    /// Without walls nothing is watched.
    watch: Option<Watch>,
    output_bytes: u64,
    stop: Option<watch::Receiver<bool>>,
}

impl Bounds {
    /// From here on.
    pub(super) fn begin(
        inits: &Arc<Inits>,
        watch: Option<Watch>,
        limits: &Limits,
        stop: Option<watch::Receiver<bool>>,
    ) -> Self {
        let output_bytes = if watch.is_some() { limits.output_bytes } else { u64::MAX };
        Self { inits: Arc::clone(inits), before: inits.interventions(), watch, output_bytes, stop }
    }

    /// Ends when a bound was crossed, and never before.
    async fn crossed(&mut self) -> Exceeded {
        loop {
            sleep(LOOK_EVERY).await;
            if let Some(exceeded) = self.look().await {
                return exceeded;
            }
        }
    }

    async fn look(&mut self) -> Option<Exceeded> {
        let now = self.inits.interventions();
        if now.memory > self.before.memory {
            return Some(Exceeded::Memory);
        }
        if now.processes.saturating_sub(self.before.processes) >= REFUSED_MAX {
            return Some(Exceeded::Processes);
        }
        let mut watch = self.watch.take()?;
        // A workspace that cannot be measured now is measured at the next look.
        let looked = tokio::task::spawn_blocking(move || (watch.look().unwrap_or(None), watch)).await.ok();
        let (exceeded, watch) = looked?;
        self.watch = Some(watch);
        exceeded
    }
}

impl Running {
    pub(super) fn new(init: Init, keep_bytes_max: usize, heard: Heard) -> Self {
        let Init { mut child, control, .. } = init;
        Self {
            stdout: Capture::heard(child.stdout.take(), keep_bytes_max, heard.stdout),
            stderr: Capture::heard(child.stderr.take(), keep_bytes_max, heard.stderr),
            control: Some(control),
            child,
            cut: None,
            stdin: heard.stdin,
            network: None,
        }
    }

    /// Gives the orders and stays until the init has ended. `None` when it ended without a report.
    pub(super) async fn tell(
        &mut self,
        orders: &[u8],
        (deadline, mut bounds): (Instant, Bounds),
        way_out: Option<Arc<AllowList>>,
    ) -> io::Result<Option<InitReport>> {
        let Some(control) = self.control.take() else { return Ok(None) };
        let (answers, mut out) = control.into_split();
        // An init that dies early breaks this pipe; its missing report says so.
        let give = async {
            let _ = out.write_all(orders).await;
        };
        tokio::select! {
            () = give => {}
            () = sleep_until(deadline) => {}
        }
        if let Some(wants) = self.stdin.take() {
            let taken = tokio::select! {
                taken = hand::take(answers.as_ref()) => taken?,
                () = sleep_until(deadline) => None,
            };
            // Whoever no longer waits for it closes it so.
            taken.map(|end| wants.send(end));
        }
        let mut uplink = tokio::select! {
            taken = uplink(&answers, way_out) => taken?,
            () = sleep_until(deadline) => None,
        };
        let mut answers = answer_of(answers);
        let mut out = Some(out);
        let mut kill_at = None;
        let output_bytes = bounds.output_bytes;
        let stopped = stopped(bounds.stop.take());
        let mut stopped = pin!(stopped);
        {
            let mut crossed = pin!(bounds.crossed());
            // A report comes after the last process of the call has ended; what they wrote is in the pipes then.
            while !answers.ends_frame() {
                let wrote = self.stdout.total_bytes() + self.stderr.total_bytes();
                let cut = tokio::select! {
                    _status = self.child.wait() => break,
                    step = self.stdout.step(), if self.stdout.open() => step.map(|()| None)?,
                    step = self.stderr.step(), if self.stderr.open() => step.map(|()| None)?,
                    step = answers.step(), if answers.open() => step.map(|()| None)?,
                    () = Uplink::serve(&mut uplink), if uplink.is_some() => None,
                    () = sleep_until(deadline), if self.cut.is_none() => Some(Cut::TimedOut),
                    () = &mut stopped, if self.cut.is_none() => Some(Cut::Stopped),
                    exceeded = &mut crossed, if self.cut.is_none() => Some(Cut::Exceeded(exceeded)),
                    () = sleep_until(kill_at.unwrap_or(deadline)), if kill_at.is_some() => {
                        self.child.start_kill()?;
                        kill_at = None;
                        None
                    }
                };
                let cut = cut.or_else(|| (wrote > output_bytes).then_some(Cut::Exceeded(Exceeded::Output)));
                if let (Some(cut), None) = (cut, self.cut) {
                    // The init sees end of file and exits, and the kernel ends its namespace. Killing the outer
                    // process first would leave nobody to wait for that.
                    self.cut = Some(cut);
                    kill_at = Some(Instant::now() + END_GRACE);
                    drop(out.take());
                }
            }
        }
        self.network = uplink.map(Uplink::end);
        self.stdout.drain()?;
        self.stderr.drain()?;
        answers.drain()?;
        if self.cut.is_none() {
            self.cut = bounds.look().await.map(Cut::Exceeded);
        }
        Ok(read_answer(answers))
    }
}

/// Ends when somebody wants the command's end.
async fn stopped(stop: Option<watch::Receiver<bool>>) {
    if let Some(mut stop) = stop
        && stop.wait_for(|stop| *stop).await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

/// The way out of a call that has one.
pub(super) async fn uplink(
    answers: &OwnedReadHalf,
    way_out: Option<Arc<AllowList>>,
) -> io::Result<Option<Uplink>> {
    match way_out {
        Some(allow) => Uplink::taken(answers.as_ref(), allow).await,
        None => Ok(None),
    }
}

/// An init's one answer, as it comes.
pub(super) fn answer_of(answers: OwnedReadHalf) -> Capture<Answers> {
    Capture::new(Some(Answers(answers)), REPORT_BYTES_MAX)
}

/// The answer that came, if one did.
pub(super) fn read_answer(answers: Capture<Answers>) -> Option<InitReport> {
    read_json(&mut &answers.finish().bytes[..]).ok()
}

/// The reading half of the socket, with the descriptor that a last read without waiting needs.
pub(super) struct Answers(OwnedReadHalf);

impl AsFd for Answers {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let socket: &UnixStream = self.0.as_ref();
        socket.as_fd()
    }
}

impl AsyncRead for Answers {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}
