//! Tasks for the measurements, put into a store and leased without a worker around them.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use docket_coordinator::{
    clock::{self, Clock},
    store::{NewBlob, NewTask, Store},
};
use docket_schema::{
    content::BlobRef,
    ids::{Epoch, IncarnationId, RunId, Seq, TaskId},
    message::ModelRef,
    run::EngineRef,
    task::{Backoff, SettingsPatch, TaskSpec},
    wire::LeaseRequest,
};

use super::stream::empty_base;

/// Leases of the measurements outlast them: nothing renews them.
pub(super) const LEASE_MS: u64 = 600_000;

/// A run in the measurement's hands.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) task: TaskId,
    pub(super) run: RunId,
    pub(super) epoch: Epoch,
    pub(super) seq: Seq,
}

/// A worker of the measurements: an incarnation and its requests' numbers.
#[derive(Debug)]
pub(super) struct Hand {
    incarnation: IncarnationId,
    number: u64,
}

impl Hand {
    pub(super) fn new() -> Self {
        Self { incarnation: IncarnationId(clock::new_id()), number: 0 }
    }

    /// Its next request for at most `max` leases.
    pub(super) fn request(&mut self, max: u32, wait_ms: u64) -> LeaseRequest {
        self.number += 1;
        LeaseRequest {
            labels: docket_schema::task::Labels::default(),
            layers: Vec::new(),
            faults: Vec::new(),
            room: None,
            incarnation: self.incarnation,
            number: self.number,
            name: "bench".to_owned(),
            queues: Vec::new(),
            engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
            max,
            wait_ms,
        }
    }
}

/// A task that asks nothing.
pub(super) fn task(model: ModelRef) -> TaskSpec {
    TaskSpec {
        title: "A task of docket bench".to_owned(),
        text: "Nothing is asked.".to_owned(),
        queue: Default::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 1,
        crashes_max: 5,
        backoff: Backoff::default(),
        base: empty_base().0,
        engine: "react".to_owned(),
        model,
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: None,
        settings: SettingsPatch::default(),
        tests: None,
        requires: Vec::new(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::Conditions::default(),
    }
}

/// The model of tasks that no worker takes.
pub(super) fn no_model() -> ModelRef {
    ModelRef { provider: "scripted".to_owned(), name: "bench".to_owned(), base_url: None }
}

/// Puts `bytes` into the store.
pub(super) async fn put_blob(
    store: &Arc<dyn Store>,
    clock: &Clock,
    bytes: Vec<u8>,
) -> anyhow::Result<BlobRef> {
    let blob = BlobRef::of(&bytes);
    store
        .put_blobs(vec![NewBlob { blob, bytes: Bytes::from(bytes) }], clock.now())
        .await
        .context("the store does not take a blob")?;
    Ok(blob)
}

/// Submits `count` tasks in one go.
pub(super) async fn submit(store: &Arc<dyn Store>, clock: &Clock, count: usize) -> anyhow::Result<()> {
    let spec = task(no_model());
    let tasks =
        (0..count).map(|_| NewTask { id: TaskId(clock::new_id()), spec: spec.clone(), fork: None }).collect();
    store.submit(tasks, "bench".to_owned(), clock.now()).await.context("the store does not take tasks")?;
    Ok(())
}

/// Leases at most `max` tasks.
pub(super) async fn lease(
    store: &Arc<dyn Store>,
    clock: &Clock,
    hand: &mut Hand,
    max: u32,
) -> anyhow::Result<Vec<Held>> {
    let runs = (0..max).map(|_| RunId(clock::new_id())).collect();
    let granted = store
        .lease(hand.request(max, 0), runs, LEASE_MS, clock.now())
        .await
        .context("the store does not lease")?;
    let held = |granted: docket_coordinator::store::Granted| Held {
        task: granted.record.id,
        run: granted.run,
        epoch: granted.record.epoch,
        seq: granted.head.seq,
    };
    Ok(granted.leases.into_iter().map(held).collect())
}

/// `count` fresh runs, leased.
pub(super) async fn runs(store: &Arc<dyn Store>, clock: &Clock, count: usize) -> anyhow::Result<Vec<Held>> {
    put_blob(store, clock, empty_base().1).await?;
    submit(store, clock, count).await?;
    let held = lease(store, clock, &mut Hand::new(), u32::try_from(count)?).await?;
    ensure!(
        held.len() == count,
        "{} of {count} tasks were leased; is another worker on this store?",
        held.len()
    );
    Ok(held)
}

/// A task that no worker of these tests takes by itself.
#[cfg(test)]
pub(crate) async fn put_task(store: &Arc<dyn Store>) -> anyhow::Result<TaskId> {
    let (clock, id) = (Clock::new(), TaskId(clock::new_id()));
    put_blob(store, &clock, empty_base().1).await?;
    let task = NewTask { id, spec: task(no_model()), fork: None };
    store.submit(vec![task], "tester".to_owned(), clock.now()).await?;
    Ok(id)
}
