//! How many tasks of a queue run, or would if there were workers enough: what autoscalers go by.

use std::collections::{BTreeMap, HashMap, HashSet};

use docket_schema::{
    ids::{BatchId, QueueName},
    task::{Concurrency, Flow, Labels, TaskState},
    wire::{QueueView, WorkerAbout},
};

/// What waits for a worker, of all queues, and what may keep it back.
#[derive(Debug, Clone, Default)]
pub struct Waiting {
    /// Tasks that may be leased, by flow and key; the key's limit is the least that one of them says. Of very many flows
    /// and keys these are some: the rest is taken for tasks that could run.
    pub parts: Vec<WaitingPart>,
    /// Of each key: how many tasks with it run, and the least that one of them says may.
    pub keys: HashMap<String, (u64, u32)>,
    /// Batches whose budget is used up.
    pub spent: HashSet<BatchId>,
}

/// Tasks that a worker takes alike, and that share a key if they have one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingPart {
    /// The flow.
    pub flow: Flow,
    /// The key.
    pub key: Option<Concurrency>,
    /// How many.
    pub tasks: u64,
}

/// Whose labels count.
#[derive(Debug, Clone, Copy)]
pub enum LabelsOf<'a> {
    /// Of workers that are all alike, whether or not one is there.
    These(&'a Labels),
    /// Of those that are known. Where none of them serves the queue, nobody knows what those will have that come, and
    /// every task counts.
    Known(&'a [WorkerAbout]),
}

impl LabelsOf<'_> {
    fn satisfy(self, flow: &Flow) -> bool {
        if flow.selector.is_empty() {
            return true;
        }
        match self {
            Self::These(labels) => labels.satisfy(&flow.selector),
            Self::Known(workers) => {
                let mut serving = workers.iter().filter(|about| serves(about, &flow.queue)).peekable();
                serving.peek().is_none() || serving.any(|about| about.labels.satisfy(&flow.selector))
            }
        }
    }
}

fn serves(about: &WorkerAbout, queue: &QueueName) -> bool {
    about.queues.is_empty() || about.queues.contains(queue)
}

/// Says it. What runs counts, so that a busy worker is never one too many; what cannot run does not.
pub fn wanted(queue: &QueueView, waiting: &Waiting, labels: LabelsOf<'_>) -> u64 {
    let running = queue.count(TaskState::Running);
    if queue.settings.paused {
        return running;
    }
    let (mut could, mut counted) = (0_u64, 0_u64);
    // Of each key: how many wait and could run, and how many may at a time.
    let mut of_keys: BTreeMap<&str, (u64, u32)> = BTreeMap::new();
    for part in waiting.parts.iter().filter(|part| part.flow.queue == queue.name) {
        counted = counted.saturating_add(part.tasks);
        let rests = part.flow.batch.is_some_and(|batch| waiting.spent.contains(&batch));
        if rests || !labels.satisfy(&part.flow) {
            continue;
        }
        match &part.key {
            None => could = could.saturating_add(part.tasks),
            Some(Concurrency { key, max }) => {
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
    let rest = queue.count(TaskState::Available).saturating_sub(counted);
    let all = running.saturating_add(could).saturating_add(rest);
    queue.settings.running_max.map_or(all, |max| all.min(running.max(u64::from(max))))
}

#[cfg(test)]
mod tests {
    use docket_schema::{queue::QueueSettings, wire::StateCount};
    use uuid::Uuid;

    use super::*;

    const NOBODY: LabelsOf<'static> = LabelsOf::Known(&[]);

    fn queue(running: u64, available: u64) -> QueueView {
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

    fn part(tasks: u64, selector: &str, key: Option<(&str, u32)>) -> WaitingPart {
        let selector = selector.parse().expect("labels");
        let flow = Flow {
            queue: QueueName::default(),
            batch: None,
            selector,
            setup: String::new(),
            models: Vec::new(),
            engine: "react".to_owned(),
        };
        let key = key.map(|(key, max)| Concurrency { key: key.to_owned(), max });
        WaitingPart { flow, key, tasks }
    }

    #[test]
    fn what_runs_is_always_wanted_and_what_a_queue_keeps_back_never() {
        let of = |running, available, paused, running_max| {
            let queue =
                QueueView { settings: QueueSettings { paused, running_max }, ..queue(running, available) };
            let waiting = Waiting { parts: vec![part(available, "", None)], ..Waiting::default() };
            wanted(&queue, &waiting, NOBODY)
        };
        assert_eq!(of(0, 0, false, None), 0);
        assert_eq!(of(2, 3, false, None), 5);
        assert_eq!(of(2, 3, true, None), 2);
        assert_eq!(of(2, 3, false, Some(4)), 4);
        assert_eq!(of(2, 3, false, Some(1)), 2, "the limit came later than what runs");
    }

    #[test]
    fn of_a_key_no_more_are_wanted_than_may_run() {
        let of = |parts: Vec<WaitingPart>, runs: Option<(u64, u32)>| {
            let keys = runs.map(|runs| ("k".to_owned(), runs)).into_iter().collect();
            let available = parts.iter().map(|part| part.tasks).sum();
            wanted(&queue(0, available), &Waiting { parts, keys, ..Waiting::default() }, NOBODY)
        };
        assert_eq!(of(vec![part(5, "", Some(("k", 1)))], None), 1);
        assert_eq!(of(vec![part(5, "", Some(("k", 1)))], Some((1, 1))), 0);
        assert_eq!(of(vec![part(5, "", Some(("k", 3)))], Some((1, 2))), 1, "the least limit holds");
        let mut two = vec![part(5, "", Some(("k", 2))), part(4, "", Some(("other", 3)))];
        two[0].flow.engine = "plan".to_owned();
        two.push(part(5, "", Some(("k", 2))));
        assert_eq!(of(two, None), 5, "a key is one over all flows");
    }

    #[test]
    fn a_batch_that_may_use_no_more_and_labels_that_nobody_has_want_nobody() {
        let batch = BatchId(Uuid::from_u128(7));
        let mut of_batch = part(4, "", None);
        of_batch.flow.batch = Some(batch);
        let mut waiting = Waiting {
            parts: vec![of_batch, part(2, "gpu=a100", None), part(1, "", None)],
            ..Waiting::default()
        };
        let queue = queue(0, 7);
        assert_eq!(wanted(&queue, &waiting, NOBODY), 7, "who comes may have all of it");
        waiting.spent.insert(batch);
        assert_eq!(wanted(&queue, &waiting, NOBODY), 3);
        let about = |queues: &[&str], labels: &str| WorkerAbout {
            queues: queues.iter().map(|queue| queue.parse().expect("a name")).collect(),
            labels: labels.parse().expect("labels"),
            ..WorkerAbout::default()
        };
        let known = |workers: &[WorkerAbout]| wanted(&queue, &waiting, LabelsOf::Known(workers));
        assert_eq!(known(&[about(&[], "gpu=h100")]), 1);
        assert_eq!(known(&[about(&["other"], "gpu=h100")]), 3, "it does not serve the queue");
        assert_eq!(known(&[about(&[], "gpu=h100"), about(&[], "gpu=a100,x=y")]), 3);
        let these =
            |labels: &str| wanted(&queue, &waiting, LabelsOf::These(&labels.parse().expect("labels")));
        assert_eq!((these("gpu=a100"), these("gpu=h100"), these("")), (3, 1, 1));
    }

    #[test]
    fn what_was_not_counted_by_its_parts_is_wanted() {
        let waiting = Waiting { parts: vec![part(3, "", None)], ..Waiting::default() };
        assert_eq!(wanted(&queue(0, 10), &waiting, NOBODY), 10);
    }
}
