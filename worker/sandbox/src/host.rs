//! Probes which sandbox layers this host offers, and reports those a sandbox really has.

use std::{fs, io, os::unix::process::CommandExt as _, path::PathBuf, process::Stdio, sync::OnceLock};

use nix::{
    sys::resource::{Resource, getrlimit},
    unistd::geteuid,
};
use serde::{Deserialize, Serialize};

use super::{
    cgroup,
    config::InitProgram,
    init::{FILE_BYTES_MAX, FILES_OPEN_MAX, PROBE_ARGUMENT, ProbeReport, landlock_abi},
    limits::{self, Limits},
    plan::{SandboxBackend, SandboxPlan},
};

/// Uid and gid of commands when docket is root, from a range that distributions leave unused, so nothing on
/// the host belongs to them.
const COMMAND_ID: u32 = 65_525;

/// Used when a container maps fewer ids.
const NOBODY_ID: u32 = 65_534;

const BUBBLEWRAP_PATHS: [&str; 4] =
    ["/usr/bin/bwrap", "/usr/local/bin/bwrap", "/bin/bwrap", "/run/current-system/sw/bin/bwrap"];

/// One layer of the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SandboxLayer {
    /// User namespace.
    Userns,
    /// Mount namespace with its own root.
    Mount,
    /// Process namespace: nothing outlives its call.
    Pid,
    /// Network namespace with loopback only.
    Net,
    /// Separate System V and POSIX message queues.
    Ipc,
    /// Separate host name.
    Uts,
    /// Landlock rules for files, signals and abstract sockets.
    Landlock,
    /// System call filter.
    Seccomp,
    /// Limits per process.
    Rlimits,
    /// Limits on the total of memory and processes.
    Cgroup,
}

impl SandboxLayer {
    /// Returns the name in reports, the same as in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Userns => "userns",
            Self::Mount => "mount",
            Self::Pid => "pid",
            Self::Net => "net",
            Self::Ipc => "ipc",
            Self::Uts => "uts",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
            Self::Rlimits => "rlimits",
            Self::Cgroup => "cgroup",
        }
    }
}

const NAMESPACE_LAYERS: [SandboxLayer; 6] = [
    SandboxLayer::Userns,
    SandboxLayer::Mount,
    SandboxLayer::Pid,
    SandboxLayer::Net,
    SandboxLayer::Ipc,
    SandboxLayer::Uts,
];

/// A layer that is unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MissingLayer {
    /// The layer.
    pub layer: SandboxLayer,
    /// The reason and the remedy.
    pub reason: String,
}

/// The layers of one sandbox, recorded in each run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SandboxReport {
    /// `bubblewrap`, `namespaces` or `none`.
    pub backend: String,
    /// Layers between a command and the host.
    pub active: Vec<SandboxLayer>,
    /// Unavailable layers.
    pub missing: Vec<MissingLayer>,
    /// Limits of all commands together; not enforced without isolation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
}

/// One layer as the host offers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LayerState {
    /// The layer.
    pub layer: SandboxLayer,
    /// Why the layer cannot be used; `None` if it can.
    pub missing_because: Option<String>,
}

/// The sandbox section of `docket doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostReport {
    /// All layers.
    pub layers: Vec<LayerState>,
    /// Path of bubblewrap.
    pub bubblewrap: Option<PathBuf>,
    /// The kernel's Landlock ABI version; 0 without Landlock.
    pub landlock_abi: i64,
    /// Whether docket is root; commands then run as [`workspace_owner`].
    pub root: bool,
    /// Descriptions of limits of this process that are lower than those a sandbox sets. Commands get the
    /// lower ones.
    #[serde(default)]
    pub lower_limits: Vec<String>,
}

impl HostReport {
    pub(super) fn has_layer(&self, layer: SandboxLayer) -> bool {
        self.layers.iter().any(|state| state.layer == layer && state.missing_because.is_none())
    }

    /// Returns the required layers (namespaces and the system call filter) that this host lacks.
    pub fn missing_required_layers(&self) -> Vec<MissingLayer> {
        let needed =
            |layer: &SandboxLayer| NAMESPACE_LAYERS.contains(layer) || *layer == SandboxLayer::Seccomp;
        self.missing_layers().into_iter().filter(|missing| needed(&missing.layer)).collect()
    }

    fn missing_layers(&self) -> Vec<MissingLayer> {
        let missing = |state: &LayerState| {
            Some(MissingLayer { layer: state.layer, reason: state.missing_because.clone()? })
        };
        self.layers.iter().filter_map(missing).collect()
    }

    /// Returns the report of a sandbox with this plan.
    pub(super) fn sandbox_report(&self, plan: &SandboxPlan, limits: Limits) -> SandboxReport {
        let walls = match plan.backend {
            SandboxBackend::Bubblewrap | SandboxBackend::Namespaces => true,
            SandboxBackend::None => false,
        };
        let used = |layer: SandboxLayer| match layer {
            SandboxLayer::Landlock => plan.landlock,
            SandboxLayer::Cgroup => walls && self.has_layer(SandboxLayer::Cgroup),
            SandboxLayer::Userns
            | SandboxLayer::Mount
            | SandboxLayer::Pid
            | SandboxLayer::Net
            | SandboxLayer::Ipc
            | SandboxLayer::Uts
            | SandboxLayer::Seccomp
            | SandboxLayer::Rlimits => walls,
        };
        let (active, rest): (Vec<_>, Vec<_>) = self.layers.iter().partition(|state| used(state.layer));
        let reason = |state: &LayerState| {
            let unused = || "no sandbox was requested".to_owned();
            state.missing_because.clone().unwrap_or_else(unused)
        };
        SandboxReport {
            backend: plan.backend.name().to_owned(),
            active: active.into_iter().map(|state| state.layer).collect(),
            missing: rest.into_iter().map(|s| MissingLayer { layer: s.layer, reason: reason(s) }).collect(),
            limits: walls.then_some(limits),
        }
    }
}

/// Returns the uid and gid that everything in a workspace must have; `None` if docket is not root and uses
/// its own.
pub fn workspace_owner() -> Option<(u32, u32)> {
    static OWNER: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *OWNER.get_or_init(|| {
        let id = |map: &str| if is_id_mapped(map, COMMAND_ID) { COMMAND_ID } else { NOBODY_ID };
        geteuid().is_root().then(|| (id("/proc/self/uid_map"), id("/proc/self/gid_map")))
    })
}

fn is_id_mapped(map: &str, id: u32) -> bool {
    let text = fs::read_to_string(map).unwrap_or_default();
    text.lines().any(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        matches!(numbers[..], [first, _, count] if (first..first + count).contains(&u64::from(id)))
    })
}

/// Finds bubblewrap in one of the fixed locations.
pub(super) fn find_bubblewrap() -> Option<PathBuf> {
    BUBBLEWRAP_PATHS.iter().map(PathBuf::from).find(|path| path.is_file())
}

/// Tries each layer in a separate process. Harmless, takes milliseconds, blocks. The calling program must
/// handle [`sandbox_init_args`](super::sandbox_init_args).
pub fn probe_host() -> HostReport {
    probe_host_with(&InitProgram::default())
}

/// Like [`probe_host`], with another program as the init.
pub(super) fn probe_host_with(init: &InitProgram) -> HostReport {
    let asked = run_probe(init).map_err(|error| format!("the probe could not be run: {error}"));
    let mut layers: Vec<LayerState> = NAMESPACE_LAYERS
        .iter()
        .map(|layer| LayerState { layer: *layer, missing_because: namespace_missing_reason(*layer, &asked) })
        .collect();
    let abi = landlock_abi();
    let landlock_reason = |error: &io::Error| {
        format!(
            "the kernel lacks Landlock, or it is not in the list of security modules (lsm=landlock): {error}"
        )
    };
    layers.push(LayerState {
        layer: SandboxLayer::Landlock,
        missing_because: abi.as_ref().err().map(landlock_reason),
    });
    let seccomp = match &asked {
        Ok(answer) => {
            (answer.seccomp != 0).then(|| format!("the filter was refused: {}", errno_text(answer.seccomp)))
        }
        Err(reason) => Some(reason.clone()),
    };
    layers.push(LayerState { layer: SandboxLayer::Seccomp, missing_because: seccomp });
    layers.push(LayerState { layer: SandboxLayer::Rlimits, missing_because: None });
    layers.push(LayerState { layer: SandboxLayer::Cgroup, missing_because: cgroup::check_available().err() });
    HostReport {
        layers,
        bubblewrap: find_bubblewrap(),
        landlock_abi: abi.unwrap_or(0),
        root: geteuid().is_root(),
        lower_limits: lower_limits(),
    }
}

/// Returns hard limits of this process below those that a sandbox sets for each command. It cannot
/// raise them.
fn lower_limits() -> Vec<String> {
    let processes = limits::default_limits().processes;
    let wanted = [
        (Resource::RLIMIT_NOFILE, FILES_OPEN_MAX, "open files", "ulimit -Hn, LimitNOFILE="),
        (Resource::RLIMIT_NPROC, processes, "processes", "ulimit -Hu, LimitNPROC="),
        (Resource::RLIMIT_FSIZE, FILE_BYTES_MAX, "bytes of one file", "ulimit -Hf, LimitFSIZE="),
    ];
    let lower = wanted.into_iter().filter_map(|(resource, wanted, what, how)| {
        let (_, hard) = getrlimit(resource).ok()?;
        (hard < wanted).then(|| {
            format!("commands are limited to {hard} {what} instead of {wanted}, because this process has no higher limit ({how})")
        })
    });
    lower.collect()
}

fn namespace_missing_reason(layer: SandboxLayer, asked: &Result<ProbeReport, String>) -> Option<String> {
    let answer = match asked {
        Ok(answer) => answer,
        Err(reason) => return Some(reason.clone()),
    };
    let errno =
        answer.namespaces.iter().find(|(name, _)| name == layer.name()).map_or(nix::libc::EIO, |(_, n)| *n);
    (errno != 0).then(|| {
        format!(
            "the kernel refused it ({}): allow user namespaces (user.max_user_namespaces, \
             kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns) and, in a container, \
             a seccomp profile with unshare",
            errno_text(errno)
        )
    })
}

fn errno_text(errno: i32) -> String {
    io::Error::from_raw_os_error(errno).to_string()
}

#[expect(clippy::disallowed_methods, reason = "this crate is one of the two places that may start processes")]
fn run_probe(init: &InitProgram) -> io::Result<ProbeReport> {
    let out = std::process::Command::new(&init.program)
        .args(&init.args)
        .arg(PROBE_ARGUMENT)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        // A Ctrl-C is meant for docket; if it reached the probe, the host would seem to have no
        // isolation.
        .process_group(0)
        .output()?;
    if !out.status.success() {
        return Err(io::Error::other(format!("it ended with {}", out.status)));
    }
    Ok(serde_json::from_slice(&out.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell_init(script: &str) -> InitProgram {
        InitProgram { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] }
    }

    /// As if the user ended `docket up` immediately.
    #[test]
    fn ctrl_c_does_not_reach_the_probe() {
        let tells_group =
            r#"read -r _ _ _ _ group _ < /proc/self/stat; printf '{"namespaces":[],"seccomp":%d}' "$group""#;
        let answer = run_probe(&shell_init(tells_group)).expect("the shell answers");
        assert_ne!(answer.seccomp, nix::unistd::getpgrp().as_raw());
    }

    #[test]
    fn killed_probe_is_reported() {
        let error = run_probe(&shell_init("kill -KILL $$")).expect_err("it answered nothing").to_string();
        assert!(error.contains("SIGKILL"), "{error}");
    }
}
