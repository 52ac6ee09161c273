//! The orders of an init: its plan and its command, read from the socket on which it answers.

use std::{
    fs::File,
    io::{self, Write},
    os::{
        fd::{AsFd, OwnedFd},
        unix::net::UnixStream,
    },
};

use nix::{
    fcntl::{FcntlArg, FdFlag, OFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
    unistd::{Whence, dup2_stdin, lseek, pipe2},
};

use super::super::{
    fd_passing,
    plan::{CommandPlan, InitReport, SandboxPlan, StdinSource, read_frame, read_json_frame, write_frame},
};

/// A step of the init that failed.
#[derive(Debug)]
pub(super) struct SetupFailure {
    pub(super) step: String,
    pub(super) errno: i32,
}

/// Names the step at which an error came up.
pub(super) fn failed_at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> SetupFailure {
    move |error| {
        let error: io::Error = error.into();
        SetupFailure { step: step.into(), errno: error.raw_os_error().unwrap_or(nix::libc::EIO) }
    }
}

/// Everything the init was told, and the socket on which it answers.
pub(super) struct InitContext {
    pub(super) plan: SandboxPlan,
    pub(super) call: CommandPlan,
    /// What becomes the command's stdin.
    pub(super) stdin: OwnedFd,
    /// To docket. Its end of file means that docket is gone or wants an end.
    pub(super) control: UnixStream,
    /// Where the way out listens, once it is open.
    pub(super) proxy_port: Option<u16>,
}

/// An init that knows its sandbox and waits for a command: some time may pass until one comes, or none ever does.
pub(super) struct WaitingInit {
    pub(super) plan: SandboxPlan,
    pub(super) control: UnixStream,
    null: OwnedFd,
}

impl WaitingInit {
    /// Reads the plan from the socket at descriptor 0 and moves that socket away from there.
    pub(super) fn read_plan() -> io::Result<Self> {
        let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let plan = read_json_frame(&mut &control)?;
        let null: OwnedFd = File::open("/dev/null")?.into();
        dup2_stdin(&null)?;
        Ok(Self { plan, control, null })
    }

    /// Waits for the command. An error is an end without one.
    pub(super) fn receive_command(self) -> io::Result<InitContext> {
        let Self { plan, control, null } = self;
        let call: CommandPlan = read_json_frame(&mut &control)?;
        let stdin = match call.stdin {
            StdinSource::Empty => null,
            StdinSource::Frame => {
                let bytes = read_frame(&mut &control)?;
                let mut file = File::from(memfd_create("stdin", MFdFlags::MFD_CLOEXEC)?);
                file.write_all(&bytes)?;
                lseek(&file, 0, Whence::SeekSet)?;
                file.into()
            }
            StdinSource::Open => {
                let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
                fd_passing::send_fd(&control, &write)?;
                read
            }
        };
        Ok(InitContext { plan, call, stdin, control, proxy_port: None })
    }
}

impl InitContext {
    /// Answers docket. The first answer counts; a socket that is gone needs none.
    pub(super) fn send_report(control: &UnixStream, report: &InitReport) {
        if let Ok(bytes) = serde_json::to_vec(report) {
            let _ = write_frame(&mut &*control, &bytes);
        }
    }

    pub(super) fn report_failure(control: &UnixStream, failure: SetupFailure) {
        Self::send_report(control, &InitReport::SetupFailed { step: failure.step, errno: failure.errno });
    }
}

/// Lets a descriptor live on through `execve`.
pub(super) fn keep_on_exec(fd: &impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}
