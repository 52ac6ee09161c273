//! What comes from another installation, and what is thrown away: import and garbage collection.

use std::{collections::BTreeMap, time::Duration};

use docket_coordinator::{
    decide, gc,
    store::{AppendError, Import, ImportError, ImportStream},
};
use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    event::{Envelope, NewEvent, TypedEvent as _},
    export::Lineage,
    ids::{BlobHash, IncarnationId, Position, RunId, Seq, StreamId, TaskId, Turn},
    message::ModelRef,
    run::{
        EngineRef, ForkWhy, Forked, ModelTerms, Models, Prompts, RunEvent, RunOutcome, RunSettings,
        RunStarted, SandboxLayers, Told,
    },
    snapshot::{Base, Entry, EntryKind, Manifest},
    system::RunOf,
    task::TaskState,
    wire::GcRequest,
};

use super::{
    Database, Kind, World,
    world::{BASE, blob, note, spec},
};

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;

/// Another installation, on SQLite whatever the case's own store is.
async fn elsewhere() -> World {
    let world = World::open(Database::new(&Kind::Sqlite, "elsewhere").await).await;
    // Ids count up from the same in every world.
    for _ in 0..1000 {
        world.id();
    }
    world
}

fn started(task: TaskId, run: RunId) -> NewEvent {
    let base = BlobRef::of(BASE);
    let event = RunStarted {
        task,
        run,
        attempt: 1,
        engine: EngineRef { name: "react".to_owned(), version: 1 },
        models: Models::only(
            ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
            ModelTerms::default(),
        ),
        settings: RunSettings::default(),
        prompts: Prompts { system: base, tools: base, task: base },
        base: spec("").base,
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

pub(super) fn told_of(blob: BlobRef) -> NewEvent {
    RunEvent::from(Told { text: Content::Blob(blob), by: "test".to_owned() }).encode(Turn(0))
}

/// What an export of `run` holds: the tasks first, then the runs it stands on, each up to where.
async fn exported(from: &World, tasks: &[TaskId], runs: &[(RunId, Option<Seq>)]) -> Import {
    let mut streams = Vec::new();
    let mut lineage = Lineage::default();
    let ids = tasks.iter().map(|id| (StreamId::Task(*id), None));
    for (stream, until) in ids.chain(runs.iter().map(|(id, until)| (StreamId::Run(*id), *until))) {
        let mut events = from.stream(stream.clone()).await;
        events.retain(|event| until.is_none_or(|until| event.seq <= until));
        events.iter().for_each(|event| lineage.push(event).expect("it is a lineage"));
        streams.push(ImportStream { stream, run_of: None, events });
    }
    let (run, _) = *runs.last().expect("a run");
    let places: BTreeMap<RunId, RunOf> = lineage.runs(run).expect("a lineage").into_iter().collect();
    for stream in &mut streams {
        if let StreamId::Run(run) = &stream.stream {
            stream.run_of = places.get(run).copied();
        }
    }
    let task = places[&run].task;
    let (by, made_by, names) = ("ann".to_owned(), "a test".to_owned(), vec![BlobHash::of(BASE)]);
    Import { run, task, by, made_by, streams, names }
}

fn same(one: &[Envelope], other: &[Envelope]) -> bool {
    let hashes = |events: &[Envelope]| events.iter().map(|event| event.hash).collect::<Vec<_>>();
    hashes(one) == hashes(other)
}

/// Two runs of one task elsewhere: the second goes on from the first, which ended as superseded.
async fn resumed_elsewhere() -> (World, TaskId, RunId, RunId) {
    let from = elsewhere().await;
    let task = from.submit(spec("carried")).await;
    let first = from.worker().lease_one().await;
    let events = vec![started(task, first.run), note(1), note(2)];
    let head = from.append(first.run, Seq(0), first.record.epoch, events).await.expect("appends").head;
    let second = RunId(from.id());
    let forked = Forked {
        run: second,
        task,
        parent: first.run,
        seq: head.seq,
        hash: head.hash,
        turn: Turn(0),
        why: ForkWhy::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    from.act(task, move |record| decide::resume(record, "ann", forked.clone(), Vec::new()))
        .await
        .expect("resumes");
    (from, task, first.run, second)
}

pub(super) async fn an_imported_run_is_the_same_and_nobodys(database: Database) {
    let here = World::open(database).await;
    let from = elsewhere().await;
    let task = from.submit(spec("carried")).await;
    let lease = from.worker().lease_one().await;
    let (run, epoch) = (lease.run, lease.record.epoch);
    from.append(run, Seq(0), epoch, vec![started(task, run), note(1)]).await.expect("appends");

    // It was exported while it ran.
    let half = exported(&from, &[task], &[(run, None)]).await;
    let done = here.store.import(half.clone(), here.now()).await.expect("imports");
    assert_eq!(done.streams.len(), 2);
    assert!(same(&here.stream(StreamId::Run(run)).await, &half.streams[1].events));
    let record = here.task(task).await;
    assert_eq!((record.state, record.spec.title.as_str()), (TaskState::Cancelled, "carried"));
    assert!(here.worker().lease(5).await.is_empty(), "nobody leases what was imported");
    assert_eq!(here.expire().await + here.due().await, 0);
    let refused =
        here.append(run, Seq(2), epoch, vec![note(9)]).await.expect_err("its own worker is elsewhere");
    assert!(matches!(refused, AppendError::Closed), "{refused}");
    here.check().await;

    let again = here.store.import(half, here.now()).await.expect("imports");
    assert!(again.streams.is_empty(), "{again:?}");

    // It went on elsewhere: what is new is added, and no more.
    let worker = from.worker();
    let lease = docket_coordinator::store::Granted { record: from.task(task).await, ..lease };
    worker.end(&lease, RunOutcome::Succeeded).await;
    let whole = exported(&from, &[task], &[(run, None)]).await;
    let done = here.store.import(whole.clone(), here.now()).await.expect("imports");
    assert_eq!(done.streams.iter().map(|s| s.from).collect::<Vec<_>>(), [Seq(3)]);
    assert!(same(&here.stream(StreamId::Run(run)).await, &whole.streams[1].events));
    assert_eq!(here.store.run(run).await.expect("reads").expect("exists").status, "succeeded");
    let behind = exported(&from, &[task], &[(run, Some(Seq(1)))]).await;
    assert!(here.store.import(behind, here.now()).await.expect("imports").streams.is_empty());
    here.check().await;
    // The writer goes on behind what was imported.
    here.submit(spec("another")).await;
    here.check().await;
}

pub(super) async fn an_import_is_all_or_nothing(database: Database) {
    let here = World::open(database).await;
    let (from, task, first, second) = resumed_elsewhere().await;
    let good = exported(&from, &[task], &[(first, Some(Seq(3))), (second, None)]).await;
    let before = here.feed().await.len();

    let missing = BlobHash::of(b"never stored");
    let lacking = Import { names: vec![missing], ..good.clone() };
    let refused = here.store.import(lacking, here.now()).await.expect_err("a blob is missing");
    assert!(matches!(refused, ImportError::BlobMissing(hash) if hash == missing), "{refused}");
    assert_eq!(here.feed().await.len(), before);

    here.store.import(good.clone(), here.now()).await.expect("imports");
    let after = here.feed().await.len();
    // The same run elsewhere again, with another second event: its task and first event are the same.
    let mut other = good.clone();
    let mut head = docket_schema::event::Head::EMPTY;
    for (n, event) in other.streams[1].events.iter_mut().enumerate() {
        if n == 1 {
            event.payload = note(77).payload;
        }
        event.prev_hash = head.hash;
        event.hash = event.computed_hash();
        head = docket_schema::event::follow(head, event).expect("follows");
    }
    let refused = here.store.import(other, here.now()).await.expect_err("another history");
    assert!(
        matches!(&refused, ImportError::Differs { stream, seq } if *stream == StreamId::Run(first) && *seq == Seq(2)),
        "{refused}"
    );
    assert_eq!(here.feed().await.len(), after);

    // Nor does a file go over a run that lives here.
    let own = here.submit(spec("own")).await;
    let lease = here.worker().lease_one().await;
    here.append(lease.run, Seq(0), lease.record.epoch, vec![started(own, lease.run)]).await.expect("appends");
    let mut longer = exported(&here, &[own], &[(lease.run, None)]).await;
    assert!(here.store.import(longer.clone(), here.now()).await.expect("all is here").streams.is_empty());
    let mut next = longer.streams[1].events[0].clone();
    (next.seq, next.prev_hash, next.payload) = (Seq(2), next.hash, note(1).payload);
    next.kind = "Told".to_owned();
    next.hash = next.computed_hash();
    longer.streams[1].events.push(next);
    let refused = here.store.import(longer, here.now()).await.expect_err("it lives here");
    assert!(matches!(refused, ImportError::Lives { here: Seq(1), file: Seq(2), .. }), "{refused}");
    here.append(lease.run, Seq(1), lease.record.epoch, vec![note(1)]).await.expect("its holder goes on");
    here.check().await;
}

pub(super) async fn an_imported_lineage_can_be_gone_on_with(database: Database) {
    let here = World::open(database).await;
    let (from, task, first, second) = resumed_elsewhere().await;
    let import = exported(&from, &[task], &[(first, Some(Seq(3))), (second, None)]).await;
    here.store.import(import, here.now()).await.expect("imports");
    here.check().await;
    let runs = here.store.runs_of(task).await.expect("reads");
    assert_eq!(runs.iter().map(|run| run.id).collect::<Vec<_>>(), [first, second]);
    assert_eq!(runs[1].parent.map(|parent| (parent.run, parent.seq)), Some((first, Seq(3))));

    // The parent by itself, with the end that the child does not share.
    let parent = exported(&from, &[task], &[(first, None)]).await;
    let done = here.store.import(parent, here.now()).await.expect("imports");
    assert_eq!(done.streams.iter().map(|s| (s.from, s.head.seq)).collect::<Vec<_>>(), [(Seq(4), Seq(4))]);
    here.check().await;

    // A later run of the task, of which the task's stream here says nothing.
    let third = RunId(from.id());
    let head = from.store.head(StreamId::Run(first)).await.expect("reads").expect("exists");
    let on = from.stream(StreamId::Run(first)).await[2].clone();
    assert!(head.seq > on.seq);
    let forked = |run, parent: &Envelope| Forked {
        run,
        task,
        parent: first,
        seq: parent.seq,
        hash: parent.hash,
        turn: Turn(0),
        why: ForkWhy::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let elsewhere = forked(third, &on);
    from.act(task, move |record| decide::resume(record, "ann", elsewhere.clone(), Vec::new()))
        .await
        .expect("resumes");
    let import = exported(&from, &[task], &[(first, Some(Seq(3))), (third, None)]).await;
    let done = here.store.import(import, here.now()).await.expect("imports");
    assert_eq!(done.streams.len(), 1, "the task is left as it is here");
    here.check().await;

    // And going on here, by a person's word.
    let fourth = RunId(here.id());
    let going_on = forked(fourth, &on);
    here.act(task, move |record| decide::resume(record, "bob", going_on.clone(), Vec::new()))
        .await
        .expect("resumes");
    let lease = here.worker().lease_one().await;
    assert_eq!((lease.run, lease.forked), (fourth, true));
    here.append(fourth, Seq(1), lease.record.epoch, vec![note(5)]).await.expect("appends");
    here.check().await;
}

async fn collect(world: &World, delete: bool) -> docket_schema::wire::GcResponse {
    let request = GcRequest { delete, untouched_for_ms: None };
    gc::collect(&*world.store, request, |ms| world.now().minus_ms(ms)).await.expect("collects")
}

async fn is_stored(world: &World, hash: BlobHash) -> bool {
    !world.store.blobs_present(vec![hash]).await.expect("reads").is_empty()
}

pub(super) async fn gc_drops_what_nothing_names(database: Database) {
    let world = World::open(database).await;
    let content = b"a file of a base without a pack";
    let path = WorkPath::new("a").expect("legal");
    let size = content.len() as u64;
    let entry = Entry { kind: EntryKind::File, mode: 0o644, size, hash: BlobHash::of(content) };
    let manifest = Manifest { entries: [(path, entry)].into() };
    let bytes = manifest.encode();
    let stored = [&bytes[..], content, b"told", b"orphan one", b"orphan two"];
    world
        .store
        .put_blobs(stored.iter().map(|bytes| blob(bytes)).collect(), world.now())
        .await
        .expect("stores");
    let base = Base { manifest: BlobRef::of(&bytes), tree: manifest.tree_hash(), git: None };
    world.submit(docket_schema::task::TaskSpec { base, ..spec("a") }).await;
    let lease = world.worker().lease_one().await;
    let mut append =
        world.holder_append(lease.run, Seq(0), lease.record.epoch, vec![told_of(BlobRef::of(b"told"))]);
    append.names = vec![BlobHash::of(b"told")];
    world.store.append(append).await.expect("appends");

    assert_eq!(collect(&world, true).await.recent, 6, "all of it was stored just now");
    world.pass(DAY_MS + HOUR_MS);
    world.store.put_blobs(vec![blob(b"orphan two"), blob(b"new")], world.now()).await.expect("stores");
    let dry = collect(&world, false).await;
    // The world's own base is an orphan too: the one task here has another.
    assert_eq!((dry.blobs, dry.recent, dry.orphans, dry.dropped), (7, 2, 2, 0), "{dry:?}");
    assert_eq!((dry.named, dry.named_by_blobs), (2, 1), "{dry:?}");
    assert!(is_stored(&world, BlobHash::of(b"orphan one")).await, "a dry run drops nothing");
    let wet = collect(&world, true).await;
    let orphans = (b"orphan one".len() + BASE.len()) as u64;
    assert_eq!((wet.orphans, wet.dropped, wet.dropped_bytes), (2, 2, orphans), "{wet:?}");
    for bytes in [&bytes[..], content, b"told", b"orphan two", b"new"] {
        assert!(is_stored(&world, BlobHash::of(bytes)).await, "{}", String::from_utf8_lossy(bytes));
    }
    world.check().await;
    assert_eq!(collect(&world, true).await.orphans, 0);
}

pub(super) async fn what_is_kept_for_a_later_name_is_not_collected(database: Database) {
    let world = World::open(database).await;
    // A task, which names the world's own base.
    world.submit(spec("a")).await;
    let hashes = vec![BlobHash::of(b"old"), BlobHash::of(b"never stored")];
    world.store.put_blobs(vec![blob(b"old")], world.now()).await.expect("stores");
    world.pass(2 * DAY_MS);
    let kept = world.store.keep_blobs(hashes.clone(), world.now()).await.expect("keeps");
    assert_eq!(kept, hashes[..1]);
    assert_eq!(collect(&world, true).await.dropped, 0, "it was asked for in order to be named");
    world.pass(2 * DAY_MS);
    assert_eq!(collect(&world, true).await.dropped, 1);
    assert!(world.store.keep_blobs(hashes, world.now()).await.expect("keeps").is_empty());
}

/// A transaction that stays open, in whichever database of a PostgreSQL server, holds back the feed. What the events after
/// it name is named all the same.
pub(super) async fn gc_knows_what_the_feed_holds_back(database: Database) {
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let before = world.feed().await.len();
    let mut open = world.database.raw().await;
    if !world.database.is_sqlite() {
        open.run("BEGIN; CREATE TABLE forgotten (n int)").await.expect("takes a transaction's number");
    }
    let named = BlobRef::of(b"named");
    let mut append = world.holder_append(lease.run, Seq(0), lease.record.epoch, vec![told_of(named)]);
    (append.names, append.blobs) = (vec![named.hash], vec![blob(b"named")]);
    world.store.append(append).await.expect("appends");
    if !world.database.is_sqlite() {
        let feed = world.store.feed(Position(0), 100).await.expect("reads");
        assert_eq!(feed.len(), before, "the feed is held back");
    }
    world.pass(2 * DAY_MS);
    let report = collect(&world, true).await;
    assert_eq!((report.orphans, report.dropped), (0, 0), "{report:?}");
    assert!(is_stored(&world, named.hash).await);
    if !world.database.is_sqlite() {
        open.run("ROLLBACK").await.expect("ends");
    }
    world.check().await;
}

/// An append has found the blob it names, and waits; another coordinator collects meanwhile. On
/// PostgreSQL the row is locked, and skipped. On SQLite nothing is locked between reading and writing, so
/// the write itself must see that the blob is gone.
pub(super) async fn a_blob_about_to_be_named_is_not_lost(database: Database) {
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let at =
        world.append(lease.run, Seq(0), lease.record.epoch, vec![note(1)]).await.expect("appends").head.seq;
    let wanted = BlobRef::of(b"wanted");
    world.store.put_blobs(vec![blob(b"wanted")], world.now()).await.expect("stores");
    world.pass(2 * DAY_MS);
    let since = docket_schema::ids::Timestamp(world.now().0 - (DAY_MS * 1000) as i64);
    let mut append = world.holder_append(lease.run, at, lease.record.epoch, vec![told_of(wanted)]);
    append.names = vec![wanted.hash];

    let other = world.beside().await;
    let mut raw = world.database.raw().await;
    if world.database.is_sqlite() {
        raw.run("BEGIN IMMEDIATE").await.expect("locks");
        let append = tokio::spawn({
            let world = world.clone();
            async move { world.store.append(append).await }
        });
        // Long enough that the append has read the blob and met the lock.
        tokio::time::sleep(Duration::from_millis(300)).await;
        raw.run("DELETE FROM blobs WHERE size = 6").await.expect("as another process's collection");
        raw.run("COMMIT").await.expect("unlocks");
        let refused = append.await.expect("no panic").expect_err("what it names is gone");
        assert!(matches!(refused, AppendError::BlobMissing(hash) if hash == wanted.hash), "{refused}");
    } else {
        let sql = format!("BEGIN; SELECT 1 FROM streams WHERE name = 'run/{}' FOR UPDATE", lease.run);
        raw.run(&sql).await.expect("locks");
        let append = tokio::spawn({
            let world = world.clone();
            async move { world.store.append(append).await }
        });
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                       AND wait_event_type = 'Lock'";
        let mut watch = world.database.raw().await;
        while watch.number(waiting).await.expect("reads") == 0 {
            tokio::task::yield_now().await;
        }
        let dropped = other.store.drop_blobs(vec![wanted.hash], since).await.expect("drops");
        assert!(dropped.is_empty(), "an append holds it: {dropped:?}");
        raw.run("COMMIT").await.expect("unlocks");
        append.await.expect("no panic").expect("what it names is there");
    }
    world.check().await;
    let left = other.store.drop_blobs(vec![wanted.hash], since).await.expect("drops");
    assert!(left.is_empty(), "whoever named it touched it: {left:?}");
}

/// Appends that name old blobs, through one coordinator, while another collects again and again: whatever
/// was acknowledged is there.
pub(super) async fn appends_and_collections_at_once_lose_nothing(database: Database) {
    const ROUNDS: u64 = 6;
    const BLOBS: u64 = 12;
    let world = World::open(database).await;
    world.submit(spec("a")).await;
    let lease = world.worker().lease_one().await;
    let epoch = lease.record.epoch;
    let mut at = Seq(0);
    let other = world.beside().await;
    for round in 0..ROUNDS {
        let all: Vec<Vec<u8>> = (0..BLOBS).map(|n| format!("blob {round} {n}").into_bytes()).collect();
        world.store.put_blobs(all.iter().map(|b| blob(b)).collect(), world.now()).await.expect("stores");
        world.pass(2 * DAY_MS);
        let collecting = tokio::spawn({
            let other = other.clone();
            async move { collect(&other, true).await }
        });
        for bytes in &all {
            let named = BlobRef::of(bytes);
            let mut append = world.holder_append(lease.run, at, epoch, vec![told_of(named)]);
            append.names = vec![named.hash];
            match world.store.append(append.clone()).await {
                Ok(done) => at = done.head.seq,
                Err(AppendError::BlobMissing(_)) => {
                    append.blobs = vec![blob(bytes)];
                    at = world.store.append(append).await.expect("brings it along").head.seq;
                }
                Err(other) => panic!("{other}"),
            }
        }
        collecting.await.expect("no panic");
        assert_eq!(collect(&other, true).await.orphans, 0, "nobody is left over but by name");
    }
    assert_eq!(at, Seq(ROUNDS * BLOBS));
    world.check().await;
}
