//! Our own backend: all kernel namespaces, a separate root, and a second user namespace as a seal.
//!
//! When docket is root, the mounts are made as root in the first user namespace, so that folders that only
//! root may enter can be mounted; then the process becomes [`workspace_owner`](crate::workspace_owner) and
//! seals itself. Otherwise, a user namespace is created first and grants the rights for the mounts. Either
//! way, the sealed namespace owns none of the other namespaces, so processes inside have no capability over
//! them.

use std::{fs, io};

use nix::{
    sched::{CloneFlags, unshare},
    sys::{
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Gid, Uid, getegid, geteuid, setgroups, sethostname, setresgid, setresuid},
};

use super::{
    super::plan::{INNER_ID, SandboxPlan},
    init_context::{InitContext, SetupFailure, WaitingInit, failed_at},
    mounts, network, reaper, sys,
};

/// Runs as the first process outside: unshares, forks pid 1, waits for it. All layers that are the same for
/// every command are built before the command is known.
pub(super) fn run_outer(waiting: WaitingInit) -> i32 {
    if let Err(failure) = enter_namespaces(&waiting.plan) {
        InitContext::report_failure(&waiting.control, failure);
        return 1;
    }
    match sys::fork_single_threaded() {
        Err(error) => {
            InitContext::report_failure(&waiting.control, failed_at("fork pid 1")(error));
            1
        }
        Ok(ForkResult::Child) => run_as_pid_1(waiting),
        Ok(ForkResult::Parent { child }) => {
            // pid 1 reports by itself; this process only has to outlive the namespace.
            drop(waiting);
            loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, status)) => return status,
                    Err(nix::errno::Errno::EINTR) => {}
                    Ok(_) | Err(_) => return 1,
                }
            }
        }
    }
}

/// Runs pid 1.
fn run_as_pid_1(waiting: WaitingInit) -> i32 {
    if let Err(failure) = build_isolation(&waiting.plan) {
        InitContext::report_failure(&waiting.control, failure);
        return 1;
    }
    // Without a command there is nothing to do or report.
    let Ok(mut orders) = waiting.receive_command() else { return 0 };
    let sealed = mounts::apply_path_protections(&orders.plan, &orders.call)
        .and_then(|()| seal_privileges(orders.plan.drop_to))
        .and_then(|()| network::open_proxy_socket(&mut orders));
    match sealed {
        Ok(()) => reaper::run_reaper(orders, reaper::ReaperScope::PidNamespace),
        Err(failure) => {
            InitContext::report_failure(&orders.control, failure);
            1
        }
    }
}

fn enter_namespaces(plan: &SandboxPlan) -> Result<(), SetupFailure> {
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWCGROUP;
    if plan.drop_to.is_some() {
        return unshare(spaces).map_err(failed_at("unshare"));
    }
    let (uid, gid) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER | spaces).map_err(failed_at("unshare"))?;
    map_ids(uid, gid)
}

fn build_isolation(plan: &SandboxPlan) -> Result<(), SetupFailure> {
    // Set again, because changing the identity clears it.
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed_at("parent death signal"))?;
    mounts::build_root(plan)?;
    sethostname("docket").map_err(failed_at("hostname"))?;
    let socket = sys::open_interface_socket().map_err(failed_at("loopback socket"))?;
    sys::bring_loopback_up(std::os::fd::AsFd::as_fd(&socket)).map_err(failed_at("loopback up"))
}

/// Irrevocably gives up the privileges that built the sandbox: no capability, identity or parent
/// namespace is left.
pub(super) fn seal_privileges(drop_to: Option<(u32, u32)>) -> Result<(), SetupFailure> {
    let (uid, gid) = match drop_to {
        Some((uid, gid)) => {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            become_user(uid, gid)?;
            (uid, gid)
        }
        None => (Uid::from_raw(INNER_ID), Gid::from_raw(INNER_ID)),
    };
    unshare(CloneFlags::CLONE_NEWUSER).map_err(failed_at("seal"))?;
    map_ids(uid, gid)?;
    prctl::set_no_new_privs().map_err(failed_at("no new privileges"))?;
    sys::drop_capabilities().map_err(failed_at("drop capabilities"))?;
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed_at("parent death signal"))?;
    // The command must not read pid 1's memory or environment through /proc.
    prctl::set_dumpable(false).map_err(failed_at("not dumpable"))
}

/// Becomes another user of the host permanently.
pub(super) fn become_user(uid: Uid, gid: Gid) -> Result<(), SetupFailure> {
    setgroups(&[]).map_err(failed_at("drop groups"))?;
    setresgid(gid, gid, gid).map_err(failed_at("change gid"))?;
    setresuid(uid, uid, uid).map_err(failed_at("change uid"))?;
    // Changing the identity made the process undumpable, so root owns its own id maps.
    prctl::set_dumpable(true).map_err(failed_at("dumpable"))
}

/// Maps the single user inside to the one outside, in a new user namespace.
fn map_ids(uid: Uid, gid: Gid) -> Result<(), SetupFailure> {
    let write =
        |name: &str, text: String| -> io::Result<()> { fs::write(format!("/proc/self/{name}"), text) };
    write("setgroups", "deny".to_owned()).map_err(failed_at("deny setgroups"))?;
    write("uid_map", format!("{INNER_ID} {uid} 1")).map_err(failed_at("map uid"))?;
    write("gid_map", format!("{INNER_ID} {gid} 1")).map_err(failed_at("map gid"))
}
