//! `DOCKET_HOME`: the directory of one machine's docket data, and which process owns it.
//!
//! A process owns a home by locking `docket.lock` and announces its address in that file. The lock belongs to
//! the open file, so it is released when the process ends, however that happens. Processes that only query do
//! not take the lock, so a query never prevents an owner from starting.

pub(crate) mod handover;
pub(crate) mod worker_registry;

use std::{
    fs::{File, OpenOptions, Permissions},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_worker::secret::Secret;
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

use crate::{
    home::handover::HandoverRequest,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Mode bits that let others create files in a directory.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Mode bits that let others read a directory.
const READABLE_BY_OTHERS: u32 = 0o055;

/// Mode bits of a secret file that give others access.
const OPEN_TO_OTHERS: u32 = 0o077;
/// How long a lock may outlive its owner: the time a child takes from fork to exec on a busy machine.
pub(crate) const LOCK_LINGER_MAX: Duration = Duration::from_secs(2);
/// How often to check whether it is gone.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// Minimum length of a token written by hand.
const TOKEN_CHARS_MIN: usize = 32;

/// A home. Its directory exists and is not writable by others.
#[derive(Debug, Clone)]
pub(crate) struct DocketHome {
    path: PathBuf,
}

/// The owner of a home, as stored in its lock file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct HomeOwner {
    pub(crate) pid: u32,
    /// Version of its build.
    pub(crate) version: String,
    /// Its address; `None` for a short command.
    pub(crate) address: Option<String>,
    /// The serving command, if it has an address.
    #[serde(default)]
    pub(crate) command: Option<OwnerCommand>,
    /// Fingerprint of the store it serves; equal for equal stores.
    #[serde(default)]
    pub(crate) store: Option<String>,
}

/// A command that serves a home.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OwnerCommand {
    /// `docket run`, while its task runs.
    Run,
    /// `docket up`.
    Up,
    /// `docket serve`.
    Serve,
    /// `docket eval`.
    Eval,
    /// `docket demo`.
    Demo,
}

impl std::fmt::Display for OwnerCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Run => "docket run",
            Self::Up => "docket up",
            Self::Serve => "docket serve",
            Self::Eval => "docket eval",
            Self::Demo => "docket demo",
        })
    }
}

/// The ownership of a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HomeOwnership {
    /// Not owned.
    Free,
    /// Owned; the owner has not announced its address yet.
    Starting,
    /// Owned by a process that has announced itself.
    Owned(HomeOwner),
}

impl HomeOwner {
    /// Whether its process has ended although the lock is still held, by children it forked that have not
    /// called exec yet. An owner in another process namespace is not visible here and also looks gone.
    pub(crate) fn is_gone(&self) -> bool {
        let pid = i32::try_from(self.pid).map(Pid::from_raw);
        pid.is_ok_and(|pid| nix::sys::signal::kill(pid, None) == Err(nix::Error::ESRCH)) || self.is_zombie()
    }

    /// Whether the process is a zombie.
    fn is_zombie(&self) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid)).unwrap_or_default();
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        matches!(state, Some('Z' | 'X'))
    }
}

/// The lock, held until this value is dropped or the process ends.
#[derive(Debug)]
pub(crate) struct HomeLock {
    file: File,
}

impl DocketHome {
    /// Opens the home at `flag`, or at its default path. Creates the directory, accessible to its owner only.
    pub(crate) fn open(flag: Option<&Path>) -> CliResult<Self> {
        let path = match flag {
            Some(path) => path.to_owned(),
            None => default_path()?,
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .fail_with(ExitKind::Failed, || {
                format!("cannot create the home {}; use another with --home or DOCKET_HOME", path.display())
            })?;
        let path = std::path::absolute(&path)?;
        let home = Self { path };
        let mode = home.permission_bits()?;
        if mode & WRITABLE_BY_OTHERS != 0 {
            let at = home.path.display();
            let message = format!(
                "the home {at} is writable by other users (mode {mode:04o}), who could place a database or token \
                 there; run `chmod go-w {at}`, or use another home with --home"
            );
            return Err(CliError::new(ExitKind::Refused, message));
        }
        Ok(home)
    }

    /// Warns when starting to serve a home that others can read. Only a warning, because the files with secrets
    /// are not readable by others.
    pub(crate) fn warn_if_readable_by_others(&self) -> CliResult<()> {
        let mode = self.permission_bits()?;
        if mode & READABLE_BY_OTHERS != 0 {
            let at = self.path.display();
            display::print_note(&format!(
                "warning: the home {at} is readable by other users (mode {mode:04o}); run `chmod 700 {at}`"
            ));
        }
        Ok(())
    }

    fn permission_bits(&self) -> CliResult<u32> {
        let found = std::fs::metadata(&self.path).fail_with(ExitKind::Failed, || {
            format!("cannot stat the home {}; use another with --home", self.path.display())
        })?;
        Ok(found.permissions().mode() & 0o7777)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The settings file.
    pub(crate) fn config_file(&self) -> PathBuf {
        self.path.join("docket.toml")
    }

    /// The database of the embedded store.
    pub(crate) fn database_path(&self) -> PathBuf {
        self.path.join("docket.db")
    }

    /// Returns a directory in the home, such as `cache` or `scratch`, creating it if necessary.
    pub(crate) fn ensure_folder(&self, name: &str) -> CliResult<PathBuf> {
        let path = self.path.join(name);
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .fail_with(ExitKind::Failed, || {
                format!("cannot create the directory {}; check its permissions", path.display())
            })?;
        Ok(path)
    }

    /// Returns the token of this home's coordinator, creating it on the first call. If two processes create one
    /// at the same time, one wins and both use its token.
    pub(crate) fn load_or_create_token(&self) -> CliResult<Secret> {
        let path = self.path.join("token");
        let failed = || format!("cannot read or create the token {}; check its permissions", path.display());
        match File::open(&path) {
            Ok(file) => return read_token(file, &path),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(error).fail_with(ExitKind::Failed, failed),
        }
        let fresh = format!("dkt_{}", URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>()));
        let mut file = tempfile::NamedTempFile::new_in(&self.path).fail_with(ExitKind::Failed, failed)?;
        file.write_all(fresh.as_bytes()).fail_with(ExitKind::Failed, failed)?;
        file.as_file().set_permissions(Permissions::from_mode(0o600)).fail_with(ExitKind::Failed, failed)?;
        // Linked into place atomically, or rejected because another process was first.
        match file.persist_noclobber(&path) {
            Ok(_) => {}
            Err(error) if error.error.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error.error).fail_with(ExitKind::Failed, failed),
        }
        read_token(File::open(&path).fail_with(ExitKind::Failed, failed)?, &path)
    }

    /// Takes the lock if it is free. If its holder has died, waits briefly for the lock to be released.
    pub(crate) fn lock(&self) -> CliResult<Option<HomeLock>> {
        let until = Instant::now() + LOCK_LINGER_MAX;
        loop {
            if let Some(lock) = self.try_lock()? {
                return Ok(Some(lock));
            }
            match self.ownership()? {
                HomeOwnership::Owned(owner) if owner.is_gone() && Instant::now() < until => {
                    std::thread::sleep(LOCK_POLL_INTERVAL);
                }
                HomeOwnership::Free if Instant::now() < until => {}
                HomeOwnership::Owned(_) | HomeOwnership::Starting | HomeOwnership::Free => return Ok(None),
            }
        }
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> CliResult<Option<HomeLock>> {
        self.try_lock_in(self.lock_file()?)
    }

    /// Takes the lock of the single `docket up` of a home if it is free. A lock may briefly outlive its owner,
    /// so this retries for that long.
    pub(crate) fn lock_for_up(&self) -> CliResult<Option<HomeLock>> {
        let until = Instant::now() + LOCK_LINGER_MAX;
        loop {
            let lock = self.try_lock_in(open_lock_file(&self.up_lock_path())?)?;
            if lock.is_some() || Instant::now() >= until {
                return Ok(lock);
            }
            std::thread::sleep(LOCK_POLL_INTERVAL);
        }
    }

    fn try_lock_in(&self, mut file: File) -> CliResult<Option<HomeLock>> {
        match fcntl(&file, FcntlArg::F_OFD_SETLK(&file_lock_request(libc::F_WRLCK))) {
            Ok(_) => {}
            Err(nix::Error::EAGAIN | nix::Error::EACCES) => return Ok(None),
            Err(error) => {
                return Err(error).fail_with(ExitKind::Failed, || {
                    format!("cannot lock {}; does the home's file system support locks?", self.path.display())
                });
            }
        }
        // The previous owner's announcement stays until now: a file cleared before its lock is released would
        // look like an owner that is starting.
        file.set_len(0)?;
        file.rewind()?;
        Ok(Some(HomeLock { file }))
    }

    /// Returns the owner of the home without taking the lock.
    pub(crate) fn ownership(&self) -> CliResult<HomeOwnership> {
        Ok(match self.read_lock_text(self.lock_file()?)? {
            None => HomeOwnership::Free,
            Some(text) => serde_json::from_str(&text).map_or(HomeOwnership::Starting, HomeOwnership::Owned),
        })
    }

    /// Returns the open request of this home's `docket up` to serve it.
    pub(crate) fn handover_request(&self) -> CliResult<Option<HandoverRequest>> {
        let said = self.read_lock_text(open_lock_file(&self.up_lock_path())?)?;
        Ok(said.and_then(|text| serde_json::from_str(&text).ok()))
    }

    /// Returns what the holder of a lock wrote to its file; `None` = not locked.
    fn read_lock_text(&self, mut file: File) -> CliResult<Option<String>> {
        let mut asked = file_lock_request(libc::F_WRLCK);
        fcntl(&file, FcntlArg::F_OFD_GETLK(&mut asked))
            .fail_with(ExitKind::Failed, || format!("cannot query the lock of {}", self.path.display()))?;
        if i32::from(asked.l_type) == libc::F_UNLCK {
            return Ok(None);
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(Some(text))
    }

    /// The file whose lock makes a process the owner, and in which the owner announces itself.
    pub(crate) fn lock_path(&self) -> PathBuf {
        self.path.join("docket.lock")
    }

    fn up_lock_path(&self) -> PathBuf {
        self.path.join("up.lock")
    }

    fn lock_file(&self) -> CliResult<File> {
        open_lock_file(&self.lock_path())
    }
}

fn open_lock_file(path: &Path) -> CliResult<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
        .fail_with(ExitKind::Failed, || format!("cannot open {}; check its permissions", path.display()))
}

impl HomeLock {
    /// Announces a short command without an address.
    pub(crate) fn announce_short_command(&mut self) -> CliResult<()> {
        self.announce(None, None, None)
    }

    /// Announces the owner's address, command and store.
    pub(crate) fn announce_service(
        &mut self,
        address: String,
        command: OwnerCommand,
        store: String,
    ) -> CliResult<()> {
        self.announce(Some(address), Some(command), Some(store))
    }

    fn announce(
        &mut self,
        address: Option<String>,
        command: Option<OwnerCommand>,
        store: Option<String>,
    ) -> CliResult<()> {
        let (pid, version) = (std::process::id(), env!("CARGO_PKG_VERSION").to_owned());
        self.write_text(&HomeOwner { pid, version, address, command, store })
    }

    /// Replaces the contents of the lock file.
    pub(crate) fn write_text(&mut self, what: &impl Serialize) -> CliResult<()> {
        let text = serde_json::to_vec(what).expect("no map in it");
        self.file.rewind()?;
        self.file.write_all(&text)?;
        self.file.set_len(text.len() as u64)?;
        Ok(())
    }

    /// Clears the lock file.
    pub(crate) fn clear_text(&mut self) -> std::io::Result<()> {
        self.file.set_len(0)
    }
}

fn file_lock_request(kind: i32) -> libc::flock {
    libc::flock {
        l_type: i16::try_from(kind).expect("lock kinds are 0, 1 and 2"),
        l_whence: i16::try_from(libc::SEEK_SET).expect("0"),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

/// Reads the token from the open file. Rejects a token that others may read, or one that is short enough to
/// guess: docket creates neither.
fn read_token(mut file: File, path: &Path) -> CliResult<Secret> {
    let failed = || format!("cannot read the token {}; check its permissions", path.display());
    let found = file.metadata().fail_with(ExitKind::Failed, failed)?;
    let mode = found.permissions().mode() & 0o7777;
    let at = path.display();
    if mode & OPEN_TO_OTHERS != 0 {
        let message = format!(
            "the token file {at} is accessible to other users (mode {mode:04o}), and it is an administrator token; delete \
             it and restart to create a new one, or run `chmod 600 {at}` if it cannot have been read"
        );
        return Err(CliError::new(ExitKind::Refused, message));
    }
    let mut text = String::new();
    file.read_to_string(&mut text).fail_with(ExitKind::Failed, failed)?;
    if text.trim().len() < TOKEN_CHARS_MIN {
        let message = format!(
            "the token in {at} has fewer than {TOKEN_CHARS_MIN} characters; delete the file and restart to create a new \
             one"
        );
        return Err(CliError::new(ExitKind::Refused, message));
    }
    Secret::new(&text).ok_or_else(|| {
        CliError::new(ExitKind::Refused, format!("the token file {at} is invalid; delete it and restart"))
    })
}

fn default_path() -> CliResult<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|data| data.join("docket"))
        .ok_or_else(|| {
            CliError::new(ExitKind::Usage, "HOME is not set; give a directory with --home or DOCKET_HOME")
        })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicU32, Ordering},
    };

    use super::*;

    #[test]
    fn one_contender_gets_the_lock_and_it_is_free_afterwards() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        for _ in 0..20 {
            let (start, done, won) = (Barrier::new(8), Barrier::new(8), AtomicU32::new(0));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        // Concurrent queries must not prevent anyone from getting the lock.
                        home.ownership().expect("asks");
                        let lock = home.try_lock().expect("tries");
                        won.fetch_add(u32::from(lock.is_some()), Ordering::Relaxed);
                        done.wait();
                    });
                }
            });
            assert_eq!(won.load(Ordering::Relaxed), 1);
            assert_eq!(home.ownership().expect("asks"), HomeOwnership::Free);
        }
    }

    #[test]
    fn owner_announcement_is_visible_until_the_lock_is_released() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(&folder.path().join("new/home"))).expect("opens");
        let mode = std::fs::metadata(home.path()).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        let mut lock = home.try_lock().expect("tries").expect("is free");
        assert_eq!(home.ownership().expect("asks"), HomeOwnership::Starting);
        let mut announce = |address: &str| {
            lock.announce_service(address.to_owned(), OwnerCommand::Up, "a store".to_owned()).expect("says");
        };
        announce("http://127.0.0.1:7117/much-longer-than-the-next");
        announce("http://127.0.0.1:1");
        let HomeOwnership::Owned(owner) = home.ownership().expect("asks") else { panic!("owned") };
        assert_eq!((owner.pid, owner.address.as_deref()), (std::process::id(), Some("http://127.0.0.1:1")));
        drop(lock);
        assert_eq!(home.ownership().expect("asks"), HomeOwnership::Free);
    }

    #[test]
    fn lock_of_dead_owner_is_waited_for() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        let lock = home.try_lock().expect("tries").expect("is free");
        // No process has this id: process ids are far lower.
        let owner = HomeOwner {
            pid: u32::try_from(i32::MAX).expect("fits"),
            version: String::new(),
            address: None,
            command: None,
            store: None,
        };
        (&lock.file).write_all(&serde_json::to_vec(&owner).expect("no map in it")).expect("writes");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| home.lock().expect("tries").is_some());
            std::thread::sleep(LOCK_POLL_INTERVAL * 5);
            drop(lock);
            assert!(waits.join().expect("ends"), "the lock was waited for");
        });
        let mut held = home.lock().expect("tries").expect("is free");
        held.announce_short_command().expect("says");
        assert!(home.lock().expect("tries").is_none(), "a live owner is not waited for");
    }

    #[test]
    fn home_writable_by_others_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let set = |mode| std::fs::set_permissions(folder.path(), Permissions::from_mode(mode)).expect("sets");
        for mode in [0o770, 0o720, 0o702, 0o1777] {
            set(mode);
            let refused = DocketHome::open(Some(folder.path())).expect_err("is refused");
            let text = refused.error.to_string();
            assert!(refused.exit == ExitKind::Refused && text.contains("chmod go-w"), "{mode:o}: {text}");
        }
        for mode in [0o755, 0o750, 0o700] {
            set(mode);
            DocketHome::open(Some(folder.path())).expect("may be read, but not written");
        }
    }

    #[test]
    fn concurrent_token_requests_create_one_token() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        let tokens: std::collections::BTreeSet<String> = std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| home.load_or_create_token())).collect();
            let got = asking.into_iter().map(|thread| thread.join().expect("no panic").expect("a token"));
            got.map(|token| token.expose().to_owned()).collect()
        });
        assert_eq!(tokens.len(), 1);
        let mode = std::fs::metadata(folder.path().join("token")).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn readable_or_short_token_file_is_rejected() {
        let folder = tempfile::tempdir().expect("a folder");
        let home = DocketHome::open(Some(folder.path())).expect("opens");
        let path = folder.path().join("token");
        let by_hand = "x".repeat(TOKEN_CHARS_MIN);
        for (text, mode, says) in [
            (by_hand.clone(), 0o644, "chmod 600"),
            (by_hand.clone(), 0o640, "chmod 600"),
            (by_hand.clone(), 0o602, "chmod 600"),
            (" \n".to_owned(), 0o600, "32 characters"),
            ("x".repeat(TOKEN_CHARS_MIN - 1) + "\n", 0o600, "32 characters"),
        ] {
            std::fs::write(&path, &text).expect("writes");
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).expect("sets");
            let refused = home.load_or_create_token().expect_err("is refused");
            let told = refused.error.to_string();
            assert!(refused.exit == ExitKind::Refused && told.contains(says), "{mode:o}: {told}");
            assert!(!told.contains("xx"), "{told}");
        }
        std::fs::write(&path, by_hand.clone() + "\n").expect("writes");
        assert_eq!(home.load_or_create_token().expect("is good").expose(), by_hand);
    }
}
