//! The allow list of host paths a command sees, and its environment.
//!
//! Anything not listed here does not exist inside. Evaluated once per sandbox; the same host yields the same
//! list.

use std::{
    env,
    ffi::OsString,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use super::{
    config::{SandboxConfig, WORKSPACE_INSIDE},
    error::SandboxError,
    host::workspace_owner,
    plan::{INNER_HOME, INNER_ID, MountEntry, SandboxBackend, SandboxPlan},
    toolchains::{HostToolchains, TOOL_HOME_VARIABLES, is_mounted},
};

const MIB: u64 = 1024 * 1024;

/// Size-limited folders: builds need space in /tmp, and a full one must not use up the machine's
/// memory.
const TMPFS_MOUNTS: [(&str, u64, u64); 4] = [
    ("/tmp", 512 * MIB, 65_536),
    (INNER_HOME, 256 * MIB, 65_536),
    ("/dev/shm", 64 * MIB, 4_096),
    ("/run", 16 * MIB, 4_096),
];

/// System folders. A link on the host (merged /usr) becomes a link inside.
const SYSTEM_FOLDERS: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// Parts of /etc that are mounted unchanged: linker configuration, certificates (never private keys),
/// tables without secrets.
const ETC_PATHS: [&str; 15] = [
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/debian_version",
];

const DEVICE_NODES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Used when the host's PATH names nothing that exists inside.
const DEFAULT_PATH: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Builds the plan for one backend.
pub(super) fn build_plan(
    config: &SandboxConfig,
    backend: SandboxBackend,
    bubblewrap: Option<PathBuf>,
    landlock: bool,
) -> Result<SandboxPlan, SandboxError> {
    let workspace = resolve_workspace(config, backend)?;
    if backend == SandboxBackend::None {
        return Ok(SandboxPlan {
            backend,
            bubblewrap: None,
            entries: Vec::new(),
            workspace,
            processes: config.limits.processes,
            drop_to: None,
            landlock: false,
            env: build_unsandboxed_environment(config),
        });
    }
    let mut entries = Vec::new();
    add_system_entries(&mut entries);
    add_generated_files(&mut entries);
    for (target, bytes, inodes) in TMPFS_MOUNTS {
        entries.push(MountEntry::Tmpfs { target: target.into(), bytes, inodes });
    }
    entries.push(MountEntry::Link { target: "/var/tmp".into(), points_to: "/tmp".into() });
    entries.extend(
        DEVICE_NODES.iter().map(PathBuf::from).filter(|p| p.exists()).map(|path| MountEntry::Device { path }),
    );
    for (name, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let points_to = format!("/proc/self/fd{to}").into();
        entries.push(MountEntry::Link { target: Path::new("/dev").join(name), points_to });
    }
    let tools = HostToolchains::from_environment(|name| env::var_os(name));
    tools.add_mounts(&mut entries);
    for path in &config.readonly {
        let whole = path.is_absolute() && path.to_str().is_some();
        // A folder that contains the workspace, above all `/`, would expose everything next to it.
        let narrow = |source: &PathBuf| whole && !workspace.starts_with(source);
        let source = fs::canonicalize(path).ok().filter(narrow);
        let source = source.ok_or_else(|| SandboxError::InvalidReadonlyPath { path: path.clone() })?;
        entries.push(MountEntry::ReadOnly { source, target: path.clone() });
    }
    entries.push(MountEntry::Writable { source: workspace, target: WORKSPACE_INSIDE.into() });
    let env = build_environment(config, &tools, &entries);
    Ok(SandboxPlan {
        backend,
        bubblewrap,
        entries,
        workspace: WORKSPACE_INSIDE.into(),
        processes: config.limits.processes,
        drop_to: workspace_owner(),
        landlock,
        env,
    })
}

/// Returns the workspace on the host.
pub(super) fn host_workspace(plan: &SandboxPlan) -> PathBuf {
    let writable = plan.entries.iter().find_map(|entry| match entry {
        MountEntry::Writable { source, target } if *target == plan.workspace => Some(source.clone()),
        _ => None,
    });
    writable.unwrap_or_else(|| plan.workspace.clone())
}

fn resolve_workspace(config: &SandboxConfig, backend: SandboxBackend) -> Result<PathBuf, SandboxError> {
    let refuse = |source| SandboxError::InvalidWorkspace { path: config.workspace.clone(), source };
    let path = fs::canonicalize(&config.workspace).map_err(|source| refuse(Some(source)))?;
    let meta = fs::metadata(&path).map_err(|source| refuse(Some(source)))?;
    if !meta.is_dir() || !config.workspace.is_absolute() || path.to_str().is_none() || path == Path::new("/")
    {
        return Err(refuse(None));
    }
    match workspace_owner() {
        Some((wanted_uid, _)) if backend != SandboxBackend::None && meta.uid() != wanted_uid => {
            Err(SandboxError::WrongWorkspaceOwner { path, found_uid: meta.uid(), wanted_uid })
        }
        Some(_) | None => Ok(path),
    }
}

fn add_system_entries(entries: &mut Vec<MountEntry>) {
    for path in SYSTEM_FOLDERS.iter().map(PathBuf::from) {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => {
                if let Ok(points_to) = fs::read_link(&path) {
                    entries.push(MountEntry::Link { target: path, points_to });
                }
            }
            Ok(_) => entries.push(MountEntry::ReadOnly { source: path.clone(), target: path }),
            Err(_absent) => {}
        }
    }
    for path in ETC_PATHS.iter().map(PathBuf::from) {
        // Resolved here: a link (localtime) could point to a path that does not exist inside.
        if let Ok(source) = fs::canonicalize(&path) {
            entries.push(MountEntry::ReadOnly { source, target: path });
        }
    }
}

fn add_generated_files(entries: &mut Vec<MountEntry>) {
    let files = [
        (
            "/etc/passwd",
            format!("docket:x:{INNER_ID}:{INNER_ID}:docket:{INNER_HOME}:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n"),
        ),
        ("/etc/group", format!("docket:x:{INNER_ID}:\nnogroup:x:65534:\n")),
        ("/etc/hosts", "127.0.0.1 localhost docket\n::1 localhost docket\n".to_owned()),
        ("/etc/hostname", "docket\n".to_owned()),
        ("/etc/host.conf", "multi on\n".to_owned()),
        ("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".to_owned()),
        // git commit works without a configured identity; auto-gc would repack what snapshots read.
        (
            "/etc/gitconfig",
            "[user]\n\tname = docket\n\temail = docket@localhost\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n\
             [init]\n\tdefaultBranch = main\n"
                .to_owned(),
        ),
    ];
    entries.extend(files.into_iter().map(|(target, text)| MountEntry::File { target: target.into(), text }));
}

fn build_environment(
    config: &SandboxConfig,
    tools: &HostToolchains,
    entries: &[MountEntry],
) -> Vec<(OsString, OsString)> {
    let host = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in env::split_paths(&host).chain(DEFAULT_PATH.iter().map(PathBuf::from)) {
        if dir.is_dir() && is_mounted(&dir, entries) && !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    let path = env::join_paths(dirs).unwrap_or_else(|_| DEFAULT_PATH.join(":").into());
    let mut all = base_environment(path, INNER_HOME.into());
    all.push(("TMPDIR".into(), "/tmp".into()));
    all.push(("CARGO_HOME".into(), format!("{INNER_HOME}/.cargo").into()));
    // A git built elsewhere looks for its system configuration elsewhere.
    all.push(("GIT_CONFIG_SYSTEM".into(), "/etc/gitconfig".into()));
    all.push(("RUSTUP_HOME".into(), format!("{INNER_HOME}/.rustup").into()));
    all.push(("CARGO_NET_OFFLINE".into(), "true".into()));
    let roots = [("PYENV_ROOT", ".pyenv", ".pyenv/versions"), ("GOMODCACHE", "go/pkg/mod", "go/pkg/mod")];
    for (name, folder, laid) in roots {
        let is_laid =
            tools.locate_folder(laid).is_some_and(|path| path.is_dir() && is_mounted(&path, entries));
        if let Some(path) = tools.locate_folder(folder).filter(|_| is_laid) {
            all.push((name.into(), path.into()));
        }
    }
    overlay_environment(all, config)
}

fn build_unsandboxed_environment(config: &SandboxConfig) -> Vec<(OsString, OsString)> {
    let path = env::var_os("PATH").unwrap_or_else(|| DEFAULT_PATH.join(":").into());
    let mut all = base_environment(path, env::var_os("HOME").unwrap_or_else(|| "/".into()));
    for name in TOOL_HOME_VARIABLES.into_iter().chain(["TMPDIR"]) {
        all.extend(env::var_os(name).map(|value| (name.into(), value)));
    }
    overlay_environment(all, config)
}

/// A variable given by the caller replaces ours: programs disagree on which of two duplicates counts.
fn overlay_environment(
    mut all: Vec<(OsString, OsString)>,
    config: &SandboxConfig,
) -> Vec<(OsString, OsString)> {
    for (name, value) in &config.env {
        all.retain(|(known, _)| known.as_os_str() != name.as_str());
        all.push((name.into(), value.into()));
    }
    all
}

fn base_environment(path: OsString, home: OsString) -> Vec<(OsString, OsString)> {
    vec![
        ("PATH".into(), path),
        ("HOME".into(), home),
        ("USER".into(), "docket".into()),
        ("LOGNAME".into(), "docket".into()),
        ("SHELL".into(), "/bin/sh".into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("TERM".into(), "dumb".into()),
        ("TZ".into(), "UTC".into()),
        // The files a run leaves are its result, and compiled modules next to sources are not part
        // of it.
        ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
    ]
}
