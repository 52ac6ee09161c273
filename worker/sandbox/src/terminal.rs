//! Interactive access to a sandboxed command: relays docket's terminal to one of the command's own.
//!
//! The command never holds docket's terminal: it gets the far end of a new one, which controls its session,
//! so that job control, Ctrl-C and the window size work inside and end there. Invariant: docket's terminal
//! is restored when [`relay_terminal`] ends, however it ends.

use std::{
    io::{self, Write as _},
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd},
    process::Stdio,
    sync::Arc,
};

use docket_schema::policy::AllowList;
use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    libc,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    pty::{Winsize, openpty},
    sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr},
    unistd::{read, write},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _, Interest, unix::AsyncFd},
    process::Child,
    signal::unix::{SignalKind, signal},
};

use super::{
    execution::{accept_proxy, capture_report, parse_report},
    init_pool::{InitPool, SandboxInit},
    plan::InitReport,
    proxy::CallProxy,
};

/// Size of one read from either side.
const CHUNK_BYTES: usize = 16 * 1024;

/// Limit on typed input that was not read yet: a pasted file fits, and anything more waits in the
/// kernel.
const TYPEAHEAD_BYTES_MAX: usize = 64 * 1024;

/// Runs the command in `frames` on a separate terminal. Returns `None` if the init ended without a
/// report.
pub(super) async fn relay_terminal(
    inits: &Arc<InitPool>,
    frames: &[u8],
    way_out: Option<Arc<AllowList>>,
) -> io::Result<Option<InitReport>> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let settings = tcgetattr(&stdin)?;
    let pair = openpty(&window_size(stdin.as_fd())?, &settings)?;
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    let SandboxInit { mut child, control, .. } =
        inits.start_init(pair.slave.try_clone()?.into(), pair.slave.into()).await?;
    let (answers, mut out) = control.into_split();
    // An init that dies early breaks this pipe; the missing report reveals it.
    let _ = out.write_all(frames).await;
    let mut uplink = accept_proxy(&answers, way_out).await?;
    let mut answers = capture_report(answers);

    let master = register_fd(pair.master, Interest::READABLE | Interest::WRITABLE)?;
    let keys = register_fd(stdin.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    let mut resized = signal(SignalKind::window_change())?;
    let _raw = RawTerminal::enable_raw_mode(stdin.as_fd().try_clone_to_owned()?, settings)?;
    let (mut typed, mut open, mut listens) = (Vec::new(), true, true);
    while !answers.has_complete_frame() {
        tokio::select! {
            _status = child.wait() => break,
            step = answers.read_chunk(), if answers.is_open() => step?,
            said = read_from(&master), if open => open = write_to_screen(&stdout, &said?)?,
            key = read_from(&keys), if listens && typed.len() < TYPEAHEAD_BYTES_MAX => {
                let key = key?;
                listens = !key.is_empty();
                typed.extend(key);
            }
            taken = write_to(&master, &typed), if open && !typed.is_empty() => drop(typed.drain(..taken?)),
            () = CallProxy::serve(&mut uplink), if uplink.is_some() => {}
            _ = resized.recv() => set_window_size(master.as_fd(), &window_size(stdin.as_fd())?)?,
        }
    }
    // The whole call has ended, so its last output is already in the terminal.
    while open {
        let mut chunk = [0; CHUNK_BYTES];
        let Ok(count) = read(&master, &mut chunk) else { break };
        open = write_to_screen(&stdout, &chunk[..count])?;
    }
    answers.drain()?;
    drop(out);
    wait_for_exit(&mut child).await?;
    Ok(parse_report(answers))
}

/// Runs the command in `frames` and forwards its output as it arrives, standard output to `said`.
pub(super) async fn relay_pipes(
    inits: &Arc<InitPool>,
    (frames, way_out): (&[u8], Option<Arc<AllowList>>),
    said: impl io::Write,
) -> io::Result<Option<InitReport>> {
    let SandboxInit { mut child, control, .. } = inits.start_init(Stdio::piped(), Stdio::piped()).await?;
    let (answers, mut out) = control.into_split();
    let _ = out.write_all(frames).await;
    let mut uplink = accept_proxy(&answers, way_out).await?;
    let mut answers = capture_report(answers);
    let listen = async {
        while !answers.has_complete_frame() && answers.is_open() {
            tokio::select! {
                step = answers.read_chunk() => step?,
                () = CallProxy::serve(&mut uplink), if uplink.is_some() => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    let out_to = copy_output(child.stdout.take(), said);
    let err_to = copy_output(child.stderr.take(), io::stderr());
    let (listened, (), ()) = tokio::join!(listen, out_to, err_to);
    listened?;
    drop(out);
    wait_for_exit(&mut child).await?;
    Ok(parse_report(answers))
}

/// The reader of our output may be gone; the command still runs to its end.
async fn copy_output(from: Option<impl AsyncRead + Unpin>, mut to: impl io::Write) {
    let Some(mut from) = from else { return };
    let (mut chunk, mut heard) = (vec![0; CHUNK_BYTES], true);
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        heard = heard && to.write_all(&chunk[..count]).and_then(|()| to.flush()).is_ok();
    }
}

/// The init has reported or is about to end; it does nothing else.
async fn wait_for_exit(child: &mut Child) -> io::Result<()> {
    child.wait().await.map(|_| ())
}

/// Writes data to the screen. An empty read is the end.
fn write_to_screen(mut screen: &io::Stdout, said: &[u8]) -> io::Result<bool> {
    screen.write_all(said)?;
    screen.flush()?;
    Ok(!said.is_empty())
}

#[expect(unsafe_code, reason = "the caller vouches for the descriptor")]
fn register_fd(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor stays open, and stays the same one, for as long as it is held.
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    Ok(registered?)
}

async fn read_from(from: &AsyncFd<OwnedFd>) -> io::Result<Vec<u8>> {
    loop {
        let mut ready = from.readable().await?;
        let mut chunk = vec![0; CHUNK_BYTES];
        match ready.try_io(|from| read_now(from.get_ref(), &mut chunk)) {
            Ok(Ok(count)) => {
                chunk.truncate(count);
                return Ok(chunk);
            }
            // A terminal whose other end is closed.
            Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Ok(Vec::new()),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

/// Reads the available bytes. docket's own terminal must stay blocking, because other processes hold it
/// too, so readiness is checked first.
fn read_now(from: &OwnedFd, chunk: &mut [u8]) -> io::Result<usize> {
    let mut asked = [PollFd::new(from.as_fd(), PollFlags::POLLIN)];
    if poll(&mut asked, PollTimeout::ZERO)? == 0 {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    Ok(read(from, chunk)?)
}

async fn write_to(to: &AsyncFd<OwnedFd>, bytes: &[u8]) -> io::Result<usize> {
    loop {
        let mut ready = to.writable().await?;
        match ready.try_io(|to| Ok(write(to, bytes)?)) {
            Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Ok(bytes.len()),
            Ok(done) => return done,
            Err(_would_block) => {}
        }
    }
}

/// docket's terminal in raw mode, in which every key goes to the command.
struct RawTerminal {
    terminal: OwnedFd,
    before: Termios,
}

impl RawTerminal {
    fn enable_raw_mode(terminal: OwnedFd, before: Termios) -> io::Result<Self> {
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSADRAIN, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // A terminal that is gone needs no restoring.
        let _ = tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn window_size(terminal: BorrowedFd<'_>) -> io::Result<Winsize> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one such struct, which outlives the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(size) }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn set_window_size(terminal: BorrowedFd<'_>, size: &Winsize) -> io::Result<()> {
    // SAFETY: the request reads one such struct, which outlives the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const *size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
