//! Desired worker count of a queue, for autoscalers.

use std::collections::{BTreeMap, HashMap, HashSet};

use docket_schema::{
    api::{QueueView, WorkerCapabilities},
    ids::{BatchId, QueueName},
    task::{ConcurrencyLimit, Flow, LabelSet, TaskState},
};

/// Tasks of all queues that wait for a worker, and the limits that may hold them back.
#[derive(Debug, Clone, Default)]
pub struct WaitingTasks {
    /// Tasks that may be leased, by flow and key; the key's limit is the lowest that any of them states. Very
    /// many flows and keys are truncated: the remaining tasks are assumed to be runnable.
    pub groups: Vec<WaitingGroup>,
    /// For each key: the number of running tasks and the lowest limit any of them states.
    pub keys: HashMap<String, (u64, u32)>,
    /// Batches whose budget is used up.
    pub spent_batches: HashSet<BatchId>,
}

/// Tasks that need the same kind of worker and share a concurrency key, if they have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingGroup {
    pub flow: Flow,
    pub key: Option<ConcurrencyLimit>,
    /// Number of tasks.
    pub tasks: u64,
}

/// Which workers' labels are considered.
#[derive(Debug, Clone, Copy)]
pub enum WorkerLabels<'a> {
    /// Identical workers with these labels, whether or not one exists yet.
    Uniform(&'a LabelSet),
    /// The known workers. If none of them serves the queue, the labels of future workers are unknown and
    /// every task counts.
    Known(&'a [WorkerCapabilities]),
}

impl WorkerLabels<'_> {
    fn satisfy_flow(self, flow: &Flow) -> bool {
        if flow.selector.is_empty() {
            return true;
        }
        match self {
            Self::Uniform(labels) => labels.matches_selector(&flow.selector),
            Self::Known(workers) => {
                let mut serving = workers.iter().filter(|about| serves_queue(about, &flow.queue)).peekable();
                serving.peek().is_none() || serving.any(|about| about.labels.matches_selector(&flow.selector))
            }
        }
    }
}

fn serves_queue(about: &WorkerCapabilities, queue: &QueueName) -> bool {
    about.queues.is_empty() || about.queues.contains(queue)
}

/// Returns the number of workers a queue can use. Running tasks count, so a busy worker is never surplus;
/// tasks that cannot run do not.
pub fn desired_workers(queue: &QueueView, waiting: &WaitingTasks, labels: WorkerLabels<'_>) -> u64 {
    let running = queue.count_in_state(TaskState::Running);
    if queue.settings.paused {
        return running;
    }
    let (mut could, mut counted) = (0_u64, 0_u64);
    // For each key: how many waiting tasks could run, and how many may run at a time.
    let mut of_keys: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    for part in waiting.groups.iter().filter(|part| part.flow.queue == queue.name) {
        counted = counted.saturating_add(part.tasks);
        let rests = part.flow.batch.is_some_and(|batch| waiting.spent_batches.contains(&batch));
        if rests || !labels.satisfy_flow(&part.flow) {
            continue;
        }
        match &part.key {
            None => could = could.saturating_add(part.tasks),
            Some(ConcurrencyLimit { key, max }) => {
                let (tasks, least) = of_keys.entry(key).or_insert((0, u32::MAX));
                *tasks = tasks.saturating_add(part.tasks);
                *least = (*least).min(*max);
            }
        }
    }
    for (key, (tasks, least)) in of_keys {
        let (run, least_of_running) = waiting.keys.get(key).copied().unwrap_or((0, u32::MAX));
        let room = u64::from(least.min(least_of_running)).saturating_sub(run);
        could = could.saturating_add(tasks.min(room));
    }
    let rest = queue.count_in_state(TaskState::Available).saturating_sub(counted);
    let all = running.saturating_add(could).saturating_add(rest);
    queue.settings.running_max.map_or(all, |max| all.min(running.max(u64::from(max))))
}

#[cfg(test)]
mod tests {
    use docket_schema::{api::StateCount, queue::QueueSettings};
    use uuid::Uuid;

    use super::*;

    const NO_WORKERS: WorkerLabels<'static> = WorkerLabels::Known(&[]);

    fn queue_view(running: u64, available: u64) -> QueueView {
        let count = |state, count| StateCount { state, count };
        QueueView {
            name: QueueName::default(),
            settings: QueueSettings::default(),
            tasks: vec![
                count(TaskState::Running, running),
                count(TaskState::Available, available),
                count(TaskState::Blocked, 9),
            ],
            oldest_available_at: None,
            oldest_leased_at: None,
        }
    }

    fn waiting_group(tasks: u64, selector: &str, key: Option<(&str, u32)>) -> WaitingGroup {
        let selector = selector.parse().expect("labels");
        let flow = Flow {
            queue: QueueName::default(),
            batch: None,
            selector,
            setup: String::new(),
            models: Vec::new(),
            engine: "react".to_owned(),
        };
        let key = key.map(|(key, max)| ConcurrencyLimit { key: key.to_owned(), max });
        WaitingGroup { flow, key, tasks }
    }

    #[test]
    fn running_tasks_count_and_paused_or_full_queues_add_none() {
        let of = |running, available, paused, running_max| {
            let queue = QueueView {
                settings: QueueSettings { paused, running_max },
                ..queue_view(running, available)
            };
            let waiting =
                WaitingTasks { groups: vec![waiting_group(available, "", None)], ..WaitingTasks::default() };
            desired_workers(&queue, &waiting, NO_WORKERS)
        };
        assert_eq!(of(0, 0, false, None), 0);
        assert_eq!(of(2, 3, false, None), 5);
        assert_eq!(of(2, 3, true, None), 2);
        assert_eq!(of(2, 3, false, Some(4)), 4);
        assert_eq!(of(2, 3, false, Some(1)), 2, "the limit came later than what runs");
    }

    #[test]
    fn desired_workers_respect_concurrency_keys() {
        let of = |parts: Vec<WaitingGroup>, runs: Option<(u64, u32)>| {
            let keys = runs.map(|runs| ("k".to_owned(), runs)).into_iter().collect();
            let available = parts.iter().map(|part| part.tasks).sum();
            desired_workers(
                &queue_view(0, available),
                &WaitingTasks { groups: parts, keys, ..WaitingTasks::default() },
                NO_WORKERS,
            )
        };
        assert_eq!(of(vec![waiting_group(5, "", Some(("k", 1)))], None), 1);
        assert_eq!(of(vec![waiting_group(5, "", Some(("k", 1)))], Some((1, 1))), 0);
        assert_eq!(of(vec![waiting_group(5, "", Some(("k", 3)))], Some((1, 2))), 1, "the least limit holds");
        let mut two = vec![waiting_group(5, "", Some(("k", 2))), waiting_group(4, "", Some(("other", 3)))];
        two[0].flow.engine = "plan".to_owned();
        two.push(waiting_group(5, "", Some(("k", 2))));
        assert_eq!(of(two, None), 5, "a key is one over all flows");
    }

    #[test]
    fn spent_batches_and_unmatched_labels_want_no_workers() {
        let batch = BatchId(Uuid::from_u128(7));
        let mut of_batch = waiting_group(4, "", None);
        of_batch.flow.batch = Some(batch);
        let mut waiting = WaitingTasks {
            groups: vec![of_batch, waiting_group(2, "gpu=a100", None), waiting_group(1, "", None)],
            ..WaitingTasks::default()
        };
        let queue = queue_view(0, 7);
        assert_eq!(desired_workers(&queue, &waiting, NO_WORKERS), 7, "who comes may have all of it");
        waiting.spent_batches.insert(batch);
        assert_eq!(desired_workers(&queue, &waiting, NO_WORKERS), 3);
        let about = |queues: &[&str], labels: &str| WorkerCapabilities {
            queues: queues.iter().map(|queue| queue.parse().expect("a name")).collect(),
            labels: labels.parse().expect("labels"),
            ..WorkerCapabilities::default()
        };
        let known =
            |workers: &[WorkerCapabilities]| desired_workers(&queue, &waiting, WorkerLabels::Known(workers));
        assert_eq!(known(&[about(&[], "gpu=h100")]), 1);
        assert_eq!(known(&[about(&["other"], "gpu=h100")]), 3, "it does not serve the queue");
        assert_eq!(known(&[about(&[], "gpu=h100"), about(&[], "gpu=a100,x=y")]), 3);
        let these = |labels: &str| {
            desired_workers(&queue, &waiting, WorkerLabels::Uniform(&labels.parse().expect("labels")))
        };
        assert_eq!((these("gpu=a100"), these("gpu=h100"), these("")), (3, 1, 1));
    }

    #[test]
    fn tasks_outside_the_listed_groups_count() {
        let waiting = WaitingTasks { groups: vec![waiting_group(3, "", None)], ..WaitingTasks::default() };
        assert_eq!(desired_workers(&queue_view(0, 10), &waiting, NO_WORKERS), 10);
    }
}
