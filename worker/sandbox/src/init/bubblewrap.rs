//! The bubblewrap backend: passes the plan as arguments to `bwrap` and runs the same reaper as pid 1 inside.
//!
//! bubblewrap creates the mounts and namespaces; its pid 1 is this program again (`--as-pid-1`), which drops
//! its privileges and continues as in our own backend. bubblewrap starts with an empty environment, and its
//! arguments travel in a memory file, because processes inside can read both through `/proc/1`.
//!
//! When docket is root, sources that only root can reach are first mounted where any user can reach them, in
//! a separate mount namespace; then the process becomes the workspace's owner and starts bubblewrap like any
//! user.

use std::{
    env,
    ffi::{CString, OsStr, OsString},
    fs::{self, File},
    io::{self, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
};

use nix::{
    errno::Errno,
    mount::{MsFlags, mount},
    sched::{CloneFlags, unshare},
    sys::{
        memfd::{MFdFlags, memfd_create},
        prctl,
        signal::Signal,
        wait::{WaitStatus, waitpid},
    },
    unistd::{ForkResult, Gid, Uid, Whence, execve, lseek},
};

use super::{
    super::{
        config::INIT_MARKER,
        plan::{CommandPlan, INNER_ID, MountEntry, SandboxPlan, read_json_frame, write_frame},
    },
    init_context::{InitContext, SetupFailure, failed_at, keep_on_exec},
    namespaces::{become_user, seal_privileges},
    network, reaper, sys,
};

/// Second argument of the init that bubblewrap starts.
pub(super) const INNER_ARGUMENT: &str = "inner";

/// Path of this program inside.
const INNER_PROGRAM: &str = "/.docket-init";

/// Empty host folders that may be covered in our own mount namespace. The first one that contains no
/// source is used.
const STAGING_FOLDERS: [&str; 5] = ["/mnt", "/media", "/srv", "/opt", "/tmp"];

/// Every user can reach paths below these, so they are not staged.
const PUBLIC_FOLDERS: [&str; 8] = ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/dev"];

/// Runs outside: stages sources, starts bubblewrap and waits for it.
pub(super) fn run_outer(mut orders: InitContext) -> i32 {
    let program = match env::current_exe().map_err(failed_at("find the own program")) {
        Ok(program) => program,
        Err(failure) => return fail_setup(&orders, failure),
    };
    let staged = match orders.plan.drop_to {
        Some((uid, gid)) => stage_sources(&mut orders.plan, program)
            .and_then(|program| become_user(Uid::from_raw(uid), Gid::from_raw(gid)).map(|()| program)),
        None => Ok(program),
    };
    let program = match staged {
        Ok(program) => program,
        Err(failure) => return fail_setup(&orders, failure),
    };
    match sys::fork_single_threaded() {
        Err(error) => fail_setup(&orders, failed_at("fork bubblewrap")(error)),
        Ok(ForkResult::Child) => match exec_bubblewrap(&orders, &program) {
            Ok(()) => 1,
            Err(failure) => fail_setup(&orders, failure),
        },
        Ok(ForkResult::Parent { child }) => {
            drop(orders);
            loop {
                match waitpid(child, None) {
                    Ok(WaitStatus::Exited(_, status)) => return status,
                    Err(Errno::EINTR) => {}
                    Ok(_) | Err(_) => return 1,
                }
            }
        }
    }
}

fn fail_setup(orders: &InitContext, failure: SetupFailure) -> i32 {
    InitContext::report_failure(&orders.control, failure);
    1
}

/// Mounts sources that only root can reach below a folder that any user can enter, and updates the
/// plan's sources.
fn stage_sources(plan: &mut SandboxPlan, program: PathBuf) -> Result<PathBuf, SetupFailure> {
    const NONE: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS).map_err(failed_at("unshare for staging"))?;
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)
        .map_err(failed_at("private mounts"))?;
    let mut program = program;
    let mut sources: Vec<&mut PathBuf> = plan
        .entries
        .iter_mut()
        .filter_map(|entry| match entry {
            MountEntry::ReadOnly { source, .. } | MountEntry::Writable { source, .. } => Some(source),
            MountEntry::Tmpfs { .. }
            | MountEntry::Device { .. }
            | MountEntry::File { .. }
            | MountEntry::Link { .. }
            | MountEntry::Empty { .. } => None,
        })
        .chain([&mut program])
        .filter(|source| !PUBLIC_FOLDERS.iter().any(|public| source.starts_with(public)))
        .collect();
    let free =
        |base: &&&str| Path::new(base).is_dir() && !sources.iter().any(|source| source.starts_with(base));
    let base = STAGING_FOLDERS
        .iter()
        .find(free)
        .ok_or_else(|| failed_at("find a folder for staging")(Errno::ENOENT))?;
    let quiet = MsFlags::MS_NOSUID | MsFlags::MS_NODEV;
    mount(Some("tmpfs"), *base, Some("tmpfs"), quiet, Some("mode=0755,size=1m"))
        .map_err(failed_at("stage"))?;
    for (number, source) in sources.iter_mut().enumerate() {
        let target = Path::new(base).join(number.to_string());
        let made = if source.is_dir() { fs::create_dir(&target) } else { File::create(&target).map(|_| ()) };
        made.map_err(failed_at("stage a source"))?;
        mount(Some(source.as_path()), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)
            .map_err(failed_at(format!("stage {}", source.display())))?;
        **source = target;
    }
    Ok(program)
}

fn create_memfd(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MFdFlags::empty())?);
    file.write_all(bytes)?;
    lseek(&file, 0, Whence::SeekSet)?;
    Ok(file.into())
}

fn exec_bubblewrap(orders: &InitContext, program: &Path) -> Result<(), SetupFailure> {
    prctl::set_pdeathsig(Signal::SIGKILL).map_err(failed_at("parent death signal"))?;
    let bubblewrap =
        orders.plan.bubblewrap.as_deref().ok_or_else(|| failed_at("find bubblewrap")(Errno::ENOENT))?;
    let mut files = Vec::new();
    let args = bubblewrap_arguments(&orders.plan, &orders.call, program, &mut files)
        .map_err(failed_at("files for bubblewrap"))?;
    let mut told = Vec::new();
    for part in [serde_json::to_vec(&orders.plan), serde_json::to_vec(&orders.call)] {
        let part = part.map_err(io::Error::from).map_err(failed_at("orders for inside"))?;
        write_frame(&mut told, &part).map_err(failed_at("orders for inside"))?;
    }
    let told = create_memfd("orders", &told).map_err(failed_at("orders for inside"))?;
    let joined: Vec<u8> = args.iter().flat_map(|arg| [arg.as_bytes(), b"\0"].concat()).collect();
    let joined = create_memfd("arguments", &joined).map_err(failed_at("arguments for bubblewrap"))?;
    keep_on_exec(&orders.control).map_err(failed_at("keep the socket"))?;
    keep_on_exec(&orders.stdin).map_err(failed_at("keep stdin"))?;
    let line = [
        bubblewrap.as_os_str().to_owned(),
        "--args".into(),
        fd_argument(&joined),
        "--".into(),
        INNER_PROGRAM.into(),
        INIT_MARKER.into(),
        INNER_ARGUMENT.into(),
        fd_argument(&told),
        fd_argument(&orders.control),
        fd_argument(&orders.stdin),
    ];
    let text = |value: &OsStr| CString::new(value.as_bytes()).map_err(|_| failed_at("text")(Errno::EINVAL));
    let line = line.iter().map(|arg| text(arg)).collect::<Result<Vec<_>, _>>()?;
    let no_environment: [CString; 0] = [];
    match execve(&text(bubblewrap.as_os_str())?, &line, &no_environment) {
        Ok(never) => match never {},
        Err(errno) => Err(failed_at("execute bubblewrap")(errno)),
    }
}

fn fd_argument(fd: &impl AsRawFd) -> OsString {
    fd.as_raw_fd().to_string().into()
}

fn bubblewrap_arguments(
    plan: &SandboxPlan,
    call: &CommandPlan,
    program: &Path,
    files: &mut Vec<OwnedFd>,
) -> io::Result<Vec<OsString>> {
    let mut args: Vec<OsString> = Vec::new();
    let mut say = |words: &[&OsStr]| args.extend(words.iter().map(|word| word.to_os_string()));
    let word = OsStr::new;
    for flag in ["--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"] {
        say(&[word(flag)]);
    }
    let id = OsString::from(INNER_ID.to_string());
    say(&[word("--unshare-cgroup-try"), word("--as-pid-1"), word("--die-with-parent"), word("--clearenv")]);
    say(&[word("--uid"), &id, word("--gid"), &id, word("--hostname"), word("docket")]);
    for entry in &plan.entries {
        match entry {
            MountEntry::ReadOnly { source, target } => {
                say(&[word("--ro-bind"), source.as_ref(), target.as_ref()])
            }
            MountEntry::Writable { source, target } => {
                say(&[word("--bind"), source.as_ref(), target.as_ref()])
            }
            MountEntry::Tmpfs { target, bytes, .. } => {
                let size = OsString::from(bytes.to_string());
                say(&[
                    word("--perms"),
                    word("0755"),
                    word("--size"),
                    &size,
                    word("--tmpfs"),
                    target.as_ref(),
                ]);
            }
            MountEntry::Device { path } => say(&[word("--dev-bind"), path.as_ref(), path.as_ref()]),
            MountEntry::File { target, text } => {
                let file = create_memfd("file", text.as_bytes())?;
                say(&[word("--perms"), word("0644"), word("--file"), &fd_argument(&file), target.as_ref()]);
                files.push(file);
            }
            MountEntry::Link { target, points_to } => {
                say(&[word("--symlink"), points_to.as_ref(), target.as_ref()])
            }
            MountEntry::Empty { target } => {
                let file = create_memfd("empty", b"")?;
                say(&[word("--ro-bind-data"), &fd_argument(&file), target.as_ref()]);
                files.push(file);
            }
        }
        if let MountEntry::Writable { source, target } = entry {
            for path in &call.pinned {
                if exists_without_links(source, path) {
                    say(&[word("--bind"), source.join(path).as_ref(), target.join(path).as_ref()]);
                }
            }
            for path in &call.covered {
                if exists_without_links(source, path) {
                    let file = create_memfd("empty", b"")?;
                    say(&[word("--ro-bind-data"), &fd_argument(&file), target.join(path).as_ref()]);
                    files.push(file);
                }
            }
            for path in &call.protected {
                if exists_without_links(source, path) {
                    say(&[word("--ro-bind"), source.join(path).as_ref(), target.join(path).as_ref()]);
                }
            }
        }
    }
    say(&[word("--ro-bind"), program.as_ref(), word(INNER_PROGRAM), word("--proc"), word("/proc")]);
    say(&[word("--remount-ro"), word("/")]);
    Ok(args)
}

/// Returns whether a path exists below a root and none of its components is a link. bubblewrap resolves
/// links in sources on the host, so one that changed after this check would lead outside. docket therefore
/// never runs two commands at once in a bubblewrap sandbox.
fn exists_without_links(root: &Path, path: &Path) -> bool {
    let mut current = root.to_owned();
    path.iter().all(|part| {
        current.push(part);
        fs::symlink_metadata(&current).is_ok_and(|meta| !meta.is_symlink())
    })
}

/// Runs inside as pid 1.
pub(super) fn run_inner(args: &[OsString]) -> i32 {
    let numbers: Vec<i32> = args.iter().filter_map(|arg| arg.to_str()?.parse().ok()).collect();
    let [told, control, stdin] = numbers[..] else { return 2 };
    let (mut told, control, stdin) = (File::from(adopt_fd(told)), adopt_fd(control).into(), adopt_fd(stdin));
    let mut bytes = Vec::new();
    let read = told.read_to_end(&mut bytes).and_then(|_| {
        let mut rest = &bytes[..];
        Ok((read_json_frame(&mut rest)?, read_json_frame(&mut rest)?))
    });
    drop(told);
    let Ok((plan, call)) = read else { return 2 };
    let mut orders = InitContext { plan, call, stdin, control, proxy_port: None };
    match seal_privileges(None).and_then(|()| network::open_proxy_socket(&mut orders)) {
        Ok(()) => reaper::run_reaper(orders, reaper::ReaperScope::PidNamespace),
        Err(failure) => fail_setup(&orders, failure),
    }
}

#[expect(unsafe_code, reason = "takes over descriptors that the outer init left open for this one")]
fn adopt_fd(fd: i32) -> OwnedFd {
    // SAFETY: the outer init names exactly the descriptors it kept, each once.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
