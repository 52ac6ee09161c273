//! Host resources that a hostile command would like to touch, and the check for escapes afterwards.
//!
//! File modes here allow everything to the command's user: the sandbox must keep the command away, never a
//! permission that another host may not have set. Each case has its own fixture, so that an escape identifies
//! its case.

use std::{
    collections::BTreeMap,
    fs::{self, File, Permissions},
    io::Read as _,
    net::{TcpListener, UdpSocket},
    os::{
        fd::AsRawFd as _,
        linux::net::SocketAddrExt as _,
        unix::{
            fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown},
            net::{SocketAddr, UnixDatagram, UnixListener},
            process::CommandExt as _,
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use docket_sandbox::workspace_owner;
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    libc,
    pty::{OpenptyResult, openpty},
};
use tempfile::TempDir;

use super::ipc::HostIpc;

/// Set in this process before `main`: what a docket with a key in its environment could lose.
pub(super) const ENV_SECRET: (&str, &str) = ("DOCKET_HOSTILE_KEY", "canary-of-dockets-own-environment");

/// The kinds of escapes that are visible on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EscapeKind {
    /// Bytes that exist only outside were printed.
    SecretLeaked,
    /// Something outside the workspace was changed, created or linked.
    OutsideChanged,
    /// A listener on the host was reached from inside.
    ListenerReached,
    /// A process of the host was ended, stopped or changed.
    HostProcessChanged,
    /// A process of the call survived it.
    ProcessSurvived,
    /// The workspace contains a set-id file or a device.
    SetIdCreated,
    /// The workspace contains a file owned by the host's root.
    RootOwned,
    /// The command's own output reports that the kernel allowed it.
    ReportedByCommand,
    /// Settings of the host were changed.
    HostSettingsChanged,
}

/// Kernel files with settings of the complete host.
const HOST_SETTINGS: [&str; 7] = [
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/domainname",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/sysrq",
    "/proc/sys/kernel/randomize_va_space",
    "/proc/sys/vm/overcommit_memory",
];

/// Folders of the host in which a command might leave files with the fixture's name.
const LEFTOVER_FOLDERS: [&str; 9] =
    ["/", "/tmp", "/var/tmp", "/dev/shm", "/run", "/etc", "/usr/local/bin", "/usr/lib", "/dev"];

pub(super) struct HostFixture {
    dir: TempDir,
    pub(super) nonce: String,
    secret: String,
    home: TempDir,
    before: BTreeMap<PathBuf, String>,
    settings_before: Vec<Option<String>>,
    left_before: Vec<String>,
    own_binary: (u64, i64),
    limits_before: String,
    tcp4: TcpListener,
    tcp6: Option<TcpListener>,
    udp: UdpSocket,
    streams: Vec<(&'static str, UnixListener)>,
    datagrams: Vec<(&'static str, UnixDatagram)>,
    fifo: File,
    terminal: OpenptyResult,
    terminal_path: PathBuf,
    ipc: HostIpc,
    host_process: Child,
    host_process_before: String,
}

impl HostFixture {
    pub(super) fn new() -> Self {
        let dir = tempfile::Builder::new().prefix("docket-hostile-").tempdir().unwrap();
        make_accessible_to_all(dir.path());
        let nonce: String = dir.path().to_str().unwrap().chars().rev().take(6).collect();
        let nonce = format!("n{nonce}");
        let secret = format!("canary-{nonce}-held");
        let out = dir.path().join("outside");
        fs::create_dir(&out).unwrap();
        for folder in ["workspace", "cache", "scratch", "outside/folder", "outside/hooks"] {
            fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for (name, text) in [
            ("secret", format!("{secret}\n")),
            ("victim", "untouched\n".to_owned()),
            ("folder/secret", format!("{secret}\n")),
            ("config", format!("[core]\n\tx = {secret}\n")),
            ("hooks/planted", format!("{secret}\n")),
        ] {
            fs::write(out.join(name), text).unwrap();
        }
        let fifo_path = out.join("fifo");
        nix::unistd::mkfifo(&fifo_path, nix::sys::stat::Mode::from_bits_truncate(0o666)).unwrap();
        let stream = |path: PathBuf| {
            let listener = UnixListener::bind(&path).unwrap();
            listener.set_nonblocking(true).unwrap();
            make_accessible_to_all(&path);
            listener
        };
        let hidden = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&nonce).unwrap()).unwrap();
        hidden.set_nonblocking(true).unwrap();
        let streams = vec![
            ("unix stream", stream(out.join("stream"))),
            ("unix stream in /tmp", stream(PathBuf::from(format!("/tmp/{nonce}.stream")))),
            ("unix stream in /dev/shm", stream(PathBuf::from(format!("/dev/shm/{nonce}.stream")))),
            ("abstract stream", hidden),
        ];
        let datagram = |socket: UnixDatagram| {
            socket.set_nonblocking(true).unwrap();
            socket
        };
        let hidden = SocketAddr::from_abstract_name(format!("{nonce}.dgram")).unwrap();
        let datagrams = vec![
            ("unix datagram", datagram(UnixDatagram::bind(out.join("dgram")).unwrap())),
            ("abstract datagram", datagram(UnixDatagram::bind_addr(&hidden).unwrap())),
        ];
        for path in list_paths(&out) {
            make_accessible_to_all(&path);
            give_to_workspace_owner(&path);
        }
        let fifo = fs::OpenOptions::new().read(true).write(true).open(&fifo_path).unwrap();
        fcntl(&fifo, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK)).unwrap();
        let home = tempfile::Builder::new()
            .prefix(".docket-hostile-")
            .tempdir_in(std::env::var("HOME").unwrap())
            .unwrap();
        make_accessible_to_all(home.path());
        fs::write(home.path().join("credentials"), &secret).unwrap();
        let tcp4 = TcpListener::bind("127.0.0.1:0").unwrap();
        tcp4.set_nonblocking(true).unwrap();
        // A host without IPv6 has nothing to reach there.
        let tcp6 = TcpListener::bind("[::1]:0").ok();
        if let Some(listener) = &tcp6 {
            listener.set_nonblocking(true).unwrap();
        }
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        udp.set_nonblocking(true).unwrap();
        let terminal = openpty(None, None).unwrap();
        fcntl(&terminal.master, FcntlArg::F_SETFL(OFlag::O_RDWR | OFlag::O_NONBLOCK)).unwrap();
        let terminal_path = fs::read_link(format!("/proc/self/fd/{}", terminal.slave.as_raw_fd())).unwrap();
        make_accessible_to_all(&terminal_path);
        let sleeper = spawn_host_process(&out, &secret);
        let mut world = Self {
            before: describe_tree(&out),
            settings_before: read_host_settings(),
            left_before: Vec::new(),
            own_binary: own_binary_stamp(),
            limits_before: read_process_limits("self"),
            host_process_before: String::new(),
            ipc: HostIpc::new(&nonce, &secret),
            dir,
            nonce,
            secret,
            home,
            tcp4,
            tcp6,
            udp,
            streams,
            datagrams,
            fifo,
            terminal,
            terminal_path,
            host_process: sleeper,
        };
        world.left_before = world.leftover_files();
        world.host_process_before = world.describe_host_process();
        world
    }

    pub(super) fn path_to(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn workspace_path(&self) -> PathBuf {
        self.path_to("workspace")
    }

    /// Replaces placeholders in a command with the names of this fixture.
    pub(super) fn substitute_names(&self, line: &str) -> String {
        let port = |at: std::io::Result<std::net::SocketAddr>| at.unwrap().port().to_string();
        let tcp6 = self.tcp6.as_ref().map_or_else(|| "9".to_owned(), |at| port(at.local_addr()));
        let names = [
            ("{out}", self.path_to("outside").display().to_string()),
            ("{top}", self.dir.path().display().to_string()),
            ("{home}", self.home.path().display().to_string()),
            ("{homename}", self.home.path().file_name().unwrap().to_str().unwrap().to_owned()),
            ("{nonce}", self.nonce.clone()),
            ("{tcp4}", port(self.tcp4.local_addr())),
            ("{tcp6}", tcp6),
            ("{udp}", port(self.udp.local_addr())),
            ("{pid}", self.host_process.id().to_string()),
            ("{pts}", self.terminal_path.display().to_string()),
            ("{shm}", self.ipc.shm.to_string()),
            ("{msg}", self.ipc.queue.to_string()),
            ("{sem}", self.ipc.semaphore.to_string()),
        ];
        names.into_iter().fold(line.to_owned(), |line, (name, value)| line.replace(name, &value))
    }

    /// Returns every detectable escape: in the command's output and on the host.
    pub(super) fn find_escapes(&mut self, said: &[u8]) -> Vec<(EscapeKind, String)> {
        let mut seen = Vec::new();
        let text = String::from_utf8_lossy(said);
        for secret in [self.secret.as_str(), ENV_SECRET.1] {
            if text.contains(secret) {
                seen.push((EscapeKind::SecretLeaked, format!("it printed {secret}")));
            }
        }
        for line in text.lines().filter(|line| line.contains("ESCAPED")) {
            seen.push((EscapeKind::ReportedByCommand, line.to_owned()));
        }
        let now = describe_tree(&self.path_to("outside"));
        for path in now.keys().chain(self.before.keys()) {
            if now.get(path) != self.before.get(path) {
                let change =
                    format!("{}: {:?}, was {:?}", path.display(), now.get(path), self.before.get(path));
                seen.push((EscapeKind::OutsideChanged, change));
            }
        }
        let left = self.leftover_files();
        if left != self.left_before {
            seen.push((EscapeKind::OutsideChanged, format!("left on the host: {left:?}")));
        }
        if own_binary_stamp() != self.own_binary {
            seen.push((EscapeKind::OutsideChanged, "docket's own program was written".to_owned()));
        }
        seen.extend(self.reached_listeners().into_iter().map(|name| (EscapeKind::ListenerReached, name)));
        seen.extend(
            self.ipc
                .changed_objects(&self.secret)
                .into_iter()
                .map(|what| (EscapeKind::HostSettingsChanged, what)),
        );
        if self.describe_host_process() != self.host_process_before {
            let change = format!("{} was {}", self.describe_host_process(), self.host_process_before);
            seen.push((EscapeKind::HostProcessChanged, change));
        }
        for (name, (now, before)) in
            HOST_SETTINGS.iter().zip(read_host_settings().iter().zip(&self.settings_before))
        {
            if now != before {
                seen.push((EscapeKind::HostSettingsChanged, format!("{name} is {now:?}")));
            }
        }
        if read_process_limits("self") != self.limits_before {
            seen.push((EscapeKind::HostSettingsChanged, "docket's own limits were changed".to_owned()));
        }
        let survivors = find_survivors(&self.nonce);
        seen.extend(
            survivors.into_iter().map(|pid| (EscapeKind::ProcessSurvived, format!("process {pid} lives on"))),
        );
        self.check_workspace(&mut seen);
        seen
    }

    fn check_workspace(&self, seen: &mut Vec<(EscapeKind, String)>) {
        for path in list_paths(&self.workspace_path()) {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            let kind = meta.file_type();
            let set_id = kind.is_file() && meta.mode() & (libc::S_ISUID | libc::S_ISGID) != 0;
            if set_id || kind.is_block_device() || kind.is_char_device() {
                seen.push((
                    EscapeKind::SetIdCreated,
                    format!("{} has mode {:o}", path.display(), meta.mode()),
                ));
            }
            if meta.uid() == 0 && workspace_owner().is_some() {
                seen.push((EscapeKind::RootOwned, format!("{} belongs to root", path.display())));
            }
        }
    }

    fn reached_listeners(&mut self) -> Vec<String> {
        let mut heard = Vec::new();
        let mut note = |name: &str, got: bool| heard.extend(got.then(|| format!("{name} heard something")));
        note("tcp4", self.tcp4.accept().is_ok());
        note("tcp6", self.tcp6.as_ref().is_some_and(|listener| listener.accept().is_ok()));
        note("udp", self.udp.recv(&mut [0; 16]).is_ok());
        for (name, listener) in &self.streams {
            note(name, listener.accept().is_ok());
        }
        for (name, socket) in &self.datagrams {
            note(name, socket.recv(&mut [0; 16]).is_ok());
        }
        note("fifo", self.fifo.read(&mut [0; 16]).is_ok_and(|count| count > 0));
        note("terminal", nix::unistd::read(&self.terminal.master, &mut [0; 16]).is_ok_and(|count| count > 0));
        heard
    }

    /// Describes what a command could change of the process: whether it is alive, its state, its scheduling,
    /// its limits.
    fn describe_host_process(&mut self) -> String {
        if let Some(status) = self.host_process.try_wait().unwrap() {
            return format!("ended: {status}");
        }
        let pid = self.host_process.id().to_string();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let rest: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        // A newly started process may not be sleeping yet.
        let state = if matches!(rest.first(), Some(&"T" | &"t")) { "stopped" } else { "alive" };
        let read = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}")).unwrap_or_default();
        let allowed = read("status").lines().find(|l| l.starts_with("Cpus_allowed:")).map(str::to_owned);
        let score = read("oom_score_adj");
        format!("{state} nice {:?} {allowed:?} oom {score} {}", rest.get(16), read_process_limits(&pid))
    }

    fn leftover_files(&self) -> Vec<String> {
        let mut left = Vec::new();
        for folder in LEFTOVER_FOLDERS {
            let entries = fs::read_dir(folder).into_iter().flatten().flatten();
            let names = entries.map(|entry| entry.path().display().to_string());
            left.extend(names.filter(|name| name.contains(&self.nonce)));
        }
        left.sort();
        left
    }
}

impl Drop for HostFixture {
    fn drop(&mut self) {
        for pid in find_survivors(&self.nonce) {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
        }
        let _ = self.host_process.kill();
        let _ = self.host_process.wait();
        for path in self.leftover_files() {
            let _ = fs::remove_file(path);
        }
    }
}

/// Starts a host process of the command's own user, with the secret in every place where a process can have
/// one.
#[expect(clippy::disallowed_methods, reason = "a process of the host that a command must not reach")]
fn spawn_host_process(out: &Path, secret: &str) -> Child {
    let mut command = Command::new("/bin/sleep");
    command.arg0(secret).arg("600").env_clear().env("DOCKET_HOSTILE_HELD", secret).current_dir(out);
    command.stdin(File::open(out.join("secret")).unwrap()).stdout(Stdio::null()).stderr(Stdio::null());
    if let Some((uid, gid)) = workspace_owner() {
        command.uid(uid).gid(gid);
    }
    command.spawn().unwrap()
}

fn own_binary_stamp() -> (u64, i64) {
    let meta = fs::metadata(std::env::current_exe().unwrap()).unwrap();
    (meta.len(), meta.mtime())
}

fn read_process_limits(pid: &str) -> String {
    fs::read_to_string(format!("/proc/{pid}/limits")).unwrap_or_default()
}

fn read_host_settings() -> Vec<Option<String>> {
    HOST_SETTINGS.iter().map(|path| fs::read_to_string(path).ok()).collect()
}

/// Scans for survivors of a case.
const SURVIVOR_SCANS: usize = 4;

/// Returns processes whose environment has the mark given to every call of this fixture.
fn find_survivors(nonce: &str) -> Vec<i32> {
    // A survivor that keeps forking may be between two processes during a single scan.
    (0..SURVIVOR_SCANS).map(|_| scan_survivors(nonce)).find(|found| !found.is_empty()).unwrap_or_default()
}

fn scan_survivors(nonce: &str) -> Vec<i32> {
    let mark = regex::bytes::Regex::new(&format!("DOCKET_HOSTILE_CASE={nonce}")).unwrap();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // If a process's first thread has ended, only its other threads still show the mark.
        let threads = fs::read_dir(entry.path().join("task")).into_iter().flatten().flatten();
        let bears = |path: PathBuf| mark.is_match(&fs::read(path).unwrap_or_default());
        if threads.map(|thread| thread.path().join("environ")).any(bears) {
            found.push(pid);
        }
    }
    found
}

/// Whether `hay` contains `needle`. Uses a crate that is compiled with optimization, because much data is
/// searched.
pub(super) fn contains_bytes(hay: &[u8], needle: &str) -> bool {
    let needle = regex::bytes::Regex::new(&regex::escape(needle)).unwrap();
    needle.is_match(hay)
}

fn make_accessible_to_all(path: &Path) {
    let Ok(meta) = fs::symlink_metadata(path) else { return };
    if !meta.is_symlink() {
        fs::set_permissions(path, Permissions::from_mode(if meta.is_dir() { 0o777 } else { 0o666 })).unwrap();
    }
}

/// Gives a path to the command's user, if that is a different one.
pub(super) fn give_to_workspace_owner(path: &Path) {
    if let Some((uid, gid)) = workspace_owner() {
        chown(path, Some(uid), Some(gid)).unwrap();
    }
}

/// Returns the folder and every path below it; a folder that cannot be listed is included without its
/// contents.
fn list_paths(root: &Path) -> Vec<PathBuf> {
    /// More than any case creates, except those about large numbers, which need no check of each file.
    const PATHS_MAX: usize = 2_000;
    /// Every access walks the complete path.
    const BYTES_MAX: usize = 600;
    let mut found = vec![root.to_owned()];
    let mut next = 0;
    while next < found.len() && found.len() < PATHS_MAX {
        let path = found[next].clone();
        next += 1;
        let short = path.as_os_str().len() < BYTES_MAX;
        if short && fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_dir()) {
            found.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
        }
    }
    found
}

fn describe_tree(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    for path in list_paths(root) {
        let Ok(meta) = fs::symlink_metadata(&path) else { continue };
        let content = if meta.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        let line = format!(
            "{:o} {}:{} {} links {}.{} {:?}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.nlink(),
            meta.mtime(),
            meta.mtime_nsec(),
            String::from_utf8_lossy(&content)
        );
        all.insert(path, line);
    }
    all
}
