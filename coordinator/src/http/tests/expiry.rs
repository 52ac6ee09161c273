//! A lease past its deadline is checked once more before it ends.

use docket_schema::{
    api::HeldLease,
    content::BlobRef,
    ids::{RunId, TaskId, Timestamp},
    task::TaskState,
};

use super::{
    event_fixtures::{MANIFEST, task_spec},
    support::{lease_request, open_store},
};
use crate::{
    background::{ExpiredLease, expire_if_overdue},
    clock::{Clock, new_id},
    store::{NewBlob, NewTask, WorkerHeartbeat},
    wakeups::WakeupBus,
};

/// Far in the past, so that a lease from then has expired.
const HOUR_US: i64 = 3_600_000_000;

#[tokio::test]
async fn worker_heard_from_during_an_expiry_round_keeps_its_lease() {
    let folder = tempfile::tempdir().expect("folder");
    let store = open_store(folder.path()).await;
    let (clock, wakes) = (Clock::new(), WakeupBus::default());
    let early = Timestamp(clock.now().0 - HOUR_US);
    let blob = NewBlob { blob: BlobRef::for_bytes(MANIFEST), bytes: MANIFEST.into() };
    store.put_blobs(vec![blob], early).await.expect("stores");
    let ids = [TaskId(new_id()), TaskId(new_id())];
    let tasks = ids.map(|id| NewTask { id, spec: task_spec("a task"), fork: None });
    store.submit(tasks.into(), "test".to_owned(), early).await.expect("accepts");
    let mut request = lease_request(0);
    request.max = 2;
    let runs = vec![RunId(new_id()), RunId(new_id())];
    let granted = store.lease(request.clone(), runs, 1000, early).await.expect("leases").leases;
    assert_eq!(granted.len(), 2);

    let expired = store.list_expired_leases(clock.now(), 10).await.expect("reads");
    assert_eq!(expired.len(), 2, "the round begins with both");
    let (heard_of, epoch) = expired[0];
    let held = vec![HeldLease { task: heard_of, epoch }];
    let beat = WorkerHeartbeat { incarnation: request.incarnation, leases: held, capacity: None };
    store.renew_leases(beat, 30_000, clock.now()).await.expect("renews");
    // One hour past their deadline, according to a clock that may be two hours ahead.
    for (task, epoch) in &expired {
        let lease = ExpiredLease { task: *task, epoch: *epoch, clock_error_ms: 2 * 3_600_000 };
        let ended = expire_if_overdue(store.as_ref(), &clock, &wakes, lease).await;
        assert_eq!(ended.expect("looks"), None);
        let (record, _) = store.get_task(*task).await.expect("reads").expect("is there");
        assert_eq!(record.state, TaskState::Running, "may not be past its deadline by the right clock");
    }
    for (task, epoch) in &expired {
        let lease = ExpiredLease { task: *task, epoch: *epoch, clock_error_ms: 0 };
        expire_if_overdue(store.as_ref(), &clock, &wakes, lease).await.expect("looks");
    }

    for (task, _) in expired {
        let (record, deadline) = store.get_task(task).await.expect("reads").expect("is there");
        let (state, stands) = (record.state, deadline.is_some());
        if task == heard_of {
            assert_eq!((state, stands), (TaskState::Running, true), "a worker that was seen keeps the lease");
        } else {
            assert_eq!((state, stands), (TaskState::Available, false), "another worker loses it");
        }
    }
    store.close().await;
}
