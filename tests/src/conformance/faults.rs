//! Faults around the store: tampering, a lock held by another client, a full disk, a late commit.

use std::time::Duration;

use docket_coordinator::store::{AppendError, StoreError, verify_log};
use docket_schema::{
    ids::{Epoch, Position, Seq, StreamId, SystemTopic},
    run::RunOutcome,
};

use super::{
    StoreFixture, TestDatabase,
    database::RawConnection,
    fixture::{new_blob, note_event, task_spec},
};

pub(super) async fn raw_update_and_delete_are_refused(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let mut raw = world.database.raw_connection().await;
    let mut statements = vec!["UPDATE events SET payload = payload", "DELETE FROM events"];
    if !world.database.is_sqlite() {
        statements.push("TRUNCATE events");
    }
    for sql in statements {
        let refused = raw.execute(sql).await.expect_err(sql).to_string();
        assert!(refused.contains("immutable"), "{sql}: {refused}");
    }
    world.check_consistency().await;
}

pub(super) async fn flipped_bit_is_detected(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    world
        .append(lease.run, Seq(0), Epoch(1), vec![note_event(1), note_event(2), note_event(3)])
        .await
        .expect("appends");
    world.check_consistency().await;
    let mut raw = world.database.raw_connection().await;
    let (drop, flip) = if world.database.is_sqlite() {
        (
            "DROP TRIGGER events_refuse_update",
            "UPDATE events SET payload = replace(payload, 'note 2', 'note 3') WHERE payload LIKE '%note 2%'",
        )
    } else {
        (
            "DROP TRIGGER events_refuse_change ON events",
            "UPDATE events SET payload = set_byte(payload, 20, get_byte(payload, 20) # 1) \
             WHERE convert_from(payload, 'UTF8') LIKE '%note 2%'",
        )
    };
    raw.execute(drop).await.expect("the owner may");
    assert_eq!(raw.execute(flip).await.expect("tampers"), 1);
    let fault = verify_log(&*world.store).await.expect("reads").fault.expect("is found");
    assert_eq!((fault.stream, fault.seq), (StreamId::Run(lease.run), Seq(2)));
    if world.database.is_sqlite() {
        raw.execute("DROP TRIGGER events_refuse_delete").await.expect("the owner may");
    }
    raw.execute("DELETE FROM events WHERE seq >= 2 AND kind = 'Told'").await.expect("cuts the tail");
    let fault = verify_log(&*world.store).await.expect("reads").fault.expect("is found");
    assert_eq!((fault.stream, fault.seq), (StreamId::Run(lease.run), Seq(1)), "a cut tail shows at the head");
}

pub(super) async fn tampered_projection_is_detected_and_repaired(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..3 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let worker = world.new_worker();
    let leases = worker.lease(2).await;
    worker.end_run(&leases[0], RunOutcome::Succeeded).await;
    world.check_consistency().await;
    let before = (
        world.task(leases[1].record.id).await,
        world.store.list_task_runs(leases[0].record.id).await.expect("reads"),
    );
    let mut raw = world.database.raw_connection().await;
    for sql in [
        "UPDATE tasks SET failures = 7, queue = 'other' WHERE state = 'running'",
        "UPDATE runs SET stage = 'failed' WHERE stage = 'succeeded'",
        "UPDATE streams SET fence = 'open' WHERE fence = 'closed'",
        "DELETE FROM tasks WHERE state = 'available'",
    ] {
        assert_eq!(raw.execute(sql).await.expect("tampers"), 1, "{sql}");
    }
    let mut found: Vec<(&str, String)> = world
        .store
        .rebuild_projections(std::sync::Arc::default())
        .await
        .expect("rebuilds")
        .into_iter()
        .map(|d| (d.table, d.column))
        .collect();
    found.sort();
    let expected = [
        ("runs", "stage"),
        ("streams", "fence"),
        ("tasks", "(row)"),
        ("tasks", "failures"),
        ("tasks", "queue"),
    ];
    assert_eq!(found, expected.map(|(table, column)| (table, column.to_owned())));
    let after = (
        world.task(leases[1].record.id).await,
        world.store.list_task_runs(leases[0].record.id).await.expect("reads"),
    );
    assert_eq!(after, before);
    world.check_consistency().await;
    assert_eq!(worker.lease(5).await.len(), 1, "the task that was deleted is back");
}

pub(super) async fn migrations_are_idempotent_and_refuse_newer_schema(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let again = world.open_second_coordinator().await;
    assert_eq!(again.task(task).await, world.task(task).await);
    let mut raw = world.database.raw_connection().await;
    raw.execute("INSERT INTO schema_steps (version, name, hash) VALUES (999, 'later', 'x')")
        .await
        .expect("writes");
    let refused = world.database.try_open().await.err().expect("is refused");
    assert!(
        matches!(&refused, StoreError::SchemaMismatch { what } if what.contains("newer docket")),
        "{refused}"
    );
    raw.execute("DELETE FROM schema_steps WHERE version = 999").await.expect("writes");
    raw.execute("UPDATE schema_steps SET hash = 'x' WHERE version = 1").await.expect("writes");
    let refused = world.database.try_open().await.err().expect("is refused");
    assert!(matches!(&refused, StoreError::SchemaMismatch { what } if what.contains("differs")), "{refused}");
}

/// PostgreSQL: a transaction that takes its position early and commits late. SQLite has one writer,
/// so there the case shows that a reader never sees half a transaction.
pub(super) async fn feed_waits_for_a_late_commit(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let audit = StreamId::System(SystemTopic::Audit);
    world.append_at_head(audit.clone(), 1).await.expect("appends");
    let mut late = world.database.raw_connection().await;
    if let RawConnection::Postgres(_) = late {
        late.execute(
            "BEGIN; INSERT INTO streams VALUES (-1, 'queue/late', 1, decode(repeat('00', 32), 'hex'), 0, 0, 'none'); \
             INSERT INTO events SELECT pg_current_xact_id()::text::bigint << 16, -1, 1, 0, 0, 0, 'Late', 1, '{}', \
             decode(repeat('00', 32), 'hex'), decode(repeat('00', 32), 'hex')",
        )
        .await
        .expect("writes");
    }
    let first = world.read_feed().await;
    assert_eq!(first.len(), 1);
    let second = world.append_at_head(audit.clone(), 2).await.expect("appends");
    let after = first[0].position;
    let seen = world.store.read_log(after, 10).await.expect("reads");
    if let RawConnection::Postgres(_) = late {
        assert!(seen.is_empty(), "what follows the open transaction waits for it: {seen:?}");
        late.execute("COMMIT").await.expect("commits");
    }
    let kinds: Vec<(String, Position)> =
        world.read_feed_after(after).await.into_iter().map(|event| (event.kind, event.position)).collect();
    assert_eq!(kinds.last(), Some(&("Told".to_owned(), second.position)));
    assert_eq!(kinds.len(), if world.database.is_sqlite() { 1 } else { 2 }, "nothing is skipped: {kinds:?}");
}

pub(super) async fn busy_errors_never_reach_callers(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let mut other = world.database.raw_connection().await;
    let begin = if world.database.is_sqlite() {
        "BEGIN IMMEDIATE"
    } else {
        "BEGIN; LOCK TABLE streams IN EXCLUSIVE MODE"
    };
    other.execute(begin).await.expect("locks");
    let append = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]);
    let release = async {
        // Long enough for the append to wait on the lock; the caller must not see any effect of it.
        tokio::time::sleep(Duration::from_millis(300)).await;
        other.execute("COMMIT").await.expect("unlocks");
    };
    let (appended, ()) = tokio::join!(append, release);
    appended.expect("the caller only waits");
    world.check_consistency().await;
}

/// SQLite: the file may not grow. PostgreSQL has no such limit per database; there the case shows
/// that a refused write leaves nothing behind.
pub(super) async fn full_disk_loses_nothing(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let mut at =
        world.append(lease.run, Seq(0), Epoch(1), vec![note_event(0)]).await.expect("appends").head.seq;
    world.store.close().await;
    let small = world.with_store(world.database.open_limited(120).await);
    for n in 1.. {
        let mut noise = vec![0_u8; 100_000];
        blake3::Hasher::new().update(small.next_id().as_bytes()).finalize_xof().fill(&mut noise);
        let mut append = small.lease_append(lease.run, at, Epoch(1), vec![note_event(n)]);
        append.blobs = vec![new_blob(&noise)];
        if !small.database.is_sqlite() {
            append.required_blobs = vec![docket_schema::ids::BlobHash::ZERO];
        }
        match small.store.append(append).await {
            Ok(appended) => at = appended.head.seq,
            Err(AppendError::Store(StoreError::Full { .. }) | AppendError::BlobMissing(_)) => break,
            Err(other) => panic!("{other:?}"),
        }
        assert!(n < 100, "the limit was never met");
    }
    let told = small.append_at_head(StreamId::Run(lease.run), 98).await;
    assert!(told.is_ok() || small.database.is_sqlite(), "{told:?}");
    if let Ok(told) = told {
        at = told.head.seq;
    }
    small.store.close().await;
    let world = small.open_second_coordinator().await;
    let head = world.store.stream_head(StreamId::Run(lease.run)).await.expect("reads").expect("exists");
    assert_eq!(head.seq, at, "what was acknowledged is there, and no more");
    world.append(lease.run, at, Epoch(1), vec![note_event(99)]).await.expect("goes on once there is space");
    world.check_consistency().await;
}
