//! A supervisor on real processes, with a stand-in for the coordinator that speaks the wire types.

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
use docket_sandbox::HiddenEnv;
use docket_schema::{
    ids::{Epoch, RunId, TaskId},
    run::RunSettings,
    task::{TaskSpec, TaskState},
    wire::{
        HeartbeatRequest, HeartbeatResponse, Lease, LeaseRequest, LeaseResponse, LostLease, LostWhy,
        ProblemCode, ROOM_DRAINS, ReleaseReason, ReleaseRequest, ReleaseResponse,
    },
};
use futures_util::stream;
use tokio::{
    runtime::Runtime,
    sync::{Notify, mpsc},
    task::JoinHandle,
};

use super::*;
use crate::{
    bootstrap::{Bootstrap, HiddenValues, SandboxChoice, WorkerSettings},
    process::tests_support::gone,
    secret::Secret,
};

/// What the stand-in was asked.
#[derive(Debug)]
enum Seen {
    Lease(LeaseRequest),
    Beat(HeartbeatRequest),
    Release(TaskId, ReleaseRequest),
    ReleaseRefused,
}

struct Coordinator {
    work: Mutex<VecDeque<Lease>>,
    lost: Mutex<Vec<LostLease>>,
    refuses: bool,
    /// Answers nothing but "not now".
    away: AtomicBool,
    news: Notify,
    seen: mpsc::Sender<Seen>,
}

impl Coordinator {
    /// Until there is news, or the time is over.
    async fn wait(&self, wait_ms: u64) -> bool {
        tokio::time::timeout(Duration::from_millis(wait_ms), self.news.notified()).await.is_ok()
    }
}

async fn lease(State(it): State<Arc<Coordinator>>, Json(request): Json<LeaseRequest>) -> Response {
    if it.refuses {
        let problem = ProblemCode::Unauthorized.problem("the token is not one of ours");
        return (StatusCode::UNAUTHORIZED, Json(problem)).into_response();
    }
    it.seen.send(Seen::Lease(request.clone())).await.unwrap();
    let came = std::time::Instant::now();
    loop {
        let held_ms = came.elapsed().as_millis() as u64;
        let leases: Vec<Lease> = {
            let mut work = it.work.lock().unwrap();
            let count = work.len().min(request.max as usize);
            work.drain(..count).collect()
        };
        if !leases.is_empty() || !it.wait(request.wait_ms).await {
            return Json(LeaseResponse { leases, held_ms, drain: false }).into_response();
        }
    }
}

async fn heartbeat(State(it): State<Arc<Coordinator>>, Json(request): Json<HeartbeatRequest>) -> Response {
    it.seen.send(Seen::Beat(request.clone())).await.unwrap();
    if it.away.load(Ordering::SeqCst) {
        return not_now();
    }
    let lost = || it.lost.lock().unwrap().clone();
    while lost().is_empty() && it.wait(request.wait_ms).await {}
    let lost = lost();
    let kept = |task: &TaskId| lost.iter().all(|lost| lost.task != *task);
    let renewed = request.held.iter().map(|held| held.task).filter(kept).collect();
    Json(HeartbeatResponse { renewed, lost, drain: false }).into_response()
}

async fn release(
    State(it): State<Arc<Coordinator>>,
    Param(task): Param<TaskId>,
    Json(request): Json<ReleaseRequest>,
) -> Response {
    if it.away.load(Ordering::SeqCst) {
        it.seen.send(Seen::ReleaseRefused).await.unwrap();
        return not_now();
    }
    it.seen.send(Seen::Release(task, request)).await.unwrap();
    Json(ReleaseResponse { state: TaskState::Available }).into_response()
}

fn not_now() -> Response {
    let problem = ProblemCode::Unavailable.problem("the store restarts");
    (StatusCode::SERVICE_UNAVAILABLE, Json(problem)).into_response()
}

/// One worker under test. Its run program is a shell script in which `$D` is `dir`.
struct House {
    dir: tempfile::TempDir,
    coordinator: Arc<Coordinator>,
    seen: mpsc::Receiver<Seen>,
    server: Option<Runtime>,
    signals: mpsc::Sender<()>,
    worker: JoinHandle<Result<SupervisorReport, SupervisorError>>,
}

struct Setup {
    script: &'static str,
    slots: u32,
    grace: Duration,
    hang_after: Option<Duration>,
    refuses: bool,
    program: &'static str,
}

fn runs(script: &'static str) -> Setup {
    let grace = Duration::from_secs(600);
    Setup { script, slots: 1, grace, hang_after: None, refuses: false, program: "/bin/sh" }
}

const LONG_MS: u64 = 600_000;

fn task(n: u128) -> TaskId {
    TaskId(uuid::Uuid::from_u128(n))
}

fn work(n: u128, lease_ms: u64) -> Lease {
    let spec: TaskSpec = serde_json::from_value(serde_json::json!({
        "title": "t",
        "text": "t",
        "base": { "manifest": { "hash": "0".repeat(64), "bytes": 0 }, "tree": "0".repeat(64) },
        "model": { "provider": "scripted", "name": "x" },
    }))
    .unwrap();
    Lease {
        task: task(n),
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

impl House {
    async fn start(setup: Setup, work: Vec<Lease>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let (sender, seen) = mpsc::channel(1000);
        let coordinator = Arc::new(Coordinator {
            work: Mutex::new(work.into()),
            lost: Mutex::default(),
            refuses: setup.refuses,
            away: AtomicBool::new(false),
            news: Notify::new(),
            seen: sender,
        });
        let router = Router::new()
            .route("/v1/lease", post(lease))
            .route("/v1/heartbeat", post(heartbeat))
            .route("/v1/tasks/{id}/release", post(release))
            .with_state(Arc::clone(&coordinator));
        // In a runtime of its own, so that it can be away as after a kill: connections and all.
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
            labels: docket_schema::task::Labels::default(),
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
                mcp_env: HiddenEnv::default(),
                policy: None,
            },
            grace: setup.grace,
            hang_after: setup.hang_after,
            program: RunProgram {
                path: PathBuf::from(setup.program),
                args: vec!["-c".into(), setup.script.replace("$D", dir.path().to_str().unwrap()).into()],
                inherit: vec!["PATH".into()],
            },
            incarnation: crate::clock::new_incarnation(),
            failpoints: Vec::new(),
        };
        let (signals, caught) = mpsc::channel(2);
        let caught = Box::pin(stream::unfold(caught, |mut caught| async move {
            caught.recv().await.map(|()| ((), caught))
        }));
        let worker = tokio::spawn(run(config, async { Ok(Preflight::default()) }, caught));
        Self { dir, coordinator, seen, server: Some(server), signals, worker }
    }

    async fn written(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        for _ in 0..4_000 {
            match std::fs::read_to_string(&path) {
                Ok(text) if text.ends_with('\n') => return text,
                _ => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        panic!("nothing in {name}");
    }

    async fn pid(&self, name: &str) -> i32 {
        self.written(name).await.trim().parse().unwrap()
    }

    async fn next_release(&mut self) -> (TaskId, ReleaseRequest) {
        loop {
            if let Seen::Release(task, request) = self.seen.recv().await.unwrap() {
                return (task, request);
            }
        }
    }

    async fn lease_request(&mut self, number: u64) -> LeaseRequest {
        loop {
            match self.seen.recv().await.unwrap() {
                Seen::Lease(request) if request.number == number => return request,
                _ => {}
            }
        }
    }

    async fn signal(&self) {
        self.signals.send(()).await.unwrap();
    }

    async fn end(mut self) -> (SupervisorReport, Vec<(TaskId, ReleaseRequest)>) {
        let report = (&mut self.worker).await.unwrap().unwrap();
        let left: Vec<PathBuf> = list(&self.dir.path().join("scratch"));
        assert!(left.is_empty(), "{left:?}");
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
        let mut releases = Vec::new();
        while let Ok(seen) = self.seen.try_recv() {
            if let Seen::Release(task, request) = seen {
                releases.push((task, request));
            }
        }
        (report, releases)
    }
}

impl Drop for House {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.shutdown_background();
        }
    }
}

fn list(dir: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn crashed(how: &str) -> ReleaseReason {
    ReleaseReason::Crashed(how.to_owned())
}

#[tokio::test]
async fn a_leased_run_gets_a_process_and_ends() {
    let script = "cat > $D/boot; echo >> $D/boot; env | cut -d= -f1 | sort | tr '\\n' ' ' > $D/env; exit 0";
    let mut house = House::start(runs(script), vec![work(1, LONG_MS)]).await;
    let first = house.lease_request(1).await;
    assert_eq!((first.max, first.engines.len()), (1, crate::engine::engines().len()));
    // The only slot is taken until the process has ended.
    let second = house.lease_request(2).await;
    assert_eq!((second.max, second.incarnation), (1, first.incarnation));
    let boot: Bootstrap = serde_json::from_str(&house.written("boot").await).unwrap();
    assert_eq!((boot.lease, boot.incarnation), (work(1, LONG_MS), first.incarnation));
    assert_eq!(boot.keys["anthropic"], "sk-1");
    assert!(boot.scratch.starts_with(house.dir.path().join("scratch")));
    let names = std::fs::read_to_string(house.dir.path().join("env")).unwrap();
    assert!(names.split(' ').all(|n| ["PATH", "PWD", "OLDPWD", "SHLVL", "_", ""].contains(&n)), "{names}");
    house.signal().await;
    let (report, releases) = house.end().await;
    assert_eq!(report.end, SupervisorEnd::Drained);
    assert_eq!(report.tally, Tally { started: 1, finished: 1, ..Tally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn the_last_that_is_heard_of_a_worker_is_that_it_has_ended() {
    let script = "cat > /dev/null; echo > $D/began; while [ ! -e $D/may_end ]; do sleep 0.01; done";
    let mut house = House::start(runs(script), vec![Lease { heartbeat_ms: 20, ..work(1, LONG_MS) }]).await;
    house.written("began").await;
    // Its one slot is taken, which is all that the coordinator has heard of its room by then.
    loop {
        if let Seen::Beat(beat) = house.seen.recv().await.unwrap() {
            assert!(beat.room.unwrap().full.unwrap().contains("slot is taken"));
            break;
        }
    }
    house.signal().await;
    std::fs::write(house.dir.path().join("may_end"), "").unwrap();
    (&mut house.worker).await.unwrap().unwrap();
    let mut last = None;
    while let Ok(seen) = house.seen.try_recv() {
        last = Some(seen);
    }
    let Some(Seen::Beat(HeartbeatRequest { held, room: Some(room), .. })) = last else { panic!("{last:?}") };
    assert_eq!((held.len(), room.full.as_deref()), (0, Some(ROOM_DRAINS)));
}

#[tokio::test]
async fn a_process_that_dies_is_given_back_at_once_with_its_end() {
    let script = "cat > /dev/null; test -e $D/second && exit 101; echo > $D/second; kill -9 $$";
    let mut house = House::start(runs(script), vec![work(1, LONG_MS), work(2, LONG_MS)]).await;
    let (first, request) = house.next_release().await;
    assert_eq!((first, request.epoch, request.why), (task(1), Epoch(3), crashed("signal 9")));
    assert_eq!(house.next_release().await.1.why, crashed("exit 101"));
    house.signal().await;
    let (report, releases) = house.end().await;
    assert_eq!((report.tally.crashed, releases.len()), (2, 0));
}

#[tokio::test]
async fn a_process_that_hangs_is_killed_and_given_back_as_crashed() {
    // Stopped, it can neither work nor be asked to end; its child is in a group of its own.
    let script = "cat > /dev/null; sleep 1000 & echo $! > $D/child; kill -STOP $$";
    let setup = Setup { hang_after: Some(Duration::from_millis(400)), ..runs(script) };
    let mut house = House::start(setup, vec![work(1, LONG_MS)]).await;
    let child = house.pid("child").await;
    let (task_of, request) = house.next_release().await;
    let why = crashed("no progress in the time it may take; killed");
    assert_eq!((task_of, request.why), (task(1), why));
    gone(child).await;
    house.signal().await;
    let (report, _) = house.end().await;
    assert_eq!(report.tally, Tally { started: 1, crashed: 1, ..Tally::default() });
}

#[tokio::test]
async fn a_process_that_says_what_it_is_at_lives_longer_than_the_time_of_one_step() {
    let script = r#"cat > $D/boot; note=$(sed 's/.*"progress":"\([^"]*\)".*/\1/' $D/boot)
        for i in 1 2 3 4 5 6 7 8; do printf '%020d %020d\n' $i 60000 > "$note"; sleep 0.5; done; exit 0"#;
    let setup = Setup { hang_after: Some(Duration::from_secs(3)), ..runs(script) };
    let mut house = House::start(setup, vec![work(1, LONG_MS)]).await;
    // Asked again once its slot is free.
    house.lease_request(1).await;
    house.lease_request(2).await;
    house.signal().await;
    let (report, releases) = house.end().await;
    assert_eq!(report.tally, Tally { started: 1, finished: 1, ..Tally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn a_drain_lets_turns_end_and_gives_the_leases_back() {
    let script = "cat > /dev/null; trap 'exit 75' TERM; echo > $D/$$.ready; while :; do sleep 0.01; done";
    let setup = Setup { slots: 2, ..runs(script) };
    let house = House::start(setup, vec![work(1, LONG_MS), work(2, LONG_MS)]).await;
    while list(house.dir.path()).iter().filter(|path| path.extension().is_some()).count() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    house.signal().await;
    let (report, releases) = house.end().await;
    assert_eq!(report.end, SupervisorEnd::Drained);
    assert_eq!(report.tally, Tally { started: 2, drained: 2, ..Tally::default() });
    assert_eq!(releases.len(), 2);
    assert!(releases.iter().all(|(_, request)| request.why == ReleaseReason::Drained));
}

#[tokio::test]
async fn one_that_does_not_listen_is_killed_after_the_grace_or_at_the_second_signal() {
    let script = "cat > /dev/null; trap '' TERM; echo $$ > $D/pid; while :; do sleep 600; done";
    for (grace, signals) in [(Duration::from_millis(50), 1), (Duration::from_secs(600), 2)] {
        let house = House::start(Setup { grace, ..runs(script) }, vec![work(1, LONG_MS)]).await;
        let pid = house.pid("pid").await;
        for _ in 0..signals {
            house.signal().await;
        }
        let (report, releases) = house.end().await;
        gone(pid).await;
        assert_eq!(report.end, SupervisorEnd::Killed);
        assert_eq!(report.tally, Tally { started: 1, drained: 1, killed: 1, ..Tally::default() });
        assert_eq!(releases[0].1.why, ReleaseReason::Drained, "the kill was ours, not the task's");
    }
}

#[tokio::test]
async fn a_lost_lease_ends_the_run_at_once_without_a_release() {
    let script = "cat > /dev/null; sleep 600 & echo $! > $D/other; echo $$ > $D/pid; wait";
    let mut house = House::start(runs(script), vec![work(1, LONG_MS)]).await;
    let (pid, other) = (house.pid("pid").await, house.pid("other").await);
    house.coordinator.lost.lock().unwrap().push(LostLease { task: task(1), why: LostWhy::Fenced });
    house.coordinator.news.notify_waiters();
    gone(pid).await;
    gone(other).await;
    // Only now is the slot free again.
    house.lease_request(2).await;
    house.signal().await;
    let (report, releases) = house.end().await;
    assert_eq!(report.tally, Tally { started: 1, lost: 1, killed: 1, ..Tally::default() });
    assert!(releases.is_empty());
}

#[tokio::test]
async fn nobody_of_a_run_outlives_its_process() {
    // One orphan in the run's own group, whose parent has ended; one in a group of its own, as git has.
    let script = "cat > /dev/null; (sh -c 'echo $$ > $D/orphan; exec sleep 600' &); \
                  set -m; sh -c 'echo $$ > $D/apart; exec sleep 600' & set +m; \
                  while ! test -s $D/orphan || ! test -s $D/apart; do sleep 0.01; done; kill -9 $$";
    let mut house = House::start(runs(script), vec![work(1, LONG_MS)]).await;
    assert_eq!(house.next_release().await.1.why, crashed("signal 9"));
    gone(house.pid("orphan").await).await;
    gone(house.pid("apart").await).await;
    house.signal().await;
    house.end().await;
}

#[tokio::test]
async fn a_run_ends_at_the_instant_from_which_another_worker_may_have_its_task() {
    let script = "cat > /dev/null; trap '' TERM; echo $$ > $D/pid; while :; do sleep 600; done";
    let mut house = House::start(runs(script), vec![work(1, 300)]).await;
    let pid = house.pid("pid").await;
    // Renewed more than once before the coordinator goes away.
    let mut beats = 0;
    while beats < 3 {
        if let Seen::Beat(request) = house.seen.recv().await.unwrap() {
            assert_eq!(request.held[0].task, task(1));
            beats += 1;
        }
    }
    house.server.take().unwrap().shutdown_background();
    gone(pid).await;
    house.signal().await;
    let (report, _) = house.end().await;
    assert_eq!(report.tally, Tally { started: 1, lost: 1, killed: 1, ..Tally::default() });
}

#[tokio::test]
async fn runs_go_on_while_the_coordinator_is_away_and_what_is_to_be_said_is_said_later() {
    let script = "cat > /dev/null; echo > $D/ready; until test -e $D/go; do sleep 0.01; done; exit 3";
    let mut house = House::start(runs(script), vec![Lease { heartbeat_ms: 20, ..work(1, LONG_MS) }]).await;
    house.written("ready").await;
    house.coordinator.away.store(true, Ordering::SeqCst);
    let mut beats = 0;
    while beats < 5 {
        beats += usize::from(matches!(house.seen.recv().await.unwrap(), Seen::Beat(_)));
    }
    std::fs::write(house.dir.path().join("go"), "").unwrap();
    while !matches!(house.seen.recv().await.unwrap(), Seen::ReleaseRefused) {}
    house.coordinator.away.store(false, Ordering::SeqCst);
    assert_eq!(house.next_release().await.1.why, crashed("exit 3"));
    house.signal().await;
    assert_eq!(house.end().await.0.tally, Tally { started: 1, crashed: 1, ..Tally::default() });
}

#[tokio::test]
async fn run_process_that_cannot_be_started_is_a_fault_of_the_worker() {
    let setup = Setup { program: "/no/such/program", ..runs("") };
    let mut house = House::start(setup, vec![work(1, LONG_MS)]).await;
    let why = house.next_release().await.1.why;
    let names_program = matches!(&why, ReleaseReason::WorkerFault(message) if message.contains("cannot start /no/such/program"));
    assert!(names_program, "{why:?}");
    house.signal().await;
    assert_eq!(house.end().await.0.tally.crashed, 0);
}

#[tokio::test]
async fn a_refused_token_ends_the_worker_and_says_what_helps() {
    let house = House::start(Setup { refuses: true, ..runs("") }, Vec::new()).await;
    let (report, _) = house.end().await;
    let SupervisorEnd::Refused(why) = report.end else { panic!("{report:?}") };
    assert!(why.contains("DOCKET_TOKEN"), "{why}");
}
