//! Import from another installation, and garbage collection.

use std::{collections::BTreeMap, time::Duration};

use docket_coordinator::{
    decide, gc,
    store::{AppendError, ImportError, ImportStream, RunImport},
};
use docket_schema::{
    api::GcRequest,
    content::{BlobRef, Content, WorkspacePath},
    event::{Envelope, NewEvent, TypedEvent as _},
    export::LineageValidator,
    ids::{BlobHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Turn},
    message::ModelRef,
    run::{
        EngineRef, ForkReason, Forked, ModelTerms, RunEvent, RunModels, RunOutcome, RunPrompts, RunSettings,
        RunStarted, SandboxLayers, Told,
    },
    snapshot::{Entry, EntryKind, Manifest, WorkspaceBase},
    system::TaskRunRef,
    task::TaskState,
};

use super::{
    DatabaseKind, StoreFixture, TestDatabase,
    fixture::{BASE_MANIFEST, new_blob, note_event, task_spec},
};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Another installation, always on SQLite.
async fn other_installation() -> StoreFixture {
    let world = StoreFixture::open(TestDatabase::new(&DatabaseKind::Sqlite, "elsewhere").await).await;
    // Ids start at the same number in every fixture.
    for _ in 0..1000 {
        world.next_id();
    }
    world
}

fn run_started(task: TaskId, run: RunId) -> NewEvent {
    let base = BlobRef::for_bytes(BASE_MANIFEST);
    let event = RunStarted {
        task,
        run,
        attempt: 1,
        engine: EngineRef { name: "react".to_owned(), version: 1 },
        models: RunModels::single_model(
            ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
            ModelTerms::default(),
        ),
        settings: RunSettings::default(),
        prompts: RunPrompts { system: base, tools: base, task: base },
        base: task_spec("").base,
        gates: vec![],
        tests: None,
        external: vec![],
        servers_left_out: vec![],
        linters: vec![],
        roles: vec![],
        requires: vec![],
        policy: None,
        policies: Vec::new(),
        sandbox: SandboxLayers::default(),
        worker: IncarnationId(uuid::Uuid::nil()),
    };
    RunEvent::from(event).encode(Turn(0))
}

pub(super) fn message_with_blob(blob: BlobRef) -> NewEvent {
    RunEvent::from(Told { text: Content::Blob(blob), by: "test".to_owned() }).encode(Turn(0))
}

/// Builds the export of `run`: the tasks first, then the runs it builds on, each up to its fork
/// point.
async fn build_import(from: &StoreFixture, tasks: &[TaskId], runs: &[(RunId, Option<Seq>)]) -> RunImport {
    let mut streams = Vec::new();
    let mut lineage = LineageValidator::default();
    let ids = tasks.iter().map(|id| (StreamId::Task(*id), None));
    for (stream, until) in ids.chain(runs.iter().map(|(id, until)| (StreamId::Run(*id), *until))) {
        let mut events = from.read_stream(stream.clone()).await;
        events.retain(|event| until.is_none_or(|until| event.seq <= until));
        events.iter().for_each(|event| lineage.push(event).expect("it is a lineage"));
        streams.push(ImportStream { stream, run_of: None, events });
    }
    let (run, _) = *runs.last().expect("a run");
    let places: BTreeMap<RunId, TaskRunRef> =
        lineage.resolve_runs(run).expect("a lineage").into_iter().collect();
    for stream in &mut streams {
        if let StreamId::Run(run) = &stream.stream {
            stream.run_of = places.get(run).copied();
        }
    }
    let task = places[&run].task;
    let (by, made_by, names) =
        ("ann".to_owned(), "a test".to_owned(), vec![BlobHash::hash_bytes(BASE_MANIFEST)]);
    RunImport { run, task, by, made_by, streams, required_blobs: names }
}

fn is_same_history(one: &[Envelope], other: &[Envelope]) -> bool {
    let hashes = |events: &[Envelope]| events.iter().map(|event| event.hash).collect::<Vec<_>>();
    hashes(one) == hashes(other)
}

/// Two runs of one task elsewhere: the second continues the first, which ended as superseded.
async fn resumed_run_in_other_installation() -> (StoreFixture, TaskId, RunId, RunId) {
    let from = other_installation().await;
    let task = from.submit(task_spec("carried")).await;
    let first = from.new_worker().lease_one().await;
    let events = vec![run_started(task, first.run), note_event(1), note_event(2)];
    let head = from.append(first.run, Seq(0), first.record.epoch, events).await.expect("appends").head;
    let second = RunId(from.next_id());
    let forked = Forked {
        run: second,
        task,
        parent: first.run,
        seq: head.seq,
        hash: head.hash,
        turn: Turn(0),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    from.run_command(task, move |record| decide::resume(record, "ann", forked.clone(), Vec::new()))
        .await
        .expect("resumes");
    (from, task, first.run, second)
}

pub(super) async fn imported_run_is_identical_and_unleased(database: TestDatabase) {
    let here = StoreFixture::open(database).await;
    let from = other_installation().await;
    let task = from.submit(task_spec("carried")).await;
    let lease = from.new_worker().lease_one().await;
    let (run, epoch) = (lease.run, lease.record.epoch);
    from.append(run, Seq(0), epoch, vec![run_started(task, run), note_event(1)]).await.expect("appends");

    // It was exported while it was running.
    let half = build_import(&from, &[task], &[(run, None)]).await;
    let done = here.store.import_run(half.clone(), here.now()).await.expect("imports");
    assert_eq!(done.streams.len(), 2);
    assert!(is_same_history(&here.read_stream(StreamId::Run(run)).await, &half.streams[1].events));
    let record = here.task(task).await;
    assert_eq!((record.state, record.spec.title.as_str()), (TaskState::Cancelled, "carried"));
    assert!(here.new_worker().lease(5).await.is_empty(), "imported tasks are not leased");
    assert_eq!(here.expire_leases().await + here.make_due_tasks_available().await, 0);
    let refused =
        here.append(run, Seq(2), epoch, vec![note_event(9)]).await.expect_err("its own worker is elsewhere");
    assert!(matches!(refused, AppendError::Closed), "{refused}");
    here.check_consistency().await;

    let again = here.store.import_run(half, here.now()).await.expect("imports");
    assert!(again.streams.is_empty(), "{again:?}");

    // It continued elsewhere: only the new events are added.
    let worker = from.new_worker();
    let lease = docket_coordinator::store::GrantedLease { record: from.task(task).await, ..lease };
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    let whole = build_import(&from, &[task], &[(run, None)]).await;
    let done = here.store.import_run(whole.clone(), here.now()).await.expect("imports");
    assert_eq!(done.streams.iter().map(|s| s.from).collect::<Vec<_>>(), [Seq(3)]);
    assert!(is_same_history(&here.read_stream(StreamId::Run(run)).await, &whole.streams[1].events));
    assert_eq!(here.store.get_run(run).await.expect("reads").expect("exists").status, "succeeded");
    let behind = build_import(&from, &[task], &[(run, Some(Seq(1)))]).await;
    assert!(here.store.import_run(behind, here.now()).await.expect("imports").streams.is_empty());
    here.check_consistency().await;
    // Local writes continue after the imported ones.
    here.submit(task_spec("another")).await;
    here.check_consistency().await;
}

pub(super) async fn import_is_all_or_nothing(database: TestDatabase) {
    let here = StoreFixture::open(database).await;
    let (from, task, first, second) = resumed_run_in_other_installation().await;
    let good = build_import(&from, &[task], &[(first, Some(Seq(3))), (second, None)]).await;
    let before = here.read_feed().await.len();

    let missing = BlobHash::hash_bytes(b"never stored");
    let lacking = RunImport { required_blobs: vec![missing], ..good.clone() };
    let refused = here.store.import_run(lacking, here.now()).await.expect_err("a blob is missing");
    assert!(matches!(refused, ImportError::BlobMissing(hash) if hash == missing), "{refused}");
    assert_eq!(here.read_feed().await.len(), before);

    here.store.import_run(good.clone(), here.now()).await.expect("imports");
    let after = here.read_feed().await.len();
    // The same run from elsewhere, with a different second event: its task and first event are equal.
    let mut other = good.clone();
    let mut head = docket_schema::event::Head::EMPTY;
    for (n, event) in other.streams[1].events.iter_mut().enumerate() {
        if n == 1 {
            event.payload = note_event(77).payload;
        }
        event.prev_hash = head.hash;
        event.hash = event.compute_hash();
        head = docket_schema::event::verify_and_advance(head, event).expect("follows");
    }
    let refused = here.store.import_run(other, here.now()).await.expect_err("another history");
    assert!(
        matches!(&refused, ImportError::Differs { stream, seq } if *stream == StreamId::Run(first) && *seq == Seq(2)),
        "{refused}"
    );
    assert_eq!(here.read_feed().await.len(), after);

    // A file does not overwrite a local run either.
    let own = here.submit(task_spec("own")).await;
    let lease = here.new_worker().lease_one().await;
    here.append(lease.run, Seq(0), lease.record.epoch, vec![run_started(own, lease.run)])
        .await
        .expect("appends");
    let mut longer = build_import(&here, &[own], &[(lease.run, None)]).await;
    assert!(here.store.import_run(longer.clone(), here.now()).await.expect("all is here").streams.is_empty());
    let mut next = longer.streams[1].events[0].clone();
    (next.seq, next.prev_hash, next.payload) = (Seq(2), next.hash, note_event(1).payload);
    next.kind = "Told".to_owned();
    next.hash = next.compute_hash();
    longer.streams[1].events.push(next);
    let refused = here.store.import_run(longer, here.now()).await.expect_err("it lives here");
    assert!(matches!(refused, ImportError::DivergingRun { here: Seq(1), file: Seq(2), .. }), "{refused}");
    here.append(lease.run, Seq(1), lease.record.epoch, vec![note_event(1)])
        .await
        .expect("its holder continues");
    here.check_consistency().await;
}

pub(super) async fn imported_lineage_can_be_resumed(database: TestDatabase) {
    let here = StoreFixture::open(database).await;
    let (from, task, first, second) = resumed_run_in_other_installation().await;
    let import = build_import(&from, &[task], &[(first, Some(Seq(3))), (second, None)]).await;
    here.store.import_run(import, here.now()).await.expect("imports");
    here.check_consistency().await;
    let runs = here.store.list_task_runs(task).await.expect("reads");
    assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(runs[1].parent.map(|parent| (parent.run, parent.seq)), Some((first, Seq(3))));

    // The parent alone, with the end that the child does not share.
    let parent = build_import(&from, &[task], &[(first, None)]).await;
    let done = here.store.import_run(parent, here.now()).await.expect("imports");
    assert_eq!(done.streams.iter().map(|s| (s.from, s.head.seq)).collect::<Vec<_>>(), [(Seq(4), Seq(4))]);
    here.check_consistency().await;

    // A later run of the task that the local task stream does not mention.
    let third = RunId(from.next_id());
    let head = from.store.stream_head(StreamId::Run(first)).await.expect("reads").expect("exists");
    let on = from.read_stream(StreamId::Run(first)).await[2].clone();
    assert!(head.seq > on.seq);
    let forked = |run, parent: &Envelope| Forked {
        run,
        task,
        parent: first,
        seq: parent.seq,
        hash: parent.hash,
        turn: Turn(0),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let elsewhere = forked(third, &on);
    from.run_command(task, move |record| decide::resume(record, "ann", elsewhere.clone(), Vec::new()))
        .await
        .expect("resumes");
    let import = build_import(&from, &[task], &[(first, Some(Seq(3))), (third, None)]).await;
    let done = here.store.import_run(import, here.now()).await.expect("imports");
    assert_eq!(done.streams.len(), 1, "the task is left as it is here");
    here.check_consistency().await;

    // Continued here by a person's command.
    let fourth = RunId(here.next_id());
    let going_on = forked(fourth, &on);
    here.run_command(task, move |record| decide::resume(record, "bob", going_on.clone(), Vec::new()))
        .await
        .expect("resumes");
    let lease = here.new_worker().lease_one().await;
    assert_eq!((lease.run, lease.forked), (fourth, true));
    here.append(fourth, Seq(1), lease.record.epoch, vec![note_event(5)]).await.expect("appends");
    here.check_consistency().await;
}

async fn collect_garbage(world: &StoreFixture, delete: bool) -> docket_schema::api::GcResponse {
    let request = GcRequest { delete, untouched_for_ms: None };
    gc::collect(&*world.store, request, |ms| world.now().minus_ms(ms)).await.expect("collects")
}

async fn is_stored(world: &StoreFixture, hash: BlobHash) -> bool {
    !world.store.find_present_blobs(vec![hash]).await.expect("reads").is_empty()
}

pub(super) async fn gc_deletes_unreferenced_blobs(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let content = b"a file of a base without a pack";
    let path = WorkspacePath::new("a").expect("legal");
    let size = content.len() as u64;
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size, hash: BlobHash::hash_bytes(content) };
    let manifest = Manifest { entries: [(path, entry)].into() };
    let bytes = manifest.encode();
    let stored = [&bytes[..], content, b"told", b"orphan one", b"orphan two"];
    world
        .store
        .put_blobs(stored.iter().map(|bytes| new_blob(bytes)).collect(), world.now())
        .await
        .expect("stores");
    let base = WorkspaceBase { manifest: BlobRef::for_bytes(&bytes), tree: manifest.tree_hash(), git: None };
    world.submit(docket_schema::task::TaskSpec { base, ..task_spec("a") }).await;
    let lease = world.new_worker().lease_one().await;
    let mut append = world.lease_append(
        lease.run,
        Seq(0),
        lease.record.epoch,
        vec![message_with_blob(BlobRef::for_bytes(b"told"))],
    );
    append.required_blobs = vec![BlobHash::hash_bytes(b"told")];
    world.store.append(append).await.expect("appends");

    assert_eq!(collect_garbage(&world, true).await.recent, 6, "all of it was stored just now");
    world.advance_clock(DAY_MS + HOUR_MS);
    world
        .store
        .put_blobs(vec![new_blob(b"orphan two"), new_blob(b"new")], world.now())
        .await
        .expect("stores");
    let dry = collect_garbage(&world, false).await;
    // The fixture's own base is also unreferenced: the only task here has a different one.
    assert_eq!((dry.blobs, dry.recent, dry.orphans, dry.dropped), (7, 2, 2, 0), "{dry:?}");
    assert_eq!((dry.named, dry.named_by_blobs), (2, 1), "{dry:?}");
    assert!(is_stored(&world, BlobHash::hash_bytes(b"orphan one")).await, "a dry run drops nothing");
    let wet = collect_garbage(&world, true).await;
    let orphans = (b"orphan one".len() + BASE_MANIFEST.len()) as u64;
    assert_eq!((wet.orphans, wet.dropped, wet.dropped_bytes), (2, 2, orphans), "{wet:?}");
    for bytes in [&bytes[..], content, b"told", b"orphan two", b"new"] {
        assert!(is_stored(&world, BlobHash::hash_bytes(bytes)).await, "{}", String::from_utf8_lossy(bytes));
    }
    world.check_consistency().await;
    assert_eq!(collect_garbage(&world, true).await.orphans, 0);
}

pub(super) async fn blob_reserved_for_a_later_reference_is_not_collected(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    // A task that references the fixture's own base.
    world.submit(task_spec("a")).await;
    let hashes = vec![BlobHash::hash_bytes(b"old"), BlobHash::hash_bytes(b"never stored")];
    world.store.put_blobs(vec![new_blob(b"old")], world.now()).await.expect("stores");
    world.advance_clock(2 * DAY_MS);
    let kept = world.store.touch_blobs(hashes.clone(), world.now()).await.expect("keeps");
    assert_eq!(kept, hashes[..1]);
    assert_eq!(collect_garbage(&world, true).await.dropped, 0, "it was asked for in order to be named");
    world.advance_clock(2 * DAY_MS);
    assert_eq!(collect_garbage(&world, true).await.dropped, 1);
    assert!(world.store.touch_blobs(hashes, world.now()).await.expect("keeps").is_empty());
}

/// An open transaction in any database of a PostgreSQL server holds back the feed. Blobs referenced by the
/// events after it still count as referenced.
pub(super) async fn gc_counts_references_in_held_back_events(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let before = world.read_feed().await.len();
    let mut open = world.database.raw_connection().await;
    if !world.database.is_sqlite() {
        open.execute("BEGIN; CREATE TABLE forgotten (n int)").await.expect("takes a transaction's number");
    }
    let named = BlobRef::for_bytes(b"named");
    let mut append =
        world.lease_append(lease.run, Seq(0), lease.record.epoch, vec![message_with_blob(named)]);
    (append.required_blobs, append.blobs) = (vec![named.hash], vec![new_blob(b"named")]);
    world.store.append(append).await.expect("appends");
    if !world.database.is_sqlite() {
        let feed = world.store.read_log(Position(0), 100).await.expect("reads");
        assert_eq!(feed.len(), before, "the feed is held back");
    }
    world.advance_clock(2 * DAY_MS);
    let report = collect_garbage(&world, true).await;
    assert_eq!((report.orphans, report.dropped), (0, 0), "{report:?}");
    assert!(is_stored(&world, named.hash).await);
    if !world.database.is_sqlite() {
        open.execute("ROLLBACK").await.expect("ends");
    }
    world.check_consistency().await;
}

/// An append has found the blob it references, and waits; another coordinator collects meanwhile. On
/// PostgreSQL the row is locked, and skipped. On SQLite nothing is locked between reading and writing, so
/// the write itself must see that the blob is gone.
pub(super) async fn blob_of_a_pending_append_is_not_collected(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let at = world
        .append(lease.run, Seq(0), lease.record.epoch, vec![note_event(1)])
        .await
        .expect("appends")
        .head
        .seq;
    let wanted = BlobRef::for_bytes(b"wanted");
    world.store.put_blobs(vec![new_blob(b"wanted")], world.now()).await.expect("stores");
    world.advance_clock(2 * DAY_MS);
    let since = docket_schema::ids::Timestamp(world.now().0 - (DAY_MS * 1000) as i64);
    let mut append = world.lease_append(lease.run, at, lease.record.epoch, vec![message_with_blob(wanted)]);
    append.required_blobs = vec![wanted.hash];

    let other = world.open_second_coordinator().await;
    let mut raw = world.database.raw_connection().await;
    if world.database.is_sqlite() {
        raw.execute("BEGIN IMMEDIATE").await.expect("locks");
        let append = tokio::spawn({
            let world = world.clone();
            async move { world.store.append(append).await }
        });
        // Long enough for the append to have read the blob and be waiting on the lock.
        tokio::time::sleep(Duration::from_millis(300)).await;
        raw.execute("DELETE FROM blobs WHERE size = 6").await.expect("as another process's collection");
        raw.execute("COMMIT").await.expect("unlocks");
        let refused = append.await.expect("no panic").expect_err("what it names is gone");
        assert!(matches!(refused, AppendError::BlobMissing(hash) if hash == wanted.hash), "{refused}");
    } else {
        let sql = format!("BEGIN; SELECT 1 FROM streams WHERE name = 'run/{}' FOR UPDATE", lease.run);
        raw.execute(&sql).await.expect("locks");
        let append = tokio::spawn({
            let world = world.clone();
            async move { world.store.append(append).await }
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
        let mut watch = world.database.raw_connection().await;
        while watch.query_number(waiting).await.expect("reads") == 0 {
            tokio::task::yield_now().await;
        }
        let dropped = other.store.drop_blobs(vec![wanted.hash], since).await.expect("drops");
        assert!(dropped.is_empty(), "an append holds it: {dropped:?}");
        raw.execute("COMMIT").await.expect("unlocks");
        append.await.expect("no panic").expect("the blob it references exists");
    }
    world.check_consistency().await;
    let left = other.store.drop_blobs(vec![wanted.hash], since).await.expect("drops");
    assert!(left.is_empty(), "a reference refreshes the blob: {left:?}");
}

/// Appends reference old blobs through one coordinator while another collects repeatedly: everything
/// acknowledged exists.
pub(super) async fn concurrent_appends_and_gc_lose_nothing(database: TestDatabase) {
    const ROUNDS: u64 = 6;
    const BLOBS: u64 = 12;
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let epoch = lease.record.epoch;
    let mut at = Seq(0);
    let other = world.open_second_coordinator().await;
    for round in 0..ROUNDS {
        let all: Vec<Vec<u8>> = (0..BLOBS).map(|n| format!("blob {round} {n}").into_bytes()).collect();
        world.store.put_blobs(all.iter().map(|b| new_blob(b)).collect(), world.now()).await.expect("stores");
        world.advance_clock(2 * DAY_MS);
        let collecting = tokio::spawn({
            let other = other.clone();
            async move { collect_garbage(&other, true).await }
        });
        for bytes in &all {
            let named = BlobRef::for_bytes(bytes);
            let mut append = world.lease_append(lease.run, at, epoch, vec![message_with_blob(named)]);
            append.required_blobs = vec![named.hash];
            match world.store.append(append.clone()).await {
                Ok(done) => at = done.head.seq,
                Err(AppendError::BlobMissing(_)) => {
                    append.blobs = vec![new_blob(bytes)];
                    at = world.store.append(append).await.expect("brings it along").head.seq;
                }
                Err(other) => panic!("{other}"),
            }
        }
        collecting.await.expect("no panic");
        assert_eq!(collect_garbage(&other, true).await.orphans, 0, "only referenced blobs are left");
    }
    assert_eq!(at, Seq(ROUNDS * BLOBS));
    world.check_consistency().await;
}
