//! A PostgreSQL server for tests: `DATABASE_URL`, or a private cluster in a temporary folder.
//!
//! PostgreSQL refuses to run as root, so as root the cluster belongs to an unprivileged user and is
//! run through `setpriv`. If there is neither a URL nor the server's programs, a prominent notice
//! is printed; if `CI` is set, the test fails.

use std::{
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::{Pid, Uid, User, chown},
};

/// Time limit for a server's start or stop.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between checks of a starting server.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Maximum size of the displayed log.
const LOG_BYTES_MAX: usize = 16 * 1024;

/// Users that a cluster may run as when the tests run as root.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// Options of a private server.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions {
    /// Whether a commit waits for the disk, for benchmarks. Without it, data of a killed server survives in
    /// the system's cache.
    pub durable: bool,
    /// Folder for its files; `None` is `/tmp`.
    pub parent_folder: Option<PathBuf>,
    /// Additional arguments of `initdb`.
    pub initdb: &'static [&'static str],
    /// Additional settings, as `name=value`.
    pub settings: &'static [&'static str],
    /// Additional variables of the server's environment.
    pub environment: Vec<(String, String)>,
}

/// A PostgreSQL server.
pub struct PostgresCluster {
    url: String,
    private: Option<PrivateServer>,
}

struct PrivateServer {
    programs: PathBuf,
    folder: tempfile::TempDir,
    user: Option<User>,
    port: u16,
    options: ClusterOptions,
    server: Option<Child>,
}

impl PostgresCluster {
    /// Returns the server to test on, or `None`, with a notice on stderr, if this machine has none.
    /// A private server does not wait for the disk: data of a killed server survives in the
    /// system's cache.
    ///
    /// # Panics
    /// Panics if `CI` is set and no server is available, or if it does not start.
    pub fn start() -> Option<Self> {
        Self::start_or_skip(ClusterOptions::default())
    }

    /// Like [`Self::start`], but a commit waits for the disk, for benchmarks.
    ///
    /// # Panics
    /// See [`Self::start`].
    pub fn start_durable() -> Option<Self> {
        Self::start_or_skip(ClusterOptions { durable: true, ..ClusterOptions::default() })
    }

    /// Starts a private server, whatever `DATABASE_URL` says, so that a test may stop and crash it.
    ///
    /// # Panics
    /// See [`Self::start`].
    pub fn start_private(options: ClusterOptions) -> Option<Self> {
        match find_programs() {
            Some(programs) => {
                Some(Self::create_private(programs, options).expect("a private PostgreSQL cluster starts"))
            }
            None => {
                let said = "no PostgreSQL here: set DATABASE_URL or install the server; its half of the suite did NOT run";
                assert!(std::env::var_os("CI").is_none(), "{said}");
                print_notice(said);
                None
            }
        }
    }

    fn start_or_skip(options: ClusterOptions) -> Option<Self> {
        if let Ok(url) = std::env::var("DATABASE_URL") {
            return Some(Self { url, private: None });
        }
        Self::start_private(options)
    }

    /// Returns the URL of its `postgres` database.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns its port on loopback if the cluster is private.
    pub fn port(&self) -> Option<u16> {
        self.private.as_ref().map(|own| own.port)
    }

    /// Returns the folder of its Unix socket if the cluster is private.
    pub fn socket_folder(&self) -> Option<&Path> {
        self.private.as_ref().map(|own| own.folder.path())
    }

    /// Stops the server at once, as a crash would, and starts it again. Returns `false` if it is not
    /// private.
    ///
    /// # Errors
    /// Returns an error if it does not start again.
    pub fn restart(&mut self) -> Result<bool> {
        let Some(own) = &mut self.private else { return Ok(false) };
        own.stop(Signal::SIGQUIT);
        own.start()?;
        Ok(true)
    }

    /// Stops the server: `SIGINT` in order, ending all sessions; `SIGQUIT` at once. Does nothing if it is
    /// not private.
    pub fn stop(&mut self, how: Signal) {
        if let Some(own) = &mut self.private {
            own.stop(how);
        }
    }

    /// Returns whether the server's main process is running.
    pub fn is_up(&mut self) -> bool {
        match &mut self.private {
            None => true,
            Some(own) => own.server.as_mut().is_some_and(|server| matches!(server.try_wait(), Ok(None))),
        }
    }

    /// Starts a server that was stopped or ended by itself.
    ///
    /// # Errors
    /// Returns an error with the server's log if it does not start.
    pub fn start_stopped(&mut self) -> Result<()> {
        let Some(own) = &mut self.private else { return Ok(()) };
        // If it has already ended by itself, this only reaps it.
        own.stop(Signal::SIGQUIT);
        own.start()
    }

    /// Returns the end of the server's log if it is private.
    pub fn log_tail(&self) -> String {
        self.private.as_ref().map(PrivateServer::log_tail).unwrap_or_default()
    }

    fn create_private(programs: PathBuf, options: ClusterOptions) -> Result<Self> {
        let under = options.parent_folder.clone().unwrap_or_else(|| "/tmp".into());
        let folder = tempfile::Builder::new().prefix("docket-pg-").tempdir_in(under)?;
        let user = if Uid::effective().is_root() { Some(find_unprivileged_user()?) } else { None };
        if let Some(user) = &user {
            chown(folder.path(), Some(user.uid), Some(user.gid))?;
        }
        let port = free_port()?;
        let more = options.initdb;
        let mut own = PrivateServer { programs, folder, user, port, options, server: None };
        let done = own
            .command("initdb")
            .args(["--no-sync", "--auth=trust", "--username=docket", "--encoding=UTF8", "--locale=C", "-D"])
            .arg(own.data_folder())
            .args(more)
            .output()
            .context("initdb")?;
        if !done.status.success() {
            bail!("initdb: {}", String::from_utf8_lossy(&done.stderr));
        }
        own.start()?;
        Ok(Self { url: format!("postgres://docket@127.0.0.1:{port}/postgres"), private: Some(own) })
    }
}

impl PrivateServer {
    fn data_folder(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn command(&self, program: &str) -> Command {
        self.command_with(program, &[])
    }

    /// The same with additional environment variables, which `setpriv` itself does not get: a library
    /// preloaded by a variable would start as another user.
    fn command_with(&self, program: &str, environment: &[(String, String)]) -> Command {
        let program = self.programs.join(program);
        #[expect(clippy::disallowed_methods, reason = "the server under test is a program")]
        let mut command = match &self.user {
            None => {
                let mut command = Command::new(program);
                command.envs(environment.iter().map(|(name, value)| (name.as_str(), value.as_str())));
                command
            }
            Some(user) => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string()])
                    .args(["--clear-groups", "--pdeathsig", "KILL", "env"])
                    .args(environment.iter().map(|(name, value)| format!("{name}={value}")))
                    .arg(program);
                command
            }
        };
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    fn start(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        let socket = self.folder.path().to_string_lossy().into_owned();
        let server = self
            .command_with("postgres", &self.options.environment)
            .arg("-D")
            .arg(self.data_folder())
            .args(["-p", &self.port.to_string(), "-k", &socket, "-c", "listen_addresses=127.0.0.1"])
            .args(["-c", "max_connections=200", "-c", "shared_buffers=64MB"])
            .args(["-c", if self.options.durable { "fsync=on" } else { "fsync=off" }])
            .args(self.options.settings.iter().flat_map(|setting| ["-c", setting]))
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("postgres")?;
        self.server = Some(server);
        let started = Instant::now();
        while !self.is_ready() {
            let ended = match &mut self.server {
                Some(server) => server.try_wait()?.is_some(),
                None => true,
            };
            if ended || started.elapsed() > START_TIMEOUT {
                bail!("the server does not start: {}", self.log_tail());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
        let from = log.ceil_char_boundary(log.len().saturating_sub(LOG_BYTES_MAX));
        log[from..].to_owned()
    }

    fn is_ready(&self) -> bool {
        let port = self.port.to_string();
        let probe = self.command("pg_isready").args(["-q", "-h", "127.0.0.1", "-p", &port]).status();
        probe.is_ok_and(|status| status.success())
    }

    fn stop(&mut self, how: Signal) {
        if let Some(mut server) = self.server.take() {
            if let Ok(pid) = i32::try_from(server.id()) {
                // It may have ended by itself.
                let _ = kill(Pid::from_raw(pid), how);
            }
            let _ = server.wait();
        }
    }
}

impl Drop for PrivateServer {
    fn drop(&mut self) {
        self.stop(Signal::SIGQUIT);
    }
}

#[expect(clippy::print_stderr, reason = "a half of the suite that does not run must be seen")]
pub(crate) fn print_notice(what: &str) {
    eprintln!("docket-tests: {what}");
}

/// Finds the server's programs: in the newest of Debian's folders, or in the path.
fn find_programs() -> Option<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .collect();
    found.sort();
    let newest = found.pop().map(|(_, path)| path);
    let on_path = std::env::var_os("PATH")
        .into_iter()
        .flat_map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    newest
        .into_iter()
        .chain(on_path)
        .find(|folder| folder.join("initdb").is_file() && folder.join("postgres").is_file())
}

pub(crate) fn find_unprivileged_user() -> Result<User> {
    UNPRIVILEGED_USERS
        .iter()
        .find_map(|name| User::from_name(name).ok().flatten())
        .context("no unprivileged user to run PostgreSQL as")
}

pub(crate) fn free_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
