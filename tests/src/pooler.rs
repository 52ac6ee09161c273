//! PgBouncer in transaction mode in front of a test's PostgreSQL server.
//!
//! It has fewer sessions per database than a coordinator has connections, so that transactions share
//! sessions. If the program is not installed, a prominent notice is printed; if `CI` is set, the test fails.

use std::{
    net::TcpStream,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};
use nix::unistd::{Uid, User, chown};

use crate::pg_cluster::{PostgresCluster, find_unprivileged_user, free_port, print_notice};

/// Time limit for its start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Interval between checks of a starting process.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Where distributions install it: outside a user's PATH.
const PGBOUNCER_PATHS: [&str; 3] = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"];

/// A running PgBouncer; see the module.
pub struct PgBouncer {
    program: &'static str,
    folder: tempfile::TempDir,
    user: Option<User>,
    port: u16,
    process: Option<Child>,
}

impl PgBouncer {
    /// Starts PgBouncer in front of `cluster`. Returns `None`, with a notice on stderr, if this
    /// machine has none.
    ///
    /// # Panics
    /// Panics if `CI` is set and it is not installed, or if it does not start.
    pub fn start(cluster: &PostgresCluster) -> Option<Self> {
        let program = PGBOUNCER_PATHS.into_iter().find(|program| std::path::Path::new(program).is_file());
        let (Some(program), Some(server)) = (program, cluster.port()) else {
            let said = "no PgBouncer here, or no PostgreSQL server of the test's own: install pgbouncer, and unset \
                        DATABASE_URL; what goes through a pooler did NOT run";
            assert!(std::env::var_os("CI").is_none(), "{said}");
            print_notice(said);
            return None;
        };
        Some(Self::create(program, server).expect("a pooler starts"))
    }

    fn create(program: &'static str, server: u16) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("docket-pooler-").tempdir_in("/tmp")?;
        // It refuses to run as root.
        let user = if Uid::effective().is_root() { Some(find_unprivileged_user()?) } else { None };
        if let Some(user) = &user {
            chown(folder.path(), Some(user.uid), Some(user.gid))?;
        }
        let port = free_port()?;
        let settings = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=docket\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = 3\nmax_client_conn = 1000\nserver_idle_timeout = 1\n"
        );
        std::fs::write(folder.path().join("pgbouncer.ini"), settings)?;
        let mut pooler = Self { program, folder, user, port, process: None };
        pooler.start_process()?;
        Ok(pooler)
    }

    fn start_process(&mut self) -> Result<()> {
        let log = std::fs::File::options().create(true).append(true).open(self.folder.path().join("log"))?;
        #[expect(clippy::disallowed_methods, reason = "the pooler under test is a program")]
        let mut command = match &self.user {
            None => Command::new(self.program),
            Some(user) => {
                let mut command = Command::new("setpriv");
                command
                    .args(["--reuid", &user.uid.to_string(), "--regid", &user.gid.to_string()])
                    .args(["--clear-groups", "--pdeathsig", "KILL"])
                    .arg(self.program);
                command
            }
        };
        command.arg(self.folder.path().join("pgbouncer.ini")).current_dir(self.folder.path());
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.process = Some(command.spawn().context("pgbouncer")?);
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let ended = match &mut self.process {
                Some(process) => process.try_wait()?.is_some(),
                None => true,
            };
            if ended || started.elapsed() > START_TIMEOUT {
                let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
                bail!("the pooler does not start: {log}");
            }
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(())
    }

    /// Returns the URL of the server's `postgres` database through it, as docket takes it.
    pub fn url(&self) -> String {
        format!("{}?pooler=transaction", self.unmarked_url())
    }

    /// Like [`Self::url`], without the marker for a pooler.
    pub fn unmarked_url(&self) -> String {
        format!("postgres://docket@127.0.0.1:{}/postgres", self.port)
    }

    /// Kills it with all its connections, and starts it again.
    ///
    /// # Errors
    /// Returns an error if it does not start again.
    pub fn restart(&mut self) -> Result<()> {
        self.kill();
        self.start_process()
    }

    fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        self.kill();
    }
}
