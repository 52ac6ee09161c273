//! The log: seq, fencing, repeated appends, blobs, feed.

use docket_coordinator::store::{AppendCondition, AppendError, LogAppend};
use docket_schema::{
    content::BlobRef,
    ids::{Epoch, Seq, StreamId, SystemTopic},
    run::RunOutcome,
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{LEASE_MS, failed_outcome, new_blob, note_event, task_spec},
};

/// Concurrent writers, as on a busy coordinator.
const WRITERS: usize = 32;

pub(super) async fn seq_is_gapless_and_chained(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let mut at = Seq(0);
    for n in 0..10 {
        let events = (0..=n % 3).map(|k| note_event(n * 10 + k)).collect();
        at = world.append(lease.run, at, Epoch(1), events).await.expect("appends").head.seq;
    }
    let events = world.read_stream(StreamId::Run(lease.run)).await;
    assert_eq!(events.len() as u64, at.0);
    assert!(events.iter().zip(1..).all(|(event, n)| event.seq == Seq(n)));
    assert!(events.windows(2).all(|pair| pair[0].recorded_at <= pair[1].recorded_at));
    assert!(events.iter().all(|event| event.epoch == Epoch(1)));
    world.check_consistency().await;
}

pub(super) async fn wrong_seq_is_refused_with_the_head(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let first = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    for at in [Seq(0), Seq(2)] {
        let refused = world.append(lease.run, at, Epoch(1), vec![note_event(2)]).await;
        let Err(AppendError::WrongSeq { expected, head }) = refused else { panic!("{refused:?}") };
        assert_eq!((expected, head), (at, first.head));
    }
    let nobody = docket_schema::ids::RunId(world.next_id());
    let refused = world.append(nobody, Seq(0), Epoch(1), vec![note_event(1)]).await;
    assert!(matches!(refused, Err(AppendError::StreamNotFound)), "{refused:?}");
    world.check_consistency().await;
}

pub(super) async fn repeated_append_returns_the_first_reply(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let first =
        world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1), note_event(2)]).await.expect("appends");
    let later = world.append(lease.run, Seq(2), Epoch(1), vec![note_event(3)]).await.expect("appends");
    let again =
        world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1), note_event(2)]).await.expect("repeats");
    assert!(again.was_repeated && !first.was_repeated);
    assert_eq!((again.head, again.position), (first.head, first.position));
    let other = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1), note_event(9)]).await;
    assert!(matches!(other, Err(AppendError::WrongSeq { .. })), "{other:?}");
    // Both at once, as when a client times out and retries.
    let twice = [0, 1].map(|_| world.append(lease.run, later.head.seq, Epoch(1), vec![note_event(4)]));
    let [one, two] = twice;
    let (one, two) = tokio::join!(one, two);
    let (one, two) = (one.expect("appends"), two.expect("repeats"));
    assert_eq!((one.head, one.position), (two.head, two.position));
    assert_eq!(world.read_stream(StreamId::Run(lease.run)).await.len(), 4);
    world.check_consistency().await;
}

pub(super) async fn repeated_append_after_takeover_returns_the_first_reply(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let first = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    world.advance_clock(LEASE_MS + 1);
    assert_eq!(world.expire_leases().await, 1);
    let taken = world.new_worker().lease_one().await;
    assert_eq!((taken.run, taken.record.epoch, taken.head), (lease.run, Epoch(2), first.head));
    world.append(lease.run, Seq(1), Epoch(2), vec![note_event(2)]).await.expect("the new holder appends");
    let again = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("repeats");
    assert_eq!((again.head, again.position, again.was_repeated), (first.head, first.position, true));
    world.check_consistency().await;
}

pub(super) async fn stale_worker_cannot_append(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let sleeper = world.new_worker().lease_one().await;
    world.advance_clock(LEASE_MS + 1);
    world.expire_leases().await;
    let shut = world.append(sleeper.run, Seq(0), Epoch(1), vec![note_event(1)]).await;
    assert!(matches!(shut, Err(AppendError::LeaseEnded { asked: Epoch(1) })), "{shut:?}");
    let worker = world.new_worker();
    let taken = worker.lease_one().await;
    let fenced = world.append(sleeper.run, Seq(0), Epoch(1), vec![note_event(1)]).await;
    let Err(AppendError::Fenced { asked: Epoch(1), current: Epoch(2) }) = fenced else {
        panic!("{fenced:?}")
    };
    worker.end_run(&taken, RunOutcome::Succeeded).await;
    for epoch in [Epoch(1), Epoch(2)] {
        let closed = world.append(sleeper.run, Seq(1), epoch, vec![note_event(1)]).await;
        assert!(matches!(closed, Err(AppendError::Closed)), "{closed:?}");
    }
    let told = world.append_at_head(StreamId::Run(sleeper.run), 1).await;
    assert!(matches!(told, Err(AppendError::Closed)), "{told:?}");
    assert_eq!(world.read_stream(StreamId::Run(sleeper.run)).await.len(), 1);
    world.check_consistency().await;
}

pub(super) async fn concurrent_writers_append_to_separate_streams(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..WRITERS {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let leases = world.new_worker().lease(WRITERS as u32).await;
    assert_eq!(leases.len(), WRITERS);
    let writers: Vec<_> = leases
        .iter()
        .map(|lease| {
            let (world, run) = (world.clone(), lease.run);
            tokio::spawn(async move {
                let mut at = Seq(0);
                for n in 0..20 {
                    at =
                        world.append(run, at, Epoch(1), vec![note_event(n)]).await.expect("appends").head.seq;
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.expect("no writer fails");
    }
    for lease in &leases {
        assert_eq!(world.read_stream(StreamId::Run(lease.run)).await.len(), 20);
    }
    world.check_consistency().await;
}

pub(super) async fn many_appends_in_flight_on_one_stream(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    for round in 0..10 {
        let appends = (0..WRITERS as u64).map(|n| {
            let at = Seq(round * WRITERS as u64 + n);
            world.append(lease.run, at, Epoch(1), vec![note_event(at.0)])
        });
        for appended in futures_util::future::join_all(appends).await {
            assert!(!appended.expect("in order").was_repeated);
        }
    }
    assert_eq!(world.read_stream(StreamId::Run(lease.run)).await.len(), 10 * WRITERS);
    world.check_consistency().await;
}

pub(super) async fn refused_append_does_not_fail_others(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..8 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let leases = world.new_worker().lease(8).await;
    for round in 0..10 {
        let appends = leases.iter().zip(0..).map(|(lease, n)| {
            // Every other one is invalid, each in a different way.
            let (at, epoch) = match n {
                1 => (Seq(round + 7), Epoch(1)),
                3 => (Seq(round), Epoch(9)),
                5 => (Seq(round), Epoch(0)),
                _ => (Seq(round), Epoch(1)),
            };
            let mut append = world.lease_append(lease.run, at, epoch, vec![note_event(round)]);
            if n == 7 {
                append.required_blobs = vec![BlobRef::for_bytes(b"nowhere").hash];
            }
            world.store.append(append)
        });
        let done = futures_util::future::join_all(appends).await;
        for (n, done) in done.iter().enumerate() {
            assert_eq!(done.is_ok(), !matches!(n, 1 | 3 | 5 | 7), "{n}: {done:?}");
        }
    }
    world.check_consistency().await;
}

pub(super) async fn inbox_appends_alongside_the_lease_holder(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let told = world.append_at_head(StreamId::Run(lease.run), 1).await.expect("the inbox takes it");
    let refused = world.append(lease.run, Seq(0), Epoch(1), vec![note_event(2)]).await;
    assert!(matches!(refused, Err(AppendError::WrongSeq { head, .. }) if head == told.head), "{refused:?}");
    world.append(lease.run, told.head.seq, Epoch(1), vec![note_event(2)]).await.expect("appends after it");
    let epochs: Vec<Epoch> =
        world.read_stream(StreamId::Run(lease.run)).await.iter().map(|event| event.epoch).collect();
    assert_eq!(epochs, [Epoch(0), Epoch(1)]);
    world.check_consistency().await;
}

pub(super) async fn system_streams_start_implicitly(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let audit = StreamId::System(SystemTopic::Audit);
    world.append_at_head(audit.clone(), 1).await.expect("begins");
    let at = |seq| LogAppend {
        stream: StreamId::System(SystemTopic::Memory),
        condition: AppendCondition::ExpectedSeq(seq),
        events: vec![note_event(seq.0)],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: world.now(),
    };
    world.store.append(at(Seq(0))).await.expect("begins");
    world.store.append(at(Seq(1))).await.expect("appended");
    let repeated = world.store.append(at(Seq(1))).await.expect("repeats");
    assert!(repeated.was_repeated);
    let refused = world.store.append(at(Seq(3))).await;
    assert!(matches!(refused, Err(AppendError::WrongSeq { .. })), "{refused:?}");
    let nobody = StreamId::Run(docket_schema::ids::RunId(world.next_id()));
    assert!(matches!(world.append_at_head(nobody, 1).await, Err(AppendError::StreamNotFound)));
    assert_eq!(world.read_stream(audit).await.len(), 1);
    world.check_consistency().await;
}

pub(super) async fn blobs_are_checked_and_stored_once(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    world.submit(task_spec("a")).await;
    let lease = world.new_worker().lease_one().await;
    let (here, there, missing) = (vec![7_u8; 100_000], b"there".to_vec(), BlobRef::for_bytes(b"missing"));
    world.store.put_blobs(vec![new_blob(&there), new_blob(&there)], world.now()).await.expect("stores");
    let mut append = world.lease_append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]);
    append.blobs = vec![new_blob(&here)];
    append.required_blobs = vec![BlobRef::for_bytes(&there).hash, missing.hash];
    let refused = world.store.append(append.clone()).await;
    assert!(matches!(refused, Err(AppendError::BlobMissing(hash)) if hash == missing.hash), "{refused:?}");
    assert_eq!(
        world.store.read_blob(BlobRef::for_bytes(&here).hash).await.expect("reads"),
        None,
        "nothing was written"
    );
    append.required_blobs.pop();
    world.store.append(append.clone()).await.expect("appends");
    assert!(world.store.append(append).await.expect("repeats").was_repeated);
    for bytes in [&here, &there] {
        let read =
            world.store.read_blob(BlobRef::for_bytes(bytes).hash).await.expect("reads").expect("is there");
        assert_eq!(&read[..], &bytes[..]);
    }
    let present = world
        .store
        .find_present_blobs(vec![BlobRef::for_bytes(&here).hash, missing.hash])
        .await
        .expect("reads");
    assert_eq!(present, [BlobRef::for_bytes(&here).hash]);
    let mut raw = world.database.raw_connection().await;
    assert_eq!(raw.query_number("SELECT count(*) FROM blobs").await.expect("counts"), 3, "stored once each");
    world.check_consistency().await;
    raw.execute("UPDATE blobs SET data = (SELECT data FROM blobs WHERE size = 5)").await.expect("tampers");
    assert!(
        world.store.read_blob(BlobRef::for_bytes(&here).hash).await.is_err(),
        "altered bytes are no answer"
    );
}

pub(super) async fn feed_returns_all_events_in_order(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for n in 0..5 {
        world.submit(task_spec(&format!("task {n}"))).await;
    }
    let worker = world.new_worker();
    for lease in worker.lease(5).await {
        world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1), note_event(2)]).await.expect("appends");
        worker.end_run(&lease, failed_outcome()).await;
    }
    let feed = world.read_feed().await;
    assert!(feed.windows(2).all(|pair| pair[0].position < pair[1].position));
    // Submitted, leased, two notes, ended, failed.
    assert_eq!(feed.len(), 5 * 6);
    let mut streams = 0;
    let mut after = None;
    loop {
        let page = world.store.list_streams(after, 3).await.expect("reads");
        for (stream, head) in &page {
            let own: Vec<Seq> =
                feed.iter().filter(|event| event.stream == *stream).map(|event| event.seq).collect();
            assert_eq!(own, (1..=head.seq.0).map(Seq).collect::<Vec<_>>(), "{stream}");
            streams += 1;
        }
        match page.last() {
            Some((stream, _)) => after = Some(stream.clone()),
            None => break,
        }
    }
    assert_eq!(streams, 10);
    world.check_consistency().await;
}

pub(super) async fn reopened_store_has_everything(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    let task = world.submit(task_spec("a")).await;
    let worker = world.new_worker();
    let lease = worker.lease_one().await;
    world.append(lease.run, Seq(0), Epoch(1), vec![note_event(1)]).await.expect("appends");
    let (record, feed) = (world.task(task).await, world.read_feed().await);
    let secret = world.store.load_or_create_secret([1; 32]).await.expect("a secret");
    world.store.close().await;
    assert!(
        world.append(lease.run, Seq(1), Epoch(1), vec![note_event(2)]).await.is_err(),
        "closed is closed"
    );
    let world = world.open_second_coordinator().await;
    assert_eq!(world.task(task).await, record);
    assert_eq!(world.read_feed().await, feed);
    assert_eq!(world.store.load_or_create_secret([2; 32]).await.expect("a secret"), secret);
    let next = world
        .append(lease.run, Seq(1), Epoch(1), vec![note_event(2)])
        .await
        .expect("the lease is still valid");
    assert!(next.position > feed.last().expect("events").position);
    world.check_consistency().await;
}
