//! A lease that was found past its deadline is looked at once more before it ends.

use docket_schema::{
    content::BlobRef,
    ids::{RunId, TaskId, Timestamp},
    task::TaskState,
    wire::Held,
};

use super::{
    events::{MANIFEST, spec},
    support::{lease_request, open_store},
};
use crate::{
    clock::{Clock, new_id},
    store::{Heartbeat, NewBlob, NewTask},
    tasks::{ExpiredLease, end_if_past},
    wakeups::Wakes,
};

/// Long past, so that a lease of that time has run out whenever the test looks.
const AN_HOUR_US: i64 = 3_600_000_000;

#[tokio::test]
async fn who_is_heard_of_while_a_round_goes_on_keeps_the_lease() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open_store(folder.path()).await;
    let (clock, wakes) = (Clock::new(), Wakes::default());
    let early = Timestamp(clock.now().0 - AN_HOUR_US);
    let blob = NewBlob { blob: BlobRef::of(MANIFEST), bytes: MANIFEST.into() };
    store.put_blobs(vec![blob], early).await.expect("stores");
    let ids = [TaskId(new_id()), TaskId(new_id())];
    let tasks = ids.map(|id| NewTask { id, spec: spec("a task"), fork: None });
    store.submit(tasks.into(), "test".to_owned(), early).await.expect("accepts");
    let mut request = lease_request(0);
    request.max = 2;
    let runs = vec![RunId(new_id()), RunId(new_id())];
    let granted = store.lease(request.clone(), runs, 1000, early).await.expect("leases").leases;
    assert_eq!(granted.len(), 2);

    let expired = store.expired(clock.now(), 10).await.expect("reads");
    assert_eq!(expired.len(), 2, "the round begins with both");
    let (heard_of, epoch) = expired[0];
    let held = vec![Held { task: heard_of, epoch }];
    let beat = Heartbeat { incarnation: request.incarnation, held, room: None };
    store.heartbeat(beat, 30_000, clock.now()).await.expect("renews");
    // Past their deadline by one hour, by a clock that may be ahead by two.
    for (task, epoch) in &expired {
        let lease = ExpiredLease { task: *task, epoch: *epoch, ahead_ms: 2 * 3_600_000 };
        let ended = end_if_past(store.as_ref(), &clock, &wakes, lease).await;
        assert_eq!(ended.expect("looks"), None);
        let (record, _) = store.task(*task).await.expect("reads").expect("is there");
        assert_eq!(record.state, TaskState::Running, "may not be past its deadline by the right clock");
    }
    for (task, epoch) in &expired {
        let lease = ExpiredLease { task: *task, epoch: *epoch, ahead_ms: 0 };
        end_if_past(store.as_ref(), &clock, &wakes, lease).await.expect("looks");
    }

    for (task, _) in expired {
        let (record, deadline) = store.task(task).await.expect("reads").expect("is there");
        let (state, stands) = (record.state, deadline.is_some());
        if task == heard_of {
            assert_eq!((state, stands), (TaskState::Running, true), "who was heard of keeps the lease");
        } else {
            assert_eq!((state, stands), (TaskState::Available, false), "who was not loses it");
        }
    }
    store.close().await;
}
