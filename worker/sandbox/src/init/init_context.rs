//! An init's plan and command, read from the socket over which it also reports.

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

/// A failed step of the init.
#[derive(Debug)]
pub(super) struct SetupFailure {
    pub(super) step: String,
    pub(super) errno: i32,
}

/// Names the step that an error comes from.
pub(super) fn failed_at<E: Into<io::Error>>(step: impl Into<String>) -> impl FnOnce(E) -> SetupFailure {
    move |error| {
        let error: io::Error = error.into();
        SetupFailure { step: step.into(), errno: error.raw_os_error().unwrap_or(nix::libc::EIO) }
    }
}

/// Everything the init received, and the socket over which it reports.
pub(super) struct InitContext {
    pub(super) plan: SandboxPlan,
    pub(super) call: CommandPlan,
    /// The command's stdin.
    pub(super) stdin: OwnedFd,
    /// Socket to docket. Its end of file means that docket is gone or wants the command to end.
    pub(super) control: UnixStream,
    /// The port of the proxy, once it is open.
    pub(super) proxy_port: Option<u16>,
}

/// An init that knows its sandbox and waits for a command. A command may come later, or never.
pub(super) struct WaitingInit {
    pub(super) plan: SandboxPlan,
    pub(super) control: UnixStream,
    null: OwnedFd,
}

impl WaitingInit {
    /// Reads the plan from the socket at descriptor 0 and moves that socket to another descriptor.
    pub(super) fn read_plan() -> io::Result<Self> {
        let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
        let plan = read_json_frame(&mut &control)?;
        let null: OwnedFd = File::open("/dev/null")?.into();
        dup2_stdin(&null)?;
        Ok(Self { plan, control, null })
    }

    /// Waits for the command. An error means the socket ended without one.
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
    /// Sends the report to docket. Only the first report counts; a closed socket needs none.
    pub(super) fn send_report(control: &UnixStream, report: &InitReport) {
        if let Ok(bytes) = serde_json::to_vec(report) {
            let _ = write_frame(&mut &*control, &bytes);
        }
    }

    pub(super) fn report_failure(control: &UnixStream, failure: SetupFailure) {
        Self::send_report(control, &InitReport::SetupFailed { step: failure.step, errno: failure.errno });
    }
}

/// Keeps a descriptor open across `execve`.
pub(super) fn keep_on_exec(fd: &impl AsFd) -> io::Result<()> {
    fcntl(fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    Ok(())
}
