//! pid 2: the forked child before it becomes the command. Enters the working folder, applies the last
//! layers and executes; never returns.

use std::{
    convert::Infallible,
    env,
    ffi::{CString, OsStr, OsString},
    os::{
        fd::AsFd,
        unix::ffi::{OsStrExt, OsStringExt},
    },
    path::Path,
};

use nix::{
    errno::Errno,
    libc,
    sys::signal::{SigHandler, SigSet, Signal, signal},
    unistd::{chdir, dup2_stdin, execve, setsid},
};

use super::{
    super::plan::{InitReport, SandboxBackend, SandboxPlan},
    confine,
    init_context::{InitContext, SetupFailure, failed_at},
    network, sys,
};

/// The status a shell would give for a command that could not be started; docket reads the report instead.
const NOT_STARTED_STATUS: i32 = 127;

/// Becomes the command.
pub(super) fn become_command(orders: &InitContext) -> ! {
    let report = match prepare_process(orders) {
        Ok(PrepareOutcome::Ready) => match exec_command(orders) {
            Ok(never) => match never {},
            Err(errno) => InitReport::ExecFailed { errno: errno as i32 },
        },
        Ok(PrepareOutcome::BadCwd) => InitReport::BadCwd,
        Err(failure) => InitReport::SetupFailed { step: failure.step, errno: failure.errno },
    };
    InitContext::send_report(&orders.control, &report);
    std::process::exit(NOT_STARTED_STATUS)
}

enum PrepareOutcome {
    Ready,
    BadCwd,
}

fn prepare_process(orders: &InitContext) -> Result<PrepareOutcome, SetupFailure> {
    let plan = &orders.plan;
    setsid().map_err(failed_at("new session"))?;
    if orders.call.terminal {
        dup2_stdin(std::io::stdout().as_fd()).map_err(failed_at("stdin"))?;
        sys::set_controlling_terminal(std::io::stdin().as_fd()).map_err(failed_at("controlling terminal"))?;
    } else {
        dup2_stdin(orders.stdin.as_fd()).map_err(failed_at("stdin"))?;
    }
    restore_signals()?;
    confine::apply_rlimits(plan.backend, plan.processes).map_err(failed_at("resource limits"))?;
    if plan.landlock {
        confine::apply_landlock(plan)?;
    }
    // Runs as the command's own user and behind Landlock, so a link in the path opens nothing that is
    // closed to the command.
    if !enter_working_folder(plan, &orders.call.cwd) {
        return Ok(PrepareOutcome::BadCwd);
    }
    sys::close_on_exec_from(3).map_err(failed_at("close descriptors"))?;
    match plan.backend {
        SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => confine::apply_seccomp()?,
        SandboxBackend::None => {}
    }
    Ok(PrepareOutcome::Ready)
}

fn restore_signals() -> Result<(), SetupFailure> {
    // Rust ignores SIGPIPE and the reaper blocks SIGCHLD; the command would inherit both.
    restore_sigpipe().map_err(failed_at("restore SIGPIPE"))?;
    SigSet::all().thread_unblock().map_err(failed_at("unblock signals"))
}

#[expect(unsafe_code, reason = "setting the default action installs no handler")]
fn restore_sigpipe() -> nix::Result<()> {
    // SAFETY: the default action runs no code of ours.
    unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) }.map(|_| ())
}

fn enter_working_folder(plan: &SandboxPlan, cwd: &Path) -> bool {
    let entered = chdir(&plan.workspace).is_ok() && (cwd.as_os_str().is_empty() || chdir(cwd).is_ok());
    entered && env::current_dir().is_ok_and(|real| real.starts_with(&plan.workspace))
}

fn exec_command(orders: &InitContext) -> Result<Infallible, Errno> {
    let plan = &orders.plan;
    let text = |value: &OsStr| CString::new(value.as_bytes()).map_err(|_| Errno::EINVAL);
    let argv = orders.call.argv.iter().map(|arg| text(arg)).collect::<Result<Vec<_>, _>>()?;
    let mut env: Vec<CString> = Vec::new();
    let own = &orders.call.env.0;
    let given = network::command_environment(&plan.env, orders);
    let given = given.iter().filter(|(name, _)| name.to_str().is_none_or(|name| !own.contains_key(name)));
    let given = given.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    for (name, value) in given.chain(own.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()))) {
        env.push(text(&OsString::from_vec([name, b"=", value].concat()))?);
    }
    let program = orders.call.argv.first().ok_or(Errno::EINVAL)?;
    if program.as_bytes().contains(&b'/') {
        return execve(&text(program)?, &argv, &env);
    }
    let path = plan.env.iter().rev().find(|(name, _)| name == "PATH").map(|(_, value)| value.clone());
    let mut last = Errno::ENOENT;
    for dir in env::split_paths(&path.unwrap_or_default()) {
        match execve(&text(dir.join(program).as_os_str())?, &argv, &env) {
            Ok(never) => match never {},
            Err(Errno::ENOENT | Errno::ENOTDIR) => {}
            Err(errno) => last = errno,
        }
    }
    Err(if last as i32 == libc::ENOENT { Errno::ENOENT } else { last })
}
