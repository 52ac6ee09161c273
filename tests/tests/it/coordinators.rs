//! Several coordinators on one PostgreSQL database: hints, who looks after the store, whose clock holds; and how the
//! database keeps what they write.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use docket_coordinator::{
    clock::Clock,
    http::{ApiToken, TokenRole},
    server::{self, PollIntervals, RunningServer, ServerConfig},
    store::{NewTask, Store, WorkerHeartbeat, postgres},
};
use docket_schema::{
    api::{HeartbeatRequest, HeldLease, LeaseRequest},
    ids::{IncarnationId, Seq, StreamId, TaskId, Timestamp},
    run::{EngineRef, RunOutcome},
    task::TaskState,
};
use docket_tests::{
    conformance::{
        DatabaseKind, StoreFixture, TestDatabase,
        database::RawConnection,
        fixture::{LEASE_MS, note_event, task_spec},
    },
    pg_cluster::PostgresCluster,
    system::{CoordinatorProcess, LeaseDuration, StoreLocation, wait_until},
};
use docket_worker::{client::CoordinatorClient, secret::Secret};
use sqlx::{AssertSqlSafe, Row as _, postgres::PgListener};

const TOKEN: &str = "dkt_0123456789abcdef0123456789abcdef";
/// Beyond any test's end.
const NEVER: Duration = Duration::from_secs(3600);
/// How long a worker waits: nobody may need so much.
const WAIT_MS: u64 = 30_000;

/// A coordinator of this process with a store of its own.
struct TestCoordinator {
    running: RunningServer,
    store: Arc<dyn Store>,
    client: CoordinatorClient,
}

impl TestCoordinator {
    async fn start(url: &str, polls: PollIntervals, clock: Clock) -> Result<Self> {
        let store: Arc<dyn Store> = Arc::new(postgres::open(url).await?);
        let tokens = vec![ApiToken::from_token("tester".to_owned(), TokenRole::Admin, TOKEN)];
        let config = ServerConfig { poll_intervals: polls, ..ServerConfig::loopback(0, tokens) };
        let running = server::start_server(Arc::clone(&store), config, Arc::new(clock)).await?;
        let client = CoordinatorClient::new(&running.url(), Secret::new(TOKEN).context("a token")?)?;
        Ok(Self { running, store, client })
    }

    fn is_hinted(&self) -> bool {
        self.running.handle().wakeups().hears_hints()
    }

    async fn stop(self) {
        self.running.shutdown().await;
        self.store.close().await;
    }
}

fn lease_request(world: &StoreFixture) -> LeaseRequest {
    LeaseRequest {
        engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
        wait_ms: WAIT_MS,
        ..world.new_worker().next_lease_request(1)
    }
}

async fn submit_task(world: &StoreFixture, at: &TestCoordinator) -> Result<TaskId> {
    let id = TaskId(world.next_id());
    at.store
        .submit(vec![NewTask { id, spec: task_spec("a"), fork: None }], "test".to_owned(), world.now())
        .await?;
    Ok(id)
}

/// A worker waits at `there` until a task that came in at `here` reaches it.
async fn check_task_reaches_worker(
    world: &StoreFixture,
    here: &TestCoordinator,
    there: &TestCoordinator,
    tells: bool,
) -> Result<()> {
    let request = lease_request(world);
    let incarnation = request.incarnation;
    let waiting = tokio::spawn({
        let client = there.client.clone();
        async move { client.lease(&request).await }
    });
    // It was looked at for it once, in vain.
    wait_until("a worker that waits", async || {
        let (_, workers) = there.store.read_status(Timestamp(0)).await.ok()?;
        workers.iter().any(|worker| worker.incarnation == incarnation).then_some(())
    })
    .await?;
    let task = submit_task(world, here).await?;
    // Who tells learns of the other's ears a moment after they are there.
    while tells && !waiting.is_finished() {
        here.running.handle().wakeups().notify_task_available();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = waiting.await??;
    ensure!(answer.leases.iter().map(|lease| lease.task).eq([task]), "{answer:?}");
    ensure!(answer.held_ms < WAIT_MS - 1000, "only the end of the wait brought it");
    Ok(())
}

async fn connection_pids(raw: &mut RawConnection) -> Result<BTreeSet<i32>> {
    let RawConnection::Postgres(conn) = raw else { anyhow::bail!("no PostgreSQL") };
    let sql = "SELECT pid FROM pg_stat_activity WHERE application_name = 'docket hints' AND datname = current_database()";
    let rows = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_all(conn).await?;
    rows.iter().map(|row| Ok(row.try_get::<i32, _>(0)?)).collect()
}

async fn create_database(cluster: &PostgresCluster, name: &str) -> (StoreFixture, String) {
    let kind = DatabaseKind::Postgres { server: cluster.url().to_owned() };
    let database = TestDatabase::new(&kind, name).await;
    let url = database.url().expect("a URL").to_owned();
    (StoreFixture::open(database).await, url)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn task_reaches_a_worker_at_another_coordinator_by_a_hint() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, url) = create_database(&cluster, "hints").await;
    let deaf = PollIntervals { with_hints: NEVER, without_hints: NEVER };
    let a = TestCoordinator::start(&url, deaf, Clock::new()).await?;
    let b = TestCoordinator::start(&url, deaf, Clock::new()).await?;
    let both = async || (a.is_hinted() && b.is_hinted()).then_some(());
    wait_until("both to listen", both).await?;
    check_task_reaches_worker(&world, &a, &b, true).await?;
    check_task_reaches_worker(&world, &b, &a, true).await?;

    // Their ears are cut off, and grow again.
    let mut raw = world.database.raw_connection().await;
    let before = connection_pids(&mut raw).await?;
    ensure!(before.len() == 2, "{before:?}");
    for pid in &before {
        raw.query_number(&format!("SELECT pg_terminate_backend({pid})::int::bigint")).await?;
    }
    loop {
        let now = connection_pids(&mut raw).await?;
        if now.len() == 2 && now.is_disjoint(&before) && a.is_hinted() && b.is_hinted() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    check_task_reaches_worker(&world, &a, &b, true).await?;
    a.stop().await;
    b.stop().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn coordinator_without_hints_polls() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, url) = create_database(&cluster, "unhinted").await;
    let deaf = PollIntervals { with_hints: NEVER, without_hints: NEVER };
    let polls = PollIntervals { with_hints: NEVER, without_hints: Duration::from_millis(50) };
    let a = TestCoordinator::start(&url, deaf, Clock::new()).await?;
    // As behind a pooler, where nobody can listen.
    let b = TestCoordinator::start(
        &format!("{}?pooler=transaction", url.trim_end_matches('?')),
        polls,
        Clock::new(),
    )
    .await?;
    check_task_reaches_worker(&world, &a, &b, false).await?;
    ensure!(!b.is_hinted(), "nobody can listen there");
    // It tells all the same.
    wait_until("the other to listen", async || a.is_hinted().then_some(())).await?;
    check_task_reaches_worker(&world, &b, &a, true).await?;
    a.stop().await;
    b.stop().await;
    Ok(())
}

/// Who looks after the store, and until when.
async fn leader_term(raw: &mut RawConnection) -> Result<Option<(String, i64)>> {
    let RawConnection::Postgres(conn) = raw else { anyhow::bail!("no PostgreSQL") };
    let sql = "SELECT holder, until_at FROM terms WHERE name = 'maintenance'";
    let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_optional(conn).await?;
    row.map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).transpose()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_with_wrong_clock_uses_the_database_time() -> Result<()> {
    const AN_HOUR_US: i64 = 3_600_000_000;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, url) = create_database(&cluster, "clock").await;
    let ahead =
        TestCoordinator::start(&url, PollIntervals::default(), Clock::with_wall_offset(AN_HOUR_US)).await?;
    let mut raw = world.database.raw_connection().await;
    let until_at = loop {
        if let Some((_, until_at)) = leader_term(&mut raw).await? {
            break until_at;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let now = raw.query_number("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").await?;
    ensure!((until_at - now).abs() < 60_000_000, "a term until {} s from now", (until_at - now) / 1_000_000);
    ahead.stop().await;
    Ok(())
}

/// The one that looks after the store is killed while one worker is dead and another lives.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_coordinator_ends_only_leases_of_dead_workers() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, url) = create_database(&cluster, "takeover").await;
    let mut a =
        CoordinatorProcess::start(StoreLocation::Postgres(url.clone()), LeaseDuration::Patient).await?;
    let mut raw = world.database.raw_connection().await;
    let first = loop {
        if let Some((holder, _)) = leader_term(&mut raw).await? {
            break holder;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let b = CoordinatorProcess::start(StoreLocation::Postgres(url), LeaseDuration::Patient).await?;
    let mut taken = Vec::new();
    for _ in 0..2 {
        world.submit(task_spec("a")).await;
        let request = lease_request(&world);
        let lease = a.client().lease(&request).await?.leases.pop().context("a lease")?;
        taken.push((request.incarnation, lease));
    }
    let (incarnation, living): (IncarnationId, _) = taken.pop().context("two")?;
    let (_, dead) = taken.pop().context("two")?;
    let beats = tokio::spawn({
        let (one, two) = (a.client().clone(), b.client().clone());
        let held = vec![HeldLease { task: living.task, epoch: living.epoch }];
        let beat = HeartbeatRequest { incarnation, held, room: None, wait_ms: 0 };
        async move {
            loop {
                let answer = match two.heartbeat(&beat).await {
                    Ok(answer) => Ok(answer),
                    Err(_) => one.heartbeat(&beat).await,
                };
                if answer.is_ok_and(|answer| !answer.lost.is_empty()) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(300)).await;
            }
        }
    });
    let (holder, _) = leader_term(&mut raw).await?.context("a term")?;
    ensure!(holder == first, "one at a time");
    a.process().kill().await?;
    wait_until("the end of the dead one's lease", async || {
        let task = world.store.get_task(dead.task).await.ok()??.0;
        (task.state == TaskState::Available).then_some(())
    })
    .await
    .with_context(|| b.log_tail())?;
    let (holder, _) = leader_term(&mut raw).await?.context("a term")?;
    ensure!(holder != first, "the other took over");
    let events = world.read_stream(StreamId::Task(dead.task)).await;
    let at = |kind: &str| events.iter().find(|event| event.kind == kind).map(|event| event.recorded_at.0);
    let lasted = at("TaskLeaseExpired").context("an end")? - at("TaskLeased").context("a lease")?;
    ensure!(lasted >= 4_000_000, "its lease lasted {lasted} us");
    ensure!(!beats.is_finished(), "the living one lost its lease");
    beats.abort();
    let task = world.store.get_task(living.task).await?.context("a task")?.0;
    ensure!((task.state, task.epoch) == (TaskState::Running, living.epoch), "{task:?}");
    world.store.close().await;
    b.end_and_check().await
}

/// A heartbeat changes no index: the row's new version stays on its page, and nothing is left for vacuum to find.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn heartbeats_are_hot_updates() -> Result<()> {
    const BEATS: i64 = 200;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, _) = create_database(&cluster, "hot").await;
    for _ in 0..4 {
        world.submit(task_spec("a")).await;
    }
    let worker = world.new_worker();
    let held: Vec<HeldLease> = worker
        .lease(4)
        .await
        .iter()
        .map(|lease| HeldLease { task: lease.record.id, epoch: lease.record.epoch })
        .collect();
    ensure!(held.len() == 4, "four leases");
    for _ in 0..BEATS {
        let beat = WorkerHeartbeat { incarnation: worker.incarnation, leases: held.clone(), capacity: None };
        world.store.renew_leases(beat, LEASE_MS, world.now()).await?;
    }
    let mut raw = world.database.raw_connection().await;
    // Sessions hand in their counts when they end.
    world.store.close().await;
    for (table, updates) in [("tasks", BEATS * 4), ("workers", BEATS)] {
        let of = |what: &str| format!("SELECT {what} FROM pg_stat_user_tables WHERE relname = '{table}'");
        while raw.query_number(&of("n_tup_upd")).await? < updates {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let cold = raw.query_number(&of("n_tup_upd - n_tup_hot_upd")).await?;
        ensure!(cold * 20 < updates, "{table}: {cold} of {updates} updates were not HOT");
    }
    Ok(())
}

/// What is asked again and again is answered by partial indexes, whatever has ended lies beside it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leasable_tasks_are_found_by_partial_indexes() -> Result<()> {
    const ENDED: usize = 3000;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, _) = create_database(&cluster, "indexes").await;
    let new = |spec| NewTask { id: TaskId(world.next_id()), spec, fork: None };
    for _ in 0..ENDED / 1000 {
        let tasks: Vec<NewTask> = (0..1000).map(|_| new(task_spec("ended"))).collect();
        let ids: Vec<TaskId> = tasks.iter().map(|task| task.id).collect();
        world.store.submit(tasks, "test".to_owned(), world.now()).await?;
        let cancels = ids.into_iter().map(|id| {
            world.run_command(id, |record| docket_coordinator::decide::cancel(record, "me", "enough"))
        });
        for cancelled in futures_util::future::join_all(cancels).await {
            cancelled.map_err(|error| anyhow::anyhow!("{error:?}"))?;
        }
    }
    let later = |ms| {
        let mut spec = task_spec("later");
        spec.run_at = Some(world.now().plus_ms(ms));
        spec.dedup_key = Some(format!("later {ms}"));
        spec
    };
    let tasks = (0..20u64).map(|n| new(if n < 10 { task_spec("now") } else { later(n * 1000) })).collect();
    world.store.submit(tasks, "test".to_owned(), world.now()).await?;
    let mut raw = world.database.raw_connection().await;
    raw.execute("ANALYZE").await?;
    raw.execute("SELECT pg_stat_reset()").await?;
    let store = world.database.open().await;
    let beside = world.with_store(Arc::clone(&store));
    beside.new_worker().lease(5).await;
    beside.advance_clock(LEASE_MS + 60_000);
    ensure!(beside.expire_leases().await == 5, "five leases");
    ensure!(beside.make_due_tasks_available().await == 10, "ten are due");
    store.submit(vec![new(later(10_000))], "test".to_owned(), world.now()).await?;
    store.close().await;
    let scans = |index: &str| {
        format!(
            "SELECT coalesce(sum(idx_scan), 0)::bigint FROM pg_stat_user_indexes WHERE indexrelname = '{index}'"
        )
    };
    for index in ["tasks_leasable", "tasks_running", "tasks_due", "tasks_dedup"] {
        wait_until(index, async || {
            let mut raw = world.database.raw_connection().await;
            raw.query_number(&scans(index)).await.is_ok_and(|scans| scans > 0).then_some(())
        })
        .await
        .with_context(|| format!("{index} is not used"))?;
    }
    let whole = raw.query_number("SELECT seq_scan FROM pg_stat_user_tables WHERE relname = 'tasks'").await?;
    ensure!(whole == 0, "{whole} scans of all tasks");
    Ok(())
}

/// Notifications are no part of what is written: the store's own writes send none. Those that are sent are empty, and few.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hints_are_empty_rare_and_not_part_of_appends() -> Result<()> {
    const MARK: &str = "mark";
    /// As the coordinator spaces them.
    const APART_MS: u128 = 20;
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, url) = create_database(&cluster, "empty").await;
    let mut ears = PgListener::connect(&url).await?;
    ears.listen_all(["docket_work", "docket_leases", "docket_due"]).await?;
    let mut raw = world.database.raw_connection().await;
    // Submits, leases, appends, ends: whatever a writing transaction notifies of came before the mark.
    let mut late = task_spec("later");
    late.run_at = Some(Timestamp(world.now().0 + 3_600_000_000));
    world.submit(late).await;
    for _ in 0..5 {
        world.submit(task_spec("a")).await;
        let worker = world.new_worker();
        let lease = worker.lease_one().await;
        world.append(lease.run, Seq(0), lease.record.epoch, vec![note_event(1), note_event(2)]).await?;
        worker.end_run(&lease, RunOutcome::Succeeded).await;
    }
    let mark = format!("NOTIFY docket_due, '{MARK}'");
    raw.execute(&mark).await?;
    let first = ears.recv().await?;
    ensure!(first.payload() == MARK, "a write notified of something: {first:?}");

    let deaf = PollIntervals { with_hints: NEVER, without_hints: NEVER };
    let a = TestCoordinator::start(&url, deaf, Clock::new()).await?;
    let b = TestCoordinator::start(&url, deaf, Clock::new()).await?;
    wait_until("both to listen", async || (a.is_hinted() && b.is_hinted()).then_some(())).await?;
    // Until they know of each other, and one of them tells.
    loop {
        a.running.handle().wakeups().notify_task_available();
        if tokio::time::timeout(Duration::from_millis(50), ears.recv()).await.is_ok() {
            break;
        }
    }
    let (began, mut news) = (Instant::now(), 0_u32);
    while began.elapsed() < Duration::from_millis(600) {
        a.running.handle().wakeups().notify_task_available();
        news += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let most = began.elapsed().as_millis() / APART_MS + 2;
    // What was told last is on its way.
    tokio::time::sleep(Duration::from_millis(200)).await;
    raw.execute(&mark).await?;
    let mut heard = 0;
    loop {
        let one = ears.recv().await?;
        if one.payload() == MARK {
            break;
        }
        ensure!(one.payload().is_empty(), "{one:?}");
        heard += u128::from(one.channel() == "docket_work");
    }
    ensure!(
        heard > 0 && heard <= most,
        "{heard} of {news} pieces of news, and at most {most} were to be told"
    );
    ensure!(u128::from(news) > most * 2, "control: there were far more, {news}");
    a.stop().await;
    b.stop().await;
    Ok(())
}

/// Each table is vacuumed by how it is written: what moves all the time soon, what only grows to be frozen.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_have_vacuum_settings_for_their_write_pattern() -> Result<()> {
    const MOVES: &[&str] = &["autovacuum_vacuum_scale_factor=0.01", "autovacuum_vacuum_threshold=1000"];
    const NEVER_RESTS: &[&str] = &["autovacuum_vacuum_scale_factor=0", "autovacuum_vacuum_threshold=200"];
    const GROWS: &[&str] =
        &["autovacuum_vacuum_insert_scale_factor=0", "autovacuum_vacuum_insert_threshold=50000"];
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let (world, _) = create_database(&cluster, "reloptions").await;
    let mut raw = world.database.raw_connection().await;
    for (table, fill, kept) in [
        ("events", None, GROWS),
        ("blobs", Some(90), GROWS),
        ("streams", Some(70), MOVES),
        ("tasks", Some(70), MOVES),
        ("runs", Some(90), MOVES),
        ("workers", Some(50), NEVER_RESTS),
        ("lease_requests", Some(50), NEVER_RESTS),
    ] {
        let sql = format!(
            "SELECT coalesce(array_to_string(reloptions, ' '), '') FROM pg_class WHERE oid = '{table}'::regclass"
        );
        let options = raw.query_text(&sql).await?;
        let options: BTreeSet<&str> = options.split(' ').collect();
        let fill = fill.map(|fill: u32| format!("fillfactor={fill}"));
        let mut wanted = kept.to_vec();
        wanted.extend(fill.as_deref());
        // Where rows die, whoever cleans up does not pause.
        wanted.extend((kept != GROWS).then_some("autovacuum_vacuum_cost_delay=0"));
        for option in wanted {
            ensure!(options.contains(option), "{table} has not {option}: {options:?}");
        }
    }
    Ok(())
}
