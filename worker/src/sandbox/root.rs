//! The allow list: what of the host a command sees, and with which environment.
//!
//! Everything not named here does not exist inside. Looked up once per sandbox; the same host gives the same
//! list. Folders that hold credentials beside tools (`~/.cargo`) are never laid whole.

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
    plan::{Backend, Entry, INNER_HOME, INNER_ID, Plan},
};

const MIB: u64 = 1024 * 1024;

/// Folders with a size: builds need room in /tmp, and a full one must not take the machine's memory.
const TMPFS: [(&str, u64, u64); 4] = [
    ("/tmp", 512 * MIB, 65_536),
    (INNER_HOME, 256 * MIB, 65_536),
    ("/dev/shm", 64 * MIB, 4_096),
    ("/run", 16 * MIB, 4_096),
];

/// System folders; where the host has a link (merged /usr) the link is laid.
const SYSTEM: [&str; 7] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"];

/// What of /etc is laid as it is: the linker's, certificates (never private keys), tables without secrets.
const ETC: [&str; 15] = [
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

const DEVICES: [&str; 6] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"];

/// Relative to the home of docket's user. `~/.cargo/bin` without `~/.cargo/credentials.toml`, and so on.
const TOOLCHAINS: [&str; 13] = [
    ".cargo/bin",
    ".pyenv/bin",
    ".pyenv/libexec",
    ".pyenv/plugins",
    ".pyenv/pyenv.d",
    ".pyenv/shims",
    ".pyenv/version",
    ".pyenv/versions",
    ".nvm/versions",
    ".volta/tools",
    "go/bin",
    "go/pkg/mod",
    ".local/share/uv/python",
];

/// Searched when the host's PATH names nothing that exists inside.
const PATH_ALWAYS: [&str; 6] =
    ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];

/// Builds the plan for one backend.
pub(super) fn plan(
    config: &SandboxConfig,
    backend: Backend,
    bubblewrap: Option<PathBuf>,
    landlock: bool,
) -> Result<Plan, SandboxError> {
    let workspace = workspace(config, backend)?;
    if backend == Backend::None {
        return Ok(Plan {
            backend,
            bubblewrap: None,
            entries: Vec::new(),
            workspace,
            processes: config.limits.processes,
            drop_to: None,
            landlock: false,
            env: environment_bare(config),
        });
    }
    let mut entries = Vec::new();
    system(&mut entries);
    made_up(&mut entries);
    for (target, bytes, inodes) in TMPFS {
        entries.push(Entry::Tmpfs { target: target.into(), bytes, inodes });
    }
    entries.push(Entry::Link { target: "/var/tmp".into(), points_to: "/tmp".into() });
    entries
        .extend(DEVICES.iter().map(PathBuf::from).filter(|p| p.exists()).map(|path| Entry::Device { path }));
    for (name, to) in [("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")] {
        let points_to = format!("/proc/self/fd{to}").into();
        entries.push(Entry::Link { target: Path::new("/dev").join(name), points_to });
    }
    let home = env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    let tools: Vec<PathBuf> = home.iter().flat_map(|home| toolchains(home)).collect();
    entries.extend(tools.iter().map(|path| Entry::ReadOnly { source: path.clone(), target: path.clone() }));
    if let Some(home) = &home {
        relocated(home, &mut entries);
    }
    for target in credentials(&entries) {
        entries.push(Entry::Empty { target });
    }
    for path in &config.readonly {
        let whole = path.is_absolute() && path.to_str().is_some();
        // A folder that holds the workspace, `/` first of all, would bring everything beside it in.
        let narrow = |source: &PathBuf| whole && !workspace.starts_with(source);
        let source = fs::canonicalize(path).ok().filter(narrow);
        let source = source.ok_or_else(|| SandboxError::Readonly { path: path.clone() })?;
        entries.push(Entry::ReadOnly { source, target: path.clone() });
    }
    entries.push(Entry::Writable { source: workspace, target: WORKSPACE_INSIDE.into() });
    let env = environment(config, home.as_deref(), &entries);
    Ok(Plan {
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

/// The workspace on the host.
pub(super) fn source_of_workspace(plan: &Plan) -> PathBuf {
    let writable = plan.entries.iter().find_map(|entry| match entry {
        Entry::Writable { source, target } if *target == plan.workspace => Some(source.clone()),
        _ => None,
    });
    writable.unwrap_or_else(|| plan.workspace.clone())
}

fn workspace(config: &SandboxConfig, backend: Backend) -> Result<PathBuf, SandboxError> {
    let refuse = |source| SandboxError::Workspace { path: config.workspace.clone(), source };
    let path = fs::canonicalize(&config.workspace).map_err(|source| refuse(Some(source)))?;
    let meta = fs::metadata(&path).map_err(|source| refuse(Some(source)))?;
    if !meta.is_dir() || !config.workspace.is_absolute() || path.to_str().is_none() || path == Path::new("/")
    {
        return Err(refuse(None));
    }
    match workspace_owner() {
        Some((wanted_uid, _)) if backend != Backend::None && meta.uid() != wanted_uid => {
            Err(SandboxError::WorkspaceOwner { path, found_uid: meta.uid(), wanted_uid })
        }
        Some(_) | None => Ok(path),
    }
}

fn system(entries: &mut Vec<Entry>) {
    for path in SYSTEM.iter().map(PathBuf::from) {
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_symlink() => {
                if let Ok(points_to) = fs::read_link(&path) {
                    entries.push(Entry::Link { target: path, points_to });
                }
            }
            Ok(_) => entries.push(Entry::ReadOnly { source: path.clone(), target: path }),
            Err(_absent) => {}
        }
    }
    for path in ETC.iter().map(PathBuf::from) {
        // Resolved here: a link (localtime) could point to what is not inside.
        if let Ok(source) = fs::canonicalize(&path) {
            entries.push(Entry::ReadOnly { source, target: path });
        }
    }
}

fn made_up(entries: &mut Vec<Entry>) {
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
        // git commit works without anyone's identity; auto-gc would repack what snapshots read.
        (
            "/etc/gitconfig",
            "[user]\n\tname = docket\n\temail = docket@localhost\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n\
             [init]\n\tdefaultBranch = main\n"
                .to_owned(),
        ),
    ];
    entries.extend(files.into_iter().map(|(target, text)| Entry::File { target: target.into(), text }));
}

/// Tool folders that exist and that the command's user may read.
fn toolchains(home: &Path) -> Vec<PathBuf> {
    TOOLCHAINS.iter().map(|name| home.join(name)).filter(|path| readable(path)).collect()
}

/// Files in laid folders that may hold a credential, by where they lie below one: `*` is any one name.
const CREDENTIALS: [(&str, &str); 12] = [
    (".nvm/versions", "node/*/etc/npmrc"),
    (".nvm/versions", "node/*/lib/node_modules/npm/npmrc"),
    (".volta/tools", "image/node/*/etc/npmrc"),
    (".pyenv/versions", "*/pip.conf"),
    (".pyenv/versions", "*/etc/pip.conf"),
    (".cargo/git", "db/*/FETCH_HEAD"),
    (".cargo/git", "db/*/config"),
    ("go/pkg/mod", "cache/vcs/*/config"),
    ("go/pkg/mod", "cache/vcs/*/FETCH_HEAD"),
    (".local/share/uv/python", "*/pip.conf"),
    ("/usr", "local/etc/*"),
    ("/usr", "etc/npmrc"),
];

/// Those of them that this host has, as they are seen inside.
fn credentials(entries: &[Entry]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in entries {
        let Entry::ReadOnly { source, target } = entry else { continue };
        let patterns =
            CREDENTIALS.iter().filter(|(folder, _)| source.ends_with(folder.trim_start_matches('/')));
        for (folder, below) in patterns {
            if folder.starts_with('/') && source != Path::new(folder) {
                continue;
            }
            let mut paths = vec![PathBuf::new()];
            for part in below.split('/') {
                paths = paths.into_iter().flat_map(|path| matching(source, &path, part)).collect();
            }
            let files = paths.into_iter().filter(|path| {
                fs::symlink_metadata(source.join(path)).is_ok_and(|meta| meta.is_file())
                    && path.to_str().is_some()
            });
            found.extend(files.map(|path| target.join(path)));
        }
    }
    found
}

/// What `part` names in a folder.
fn matching(root: &Path, folder: &Path, part: &str) -> Vec<PathBuf> {
    if part != "*" {
        return vec![folder.join(part)];
    }
    let entries = fs::read_dir(root.join(folder)).into_iter().flatten().flatten();
    entries.map(|entry| folder.join(entry.file_name())).collect()
}

/// cargo and rustup must write beside what they read: it is laid into folders of the private home.
const RELOCATED: [&str; 4] = [".cargo/registry", ".cargo/git", ".rustup/toolchains", ".rustup/settings.toml"];

fn relocated(home: &Path, entries: &mut Vec<Entry>) {
    for name in RELOCATED {
        let source = home.join(name);
        if readable(&source) {
            entries.push(Entry::ReadOnly { source, target: Path::new(INNER_HOME).join(name) });
        }
    }
}

fn readable(path: &Path) -> bool {
    let Ok(meta) = fs::symlink_metadata(path) else { return false };
    let others_may = meta.mode() & 0o004 != 0;
    path.to_str().is_some() && !meta.is_symlink() && (workspace_owner().is_none() || others_may)
}

fn exists_inside(path: &Path, entries: &[Entry]) -> bool {
    path.is_dir()
        && entries.iter().any(|entry| match entry {
            Entry::ReadOnly { target, .. } => path.starts_with(target),
            Entry::Link { target, .. } => path == target,
            Entry::Writable { .. }
            | Entry::Tmpfs { .. }
            | Entry::Device { .. }
            | Entry::File { .. }
            | Entry::Empty { .. } => false,
        })
}

fn environment(config: &SandboxConfig, home: Option<&Path>, entries: &[Entry]) -> Vec<(OsString, OsString)> {
    let host = env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<PathBuf> = Vec::new();
    for dir in env::split_paths(&host).chain(PATH_ALWAYS.iter().map(PathBuf::from)) {
        if exists_inside(&dir, entries) && !dirs.contains(&dir) {
            dirs.push(dir);
        }
    }
    let path = env::join_paths(dirs).unwrap_or_else(|_| PATH_ALWAYS.join(":").into());
    let mut all = fixed(path, INNER_HOME.into());
    all.push(("TMPDIR".into(), "/tmp".into()));
    all.push(("CARGO_HOME".into(), format!("{INNER_HOME}/.cargo").into()));
    // A git that was built elsewhere looks for its system configuration elsewhere.
    all.push(("GIT_CONFIG_SYSTEM".into(), "/etc/gitconfig".into()));
    all.push(("RUSTUP_HOME".into(), format!("{INNER_HOME}/.rustup").into()));
    all.push(("CARGO_NET_OFFLINE".into(), "true".into()));
    let roots = [("PYENV_ROOT", ".pyenv", ".pyenv/versions"), ("GOMODCACHE", "go/pkg/mod", "go/pkg/mod")];
    for (name, folder, laid) in roots {
        if let Some(home) = home.filter(|home| exists_inside(&home.join(laid), entries)) {
            all.push((name.into(), home.join(folder).into()));
        }
    }
    overlay(all, config)
}

fn environment_bare(config: &SandboxConfig) -> Vec<(OsString, OsString)> {
    let path = env::var_os("PATH").unwrap_or_else(|| PATH_ALWAYS.join(":").into());
    let mut all = fixed(path, env::var_os("HOME").unwrap_or_else(|| "/".into()));
    for name in ["CARGO_HOME", "RUSTUP_HOME", "PYENV_ROOT", "TMPDIR"] {
        all.extend(env::var_os(name).map(|value| (name.into(), value)));
    }
    overlay(all, config)
}

/// A name given by the caller takes the place of ours: two of one name would be read differently by each program.
fn overlay(mut all: Vec<(OsString, OsString)>, config: &SandboxConfig) -> Vec<(OsString, OsString)> {
    for (name, value) in &config.env {
        all.retain(|(known, _)| known.as_os_str() != name.as_str());
        all.push((name.into(), value.into()));
    }
    all
}

fn fixed(path: OsString, home: OsString) -> Vec<(OsString, OsString)> {
    vec![
        ("PATH".into(), path),
        ("HOME".into(), home),
        ("USER".into(), "docket".into()),
        ("LOGNAME".into(), "docket".into()),
        ("SHELL".into(), "/bin/sh".into()),
        ("LANG".into(), "C.UTF-8".into()),
        ("TERM".into(), "dumb".into()),
        ("TZ".into(), "UTC".into()),
        // What a run leaves behind is its result: compiled modules beside sources are none.
        ("PYTHONDONTWRITEBYTECODE".into(), "1".into()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_in_tool_folders_are_found_where_they_lie() {
        let home = tempfile::tempdir().unwrap();
        let at = |path: &str| home.path().join(path);
        for path in [
            ".nvm/versions/node/v20/etc/npmrc",
            ".pyenv/versions/3.11/pip.conf",
            ".cargo/git/db/x-1/FETCH_HEAD",
        ] {
            fs::create_dir_all(at(path).parent().unwrap()).unwrap();
            fs::write(at(path), "token").unwrap();
        }
        let lay = |source: &str, target: &str| Entry::ReadOnly { source: at(source), target: target.into() };
        let entries =
            [lay(".nvm/versions", "/h/.nvm/versions"), lay(".pyenv/versions", "/p"), lay(".cargo/git", "/c")];
        let want = ["/h/.nvm/versions/node/v20/etc/npmrc", "/p/3.11/pip.conf", "/c/db/x-1/FETCH_HEAD"];
        assert_eq!(credentials(&entries), want.map(PathBuf::from));
    }
}
