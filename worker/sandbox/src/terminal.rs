//! A person at a sandboxed command: docket's terminal joined to one of the command's own.
//!
//! The command never holds docket's terminal: it gets the far end of a new one, which controls its session,
//! so that job control, Ctrl-C and the window's size work inside and end there. Invariant: docket's terminal
//! is as it was when [`relay`] is over, however it ends.

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
    inits::{Init, Inits},
    plan::InitReport,
    proxy::Uplink,
    running::{answer_of, read_answer, uplink},
};

/// One read of either side.
const CHUNK_BYTES: usize = 16 * 1024;

/// Typed ahead and not yet taken: a pasted file fits, a flood waits in the kernel.
const TYPED_BYTES_MAX: usize = 64 * 1024;

/// Runs what `frames` order on a terminal of its own. `None` where the init ended without an answer.
pub(super) async fn relay(
    inits: &Arc<Inits>,
    frames: &[u8],
    way_out: Option<Arc<AllowList>>,
) -> io::Result<Option<InitReport>> {
    let (stdin, stdout) = (io::stdin(), io::stdout());
    let settings = tcgetattr(&stdin)?;
    let pair = openpty(&window(stdin.as_fd())?, &settings)?;
    for end in [&pair.master, &pair.slave] {
        fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC))?;
    }
    fcntl(&pair.master, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK))?;
    let Init { mut child, control, .. } =
        inits.start(pair.slave.try_clone()?.into(), pair.slave.into()).await?;
    let (answers, mut out) = control.into_split();
    // An init that dies early breaks this pipe; its missing answer says so.
    let _ = out.write_all(frames).await;
    let mut uplink = uplink(&answers, way_out).await?;
    let mut answers = answer_of(answers);

    let master = registered(pair.master, Interest::READABLE | Interest::WRITABLE)?;
    let keys = registered(stdin.as_fd().try_clone_to_owned()?, Interest::READABLE)?;
    let mut resized = signal(SignalKind::window_change())?;
    let _raw = Raw::enter(stdin.as_fd().try_clone_to_owned()?, settings)?;
    let (mut typed, mut open, mut listens) = (Vec::new(), true, true);
    while !answers.ends_frame() {
        tokio::select! {
            _status = child.wait() => break,
            step = answers.step(), if answers.open() => step?,
            said = read_from(&master), if open => open = show(&stdout, &said?)?,
            key = read_from(&keys), if listens && typed.len() < TYPED_BYTES_MAX => {
                let key = key?;
                listens = !key.is_empty();
                typed.extend(key);
            }
            taken = write_to(&master, &typed), if open && !typed.is_empty() => drop(typed.drain(..taken?)),
            () = Uplink::serve(&mut uplink), if uplink.is_some() => {}
            _ = resized.recv() => resize(master.as_fd(), &window(stdin.as_fd())?)?,
        }
    }
    // All of the call has ended: what it said last is in the terminal already.
    while open {
        let mut chunk = [0; CHUNK_BYTES];
        let Ok(count) = read(&master, &mut chunk) else { break };
        open = show(&stdout, &chunk[..count])?;
    }
    answers.drain()?;
    drop(out);
    reap(&mut child).await?;
    Ok(read_answer(answers))
}

/// Runs what `frames` order; what it says is passed on as it comes, its standard output to `said`.
pub(super) async fn pass(
    inits: &Arc<Inits>,
    (frames, way_out): (&[u8], Option<Arc<AllowList>>),
    said: impl io::Write,
) -> io::Result<Option<InitReport>> {
    let Init { mut child, control, .. } = inits.start(Stdio::piped(), Stdio::piped()).await?;
    let (answers, mut out) = control.into_split();
    let _ = out.write_all(frames).await;
    let mut uplink = uplink(&answers, way_out).await?;
    let mut answers = answer_of(answers);
    let listen = async {
        while !answers.ends_frame() && answers.open() {
            tokio::select! {
                step = answers.step() => step?,
                () = Uplink::serve(&mut uplink), if uplink.is_some() => {}
            }
        }
        Ok::<_, io::Error>(())
    };
    let out_to = pass_on(child.stdout.take(), said);
    let err_to = pass_on(child.stderr.take(), io::stderr());
    let (listened, (), ()) = tokio::join!(listen, out_to, err_to);
    listened?;
    drop(out);
    reap(&mut child).await?;
    Ok(read_answer(answers))
}

/// Who reads our output may be gone: the command goes on to its end all the same.
async fn pass_on(from: Option<impl AsyncRead + Unpin>, mut to: impl io::Write) {
    let Some(mut from) = from else { return };
    let (mut chunk, mut heard) = (vec![0; CHUNK_BYTES], true);
    while let Ok(count @ 1..) = from.read(&mut chunk).await {
        heard = heard && to.write_all(&chunk[..count]).and_then(|()| to.flush()).is_ok();
    }
}

/// The init has answered, or its end is under way: it does nothing more but end.
async fn reap(child: &mut Child) -> io::Result<()> {
    child.wait().await.map(|_| ())
}

/// Puts what came on the screen. An empty read is the end.
fn show(mut screen: &io::Stdout, said: &[u8]) -> io::Result<bool> {
    screen.write_all(said)?;
    screen.flush()?;
    Ok(!said.is_empty())
}

#[expect(unsafe_code, reason = "the caller vouches for the descriptor")]
fn registered(fd: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an owned descriptor is open, and the same one, for as long as it is held.
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
            // A terminal whose other end nobody holds any more.
            Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => return Ok(Vec::new()),
            Ok(Err(error)) => return Err(error),
            Err(_would_block) => {}
        }
    }
}

/// Reads what is there. docket's own terminal must stay one that waits, for others hold it too; so it is
/// asked first.
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

/// docket's terminal while every key is the command's.
struct Raw {
    terminal: OwnedFd,
    before: Termios,
}

impl Raw {
    fn enter(terminal: OwnedFd, before: Termios) -> io::Result<Self> {
        let mut raw = before.clone();
        cfmakeraw(&mut raw);
        tcsetattr(&terminal, SetArg::TCSADRAIN, &raw)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing given back.
        let _ = tcsetattr(&self.terminal, SetArg::TCSADRAIN, &self.before);
    }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn window(terminal: BorrowedFd<'_>) -> io::Result<Winsize> {
    let mut size = Winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: the request writes one such struct, which lives across the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(size) }
}

#[expect(unsafe_code, reason = "the ioctl has no safe wrapper")]
fn resize(terminal: BorrowedFd<'_>, size: &Winsize) -> io::Result<()> {
    // SAFETY: the request reads one such struct, which lives across the call.
    let done = unsafe { libc::ioctl(terminal.as_raw_fd(), libc::TIOCSWINSZ, &raw const *size) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
