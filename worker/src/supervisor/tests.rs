//! A supervisor with real processes, and a fake coordinator that speaks the API.

use std::{
    collections::{BTreeMap, VecDeque},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::{
    Json, Router,
    extract::{Path as Param, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use docket_sandbox::SecretEnv;
use docket_schema::{
    api::{
        CAPACITY_DRAINING, HeartbeatRequest, HeartbeatResponse, Lease, LeaseLostReason, LeaseRequest,
        LeaseResponse, LostLease, ProblemCode, ReleaseReason, ReleaseRequest, ReleaseResponse,
    },
    ids::{Epoch, RunId, TaskId},
    run::RunSettings,
    task::{TaskSpec, TaskState},
};
use futures_util::stream;
use tokio::{
    runtime::Runtime,
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use super::*;
use crate::{
    bootstrap::{HiddenValues, RunBootstrap, SandboxChoice, WorkerSettings},
    process::tests_support::wait_until_gone,
    secret::Secret,
};

/// The requests that the fake coordinator received.
#[derive(Debug)]
enum CoordinatorCall {
    Lease(LeaseRequest),
    Heartbeat(HeartbeatRequest),
    Release(TaskId, ReleaseRequest),
    ReleaseRefused,
}

struct FakeCoordinator {
    work: Mutex<VecDeque<Lease>>,
    lost: Mutex<Vec<LostLease>>,
    refuses: bool,
    /// Answers every request with "not now".
    away: AtomicBool,
    news: Notify,
    seen: mpsc::Sender<CoordinatorCall>,
}

impl FakeCoordinator {
    /// Waits for news or the timeout.
    async fn wait_or_stop(&self, wait_ms: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(wait_ms), self.news.notified()).await.is_ok()
    }
}

async fn handle_lease(State(it): State<Arc<FakeCoordinator>>, Json(request): Json<LeaseRequest>) -> Response {
    if it.refuses {
        let problem = ProblemCode::Unauthorized.to_problem("the token is not one of ours");
        return (StatusCode::UNAUTHORIZED, Json(problem)).into_response();
    }
    it.seen.send(CoordinatorCall::Lease(request.clone())).await.unwrap();
    let came = std::time::Instant::now();
    loop {
        let held_ms = came.elapsed().as_millis() as u64;
        let leases: Vec<Lease> = {
            let mut work = it.work.lock().unwrap();
            let count = work.len().min(request.max as usize);
            work.drain(..count).collect()
        };
        if !leases.is_empty() || !it.wait_or_stop(request.wait_ms).await {
            return Json(LeaseResponse { leases, held_ms, drain: false }).into_response();
        }
    }
}

async fn handle_heartbeat(
    State(it): State<Arc<FakeCoordinator>>,
    Json(request): Json<HeartbeatRequest>,
) -> Response {
    it.seen.send(CoordinatorCall::Heartbeat(request.clone())).await.unwrap();
    if it.away.load(Ordering::SeqCst) {
        return unavailable_response();
    }
    let lost = || it.lost.lock().unwrap().clone();
    while lost().is_empty() && it.wait_or_stop(request.wait_ms).await {}
    let lost = lost();
    let kept = |task: &TaskId| lost.iter().all(|lost| lost.task != *task);
    let renewed = request.held.iter().map(|held| held.task).filter(kept).collect();
    Json(HeartbeatResponse { renewed, lost, drain: false }).into_response()
}

async fn handle_release(
    State(it): State<Arc<FakeCoordinator>>,
    Param(task): Param<TaskId>,
    Json(request): Json<ReleaseRequest>,
) -> Response {
    if it.away.load(Ordering::SeqCst) {
        it.seen.send(CoordinatorCall::ReleaseRefused).await.unwrap();
        return unavailable_response();
    }
    it.seen.send(CoordinatorCall::Release(task, request)).await.unwrap();
    Json(ReleaseResponse { state: TaskState::Available }).into_response()
}

fn unavailable_response() -> Response {
    let problem = ProblemCode::Unavailable.to_problem("the store restarts");
    (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
}

/// One worker under test. Its run program is a shell script in which `$D` is `dir`.
struct SupervisorHarness {
    dir: tempfile::TempDir,
    coordinator: Arc<FakeCoordinator>,
    seen: mpsc::Receiver<CoordinatorCall>,
    server: Option<Runtime>,
    signals: mpsc::Sender<()>,
    worker: JoinHandle<Result<SupervisorReport, SupervisorError>>,
}

struct HarnessSetup {
    script: &'static str,
    slots: u32,
    grace: Duration,
    hang_after: Option<Duration>,
    refuses: bool,
    program: &'static str,
}

fn setup_with_script(script: &'static str) -> HarnessSetup {
    let grace = Duration::from_secs(600);
    HarnessSetup { script, slots: 1, grace, hang_after: None, refuses: false, program: "/bin/sh" }
}

const LONG_MS: u64 = 600_000;

fn task_id(n: u128) -> TaskId {
    TaskId(uuid::Uuid::from_u128(n))
}

fn sample_lease(n: u128, lease_ms: u64) -> Lease {
    let spec: TaskSpec = serde_json::from_value(serde_json::json!({
        "title": "t",
        "text": "t",
        "base": { "manifest": { "hash": "0".repeat(64), "bytes": 0 }, "tree": "0".repeat(64) },
        "model": { "provider": "scripted", "name": "x" },
    }))
    .unwrap();
    Lease {
        task: task_id(n),
        run: RunId(uuid::Uuid::from_u128(n + 1000)),
        attempt: 1,
        epoch: Epoch(3),
        token: "dr_secret".to_owned(),
        lease_ms,
        heartbeat_ms: lease_ms / 3,
        head: docket_schema::event::Head::EMPTY,
        forked: false,
        spec,
        delegated_by: None,
    }
}

impl SupervisorHarness {
    async fn start_worker(setup: HarnessSetup, work: Vec<Lease>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, seen) = mpsc::channel(1000);
        let coordinator = Arc::new(FakeCoordinator {
            work: Mutex::new(work.into()),
            lost: Mutex::default(),
            refuses: setup.refuses,
            away: AtomicBool::new(false),
            news: Notify::new(),
            seen: sender,
        });
        let router = Router::new()
            .route("/v1/lease", post(handle_lease))
            .route("/v1/heartbeat", post(handle_heartbeat))
            .route("/v1/tasks/{id}/release", post(handle_release))
            .with_state(Arc::clone(&coordinator));
        // In a separate runtime, so that it can vanish as if killed, including its connections.
        let server =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        server.spawn(async move {
            listener.set_nonblocking(true).unwrap();
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            axum::serve(listener, router).await.unwrap();
        });
        let config = SupervisorConfig {
            ca: None,
            coordinator: format!("http://{address}"),
            token: Secret::new("dk_worker").unwrap(),
            name: "test".to_owned(),
            slots: setup.slots,
            queues: Vec::new(),
            labels: docket_schema::task::LabelSet::default(),
            engines: SupervisorConfig::engines_of_this_build(),
            keys: BTreeMap::from([("anthropic".to_owned(), Secret::new("sk-1").unwrap())]),
            scratch: dir.path().join("scratch"),
            cache: dir.path().join("cache"),
            settings: WorkerSettings {
                redact: HiddenValues::default(),
                run: RunSettings::default(),
                sandbox: SandboxChoice::None,
                prices_toml: None,
                limits: None,
                base_urls: Vec::new(),
                mcp: BTreeMap::default(),
                mcp_env: SecretEnv::default(),
                policy: None,
            },
            grace: setup.grace,
            hang_after: setup.hang_after,
            program: RunProgram {
                path: PathBuf::from(setup.program),
                args: vec!["-c".into(), setup.script.replace("$D", dir.path().to_str().unwrap()).into()],
                inherited_variables: vec!["PATH".into()],
            },
            incarnation: crate::clock::new_incarnation(),
            failpoints: Vec::new(),
        };
        let (signals, caught) = mpsc::channel(2);
        let caught = Box::pin(stream::unfold(caught, |mut caught| async move {
            caught.recv().await.map(|()| ((), caught))
        }));
        let worker = tokio::spawn(run_supervisor(config, async { Ok(PreflightReport::default()) }, caught));
        Self { dir, coordinator, seen, server: Some(server), signals, worker }
    }

    async fn wait_for_file(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        for _ in 0..4_000 {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("nothing in {name}");
    }

    async fn wait_for_pid(&self, name: &str) -> i32 {
        self.wait_for_file(name).await.trim().parse().unwrap()
    }

    async fn next_release(&mut self) -> (TaskId, ReleaseRequest) {
        loop {
            if let CoordinatorCall::Release(task, request) = self.seen.recv().await.unwrap() {
                return (task, request);
            }
        }
    }

    async fn lease_request(&mut self, number: u64) -> LeaseRequest {
        loop {
            match self.seen.recv().await.unwrap() {
                CoordinatorCall::Lease(request) if request.number == number => return request,
                _ => {}
            }
        }
    }

    async fn send_signal(&self) {
        self.signals.send(()).await.unwrap();
    }

    async fn stop_and_report(mut self) -> (SupervisorReport, Vec<(TaskId, ReleaseRequest)>) {
        let report = (&mut self.worker).await.unwrap().unwrap();
        let left: Vec<PathBuf> = list_files(&self.dir.path().join("scratch"));
        assert!(left.is_empty(), "{left:?}");
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
        let mut releases = Vec::new();
        while let Ok(seen) = self.seen.try_recv() {
            if let CoordinatorCall::Release(task, request) = seen {
                releases.push((task, request));
            }
        }
        (report, releases)
    }
}

impl Drop for SupervisorHarness {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }
}

fn list_files(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn crashed_reason(how: &str) -> ReleaseReason {
    ReleaseReason::Crashed(how.to_owned())
}

#[tokio::test]
async fn leased_run_gets_a_process_and_ends() {
    let script = "cat > $D/boot; echo >> $D/boot; env | cut -d= -f1 | sort | tr '\\n' ' ' > $D/env; exit 0";
    let mut house =
        SupervisorHarness::start_worker(setup_with_script(script), vec![sample_lease(1, LONG_MS)]).await;
    let first = house.lease_request(1).await;
    assert_eq!((first.max, first.engines.len()), (1, crate::engine::all_engines().len()));
    // The only slot is occupied until the process has ended.
    let second = house.lease_request(2).await;
    assert_eq!((second.max, second.incarnation), (1, first.incarnation));
    let boot: RunBootstrap = serde_json::from_str(&house.wait_for_file("boot").await).unwrap();
    assert_eq!((boot.lease, boot.incarnation), (sample_lease(1, LONG_MS), first.incarnation));
    assert_eq!(boot.keys["anthropic"], "sk-1");
    assert!(boot.scratch.starts_with(house.dir.path().join("scratch")));
    let names = std::fs::read_to_string(house.dir.path().join("env")).unwrap();
    assert!(names.split(' ').all(|n| ["PATH", "PWD", "OLDPWD", "SHLVL", "_", ""].contains(&n)), "{names}");
    house.send_signal().await;
    let (report, releases) = house.stop_and_report().await;
    assert_eq!(report.end, SupervisorEnd::Drained);
    assert_eq!(report.tally, RunTally { started: 1, finished: 1, ..RunTally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn last_heartbeat_reports_that_the_worker_ended() {
    let script = "cat > /dev/null; echo > $D/began; while [ ! -e $D/may_end ]; do sleep 0.01; done";
    let mut house = SupervisorHarness::start_worker(
        setup_with_script(script),
        vec![Lease { heartbeat_ms: 20, ..sample_lease(1, LONG_MS) }],
    )
    .await;
    house.wait_for_file("began").await;
    // Its one slot is occupied, the only capacity reported to the coordinator so far.
    loop {
        if let CoordinatorCall::Heartbeat(beat) = house.seen.recv().await.unwrap() {
            assert!(beat.room.unwrap().full.unwrap().contains("slot is taken"));
            break;
        }
    }
    house.send_signal().await;
    std::fs::write(house.dir.path().join("may_end"), "").unwrap();
    (&mut house.worker).await.unwrap().unwrap();
    let mut last = None;
    while let Ok(seen) = house.seen.try_recv() {
        last = Some(seen);
    }
    let Some(CoordinatorCall::Heartbeat(HeartbeatRequest { held, room: Some(room), .. })) = last else {
        panic!("{last:?}")
    };
    assert_eq!((held.len(), room.full.as_deref()), (0, Some(CAPACITY_DRAINING)));
}

#[tokio::test]
async fn crashed_process_is_released_at_once_with_its_exit() {
    let script = "cat > /dev/null; test -e $D/second && exit 101; echo > $D/second; kill -9 $$";
    let mut house = SupervisorHarness::start_worker(
        setup_with_script(script),
        vec![sample_lease(1, LONG_MS), sample_lease(2, LONG_MS)],
    )
    .await;
    let (first, request) = house.next_release().await;
    assert_eq!((first, request.epoch, request.why), (task_id(1), Epoch(3), crashed_reason("signal 9")));
    assert_eq!(house.next_release().await.1.why, crashed_reason("exit 101"));
    house.send_signal().await;
    let (report, releases) = house.stop_and_report().await;
    assert_eq!((report.tally.crashed, releases.len()), (2, 0));
}

#[tokio::test]
async fn hanging_process_is_killed_and_released_as_crashed() {
    // Stopped, it can neither work nor handle a termination request; its child is in another group.
    let script = "cat > /dev/null; sleep 1000 & echo $! > $D/child; kill -STOP $$";
    let setup = HarnessSetup { hang_after: Some(Duration::from_millis(400)), ..setup_with_script(script) };
    let mut house = SupervisorHarness::start_worker(setup, vec![sample_lease(1, LONG_MS)]).await;
    let child = house.wait_for_pid("child").await;
    let (task_of, request) = house.next_release().await;
    let why = crashed_reason("no progress within the time limit; killed");
    assert_eq!((task_of, request.why), (task_id(1), why));
    wait_until_gone(child).await;
    house.send_signal().await;
    let (report, _) = house.stop_and_report().await;
    assert_eq!(report.tally, RunTally { started: 1, crashed: 1, ..RunTally::default() });
}

#[tokio::test]
async fn process_that_reports_progress_outlives_the_step_limit() {
    let script = r#"cat > $D/boot; note=$(sed 's/.*"progress":"\([^"]*\)".*/\1/' $D/boot)
        for i in 1 2 3 4 5 6 7 8; do printf '%020d %020d\n' $i 60000 > "$note"; sleep 0.5; done; exit 0"#;
    let setup = HarnessSetup { hang_after: Some(Duration::from_secs(3)), ..setup_with_script(script) };
    let mut house = SupervisorHarness::start_worker(setup, vec![sample_lease(1, LONG_MS)]).await;
    // Another request once its slot is free.
    house.lease_request(1).await;
    house.lease_request(2).await;
    house.send_signal().await;
    let (report, releases) = house.stop_and_report().await;
    assert_eq!(report.tally, RunTally { started: 1, finished: 1, ..RunTally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn drain_lets_turns_end_and_releases_the_leases() {
    let script = "cat > /dev/null; trap 'exit 75' TERM; echo > $D/$$.ready; while :; do sleep 0.01; done";
    let setup = HarnessSetup { slots: 2, ..setup_with_script(script) };
    let house =
        SupervisorHarness::start_worker(setup, vec![sample_lease(1, LONG_MS), sample_lease(2, LONG_MS)])
            .await;
    while list_files(house.dir.path()).iter().filter(|path| path.extension().is_some()).count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    house.send_signal().await;
    let (report, releases) = house.stop_and_report().await;
    assert_eq!(report.end, SupervisorEnd::Drained);
    assert_eq!(report.tally, RunTally { started: 2, drained: 2, ..RunTally::default() });
    assert_eq!(releases.len(), 2);
    assert!(releases.iter().all(|(_, request)| request.why == ReleaseReason::Drained));
}

#[tokio::test]
async fn unresponsive_process_is_killed_after_grace_or_second_signal() {
    let script = "cat > /dev/null; trap '' TERM; echo $$ > $D/pid; while :; do sleep 600; done";
    for (grace, signals) in [(Duration::from_millis(50), 1), (Duration::from_secs(600), 2)] {
        let house = SupervisorHarness::start_worker(
            HarnessSetup { grace, ..setup_with_script(script) },
            vec![sample_lease(1, LONG_MS)],
        )
        .await;
        let pid = house.wait_for_pid("pid").await;
        for _ in 0..signals {
            house.send_signal().await;
        }
        let (report, releases) = house.stop_and_report().await;
        wait_until_gone(pid).await;
        assert_eq!(report.end, SupervisorEnd::Killed);
        assert_eq!(report.tally, RunTally { started: 1, drained: 1, killed: 1, ..RunTally::default() });
        assert_eq!(releases[0].1.why, ReleaseReason::Drained, "the kill was ours, not the task's");
    }
}

#[tokio::test]
async fn lost_lease_kills_the_run_without_a_release() {
    let script = "cat > /dev/null; sleep 600 & echo $! > $D/other; echo $$ > $D/pid; wait";
    let mut house =
        SupervisorHarness::start_worker(setup_with_script(script), vec![sample_lease(1, LONG_MS)]).await;
    let (pid, other) = (house.wait_for_pid("pid").await, house.wait_for_pid("other").await);
    house.coordinator.lost.lock().unwrap().push(LostLease { task: task_id(1), why: LeaseLostReason::Fenced });
    house.coordinator.news.notify_waiters();
    wait_until_gone(pid).await;
    wait_until_gone(other).await;
    // Only now is the slot free again.
    house.lease_request(2).await;
    house.send_signal().await;
    let (report, releases) = house.stop_and_report().await;
    assert_eq!(report.tally, RunTally { started: 1, lost: 1, killed: 1, ..RunTally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn no_descendant_outlives_the_run_process() {
    // One orphan in the run's own group, whose parent has ended; one in another group, as with git.
    let script = "cat > /dev/null; (sh -c 'echo $$ > $D/orphan; exec sleep 600' &); \
                  set -m; sh -c 'echo $$ > $D/apart; exec sleep 600' & set +m; \
                  while ! test -s $D/orphan || ! test -s $D/apart; do sleep 0.01; done; kill -9 $$";
    let mut house =
        SupervisorHarness::start_worker(setup_with_script(script), vec![sample_lease(1, LONG_MS)]).await;
    assert_eq!(house.next_release().await.1.why, crashed_reason("signal 9"));
    wait_until_gone(house.wait_for_pid("orphan").await).await;
    wait_until_gone(house.wait_for_pid("apart").await).await;
    house.send_signal().await;
    house.stop_and_report().await;
}

#[tokio::test]
async fn run_is_killed_when_its_lease_expires() {
    let script = "cat > /dev/null; trap '' TERM; echo $$ > $D/pid; while :; do sleep 600; done";
    let mut house =
        SupervisorHarness::start_worker(setup_with_script(script), vec![sample_lease(1, 300)]).await;
    let pid = house.wait_for_pid("pid").await;
    // Renewed more than once before the coordinator becomes unavailable.
    let mut beats = 0;
    while beats < 3 {
        if let CoordinatorCall::Heartbeat(request) = house.seen.recv().await.unwrap() {
            assert_eq!(request.held[0].task, task_id(1));
            beats += 1;
        }
    }
    house.server.take().unwrap().shutdown_background();
    wait_until_gone(pid).await;
    house.send_signal().await;
    let (report, _) = house.stop_and_report().await;
    assert_eq!(report.tally, RunTally { started: 1, lost: 1, killed: 1, ..RunTally::default() });
}

#[tokio::test]
async fn runs_continue_during_a_coordinator_outage_and_releases_are_sent_later() {
    let script = "cat > /dev/null; echo > $D/ready; until test -e $D/go; do sleep 0.01; done; exit 3";
    let mut house = SupervisorHarness::start_worker(
        setup_with_script(script),
        vec![Lease { heartbeat_ms: 20, ..sample_lease(1, LONG_MS) }],
    )
    .await;
    house.wait_for_file("ready").await;
    house.coordinator.away.store(true, Ordering::SeqCst);
    let mut beats = 0;
    while beats < 5 {
        beats += usize::from(matches!(house.seen.recv().await.unwrap(), CoordinatorCall::Heartbeat(_)));
    }
    std::fs::write(house.dir.path().join("go"), "").unwrap();
    while !matches!(house.seen.recv().await.unwrap(), CoordinatorCall::ReleaseRefused) {}
    house.coordinator.away.store(false, Ordering::SeqCst);
    assert_eq!(house.next_release().await.1.why, crashed_reason("exit 3"));
    house.send_signal().await;
    assert_eq!(
        house.stop_and_report().await.0.tally,
        RunTally { started: 1, crashed: 1, ..RunTally::default() }
    );
}

#[tokio::test]
async fn run_process_start_failure_is_a_worker_fault() {
    let setup = HarnessSetup { program: "/no/such/program", ..setup_with_script("") };
    let mut house = SupervisorHarness::start_worker(setup, vec![sample_lease(1, LONG_MS)]).await;
    let why = house.next_release().await.1.why;
    let names_program = matches!(&why, ReleaseReason::WorkerFault(message) if message.contains("cannot start /no/such/program"));
    assert!(names_program, "{why:?}");
    house.send_signal().await;
    assert_eq!(house.stop_and_report().await.0.tally.crashed, 0);
}

#[tokio::test]
async fn refused_token_ends_the_worker_with_a_remedy() {
    let house =
        SupervisorHarness::start_worker(HarnessSetup { refuses: true, ..setup_with_script("") }, Vec::new())
            .await;
    let (report, _) = house.stop_and_report().await;
    let SupervisorEnd::Refused(why) = report.end else { panic!("{report:?}") };
    assert!(why.contains("DOCKET_TOKEN"), "{why}");
}
