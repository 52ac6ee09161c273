//! What the faults befall: coordinators, workers, the server and the disk under the log. Each can be struck, and comes
//! back by itself when its time has come.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{system::Role, wire::CreateTokenRequest};
use sqlx::{Connection as _, PgConnection};

use super::{
    plan::{Draws, Fault, Strike, pick},
    tap::{Seen, Tap},
};
use crate::{
    pg_cluster::{Cluster, ClusterOptions},
    system::{
        Coordinator, LeaseTime, Link, Place, Post, Signal, SmallDisk, Worker, WorkerOptions, children_of,
        fresh_database, send,
    },
};

/// Workers.
const WORKERS: u8 = 4;
/// Runs at once of each.
const SLOTS: u32 = 2;
/// Coordinators on PostgreSQL.
const COORDINATORS: usize = 2;
/// Room for the log and what the server writes beside it, in MiB: it is the ballast that fills it.
const DISK_MIB: u32 = 256;
/// How long a coordinator may take to come back before it is tried again: its store may be away.
const BACK_MAX: Duration = Duration::from_secs(10);
/// Between two attempts to bring something back.
const AGAIN: Duration = Duration::from_millis(500);
/// How long a question to the server may take.
const ASK_MAX: Duration = Duration::from_secs(5);
/// How long run processes are awake before their supervisor is, which ends those that lost their lease.
const RUNS_AHEAD: Duration = Duration::from_millis(300);

/// How somebody is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Condition {
    Up,
    Away(Instant),
    Asleep { until: Instant, runs: Vec<i32>, runs_first: bool },
}

impl Condition {
    fn is_due(&self) -> bool {
        match self {
            Self::Up => false,
            Self::Away(until) | Self::Asleep { until, .. } => *until <= Instant::now(),
        }
    }
}

struct Seat {
    coordinator: Coordinator,
    is: Condition,
}

struct Host {
    worker: Worker,
    is: Condition,
    link: Option<Link>,
    cut_until: Option<Instant>,
    _tap: Tap,
}

/// See the module.
pub struct Stage {
    seats: Vec<Seat>,
    hosts: Vec<Host>,
    seen: Seen,
    full_until: Option<Instant>,
    server_back_at: Option<Instant>,
    server: Option<Cluster>,
    url: Option<String>,
    // Last: what lies on it ends before.
    disk: Option<SmallDisk>,
}

/// The store of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    /// One coordinator with a file.
    Sqlite,
    /// Two on a server.
    Postgres,
}

/// Settings of the server: small files of its own log, so that it needs new room now and then, and the instants of
/// commits, which the checker orders by. A power cut is no fault of this run: kills leave the system's cache whole.
const OPTIONS: ClusterOptions = ClusterOptions {
    durable: true,
    under: None,
    initdb: &["--wal-segsize=1"],
    settings: &["track_commit_timestamp=on", "min_wal_size=2MB", "max_wal_size=8MB"],
    environment: Vec::new(),
};

fn after(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

impl Stage {
    /// Coordinators without workers. `None` where there is no server to be had, which was said.
    ///
    /// # Errors
    /// Something does not start.
    pub async fn set(on: On, lease: LeaseTime, namespaces: bool) -> Result<Option<Self>> {
        let disk = if namespaces { Some(SmallDisk::new(DISK_MIB)?) } else { None };
        let under = disk.as_ref().map(|disk| disk.path().to_owned());
        let mut seats = Vec::new();
        let (mut server, mut url) = (None, None);
        match on {
            On::Sqlite => {
                let coordinator = match &under {
                    Some(under) => Coordinator::start_in(under, Place::Home, lease).await?,
                    None => Coordinator::start(Place::Home, lease).await?,
                };
                seats.push(Seat { coordinator, is: Condition::Up });
            }
            On::Postgres => {
                let options = ClusterOptions { under, ..OPTIONS };
                let Some(cluster) = Cluster::start_own(options) else { return Ok(None) };
                let place = fresh_database(&cluster).await?;
                for _ in 0..COORDINATORS {
                    let coordinator = Coordinator::start(place.clone(), lease).await?;
                    seats.push(Seat { coordinator, is: Condition::Up });
                }
                if let Place::Postgres(at) = place {
                    url = Some(at);
                }
                server = Some(cluster);
            }
        }
        let (seen, hosts) = (Seen::default(), Vec::new());
        Ok(Some(Self { seats, hosts, seen, full_until: None, server_back_at: None, server, url, disk }))
    }

    /// The workers come, each at a tap of its own.
    ///
    /// # Errors
    /// One does not start.
    pub async fn enter(&mut self, draws: &mut Draws) -> Result<()> {
        let request =
            CreateTokenRequest { name: "workers".parse()?, role: Role::Worker, expires_in_ms: None };
        let token = self.coordinator().client().create_token(&request).await?.secret;
        let urls: Vec<String> = self.coordinators().map(|one| one.address().to_owned()).collect();
        for number in 0..WORKERS {
            let link = self.disk.is_some().then(|| Link::new(number)).transpose()?;
            let ip = link.as_ref().map_or(std::net::Ipv4Addr::LOCALHOST.into(), Link::address);
            let tap = Tap::start(ip, urls.clone(), draws.any(), self.seen.clone()).await?;
            let post =
                Post { url: tap.url(), token: token.clone(), namespace: link.as_ref().map(Link::namespace) };
            let options = WorkerOptions { slots: SLOTS, ..WorkerOptions::default() };
            let worker = Worker::start_at(post, options).await?;
            self.hosts.push(Host { worker, is: Condition::Up, link, cut_until: None, _tap: tap });
        }
        Ok(())
    }

    /// The first coordinator.
    pub fn coordinator(&self) -> &Coordinator {
        &self.seats[0].coordinator
    }

    /// All coordinators.
    pub fn coordinators(&self) -> impl Iterator<Item = &Coordinator> {
        self.seats.iter().map(|seat| &seat.coordinator)
    }

    /// What passed the taps.
    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    /// The database, where there is a server.
    pub fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// The ends of everybody's logs.
    pub fn tails(&self) -> String {
        let seats = self.seats.iter().map(|seat| seat.coordinator.tail());
        let hosts = self.hosts.iter().map(|host| host.worker.tail());
        let server = self.server.as_ref().map(Cluster::log);
        seats.chain(hosts).chain(server).collect::<Vec<_>>().join("\n")
    }

    /// Everybody's condition, for messages.
    pub fn conditions(&self) -> String {
        let seats: Vec<_> = self.seats.iter().map(|seat| &seat.is).collect();
        let hosts: Vec<_> = self.hosts.iter().map(|host| (&host.is, host.cut_until)).collect();
        let (full, back) = (self.full_until, self.server_back_at);
        format!("coordinators {seats:?}, workers {hosts:?}, full until {full:?}, server back at {back:?}")
    }

    /// Whether nobody is away, asleep, cut off or without room.
    pub fn is_whole(&self) -> bool {
        self.seats.iter().all(|seat| seat.is == Condition::Up)
            && self.hosts.iter().all(|host| host.is == Condition::Up && host.cut_until.is_none())
            && self.full_until.is_none()
            && self.server_back_at.is_none()
    }

    /// Strikes, if whom it is meant for is there to be struck.
    ///
    /// # Errors
    /// The fault cannot be made: never that it hurt.
    pub async fn strike(&mut self, strike: &Strike) -> Result<bool> {
        let victim = strike.victim;
        match strike.fault {
            Fault::KillRun => {
                let up = self.hosts.iter().filter(|host| host.is == Condition::Up);
                let mut runs: Vec<i32> = up.flat_map(|host| host.worker.run_processes()).collect();
                runs.sort_unstable();
                let struck = runs.get(pick(victim, runs.len()));
                struck.iter().for_each(|pid| send(**pid, Signal::SIGKILL));
                Ok(struck.is_some())
            }
            Fault::KillWorker { away_ms } => {
                let Some(host) = self.host(victim) else { return Ok(false) };
                host.worker.process().kill().await?;
                host.is = Condition::Away(after(away_ms));
                Ok(true)
            }
            Fault::SleepWorker { ms, runs_first } => Ok(self.sleep(victim, ms, Some(runs_first))),
            Fault::SleepSupervisor { ms } => Ok(self.sleep(victim, ms, None)),
            Fault::KillCoordinator { away_ms } => {
                let Some(seat) = self.seat(victim) else { return Ok(false) };
                seat.coordinator.process().kill().await?;
                seat.is = Condition::Away(after(away_ms));
                Ok(true)
            }
            Fault::SleepCoordinator { ms } => {
                let Some(seat) = self.seat(victim) else { return Ok(false) };
                send(seat.coordinator.pid(), Signal::SIGSTOP);
                seat.is = Condition::Asleep { until: after(ms), runs: Vec::new(), runs_first: false };
                Ok(true)
            }
            Fault::CutLink { ms } => {
                let mut uncut: Vec<&mut Host> =
                    self.hosts.iter_mut().filter(|host| host.cut_until.is_none()).collect();
                let at = pick(victim, uncut.len());
                let Some(host) = uncut.get_mut(at) else { return Ok(false) };
                host.link.as_ref().context("a link")?.cut()?;
                host.cut_until = Some(after(ms));
                Ok(true)
            }
            Fault::FillDisk { ms } => {
                if self.full_until.is_some() || !self.server_is_up() {
                    return Ok(false);
                }
                self.disk.as_ref().context("a disk")?.fill()?;
                self.full_until = Some(after(ms));
                Ok(true)
            }
            Fault::EndSessions => Ok(self.end_sessions(victim).await),
            Fault::CrashSession => Ok(self.crash_session(victim).await),
            Fault::RestartFast => Ok(self.stop_server(Signal::SIGINT)),
            Fault::RestartImmediate => Ok(self.stop_server(Signal::SIGQUIT)),
        }
    }

    fn host(&mut self, victim: u64) -> Option<&mut Host> {
        let mut up: Vec<&mut Host> = self.hosts.iter_mut().filter(|host| host.is == Condition::Up).collect();
        let at = pick(victim, up.len());
        (!up.is_empty()).then(|| up.swap_remove(at))
    }

    fn seat(&mut self, victim: u64) -> Option<&mut Seat> {
        let mut up: Vec<&mut Seat> = self.seats.iter_mut().filter(|seat| seat.is == Condition::Up).collect();
        let at = pick(victim, up.len());
        (!up.is_empty()).then(|| up.swap_remove(at))
    }

    fn sleep(&mut self, victim: u64, ms: u64, with_runs: Option<bool>) -> bool {
        let Some(host) = self.host(victim) else { return false };
        // The supervisor first: it starts no other meanwhile.
        send(host.worker.pid(), Signal::SIGSTOP);
        let runs = if with_runs.is_some() { host.worker.run_processes() } else { Vec::new() };
        runs.iter().for_each(|pid| send(*pid, Signal::SIGSTOP));
        host.is = Condition::Asleep { until: after(ms), runs, runs_first: with_runs == Some(true) };
        true
    }

    fn server_is_up(&mut self) -> bool {
        self.server_back_at.is_none() && self.server.as_mut().is_none_or(Cluster::is_up)
    }

    fn stop_server(&mut self, how: Signal) -> bool {
        if self.full_until.is_some() || !self.server_is_up() {
            return false;
        }
        if let Some(server) = &mut self.server {
            tokio::task::block_in_place(|| server.stop(how));
        }
        self.server_back_at = Some(Instant::now());
        true
    }

    /// Asks the server something, as its administrator; `None` where it does not answer.
    async fn ask(&mut self, sql: &'static str) -> Option<Vec<i32>> {
        if !self.server_is_up() {
            return None;
        }
        let url = self.server.as_ref()?.url().to_owned();
        let asked = async {
            let mut admin = PgConnection::connect(&url).await?;
            sqlx::query_scalar::<_, i32>(sql).fetch_all(&mut admin).await
        };
        tokio::time::timeout(ASK_MAX, asked).await.ok()?.ok()
    }

    async fn end_sessions(&mut self, victim: u64) -> bool {
        // All of them, or three. Chosen first: the server is free to ask for the end of any row it looks at.
        let sql = if victim.is_multiple_of(2) {
            "WITH chosen AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid()) SELECT pid FROM chosen WHERE pg_terminate_backend(pid)"
        } else {
            "WITH chosen AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid() ORDER BY pid LIMIT 3) SELECT pid FROM chosen WHERE pg_terminate_backend(pid)"
        };
        self.ask(sql).await.is_some_and(|ended| !ended.is_empty())
    }

    async fn crash_session(&mut self, victim: u64) -> bool {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
                   AND pid <> pg_backend_pid() ORDER BY pid";
        let sessions = self.ask(sql).await.unwrap_or_default();
        let struck = sessions.get(pick(victim, sessions.len()));
        struck.iter().for_each(|pid| send(**pid, Signal::SIGKILL));
        struck.is_some()
    }

    /// Brings back whoever's time has come.
    ///
    /// # Errors
    /// Somebody ended whom nobody had killed.
    pub async fn mend(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.full_until.is_some_and(|until| until <= now) {
            self.disk.as_ref().context("a disk")?.free()?;
            self.full_until = None;
        }
        self.mend_server();
        for host in &mut self.hosts {
            if host.cut_until.is_some_and(|until| until <= now) {
                host.link.as_ref().context("a link")?.mend()?;
                host.cut_until = None;
            }
            mend_host(host).await?;
        }
        for seat in &mut self.seats {
            mend_seat(seat).await?;
        }
        Ok(())
    }

    fn mend_server(&mut self) {
        let Some(server) = &mut self.server else { return };
        if self.server_back_at.is_none() && !server.is_up() {
            // It ended by itself: it had no room to write.
            self.server_back_at = Some(Instant::now());
        }
        // Without room it would not start either; who looks after it makes room first.
        let is_due = self.server_back_at.is_some_and(|at| at <= Instant::now()) && self.full_until.is_none();
        if is_due {
            let back = tokio::task::block_in_place(|| server.start_again());
            self.server_back_at = back.is_err().then(|| Instant::now() + AGAIN);
        }
    }

    /// The workers end in order, and all coordinators begin anew: what is read then was on the disk.
    ///
    /// # Errors
    /// A worker does not end in order, a coordinator does not start.
    pub async fn curtain(&mut self) -> Result<()> {
        ensure!(self.is_whole(), "somebody is not there: {}", self.conditions());
        for host in self.hosts.drain(..) {
            host.worker.drain().await?;
        }
        for seat in &mut self.seats {
            seat.coordinator.restart().await?;
        }
        Ok(())
    }

    /// The last look: `docket verify` and `docket db rebuild` by one coordinator, the others gone.
    ///
    /// # Errors
    /// What they found.
    pub async fn end_and_check(mut self) -> Result<()> {
        let first = self.seats.remove(0);
        self.seats.clear();
        first.coordinator.end_and_check().await
    }
}

async fn mend_host(host: &mut Host) -> Result<()> {
    let is_due = host.is.is_due();
    match &host.is {
        Condition::Up => {
            let ended = host.worker.process().ended();
            ensure!(ended.is_none(), "a worker ended by itself: {ended:?}\n{}", host.worker.tail());
        }
        Condition::Away(_) if is_due => {
            host.worker.restart().await?;
            host.is = Condition::Up;
        }
        Condition::Asleep { runs, runs_first, .. } if is_due => {
            if *runs_first {
                runs.iter().for_each(|pid| wake(*pid, host.worker.pid()));
                tokio::time::sleep(RUNS_AHEAD).await;
                send(host.worker.pid(), Signal::SIGCONT);
            } else {
                send(host.worker.pid(), Signal::SIGCONT);
                tokio::time::sleep(RUNS_AHEAD).await;
                runs.iter().for_each(|pid| wake(*pid, host.worker.pid()));
            }
            host.is = Condition::Up;
        }
        Condition::Away(_) | Condition::Asleep { .. } => {}
    }
    Ok(())
}

/// Wakes a run process, if it is still that supervisor's: its number may be somebody else's by now.
fn wake(pid: i32, supervisor: i32) {
    if children_of(supervisor).contains(&pid) {
        send(pid, Signal::SIGCONT);
    }
}

async fn mend_seat(seat: &mut Seat) -> Result<()> {
    let is_due = seat.is.is_due();
    match seat.is {
        Condition::Up => {
            let ended = seat.coordinator.process().ended();
            ensure!(ended.is_none(), "a coordinator ended by itself: {ended:?}\n{}", seat.coordinator.tail());
        }
        Condition::Away(_) if is_due => {
            let back = tokio::time::timeout(BACK_MAX, seat.coordinator.restart()).await;
            let is_back = matches!(back, Ok(Ok(())));
            seat.is = if is_back { Condition::Up } else { Condition::Away(Instant::now() + AGAIN) };
        }
        Condition::Asleep { .. } if is_due => {
            send(seat.coordinator.pid(), Signal::SIGCONT);
            seat.is = Condition::Up;
        }
        Condition::Away(_) | Condition::Asleep { .. } => {}
    }
    Ok(())
}
