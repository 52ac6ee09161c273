//! Chooses which of the tasks that a worker may take it gets.
//!
//! Tasks are grouped into flows, each ordered by rank. Between flows the higher level goes first: priority
//! plus aging, which grows while nothing of the flow's group was leased. A group is a batch, or all tasks of
//! a queue without one. Of two groups at the same level the one with fewer running tasks goes first (max-min
//! fairness), so a batch of ten thousand leaves a batch of ten its share and none starves. With equally many
//! running, the group served longest ago is next, so groups alternate even if only one task runs at a time.
//! Limits of queues and of concurrency keys apply within a choice as well as between choices.

use std::{cmp::Reverse, collections::HashMap};

use docket_schema::{
    ids::{BatchId, QueueName, TaskId, Timestamp},
    queue::QueueSettings,
    task::{AGING_MS, ConcurrencyLimit, Flow},
};

/// A task that may be leased.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseCandidate {
    pub task: TaskId,
    /// Rank in its flow.
    pub rank: i64,
    pub priority: i16,
    /// Time since when it may be leased.
    pub available_at: Timestamp,
    /// Concurrency limit that it shares with other tasks.
    pub concurrency: Option<ConcurrencyLimit>,
}

/// A flow with its first tasks, by rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlowHead {
    pub flow: Flow,
    /// First tasks of the flow.
    pub candidates: Vec<LeaseCandidate>,
}

/// A unit of fair sharing: a batch, or the tasks of a queue without one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct FairShareGroup {
    queue: QueueName,
    batch: Option<BatchId>,
}

impl FairShareGroup {
    /// Returns the group of a flow.
    pub fn for_flow(flow: &Flow) -> Self {
        Self { queue: flow.queue.clone(), batch: flow.batch }
    }
}

/// Running tasks, as far as the choice depends on them.
#[derive(Debug, Clone, Default)]
pub struct RunningCounts {
    /// For each group: number of running tasks, and when the last one was leased.
    groups: HashMap<FairShareGroup, (u32, Timestamp)>,
    queues: HashMap<QueueName, u32>,
    /// For each concurrency key: number of running tasks, and the lowest limit they state.
    keys: HashMap<String, (u32, u32)>,
}

impl RunningCounts {
    /// Counts a task that has been running since `leased_at`.
    pub fn add_task(&mut self, flow: &Flow, shared: Option<&ConcurrencyLimit>, leased_at: Timestamp) {
        let party = self.groups.entry(FairShareGroup::for_flow(flow)).or_insert((0, leased_at));
        *party = (party.0 + 1, party.1.max(leased_at));
        *self.queues.entry(flow.queue.clone()).or_default() += 1;
        if let Some(ConcurrencyLimit { key, max }) = shared {
            let of_key = self.keys.entry(key.clone()).or_insert((0, *max));
            *of_key = (of_key.0 + 1, of_key.1.min(*max));
        }
    }

    /// Returns the number of running tasks of a queue.
    pub fn running_in_queue(&self, queue: &QueueName) -> u32 {
        self.queues.get(queue).copied().unwrap_or(0)
    }

    /// Whether one more task with this key may start, by its own limit and by those of the running tasks.
    pub fn can_start(&self, shared: &ConcurrencyLimit) -> bool {
        self.keys.get(&shared.key).is_none_or(|(running, max)| *running < shared.max.min(*max))
    }

    /// Whether no task with this key may start, whatever its own limit.
    fn is_full(&self, key: &str) -> bool {
        self.keys.get(key).is_some_and(|(running, max)| running >= max)
    }
}

/// Most groups whose last turn is remembered; the ones served longest ago are dropped.
const TURNS_MAX: usize = 4096;

/// When each group was last served, even if none of its tasks run. Kept in memory by each coordinator and
/// lost when it ends: an unknown group goes first once, so a restart costs at most one task per group. Every
/// coordinator is fair by its own turns, and so are all together.
#[derive(Debug, Clone, Default)]
pub struct FairShareTurns {
    last_turns: HashMap<FairShareGroup, (u64, Timestamp)>,
    count: u64,
}

impl FairShareTurns {
    fn record_turn(&mut self, party: FairShareGroup, now: Timestamp) {
        self.count += 1;
        self.last_turns.insert(party, (self.count, now));
        if self.last_turns.len() > TURNS_MAX {
            let mut turns: Vec<u64> = self.last_turns.values().map(|(turn, _)| *turn).collect();
            turns.sort_unstable();
            let oldest = turns[turns.len() / 2];
            self.last_turns.retain(|_, (turn, _)| *turn >= oldest);
        }
    }

    /// Returns the group's last turn (0 if none) and its time.
    fn last_turn(&self, party: &FairShareGroup) -> (u64, Option<Timestamp>) {
        self.last_turns.get(party).map_or((0, None), |(turn, at)| (*turn, Some(*at)))
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeaseChoice {
    /// In the order in which they were chosen.
    pub tasks: Vec<TaskId>,
    /// Concurrency keys at their limit that held tasks back.
    pub full_keys: Vec<String>,
    /// Some tasks were held back by their keys: there may be others behind those that were read.
    pub has_skipped: bool,
}

/// Inputs of fair sharing. A choice updates both with the tasks it chose.
#[derive(Debug)]
pub struct FairShares<'a> {
    pub running: &'a mut RunningCounts,
    /// Last turn of each group.
    pub turns: &'a mut FairShareTurns,
}

/// Chooses up to `wanted` tasks.
pub fn choose_tasks(
    flows: &[FlowHead],
    queues: &HashMap<QueueName, QueueSettings>,
    FairShares { running, turns }: FairShares<'_>,
    wanted: usize,
    now: Timestamp,
) -> LeaseChoice {
    let mut choice = LeaseChoice::default();
    let mut next: Vec<usize> = vec![0; flows.len()];
    while choice.tasks.len() < wanted {
        let mut best = None;
        for (at, head) in flows.iter().enumerate() {
            let settings = queues.get(&head.flow.queue).copied().unwrap_or_default();
            let full =
                settings.running_max.is_some_and(|max| running.running_in_queue(&head.flow.queue) >= max);
            if settings.paused || full {
                continue;
            }
            while let Some(shared) = head.candidates.get(next[at]).and_then(|one| one.concurrency.as_ref()) {
                if running.can_start(shared) {
                    break;
                }
                choice.has_skipped = true;
                if running.is_full(&shared.key) && !choice.full_keys.contains(&shared.key) {
                    choice.full_keys.push(shared.key.clone());
                }
                next[at] += 1;
            }
            let Some(candidate) = head.candidates.get(next[at]) else { continue };
            let party = FairShareGroup::for_flow(&head.flow);
            let (share, leased_at) =
                running.groups.get(&party).copied().unwrap_or((0, candidate.available_at));
            let (turn, served_at) = turns.last_turn(&party);
            let last = served_at.map_or(leased_at, |at| at.max(leased_at));
            let order = (
                Reverse(effective_priority(candidate, last, now)),
                share,
                turn,
                candidate.rank,
                candidate.task,
            );
            if best.as_ref().is_none_or(|(before, _)| order < *before) {
                best = Some((order, at));
            }
        }
        let Some((_, at)) = best else { break };
        let (head, candidate) = (&flows[at], &flows[at].candidates[next[at]]);
        choice.tasks.push(candidate.task);
        turns.record_turn(FairShareGroup::for_flow(&head.flow), now);
        running.add_task(&head.flow, candidate.concurrency.as_ref(), now);
        next[at] += 1;
    }
    choice
}

/// Returns the priority plus one point for each [`AGING_MS`] in which nothing of its group was leased
/// although it could have been.
fn effective_priority(candidate: &LeaseCandidate, party_leased_at: Timestamp, now: Timestamp) -> u64 {
    let waits = now.ms_since(candidate.available_at.max(party_leased_at));
    let base = i64::from(candidate.priority) - i64::from(i16::MIN);
    base.unsigned_abs().saturating_add(waits / AGING_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

    fn batch_flow(batch: u128) -> Flow {
        Flow {
            queue: QueueName::default(),
            batch: (batch > 0).then(|| BatchId(uuid::Uuid::from_u128(batch))),
            selector: docket_schema::task::LabelSet::default(),
            setup: String::new(),
            models: Vec::new(),
            engine: "react".to_owned(),
        }
    }

    /// Tasks `from..to` of a batch, available one microsecond apart, all `age_ms` ago.
    fn flow_head(batch: u128, tasks: std::ops::Range<u128>, priority: i16, age_ms: u64) -> FlowHead {
        let candidates = tasks
            .map(|n| {
                let available_at = Timestamp(NOW.0 - (age_ms as i64) * 1000 + n as i64);
                let rank = available_at.0 - i64::from(priority) * (AGING_MS as i64) * 1000;
                let task = TaskId(uuid::Uuid::from_u128(batch * 1000 + n));
                LeaseCandidate { task, rank, priority, available_at, concurrency: None }
            })
            .collect();
        FlowHead { flow: batch_flow(batch), candidates }
    }

    fn chosen_batches(choice: &LeaseChoice) -> Vec<u128> {
        choice.tasks.iter().map(|task| task.0.as_u128() / 1000).collect()
    }

    fn choose_batches(flows: &[FlowHead], running: &mut RunningCounts, wanted: usize) -> Vec<u128> {
        chosen_batches(&choose_tasks(
            flows,
            &HashMap::new(),
            FairShares { running, turns: &mut FairShareTurns::default() },
            wanted,
            NOW,
        ))
    }

    #[test]
    fn small_batch_gets_its_share_next_to_an_older_large_one() {
        let flows = [flow_head(1, 0..100, 0, 5000), flow_head(2, 0..3, 0, 0)];
        let mut running = RunningCounts::default();
        for _ in 0..4 {
            running.add_task(&batch_flow(1), None, NOW);
        }
        assert_eq!(choose_batches(&flows, &mut running, 10), [2, 2, 2, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(choose_batches(&flows, &mut RunningCounts::default(), 6), [1, 2, 1, 2, 1, 2]);
    }

    #[test]
    fn groups_take_turns_when_one_task_runs_at_a_time() {
        // Nothing runs when it chooses: one slot, or a queue with a limit of one.
        let mut flows = [flow_head(1, 0..100, 0, 5000), flow_head(2, 0..3, 0, 0)];
        let mut turns = FairShareTurns::default();
        let mut got = Vec::new();
        while got.len() < 8 {
            let choice = choose_tasks(
                &flows,
                &HashMap::new(),
                FairShares { running: &mut RunningCounts::default(), turns: &mut turns },
                1,
                NOW,
            );
            got.extend(chosen_batches(&choice));
            flows.iter_mut().for_each(|head| head.candidates.retain(|one| one.task != choice.tasks[0]));
        }
        assert_eq!(got, [1, 2, 1, 2, 1, 2, 1, 1]);
        // A later batch does not wait for everything that older ones have accumulated: an hour of waiting is
        // one turn.
        let old = [flow_head(1, 0..9, 0, 3_600_000), flow_head(2, 0..9, 0, 0)];
        let mut turns = FairShareTurns::default();
        let mut next = || {
            choose_tasks(
                &old,
                &HashMap::new(),
                FairShares { running: &mut RunningCounts::default(), turns: &mut turns },
                1,
                NOW,
            )
        };
        assert_eq!(
            [chosen_batches(&next()), chosen_batches(&next()), chosen_batches(&next())],
            [[1], [2], [1]]
        );
    }

    #[test]
    fn oldest_turns_are_forgotten() {
        let mut turns = FairShareTurns::default();
        for n in 0..20_000 {
            turns.record_turn(FairShareGroup::for_flow(&batch_flow(n)), NOW);
            assert!(turns.last_turns.len() <= TURNS_MAX);
        }
        assert_eq!(turns.last_turn(&FairShareGroup::for_flow(&batch_flow(1))), (0, None));
        assert_eq!(turns.last_turn(&FairShareGroup::for_flow(&batch_flow(19_999))), (20_000, Some(NOW)));
    }

    #[test]
    fn aging_overtakes_priority() {
        let hour = 3_600_000;
        let high = flow_head(1, 0..100, 10, 0);
        assert_eq!(
            choose_batches(&[high.clone(), flow_head(2, 0..9, 0, 0)], &mut RunningCounts::default(), 3),
            [1, 1, 1]
        );
        // An hour is worth more than ten points. After one task of it the group has just been served.
        let mut running = RunningCounts::default();
        assert_eq!(choose_batches(&[high, flow_head(2, 0..9, 0, hour)], &mut running, 4), [2, 1, 1, 1]);
    }

    #[test]
    fn full_or_paused_queue_gives_no_tasks() {
        let flows = [flow_head(1, 0..9, 0, 0)];
        let with = |paused, running_max| {
            let settings = QueueSettings { paused, running_max };
            let queues = HashMap::from([(QueueName::default(), settings)]);
            let mut running = RunningCounts::default();
            running.add_task(&batch_flow(7), None, NOW);
            choose_tasks(
                &flows,
                &queues,
                FairShares { running: &mut running, turns: &mut FairShareTurns::default() },
                9,
                NOW,
            )
            .tasks
            .len()
        };
        assert_eq!(
            [with(false, None), with(true, None), with(false, Some(4)), with(false, Some(1))],
            [9, 0, 3, 0]
        );
    }

    #[test]
    fn concurrency_key_limits_only_its_own_tasks() {
        let mut flows = [flow_head(1, 0..6, 0, 0)];
        for (at, key) in [(0, "a"), (1, "a"), (2, "b"), (4, "b")] {
            let max = if key == "a" { 1 } else { 2 };
            flows[0].candidates[at].concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max });
        }
        let mut running = RunningCounts::default();
        running.add_task(&batch_flow(9), Some(&ConcurrencyLimit { key: "b".to_owned(), max: 2 }), NOW);
        let choice = choose_tasks(
            &flows,
            &HashMap::new(),
            FairShares { running: &mut running, turns: &mut FairShareTurns::default() },
            9,
            NOW,
        );
        let places: Vec<u128> = choice.tasks.iter().map(|task| task.0.as_u128() % 1000).collect();
        assert_eq!(places, [0, 2, 3, 5]);
        assert_eq!(choice.full_keys, ["a", "b"]);
    }

    #[test]
    fn lowest_limit_of_a_concurrency_key_applies() {
        let alone = ConcurrencyLimit { key: "main".to_owned(), max: 1 };
        let lax = ConcurrencyLimit { max: 2, ..alone.clone() };
        for (runs, waits, may) in [(&alone, &lax, false), (&lax, &alone, false), (&lax, &lax, true)] {
            let mut flows = [flow_head(1, 0..1, 0, 0)];
            flows[0].candidates[0].concurrency = Some(waits.clone());
            let mut running = RunningCounts::default();
            running.add_task(&batch_flow(1), Some(runs), NOW);
            let turns = &mut FairShareTurns::default();
            let choice =
                choose_tasks(&flows, &HashMap::new(), FairShares { running: &mut running, turns }, 9, NOW);
            assert_eq!(
                (choice.tasks.len() == 1, choice.has_skipped),
                (may, !may),
                "{waits:?} beside {runs:?}"
            );
            // If two tasks allow two to run, one that allows only itself is excluded.
            assert_eq!(choice.full_keys.len(), usize::from(runs.max == 1));
        }
    }
}
