//! The system under faults: coordinators, workers, the database server and the disk under the log. Each can
//! be hit by a fault, and recovers by itself after the fault's duration.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{api::CreateTokenRequest, system::TokenRole};
use sqlx::{Connection as _, PgConnection};

use super::{
    fault_plan::{ChaosFault, PlannedFault, SeededRandom, choose_index},
    recording_proxy::{ProxyRecording, RecordingProxy},
};
use crate::{
    pg_cluster::{ClusterOptions, PostgresCluster},
    system::{
        CoordinatorProcess, LeaseDuration, NetworkLink, Signal, SmallDisk, StoreLocation, WorkerConnection,
        WorkerOptions, WorkerProcess, child_pids, fresh_database, send_signal,
    },
};

/// Number of workers.
const WORKERS: u8 = 4;
/// Concurrent runs per worker.
const SLOTS: u32 = 2;
/// Number of coordinators on PostgreSQL.
const COORDINATORS: usize = 2;
/// Space for the log and the server's other files, in MiB. FillDisk takes up the rest.
const DISK_MIB: u32 = 256;
/// Time limit for a coordinator's restart before it is tried again: its store may be down.
const RESTART_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause between two attempts to bring a process back.
const RESTART_RETRY_DELAY: Duration = Duration::from_millis(500);
/// Time limit for a query to the server.
const QUERY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long run processes run before their supervisor resumes and ends those that lost their lease.
const RUN_RESUME_LEAD: Duration = Duration::from_millis(300);

/// The condition of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum NodeCondition {
    Up,
    Down(Instant),
    Suspended { until: Instant, runs: Vec<i32>, runs_first: bool },
}

impl NodeCondition {
    fn is_due(&self) -> bool {
        match self {
            Self::Up => false,
            Self::Down(until) | Self::Suspended { until, .. } => *until <= Instant::now(),
        }
    }
}

struct CoordinatorNode {
    coordinator: CoordinatorProcess,
    condition: NodeCondition,
}

struct WorkerNode {
    worker: WorkerProcess,
    condition: NodeCondition,
    link: Option<NetworkLink>,
    cut_until: Option<Instant>,
    _tap: RecordingProxy,
}

/// The cluster under test; see the module.
pub struct ChaosCluster {
    coordinator_nodes: Vec<CoordinatorNode>,
    worker_nodes: Vec<WorkerNode>,
    recording: ProxyRecording,
    full_until: Option<Instant>,
    server_back_at: Option<Instant>,
    server: Option<PostgresCluster>,
    url: Option<String>,
    // Last field: processes that use it are dropped first.
    disk: Option<SmallDisk>,
}

/// The store of the chaos run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChaosStore {
    /// One coordinator with a file.
    Sqlite,
    /// Two coordinators on a server.
    Postgres,
}

/// Server settings: small WAL files, so that the server regularly needs new space, and commit timestamps,
/// which the checker orders by. A power failure is not among the faults, since kills leave the system's cache
/// intact.
const CLUSTER_OPTIONS: ClusterOptions = ClusterOptions {
    durable: true,
    parent_folder: None,
    initdb: &["--wal-segsize=1"],
    settings: &["track_commit_timestamp=on", "min_wal_size=2MB", "max_wal_size=8MB"],
    environment: Vec::new(),
};

fn instant_after(ms: u64) -> Instant {
    Instant::now() + Duration::from_millis(ms)
}

impl ChaosCluster {
    /// Starts coordinators without workers. Returns `None`, with a notice, if no server is
    /// available.
    ///
    /// # Errors
    /// Returns an error if a process does not start.
    pub async fn start(on: ChaosStore, lease: LeaseDuration, namespaces: bool) -> Result<Option<Self>> {
        let disk = if namespaces { Some(SmallDisk::new(DISK_MIB)?) } else { None };
        let under = disk.as_ref().map(|disk| disk.path().to_owned());
        let mut seats = Vec::new();
        let (mut server, mut url) = (None, None);
        match on {
            ChaosStore::Sqlite => {
                let coordinator = match &under {
                    Some(under) => {
                        CoordinatorProcess::start_in(under, StoreLocation::HomeFolder, lease).await?
                    }
                    None => CoordinatorProcess::start(StoreLocation::HomeFolder, lease).await?,
                };
                seats.push(CoordinatorNode { coordinator, condition: NodeCondition::Up });
            }
            ChaosStore::Postgres => {
                let options = ClusterOptions { parent_folder: under, ..CLUSTER_OPTIONS };
                let Some(cluster) = PostgresCluster::start_private(options) else { return Ok(None) };
                let place = fresh_database(&cluster).await?;
                for _ in 0..COORDINATORS {
                    let coordinator = CoordinatorProcess::start(place.clone(), lease).await?;
                    seats.push(CoordinatorNode { coordinator, condition: NodeCondition::Up });
                }
                if let StoreLocation::Postgres(at) = place {
                    url = Some(at);
                }
                server = Some(cluster);
            }
        }
        let (seen, hosts) = (ProxyRecording::default(), Vec::new());
        Ok(Some(Self {
            coordinator_nodes: seats,
            worker_nodes: hosts,
            recording: seen,
            full_until: None,
            server_back_at: None,
            server,
            url,
            disk,
        }))
    }

    /// Starts the workers, each behind its own recording proxy.
    ///
    /// # Errors
    /// Returns an error if one does not start.
    pub async fn start_workers(&mut self, draws: &mut SeededRandom) -> Result<()> {
        let request =
            CreateTokenRequest { name: "workers".parse()?, role: TokenRole::Worker, expires_in_ms: None };
        let token = self.coordinator().client().create_token(&request).await?.secret;
        let urls: Vec<String> = self.coordinators().map(|one| one.address().to_owned()).collect();
        for number in 0..WORKERS {
            let link = self.disk.is_some().then(|| NetworkLink::new(number)).transpose()?;
            let ip = link.as_ref().map_or(std::net::Ipv4Addr::LOCALHOST.into(), NetworkLink::address);
            let tap =
                RecordingProxy::start(ip, urls.clone(), draws.next_u64(), self.recording.clone()).await?;
            let post = WorkerConnection {
                url: tap.url(),
                token: token.clone(),
                namespace: link.as_ref().map(NetworkLink::namespace),
            };
            let options = WorkerOptions { slots: SLOTS, ..WorkerOptions::default() };
            let worker = WorkerProcess::start_at(post, options).await?;
            self.worker_nodes.push(WorkerNode {
                worker,
                condition: NodeCondition::Up,
                link,
                cut_until: None,
                _tap: tap,
            });
        }
        Ok(())
    }

    /// Returns the first coordinator.
    pub fn coordinator(&self) -> &CoordinatorProcess {
        &self.coordinator_nodes[0].coordinator
    }

    pub fn coordinators(&self) -> impl Iterator<Item = &CoordinatorProcess> {
        self.coordinator_nodes.iter().map(|seat| &seat.coordinator)
    }

    /// Returns the recording of all proxies.
    pub const fn recording(&self) -> &ProxyRecording {
        &self.recording
    }

    /// Returns the database URL if there is a server.
    pub fn database_url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    /// Returns the ends of all logs.
    pub fn log_tails(&self) -> String {
        let seats = self.coordinator_nodes.iter().map(|seat| seat.coordinator.log_tail());
        let hosts = self.worker_nodes.iter().map(|host| host.worker.log_tail());
        let server = self.server.as_ref().map(PostgresCluster::log_tail);
        seats.chain(hosts).chain(server).collect::<Vec<_>>().join("\n")
    }

    /// Describes the condition of every node, for messages.
    pub fn conditions(&self) -> String {
        let seats: Vec<_> = self.coordinator_nodes.iter().map(|seat| &seat.condition).collect();
        let hosts: Vec<_> = self.worker_nodes.iter().map(|host| (&host.condition, host.cut_until)).collect();
        let (full, back) = (self.full_until, self.server_back_at);
        format!("coordinators {seats:?}, workers {hosts:?}, full until {full:?}, server back at {back:?}")
    }

    /// Returns whether no node is down, suspended, disconnected or out of disk space.
    pub fn is_healthy(&self) -> bool {
        self.coordinator_nodes.iter().all(|seat| seat.condition == NodeCondition::Up)
            && self
                .worker_nodes
                .iter()
                .all(|host| host.condition == NodeCondition::Up && host.cut_until.is_none())
            && self.full_until.is_none()
            && self.server_back_at.is_none()
    }

    /// Injects a fault. Returns whether its victim was available.
    ///
    /// # Errors
    /// Returns an error if the fault cannot be injected; the damage it does is not an error.
    pub async fn inject(&mut self, strike: &PlannedFault) -> Result<bool> {
        let victim = strike.victim;
        match strike.fault {
            ChaosFault::KillRun => {
                let up = self.worker_nodes.iter().filter(|host| host.condition == NodeCondition::Up);
                let mut runs: Vec<i32> = up.flat_map(|host| host.worker.run_processes()).collect();
                runs.sort_unstable();
                let struck = runs.get(choose_index(victim, runs.len()));
                struck.iter().for_each(|pid| send_signal(**pid, Signal::SIGKILL));
                Ok(struck.is_some())
            }
            ChaosFault::KillWorker { down_ms: away_ms } => {
                let Some(host) = self.pick_worker(victim) else { return Ok(false) };
                host.worker.process().kill().await?;
                host.condition = NodeCondition::Down(instant_after(away_ms));
                Ok(true)
            }
            ChaosFault::SuspendWorker { ms, runs_first } => Ok(self.suspend(victim, ms, Some(runs_first))),
            ChaosFault::SuspendSupervisor { ms } => Ok(self.suspend(victim, ms, None)),
            ChaosFault::KillCoordinator { down_ms: away_ms } => {
                let Some(seat) = self.pick_coordinator(victim) else { return Ok(false) };
                seat.coordinator.process().kill().await?;
                seat.condition = NodeCondition::Down(instant_after(away_ms));
                Ok(true)
            }
            ChaosFault::SuspendCoordinator { ms } => {
                let Some(seat) = self.pick_coordinator(victim) else { return Ok(false) };
                send_signal(seat.coordinator.pid(), Signal::SIGSTOP);
                seat.condition = NodeCondition::Suspended {
                    until: instant_after(ms),
                    runs: Vec::new(),
                    runs_first: false,
                };
                Ok(true)
            }
            ChaosFault::CutLink { ms } => {
                let mut uncut: Vec<&mut WorkerNode> =
                    self.worker_nodes.iter_mut().filter(|host| host.cut_until.is_none()).collect();
                let at = choose_index(victim, uncut.len());
                let Some(host) = uncut.get_mut(at) else { return Ok(false) };
                host.link.as_ref().context("a link")?.cut()?;
                host.cut_until = Some(instant_after(ms));
                Ok(true)
            }
            ChaosFault::FillDisk { ms } => {
                if self.full_until.is_some() || !self.server_is_up() {
                    return Ok(false);
                }
                self.disk.as_ref().context("a disk")?.fill()?;
                self.full_until = Some(instant_after(ms));
                Ok(true)
            }
            ChaosFault::TerminateSessions => Ok(self.terminate_sessions(victim).await),
            ChaosFault::CrashSession => Ok(self.crash_session(victim).await),
            ChaosFault::RestartFast => Ok(self.stop_server(Signal::SIGINT)),
            ChaosFault::RestartImmediate => Ok(self.stop_server(Signal::SIGQUIT)),
        }
    }

    fn pick_worker(&mut self, victim: u64) -> Option<&mut WorkerNode> {
        let mut up: Vec<&mut WorkerNode> =
            self.worker_nodes.iter_mut().filter(|host| host.condition == NodeCondition::Up).collect();
        let at = choose_index(victim, up.len());
        (!up.is_empty()).then(|| up.swap_remove(at))
    }

    fn pick_coordinator(&mut self, victim: u64) -> Option<&mut CoordinatorNode> {
        let mut up: Vec<&mut CoordinatorNode> =
            self.coordinator_nodes.iter_mut().filter(|seat| seat.condition == NodeCondition::Up).collect();
        let at = choose_index(victim, up.len());
        (!up.is_empty()).then(|| up.swap_remove(at))
    }

    fn suspend(&mut self, victim: u64, ms: u64, with_runs: Option<bool>) -> bool {
        let Some(host) = self.pick_worker(victim) else { return false };
        // The supervisor first, so that it starts no other run meanwhile.
        send_signal(host.worker.pid(), Signal::SIGSTOP);
        let runs = if with_runs.is_some() { host.worker.run_processes() } else { Vec::new() };
        runs.iter().for_each(|pid| send_signal(*pid, Signal::SIGSTOP));
        host.condition =
            NodeCondition::Suspended { until: instant_after(ms), runs, runs_first: with_runs == Some(true) };
        true
    }

    fn server_is_up(&mut self) -> bool {
        self.server_back_at.is_none() && self.server.as_mut().is_none_or(PostgresCluster::is_up)
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

    /// Queries the server as its administrator; `None` if it does not respond.
    async fn query_server(&mut self, sql: &'static str) -> Option<Vec<i32>> {
        if !self.server_is_up() {
            return None;
        }
        let url = self.server.as_ref()?.url().to_owned();
        let asked = async {
            let mut admin = PgConnection::connect(&url).await?;
            sqlx::query_scalar::<_, i32>(sql).fetch_all(&mut admin).await
        };
        tokio::time::timeout(QUERY_TIMEOUT, asked).await.ok()?.ok()
    }

    async fn terminate_sessions(&mut self, victim: u64) -> bool {
        // All of them, or three. Chosen before terminating any: the server may ask for the end of any row it
        // looks at.
        let sql = if victim.is_multiple_of(2) {
            "WITH chosen AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid()) SELECT pid FROM chosen WHERE pg_terminate_backend(pid)"
        } else {
            "WITH chosen AS MATERIALIZED (SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
             AND pid <> pg_backend_pid() ORDER BY pid LIMIT 3) SELECT pid FROM chosen WHERE pg_terminate_backend(pid)"
        };
        self.query_server(sql).await.is_some_and(|ended| !ended.is_empty())
    }

    async fn crash_session(&mut self, victim: u64) -> bool {
        let sql = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'client backend' \
                   AND pid <> pg_backend_pid() ORDER BY pid";
        let sessions = self.query_server(sql).await.unwrap_or_default();
        let struck = sessions.get(choose_index(victim, sessions.len()));
        struck.iter().for_each(|pid| send_signal(**pid, Signal::SIGKILL));
        struck.is_some()
    }

    /// Recovers every node whose fault is over.
    ///
    /// # Errors
    /// Returns an error if a process ended that was not killed.
    pub async fn recover(&mut self) -> Result<()> {
        let now = Instant::now();
        if self.full_until.is_some_and(|until| until <= now) {
            self.disk.as_ref().context("a disk")?.release()?;
            self.full_until = None;
        }
        self.recover_server();
        for host in &mut self.worker_nodes {
            if host.cut_until.is_some_and(|until| until <= now) {
                host.link.as_ref().context("a link")?.restore()?;
                host.cut_until = None;
            }
            recover_worker(host).await?;
        }
        for seat in &mut self.coordinator_nodes {
            recover_coordinator(seat).await?;
        }
        Ok(())
    }

    fn recover_server(&mut self) {
        let Some(server) = &mut self.server else { return };
        if self.server_back_at.is_none() && !server.is_up() {
            // It ended by itself, because it had no space to write.
            self.server_back_at = Some(Instant::now());
        }
        // Without disk space it would not start either; an administrator would free space first.
        let is_due = self.server_back_at.is_some_and(|at| at <= Instant::now()) && self.full_until.is_none();
        if is_due {
            let back = tokio::task::block_in_place(|| server.start_stopped());
            self.server_back_at = back.is_err().then(|| Instant::now() + RESTART_RETRY_DELAY);
        }
    }

    /// Drains the workers and restarts all coordinators, so that later reads come from the disk.
    ///
    /// # Errors
    /// Returns an error if a worker does not end in order or a coordinator does not start.
    pub async fn stop_workers_and_restart(&mut self) -> Result<()> {
        ensure!(self.is_healthy(), "a node is not healthy: {}", self.conditions());
        for host in self.worker_nodes.drain(..) {
            host.worker.drain().await?;
        }
        for seat in &mut self.coordinator_nodes {
            seat.coordinator.restart().await?;
        }
        Ok(())
    }

    /// Runs `docket verify` and `docket db rebuild` on one coordinator while the others are down.
    ///
    /// # Errors
    /// Returns what they found.
    pub async fn end_and_check(mut self) -> Result<()> {
        let first = self.coordinator_nodes.remove(0);
        self.coordinator_nodes.clear();
        first.coordinator.end_and_check().await
    }
}

async fn recover_worker(host: &mut WorkerNode) -> Result<()> {
    let is_due = host.condition.is_due();
    match &host.condition {
        NodeCondition::Up => {
            let ended = host.worker.process().try_exit_status();
            ensure!(ended.is_none(), "a worker ended by itself: {ended:?}\n{}", host.worker.log_tail());
        }
        NodeCondition::Down(_) if is_due => {
            host.worker.restart().await?;
            host.condition = NodeCondition::Up;
        }
        NodeCondition::Suspended { runs, runs_first, .. } if is_due => {
            if *runs_first {
                runs.iter().for_each(|pid| resume_run(*pid, host.worker.pid()));
                tokio::time::sleep(RUN_RESUME_LEAD).await;
                send_signal(host.worker.pid(), Signal::SIGCONT);
            } else {
                send_signal(host.worker.pid(), Signal::SIGCONT);
                tokio::time::sleep(RUN_RESUME_LEAD).await;
                runs.iter().for_each(|pid| resume_run(*pid, host.worker.pid()));
            }
            host.condition = NodeCondition::Up;
        }
        NodeCondition::Down(_) | NodeCondition::Suspended { .. } => {}
    }
    Ok(())
}

/// Resumes a run process if it still belongs to that supervisor: its pid may have been reused.
fn resume_run(pid: i32, supervisor: i32) {
    if child_pids(supervisor).contains(&pid) {
        send_signal(pid, Signal::SIGCONT);
    }
}

async fn recover_coordinator(seat: &mut CoordinatorNode) -> Result<()> {
    let is_due = seat.condition.is_due();
    match seat.condition {
        NodeCondition::Up => {
            let ended = seat.coordinator.process().try_exit_status();
            ensure!(
                ended.is_none(),
                "a coordinator ended by itself: {ended:?}\n{}",
                seat.coordinator.log_tail()
            );
        }
        NodeCondition::Down(_) if is_due => {
            let back = tokio::time::timeout(RESTART_TIMEOUT, seat.coordinator.restart()).await;
            let is_back = matches!(back, Ok(Ok(())));
            seat.condition = if is_back {
                NodeCondition::Up
            } else {
                NodeCondition::Down(Instant::now() + RESTART_RETRY_DELAY)
            };
        }
        NodeCondition::Suspended { .. } if is_due => {
            send_signal(seat.coordinator.pid(), Signal::SIGCONT);
            seat.condition = NodeCondition::Up;
        }
        NodeCondition::Down(_) | NodeCondition::Suspended { .. } => {}
    }
    Ok(())
}
