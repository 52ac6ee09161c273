//! Random commands against a model that is too simple to be wrong.

use std::collections::{BTreeMap, BTreeSet};

use docket_coordinator::decide;
use docket_schema::{
    ids::{Epoch, RunId, TaskId},
    run::RunOutcome,
    task::{LeaseReleaseReason, TaskSpec, TaskState},
};

use super::{
    StoreFixture, TestDatabase,
    fixture::{FakeWorker, LEASE_MS, failed_outcome, task_spec},
};

/// Number of sequences, each with its own seed.
const SEEDS: u64 = 6;
/// Commands per sequence.
const STEPS: u32 = 80;

/// A small generator, so that a failure can be reproduced from its seed.
struct SmallRandom(u64);

impl SmallRandom {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// The model's state of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct TaskModel {
    state: TaskState,
    epoch: u64,
    failures: u32,
    crashes: u32,
    runs: u32,
    run: Option<RunId>,
}

pub(super) async fn random_commands_agree_with_a_model(database: TestDatabase) {
    let world = StoreFixture::open(database).await;
    for seed in 1..=SEEDS {
        let mut play = ModelComparison {
            fixture: world.clone(),
            worker: world.new_worker(),
            random: SmallRandom(seed * 0x9e37_79b9),
            tasks: BTreeMap::new(),
            early: BTreeSet::new(),
        };
        for step in 0..STEPS {
            let what = play.run_step().await;
            play.compare_with_model(&format!("seed {seed}, step {step}: {what}")).await;
        }
        play.drain_tasks().await;
    }
    world.check_consistency().await;
}

struct ModelComparison {
    fixture: StoreFixture,
    worker: FakeWorker,
    random: SmallRandom,
    tasks: BTreeMap<TaskId, TaskModel>,
    /// Paused before the end of their backoff, with no time passed since.
    early: BTreeSet<TaskId>,
}

impl ModelComparison {
    async fn run_step(&mut self) -> &'static str {
        let task = self.pick_task();
        match (self.random.roll(10), task) {
            (0 | 1, _) | (_, None) => self.submit_task().await,
            (2 | 3, _) => self.lease_task().await,
            (4, Some(task)) => self.end_run(task, RunOutcome::Succeeded).await,
            (5, Some(task)) => self.end_run(task, failed_outcome()).await,
            (6, Some(task)) => self.crash_run(task).await,
            (7, Some(task)) => self.release_run(task).await,
            (8, Some(task)) => self.apply_manual_command(task).await,
            (_, Some(_)) => self.advance_time().await,
        }
    }

    fn pick_task(&mut self) -> Option<TaskId> {
        let n = self.random.roll(self.tasks.len().max(1) as u64) as usize;
        self.tasks.keys().nth(n).copied()
    }

    async fn submit_task(&mut self) -> &'static str {
        let task =
            self.fixture.submit(TaskSpec { attempts_max: 2, crashes_max: 2, ..task_spec("random") }).await;
        let new =
            TaskModel { state: TaskState::Available, epoch: 0, failures: 0, crashes: 0, runs: 0, run: None };
        self.tasks.insert(task, new);
        "submit"
    }

    async fn lease_task(&mut self) -> &'static str {
        let available = self.tasks.values().filter(|model| model.state == TaskState::Available).count();
        let leases = self.worker.lease(2).await;
        assert_eq!(leases.len(), available.min(2));
        for lease in leases {
            let model = self.tasks.get_mut(&lease.record.id).expect("one of ours");
            assert_eq!(model.state, TaskState::Available);
            match model.run {
                Some(run) => assert_eq!(lease.run, run),
                None => model.runs += 1,
            }
            model.state = TaskState::Running;
            model.epoch += 1;
            model.run = Some(lease.run);
            assert_eq!(lease.record.epoch, Epoch(model.epoch));
        }
        "lease"
    }

    async fn end_run(&mut self, task: TaskId, outcome: RunOutcome) -> &'static str {
        let failed = outcome != RunOutcome::Succeeded;
        let model = self.tasks[&task];
        let (Some(run), true) = (model.run, model.state == TaskState::Running) else {
            return "end of nothing";
        };
        let (record, _) = self.fixture.store.get_task(task).await.expect("reads").expect("exists");
        let head = docket_schema::event::Head::EMPTY;
        let lease = docket_coordinator::store::GrantedLease { record, run, head, forked: false };
        self.worker.end_run(&lease, outcome).await;
        let model = self.tasks.get_mut(&task).expect("ours");
        model.run = None;
        model.state = TaskState::Completed;
        if failed {
            model.failures += 1;
            model.state = if model.failures == 2 { TaskState::Discarded } else { TaskState::Retryable };
            if model.state == TaskState::Retryable {
                model.crashes = 0;
            }
        }
        "end"
    }

    async fn crash_run(&mut self, task: TaskId) -> &'static str {
        let model = self.tasks.get_mut(&task).expect("ours");
        let epoch = Epoch(model.epoch);
        let done = self
            .fixture
            .run_command(task, move |record| decide::record_crash(record, epoch, "signal 9"))
            .await;
        assert_eq!(done.is_ok(), model.state == TaskState::Running, "{done:?}");
        if done.is_ok() {
            model.crashes += 1;
            model.state = if model.crashes == 2 { TaskState::Discarded } else { TaskState::Available };
            model.run = model.run.filter(|_| model.state == TaskState::Available);
        }
        "crash"
    }

    async fn release_run(&mut self, task: TaskId) -> &'static str {
        let model = self.tasks.get_mut(&task).expect("ours");
        // Sometimes by a former holder.
        let epoch = Epoch(model.epoch.saturating_sub(self.random.roll(2)));
        let done = self
            .fixture
            .run_command(task, move |record| decide::release(record, epoch, LeaseReleaseReason::Drained))
            .await;
        let holds = model.state == TaskState::Running && epoch.0 == model.epoch;
        assert_eq!(done.is_ok(), holds, "{done:?}");
        if holds {
            model.state = TaskState::Available;
        }
        "release"
    }

    async fn apply_manual_command(&mut self, task: TaskId) -> &'static str {
        let model = self.tasks.get_mut(&task).expect("ours");
        let which = self.random.roll(4);
        if which == 3 {
            return self.pause_or_unpause(task).await;
        }
        if which < 2 {
            let done = self.fixture.run_command(task, |record| decide::cancel(record, "dice", "")).await;
            let ended = matches!(model.state, TaskState::Completed | TaskState::Discarded);
            assert_eq!(done.is_ok(), !ended, "{done:?}");
            if done.is_ok() {
                model.state = TaskState::Cancelled;
                model.run = None;
                self.early.remove(&task);
            }
            return "cancel";
        }
        let done = self
            .fixture
            .run_command(task, |record| decide::retry(record, "dice", "", decide::DependencyRetry::Kept))
            .await;
        let admits =
            model.state.is_ended() || matches!(model.state, TaskState::Retryable | TaskState::Blocked);
        assert_eq!(done.is_ok(), admits, "{done:?}");
        if admits {
            self.early.remove(&task);
            *model = TaskModel { state: TaskState::Available, failures: 0, crashes: 0, run: None, ..*model };
        }
        "retry"
    }

    /// Pauses an unleased task, and unpauses a paused one.
    async fn pause_or_unpause(&mut self, task: TaskId) -> &'static str {
        let model = self.tasks.get_mut(&task).expect("ours");
        match model.state {
            TaskState::Blocked => {
                self.fixture
                    .run_command(task, |record| decide::unpause(record, "dice"))
                    .await
                    .expect("paused");
                let early = self.early.remove(&task);
                model.state = if early { TaskState::Scheduled } else { TaskState::Available };
                "unpause"
            }
            TaskState::Running => "pause of what runs",
            state => {
                let done = self.fixture.run_command(task, |record| decide::pause(record, "dice")).await;
                assert_eq!(done.is_ok(), !state.is_ended(), "{done:?}");
                if done.is_ok() {
                    model.state = TaskState::Blocked;
                    if state != TaskState::Available {
                        self.early.insert(task);
                    }
                }
                "pause"
            }
        }
    }

    async fn advance_time(&mut self) -> &'static str {
        self.fixture.advance_clock(LEASE_MS + 1);
        self.fixture.expire_leases().await;
        self.fixture.make_due_tasks_available().await;
        self.early.clear();
        for model in self.tasks.values_mut() {
            if matches!(model.state, TaskState::Running | TaskState::Retryable | TaskState::Scheduled) {
                model.state = TaskState::Available;
            }
        }
        "time"
    }

    async fn compare_with_model(&self, at: &str) {
        for (task, model) in &self.tasks {
            let record = self.fixture.task(*task).await;
            let seen = TaskModel {
                state: record.state,
                epoch: record.epoch.0,
                failures: record.failures,
                crashes: record.crashes,
                runs: record.runs,
                run: record.run,
            };
            assert_eq!(seen, *model, "{at}, task {task}");
        }
    }

    /// Leaves no task to lease for the next sequence.
    async fn drain_tasks(&mut self) {
        for task in self.tasks.keys() {
            let _ = self.fixture.run_command(*task, |record| decide::cancel(record, "dice", "")).await;
        }
    }
}
