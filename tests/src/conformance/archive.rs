//! Archiving and restoring of streams: whole lineage groups, on one path, unchanged.

use std::{collections::BTreeMap, sync::Arc};

use docket_coordinator::{
    archive::{
        ArchivePassRequest, ArchiveSettings, KeepFor, ObjectStorage, RetentionPolicy, TaskArchiver,
        fetch_file, restore_group, unpack_file,
    },
    clock::Clock,
    gc,
    store::{
        AppendError, NewTask, QueueSelection, RestoreDestination, StoreAdmin as _, TermOutcome, TermRequest,
        verify_listed_stream,
    },
};
use docket_schema::{
    api::{ArchiveResponse, GcRequest},
    content::BlobRef,
    event::Envelope,
    ids::{BlobHash, RunId, Seq, StreamId, SystemTopic, TaskId, Timestamp},
    run::RunOutcome,
    snapshot::{Manifest, WorkspaceBase},
    system::{StreamArchived, StreamsArchived},
    task::TaskSpec,
};

use crate::system::WAIT_MAX;

use super::{
    StoreFixture, TestDatabase,
    fixture::{failed_outcome, new_blob, note_event, task_spec},
    lineage::{fork_task, new_run_id},
};

/// A task whose base is readable.
pub(super) fn spec_with_base(title: &str) -> TaskSpec {
    let manifest = Manifest::default().encode();
    TaskSpec {
        base: WorkspaceBase { manifest: BlobRef::for_bytes(&manifest), ..task_spec("").base },
        ..task_spec(title)
    }
}

pub(super) struct ArchiveFixture {
    pub(super) fixture: StoreFixture,
    pub(super) archiver: TaskArchiver,
    storage: ObjectStorage,
    pub(super) folder: tempfile::TempDir,
}

impl ArchiveFixture {
    pub(super) async fn new(database: TestDatabase) -> Self {
        let world = StoreFixture::open(database).await;
        world
            .store
            .put_blobs(vec![new_blob(&Manifest::default().encode())], world.now())
            .await
            .expect("stores");
        let folder = tempfile::tempdir().expect("a folder");
        let place =
            ObjectStorage::create(&format!("file://{}/archive", folder.path().display())).expect("opens");
        let settings =
            ArchiveSettings { scratch_folder: folder.path().to_owned(), ..ArchiveSettings::default() };
        let archiver =
            TaskArchiver { store: Arc::clone(&world.store), clock: Arc::new(Clock::new()), settings };
        Self { fixture: world, archiver, storage: place, folder }
    }

    pub(super) async fn archive(&self) -> ArchiveResponse {
        self.archive_with(&self.archiver).await
    }

    pub(super) async fn archive_with(&self, archiver: &TaskArchiver) -> ArchiveResponse {
        self.archive_older(archiver, 1).await
    }

    async fn archive_older(&self, archiver: &TaskArchiver, ms: u64) -> ArchiveResponse {
        let retention = RetentionPolicy { others: KeepFor::Ms(ms), queues: BTreeMap::new() };
        let (queues, before) = (QueueSelection::AllBut(Vec::new()), self.archiver.clock.now());
        let by = "tester".to_owned();
        let asked =
            ArchivePassRequest { retention, queues, before, after: None, dry_run: false, by, time: WAIT_MAX };
        archiver.archive_page(Some(&self.storage), &asked).await.expect("archives")
    }

    pub(super) async fn restore(&self, id: uuid::Uuid) -> Result<u64, String> {
        let stub = self.fixture.store.find_stub(id).await.expect("reads").ok_or("no stub")?;
        let restored = restore_group(&self.archiver, &stub, "tester".to_owned()).await;
        restored.map(|restored| restored.events).map_err(|error| format!("{error:?}"))
    }

    /// Creates a task whose second attempt succeeds, and returns it with its runs.
    pub(super) async fn finish_task_on_second_try(&self) -> (TaskId, Vec<RunId>) {
        let task = self.fixture.submit(spec_with_base("done")).await;
        let worker = self.fixture.new_worker();
        let mut runs = Vec::new();
        for outcome in [failed_outcome(), RunOutcome::Succeeded] {
            self.fixture.advance_clock(3_600_000);
            self.fixture.make_due_tasks_available().await;
            let lease = worker.lease_one().await;
            let epoch = lease.record.epoch;
            self.fixture
                .append(lease.run, Seq(0), epoch, vec![note_event(1), note_event(2)])
                .await
                .expect("appends");
            worker.end_run(&lease, outcome).await;
            runs.push(lease.run);
        }
        (task, runs)
    }

    /// Builds the removal request for a task whose archive file is verified.
    async fn removal_request(&self, task: TaskId, runs: &[RunId]) -> StreamsArchived {
        let mut streams = Vec::new();
        for stream in [StreamId::Task(task)].into_iter().chain(runs.iter().copied().map(StreamId::Run)) {
            let head =
                self.fixture.store.stream_head(stream.clone()).await.expect("reads").expect("is there");
            streams.push(StreamArchived { stream, head, run_of: None, task: None });
        }
        let (place, hash) = (self.storage.url().to_owned(), BlobHash([1; 32]));
        StreamsArchived { task, by: String::new(), place, file: "a".to_owned(), hash, bytes: 1, streams }
    }

    async fn read_state(&self, task: TaskId, runs: &[RunId]) -> (String, Vec<Vec<Envelope>>) {
        let world = &self.fixture;
        let views = world.store.list_task_runs(task).await.expect("reads");
        let mut streams = vec![world.read_stream(StreamId::Task(task)).await];
        for run in runs {
            streams.push(world.read_stream(StreamId::Run(*run)).await);
        }
        for event in streams.iter_mut().flatten() {
            event.position = docket_schema::ids::Position(0);
        }
        (format!("{:?} {views:?}", world.store.get_task(task).await.expect("reads")), streams)
    }
}

pub(super) async fn archived_lineage_is_restored_unchanged(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let (task, runs) = house.finish_task_on_second_try().await;
    let head = world.store.stream_head(StreamId::Run(runs[0])).await.expect("reads").expect("is there");
    let fork = fork_task(world, runs[0], head);
    let fork = NewTask { spec: TaskSpec { base: spec_with_base("").base, ..fork.spec.clone() }, ..fork };
    world.store.submit(vec![fork.clone()], String::new(), world.now()).await.expect("accepted");
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    worker.end_run(&lease, RunOutcome::Succeeded).await;
    let living = world.submit(task_spec("living")).await;
    let before = (house.read_state(task, &runs).await, house.read_state(fork.id, &[new_run_id(&fork)]).await);
    let feed = world.read_feed().await;
    let listed = world.store.list_streams(None, 100).await.expect("reads");

    let done = house.archive().await;
    assert_eq!((done.archived.len(), done.kept.len()), (1, 0), "{done:?}");
    assert_eq!((done.archived[0].tasks, done.archived[0].runs), (2, 3));
    for stream in [StreamId::Task(task), StreamId::Run(runs[0]), StreamId::Task(fork.id)] {
        assert_eq!(world.store.stream_head(stream).await.expect("reads"), None);
    }
    assert!(world.store.get_task(task).await.expect("reads").is_none());
    assert_eq!(world.store.list_stubs(None, 100).await.expect("reads").len(), 5);
    let stub = world.store.find_stub(runs[0].0).await.expect("reads").expect("a stub");
    assert_eq!(stub.head, head);
    let digits = runs[1].0.simple().to_string();
    let resolved = world.store.resolve_id(digits).await.expect("reads");
    assert_eq!(resolved.archived, [StreamId::Run(runs[1])]);
    world.check_consistency().await;
    // A concurrent verification has already listed them.
    for (stream, head) in listed {
        let walked = verify_listed_stream(&*world.store, stream, head).await.expect("reads");
        assert_eq!(walked.fault, None);
    }
    let again = house.archive().await;
    assert!(again.archived.is_empty() && again.kept.is_empty(), "{again:?}");
    world.task(living).await;

    // The same submit is still accepted only once.
    let late = NewTask { id: task, spec: spec_with_base("done"), fork: None };
    let answer = world.store.submit(vec![late], String::new(), world.now()).await.expect("accepted");
    assert_eq!(answer, [(task, false)]);
    assert!(world.store.get_task(task).await.expect("reads").is_none(), "it is not created again");

    // Content that only archived streams reference becomes garbage; the file has it.
    let week = Timestamp(house.archiver.clock.now().0 + 7 * 86_400_000_000);
    let collected = gc::collect(&*world.store, GcRequest { delete: true, ..GcRequest::default() }, |ms| {
        week.minus_ms(ms)
    })
    .await;
    assert!(collected.expect("collects").dropped > 0);
    assert!(world.store.read_blob(fork.spec.base.manifest.hash).await.expect("reads").is_none());

    house.restore(runs[0].0).await.expect("comes back");
    let after = (house.read_state(task, &runs).await, house.read_state(fork.id, &[new_run_id(&fork)]).await);
    assert_eq!(after, before, "as it was");
    assert!(world.store.read_blob(fork.spec.base.manifest.hash).await.expect("reads").is_some());
    assert!(world.store.list_stubs(None, 100).await.expect("reads").is_empty());
    world.check_consistency().await;
    // New positions in the log, in order, after everything that was there.
    let last = feed.last().expect("events").position;
    let back: Vec<Envelope> =
        world.read_feed().await.into_iter().filter(|event| event.stream == StreamId::Task(task)).collect();
    assert!(back.iter().all(|event| event.position > last));

    // Archived again: the same name, the same bytes.
    let again = house.archive().await;
    assert_eq!(again.archived, done.archived);
    world.check_consistency().await;
    let told = world.read_stream(StreamId::System(SystemTopic::Archive)).await;
    let kinds: Vec<&str> = told.iter().map(|event| event.kind.as_str()).collect();
    assert_eq!(kinds, ["StreamsArchived", "StreamsRestored", "StreamsArchived"]);
}

pub(super) async fn retention_counts_from_the_restore(database: TestDatabase) {
    const MONTH_MS: u64 = 30 * 86_400_000;
    let house = ArchiveFixture::new(database).await;
    let (task, runs) = house.finish_task_on_second_try().await;
    let (other, _) = house.finish_task_on_second_try().await;
    let done = house.archive_older(&house.archiver, MONTH_MS).await;
    assert_eq!(done.archived.len(), 2, "by their end they are old: {done:?}");
    house.restore(runs[0].0).await.expect("comes back");
    // Also for a coordinator that did not restore it and has read nothing yet.
    let fresh =
        ArchiveSettings { scratch_folder: house.folder.path().to_owned(), ..ArchiveSettings::default() };
    let fresh = TaskArchiver { settings: fresh, ..house.archiver.clone() };
    for archiver in [&house.archiver, &fresh] {
        let stays = house.archive_older(archiver, MONTH_MS).await;
        assert!(stays.archived.is_empty(), "{stays:?}");
        assert!(stays.kept[0].why.contains("was restored recently"), "{stays:?}");
    }
    house.restore(other.0).await.expect("comes back");
    let stays = house.archive_older(&fresh, MONTH_MS).await;
    assert_eq!(stays.kept.len(), 2, "what came back since it was read is read too: {stays:?}");
    // A request for younger ones returns them.
    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    let again = house.archive().await;
    assert_eq!(again.archived.len(), 2, "{again:?}");
    assert!(house.fixture.store.get_task(task).await.expect("reads").is_none());
    house.fixture.check_consistency().await;
}

pub(super) async fn tasks_with_dependents_are_not_archived(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let (task, runs) = house.finish_task_on_second_try().await;
    let head = world.store.stream_head(StreamId::Run(runs[1])).await.expect("reads").expect("is there");
    let fork = fork_task(world, runs[1], head);
    world.store.submit(vec![fork.clone()], String::new(), world.now()).await.expect("accepted");
    let done = house.archive().await;
    assert!(done.archived.is_empty(), "{done:?}");
    assert!(done.kept[0].why.contains("has not ended"), "{done:?}");
    world.task(task).await;

    // A task that changes after it was examined stays, and so does one that is forked meanwhile.
    let (other, other_runs) = {
        let lease = world.new_worker().lease_one().await;
        world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
        house.finish_task_on_second_try().await
    };
    let removal = house.removal_request(other, &other_runs).await;
    let head = world.store.stream_head(StreamId::Run(other_runs[0])).await.expect("reads").expect("is there");
    let late = fork_task(world, other_runs[0], head);
    world.store.submit(vec![late], String::new(), world.now()).await.expect("accepted");
    let refused = world.store.remove_archived(removal.clone(), world.now()).await.expect_err("is stood on");
    assert!(refused.to_string().contains("another run continues"), "{refused}");
    let mut moved = removal;
    moved.streams[0].head.seq = Seq(1);
    let refused = world.store.remove_archived(moved, world.now()).await.expect_err("went on");
    assert!(refused.to_string().contains("grew while"), "{refused}");
    world.check_consistency().await;

    // A fork of an archived run has no history to build on.
    let lease = world.new_worker().lease_one().await;
    world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
    let (_, gone) = house.finish_task_on_second_try().await;
    let head = world.store.stream_head(StreamId::Run(gone[1])).await.expect("reads").expect("is there");
    let late = fork_task(world, gone[1], head);
    assert!(!house.archive().await.archived.is_empty());
    let refused = world.store.submit(vec![late], String::new(), world.now()).await;
    assert!(matches!(refused, Err(AppendError::StreamNotFound)), "{refused:?}");
    world.check_consistency().await;
}

/// Whichever comes first, a fork never builds on missing history. Through two coordinators if the store
/// supports it.
pub(super) async fn concurrent_fork_and_archive_keep_the_parent_history(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let world = &house.fixture;
    let other =
        if world.database.is_sqlite() { world.clone() } else { world.open_second_coordinator().await };
    let (mut forked, mut gone) = (0, 0);
    for round in 0..16 {
        let (task, runs) = house.finish_task_on_second_try().await;
        let head = world.store.stream_head(StreamId::Run(runs[1])).await.expect("reads").expect("is there");
        let fork = fork_task(world, runs[1], head);
        let removal = house.removal_request(task, &runs).await;
        let submit = other.store.submit(vec![fork], String::new(), other.now());
        let remove = world.store.remove_archived(removal, world.now());
        let (submitted, removed) = if round % 2 == 0 {
            tokio::join!(submit, remove)
        } else {
            let (removed, submitted) = tokio::join!(remove, submit);
            (submitted, removed)
        };
        let is_here = world.store.get_task(task).await.expect("reads").is_some();
        match submitted {
            Ok(_) => {
                assert!(is_here && removed.is_err(), "a fork builds on it");
                let lease = world.new_worker().lease_one().await;
                world.new_worker().end_run(&lease, RunOutcome::Succeeded).await;
                forked += 1;
            }
            Err(AppendError::StreamNotFound) => {
                assert!(!is_here && removed.is_ok());
                gone += 1;
            }
            Err(other) => panic!("{other:?}"),
        }
        world.check_consistency().await;
    }
    assert_eq!(forked + gone, 16);
    if world.database.is_sqlite() {
        assert_eq!((forked, gone), (8, 8), "in the order in which they were asked");
    }
}

pub(super) async fn events_are_deleted_only_by_archiving(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let (task, _) = house.finish_task_on_second_try().await;
    let mut raw = house.fixture.database.raw_connection().await;
    let one = "stream_id = (SELECT stream_id FROM tasks)";
    for sql in [
        format!("DELETE FROM events WHERE {one}"),
        // Not even with the guard, if no stub of this exact head is left behind.
        format!(
            "BEGIN; INSERT INTO archiving SELECT stream_id FROM tasks; DELETE FROM events WHERE {one}; COMMIT"
        ),
        format!(
            "BEGIN; INSERT INTO archiving SELECT stream_id FROM tasks; INSERT INTO archived_streams (name, id, head_seq, \
             head_hash, archived_at, place, file, file_hash, file_bytes) SELECT s.name, t.id, s.head_seq - 1, s.head_hash, 0, 'p', 'f', s.head_hash, 1 FROM streams s \
             JOIN tasks t ON t.stream_id = s.id; DELETE FROM events WHERE {one}; COMMIT"
        ),
    ] {
        let refused = raw.execute(&sql).await.expect_err(&sql).to_string();
        assert!(refused.contains("immutable"), "{sql}: {refused}");
        // Not every error ends a transaction by itself.
        drop(raw.execute("ROLLBACK").await);
    }
    assert_eq!(raw.query_number("SELECT count(*) FROM archiving").await.expect("counts"), 0);
    house.fixture.check_consistency().await;
    assert_eq!(house.archive().await.archived.len(), 1);
    assert_eq!(raw.query_number("SELECT count(*) FROM archiving").await.expect("counts"), 0);
    let sql = format!(
        "INSERT INTO streams (id, name, head_seq, head_hash, head_at, epoch, fence) \
         SELECT 999999, name, 0, head_hash, 0, 0, 'none' FROM archived_streams WHERE name = 'task/{task}'"
    );
    let refused = raw.execute(&sql).await.expect_err("its name is taken").to_string();
    assert!(refused.contains("archived"), "{refused}");

    // Stubs match the log.
    raw.execute("UPDATE archived_streams SET head_seq = head_seq + 1").await.expect("tampers");
    raw.execute(&format!("DELETE FROM archived_streams WHERE name = 'task/{task}'")).await.expect("tampers");
    let found = house.fixture.store.rebuild_projections(std::sync::Arc::default()).await.expect("rebuilds");
    assert_eq!(found.len(), 3, "{found:?}");
    house.fixture.check_consistency().await;
}

pub(super) async fn lineage_is_restored_once_and_completely(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let (task, runs) = house.finish_task_on_second_try().await;
    let before = house.read_state(task, &runs).await;
    house.archive().await;
    let stub = house.fixture.store.find_stub(task.0).await.expect("reads").expect("a stub");
    let file = fetch_file(&stub, None, house.folder.path()).await.expect("fetches");
    let store = &*house.fixture.store;
    let back = async |into| {
        let now = house.archiver.clock.now();
        unpack_file(file.path(), stub.file_hash, store, "me".to_owned(), into, now).await
    };
    // In a separate store it needs no stub, and leaves none.
    let scratch = tempfile::tempdir().expect("a folder");
    let aside = docket_coordinator::store::sqlite::open(&scratch.path().join("a.db")).await.expect("opens");
    let now = house.archiver.clock.now();
    unpack_file(file.path(), stub.file_hash, &aside, "me".to_owned(), RestoreDestination::ScratchStore, now)
        .await
        .expect("unpacks");
    let report = docket_coordinator::store::verify_log(&aside).await.expect("verifies");
    assert_eq!((report.fault, report.streams), (None, 3));
    assert!(aside.rebuild_projections(std::sync::Arc::default()).await.expect("rebuilds").is_empty());
    aside.close().await;

    assert_eq!(
        back(RestoreDestination::OriginalLog).await.expect("comes back").events,
        3 + stub.head.seq.0 + 3
    );
    assert_eq!(house.read_state(task, &runs).await, before);
    let twice = back(RestoreDestination::OriginalLog).await.expect_err("it is here").to_string();
    assert!(twice.contains("not archived"), "{twice}");
    house.fixture.check_consistency().await;
}

pub(super) async fn invalid_archive_copy_removes_nothing(database: TestDatabase) {
    let house = ArchiveFixture::new(database).await;
    let (task, runs) = house.finish_task_on_second_try().await;
    house.archive().await;
    let stub = house.fixture.store.find_stub(task.0).await.expect("reads").expect("a stub");
    let path = house.folder.path().join("archive").join(&stub.file);
    let whole = std::fs::read(&path).expect("reads");
    for at in [0, whole.len() / 2, whole.len() - 1] {
        let mut bad = whole.clone();
        bad[at] ^= 1;
        std::fs::write(&path, &bad).expect("writes");
        let refused = house.restore(runs[0].0).await.expect_err("was altered");
        assert!(refused.contains("Altered"), "{refused}");
    }
    std::fs::write(&path, &whole[..whole.len() - 1]).expect("writes");
    house.restore(runs[0].0).await.expect_err("was cut");
    assert!(house.fixture.store.get_task(task).await.expect("reads").is_none(), "nothing came back");
    house.fixture.check_consistency().await;
    std::fs::write(&path, &whole).expect("writes");
    house.restore(runs[0].0).await.expect("comes back");

    // If the archive cannot be written, nothing is removed.
    let full = house.folder.path().join("archive").join(&stub.file);
    std::fs::remove_file(&full).expect("removes");
    std::fs::create_dir(&full).expect("stands in the way");
    let retention = RetentionPolicy { others: KeepFor::Ms(1), queues: BTreeMap::new() };
    let (queues, before) = (QueueSelection::AllBut(Vec::new()), house.archiver.clock.now());
    let asked = ArchivePassRequest {
        retention,
        queues,
        before,
        after: None,
        dry_run: false,
        by: String::new(),
        time: WAIT_MAX,
    };
    house.archiver.archive_page(Some(&house.storage), &asked).await.expect_err("cannot be written");
    house.fixture.task(task).await;
    house.fixture.check_consistency().await;
}

pub(super) async fn term_has_one_holder_at_a_time(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let take = async |holder: &str, now: i64| {
        let term = TermRequest {
            name: "a",
            holder: holder.to_owned(),
            until: Timestamp(now + 10),
            now: Timestamp(now),
            max_term_ms: 1,
            deadline_trust: None,
        };
        world.store.acquire_term(term).await.expect("answers")
            == TermOutcome::Acquired { extended_leases: None }
    };
    assert!(take("one", 0).await && !take("two", 5).await && take("one", 5).await);
    assert!(!take("two", 14).await && take("two", 15).await && !take("one", 16).await);
}
