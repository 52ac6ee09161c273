//! The history checker: verifies the properties a log must have whatever faults hit its writers.
//!
//! A second oracle, written against the guarantees and not against the code that provides them. It does not
//! fold the product's own state; it walks each stream and checks which worker held which task, and when.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{Head, TypedEvent as _, verify_and_advance},
    ids::{Epoch, IncarnationId, Position, RunId, Seq, StreamId, TaskId, TreeHash},
    run::RunEvent,
    task::TaskEvent,
};

use super::{
    acknowledgements::{AckedAppend, AckedLease, AckedRenewal, Acknowledged},
    recorded_log::{CommittedEvent, RecordedLog},
};

/// A violated guarantee.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
#[expect(missing_docs, reason = "the fields' names say what they are")]
pub enum Violation {
    /// Seqs are not consecutive, or a hash does not cover its event.
    BrokenChain { stream: StreamId, seq: Seq, why: String },
    /// The head that the store reports is not the last event in the feed.
    WrongHead { stream: StreamId, acknowledged: Option<Seq>, last: Option<Seq> },
    /// Two events have the same position in the log.
    SharedPosition { position: Position },
    /// A later event of a stream has an earlier position in the log, so readers of the feed see it first.
    PositionDecreased { stream: StreamId, seq: Seq },
    /// An event cannot be decoded.
    Unreadable { stream: StreamId, seq: Seq },
    /// A submit was acknowledged, but the log has no such task.
    SubmitLost { task: TaskId },
    /// A task was submitted more than once.
    SubmittedTwice { task: TaskId },
    /// A lease was acknowledged, but the log has no such lease, or a different one.
    LeaseLost { task: TaskId, epoch: Epoch },
    /// Two workers received the same epoch of a task.
    TwoOwners { task: TaskId, epoch: Epoch },
    /// A lease was renewed for a worker that asked after another had been granted the task.
    RenewedAfterTakeover { task: TaskId, epoch: Epoch },
    /// A lease began while another had not ended.
    LeasedWhileHeld { task: TaskId, epoch: Epoch },
    /// A lease's epoch is not higher than all earlier ones.
    EpochNotRising { task: TaskId, epoch: Epoch },
    /// A lease ended that no worker held.
    EndWithoutLease { task: TaskId, seq: Seq },
    /// An append was acknowledged, but its events are not in the log at that place.
    AppendLost { run: RunId, seq: Seq },
    /// An event has an epoch for which the run had no lease.
    UnknownLease { run: RunId, seq: Seq, epoch: Epoch },
    /// An event became durable before its lease began or after it had ended.
    OutsideLease { run: RunId, seq: Seq, epoch: Epoch },
    /// An event has a lower epoch than an earlier one.
    EpochDecreased { run: RunId, seq: Seq, epoch: Epoch },
    /// An event follows the end of the stream.
    EventAfterEnd { stream: StreamId, seq: Seq },
    /// A run started more than once.
    StartedTwice { run: RunId },
    /// A run named by a completed task did not end.
    RunNotEnded { run: RunId },
    /// A task was completed more than once.
    CompletedTwice { task: TaskId },
    /// A task was not completed; its last event shows the state.
    NotCompleted { task: TaskId, last: String },
    /// A run failed, although no fault was its own.
    RunFailed { task: TaskId, message: String },
    /// A run ended with a tree other than the fault-free one.
    WrongTree { task: TaskId, found: Option<TreeHash> },
}

/// The period in which an epoch of a task was held.
#[derive(Debug, Clone, Copy)]
struct HeldLease {
    run: RunId,
    worker: IncarnationId,
    from: i64,
    /// When it was revoked or released. `None` for a lease that ended with its run: there the run's end
    /// counts.
    until: Option<i64>,
}

/// The content of a task's stream.
#[derive(Debug, Default)]
struct TaskHistory {
    leases: BTreeMap<Epoch, HeldLease>,
    /// The run that completed the task.
    completed_by: Option<RunId>,
}

/// Returns all violations. `trees` maps each expected task to the tree of a fault-free run.
pub fn check_history(
    log: &RecordedLog,
    acked: &Acknowledged,
    trees: &BTreeMap<TaskId, TreeHash>,
) -> Vec<Violation> {
    let mut found = Vec::new();
    found.extend(
        log.shared_positions.iter().map(|position| Violation::SharedPosition { position: *position }),
    );
    for stream in log.streams.keys().chain(log.heads.keys()).collect::<BTreeSet<_>>() {
        check_chain(log, stream, &mut found);
    }
    for task in &acked.tasks {
        if !log.streams.contains_key(&StreamId::Task(*task)) {
            found.push(Violation::SubmitLost { task: *task });
        }
    }
    let mut stories = BTreeMap::new();
    for (stream, events) in &log.streams {
        if let StreamId::Task(task) = stream {
            stories.insert(*task, read_task_history(*task, events, trees.contains_key(task), &mut found));
        }
    }
    check_leases(&acked.leases, &stories, &mut found);
    check_renewals(acked, &mut found);
    for append in &acked.appends {
        check_append(log, append, &mut found);
    }
    let runs = leases_by_run(&stories);
    for (stream, events) in &log.streams {
        if let StreamId::Run(run) = stream {
            check_run_ownership(*run, events, runs.get(run).map_or(&[], Vec::as_slice), &mut found);
        }
    }
    for (task, tree) in trees {
        check_outcome(log, *task, stories.get(task), *tree, &mut found);
    }
    found.sort();
    found.dedup();
    found
}

fn stream_events<'l>(log: &'l RecordedLog, stream: &StreamId) -> &'l [CommittedEvent] {
    log.streams.get(stream).map_or(&[], Vec::as_slice)
}

fn check_chain(log: &RecordedLog, stream: &StreamId, found: &mut Vec<Violation>) {
    let mut head = Head::EMPTY;
    let mut position = None;
    for CommittedEvent { event, .. } in stream_events(log, stream) {
        match verify_and_advance(head, event) {
            Ok(next) => head = next,
            Err(why) => {
                let why = why.to_string();
                found.push(Violation::BrokenChain { stream: stream.clone(), seq: event.seq, why });
                head = Head { seq: event.seq, hash: event.hash };
            }
        }
        if position.is_some_and(|before| event.position <= before) {
            found.push(Violation::PositionDecreased { stream: stream.clone(), seq: event.seq });
        }
        position = Some(event.position);
    }
    let last = (head != Head::EMPTY).then_some(head);
    let told = log.heads.get(stream).copied();
    if told != last {
        let (told, last) = (told.map(|head| head.seq), last.map(|head| head.seq));
        found.push(Violation::WrongHead { stream: stream.clone(), acknowledged: told, last });
    }
}

/// Walks a task's stream. For an expected task (`ours`), a failed run is a violation.
fn read_task_history(
    task: TaskId,
    events: &[CommittedEvent],
    ours: bool,
    found: &mut Vec<Violation>,
) -> TaskHistory {
    let mut story = TaskHistory::default();
    let mut holder: Option<Epoch> = None;
    let mut ended = false;
    for (at, CommittedEvent { event, committed_at: committed }) in events.iter().enumerate() {
        let (stream, seq) = (event.stream.clone(), event.seq);
        let Ok(typed) = TaskEvent::decode(&event.kind, event.version, event.payload.as_str()) else {
            found.push(Violation::Unreadable { stream, seq });
            continue;
        };
        if ended {
            found.push(Violation::EventAfterEnd { stream, seq });
        }
        let mut given_back = |holder: &mut Option<Epoch>, story: &mut TaskHistory, epoch: Epoch| {
            if holder.take() != Some(epoch) {
                found.push(Violation::EndWithoutLease { task, seq });
            }
            if let Some(held) = story.leases.get_mut(&epoch) {
                held.until = Some(*committed);
            }
        };
        match typed {
            TaskEvent::TaskSubmitted(_) if at > 0 => found.push(Violation::SubmittedTwice { task }),
            TaskEvent::TaskLeased(lease) => {
                let epoch = lease.epoch;
                if holder.replace(epoch).is_some() {
                    found.push(Violation::LeasedWhileHeld { task, epoch });
                }
                if event.epoch != epoch || story.leases.keys().next_back().is_some_and(|last| *last >= epoch)
                {
                    found.push(Violation::EpochNotRising { task, epoch });
                }
                let held = HeldLease { run: lease.run, worker: lease.worker, from: *committed, until: None };
                let before = story.leases.insert(epoch, held);
                if before.is_some_and(|before| before.worker != lease.worker) {
                    found.push(Violation::TwoOwners { task, epoch });
                }
            }
            TaskEvent::TaskReleased(end) => given_back(&mut holder, &mut story, end.epoch),
            TaskEvent::TaskLeaseExpired(end) => given_back(&mut holder, &mut story, end.epoch),
            TaskEvent::TaskRunCrashed(end) => given_back(&mut holder, &mut story, end.epoch),
            TaskEvent::TaskCompleted(done) => {
                let by_its_holder = holder
                    .take()
                    .and_then(|epoch| story.leases.get(&epoch))
                    .is_some_and(|held| held.run == done.run);
                if story.completed_by.replace(done.run).is_some() {
                    found.push(Violation::CompletedTwice { task });
                } else if !by_its_holder {
                    found.push(Violation::EndWithoutLease { task, seq });
                }
                ended = true;
            }
            TaskEvent::TaskRunFailed(failed) => {
                if holder.take().is_none() {
                    found.push(Violation::EndWithoutLease { task, seq });
                }
                if ours {
                    found.push(Violation::RunFailed { task, message: failed.message });
                }
            }
            TaskEvent::TaskBlocked(_) | TaskEvent::TaskCancelled(_) | TaskEvent::TaskDiscarded(_) => {
                holder = None
            }
            TaskEvent::TaskSubmitted(_)
            | TaskEvent::TaskMadeAvailable(_)
            | TaskEvent::TaskUnblocked(_)
            | TaskEvent::TaskRetried(_)
            | TaskEvent::TaskResumed(_)
            | TaskEvent::TaskReprioritized(_)
            | TaskEvent::TaskPaused(_)
            | TaskEvent::TaskDependencyEnded(_)
            | TaskEvent::TaskDelegated(_)
            | TaskEvent::TaskDeliveryRequested(_)
            | TaskEvent::TaskDelivered(_)
            | TaskEvent::TaskDeliveryClaimed(_)
            | TaskEvent::TaskNeededNoDelivery(_)
            | TaskEvent::TaskDeliveryBlocked(_)
            | TaskEvent::TaskDeliveryHookRan(_)
            | TaskEvent::TaskAccepted(_)
            | TaskEvent::TaskRejected(_) => {}
        }
    }
    if events.first().is_some_and(|first| first.event.kind != "TaskSubmitted") {
        found.push(Violation::SubmitLost { task });
    }
    story
}

/// Checks that acknowledged leases are the ones in the log, and that no two workers received the same
/// one.
fn check_leases(told: &[AckedLease], stories: &BTreeMap<TaskId, TaskHistory>, found: &mut Vec<Violation>) {
    let mut owners: BTreeMap<(TaskId, Epoch), IncarnationId> = BTreeMap::new();
    for AckedLease { task, epoch, run, worker, .. } in told.iter().copied() {
        if *owners.entry((task, epoch)).or_insert(worker) != worker {
            found.push(Violation::TwoOwners { task, epoch });
        }
        let held = stories.get(&task).and_then(|story| story.leases.get(&epoch));
        if !held.is_some_and(|held| held.worker == worker && held.run == run) {
            found.push(Violation::LeaseLost { task, epoch });
        }
    }
}

/// Checks that no worker's lease was renewed on a request made after another worker had been
/// granted the task.
fn check_renewals(acked: &Acknowledged, found: &mut Vec<Violation>) {
    let mut told: BTreeMap<TaskId, Vec<&AckedLease>> = BTreeMap::new();
    for lease in &acked.leases {
        told.entry(lease.task).or_default().push(lease);
    }
    for AckedRenewal { task, epoch, requested_at: asked } in acked.renewals.iter().copied() {
        let later = told.get(&task).into_iter().flatten();
        if later.filter(|lease| lease.epoch > epoch).any(|lease| lease.acknowledged_at < asked) {
            found.push(Violation::RenewedAfterTakeover { task, epoch });
        }
    }
}

fn check_append(log: &RecordedLog, told: &AckedAppend, found: &mut Vec<Violation>) {
    let stream = stream_events(log, &StreamId::Run(told.run));
    let at = |seq: Seq| usize::try_from(seq.0).ok().and_then(|seq| stream.get(seq.checked_sub(1)?));
    let mut seq = told.after;
    for event in &told.events {
        seq = seq.next();
        if !at(seq).is_some_and(|logged| logged.event.is_same_as(event, told.epoch)) {
            found.push(Violation::AppendLost { run: told.run, seq });
        }
    }
    let is_head = at(told.head.seq).is_some_and(|logged| logged.event.hash == told.head.hash);
    if told.head.seq != seq || !is_head {
        found.push(Violation::AppendLost { run: told.run, seq: told.head.seq });
    }
}

fn leases_by_run(stories: &BTreeMap<TaskId, TaskHistory>) -> BTreeMap<RunId, Vec<(Epoch, HeldLease)>> {
    let mut runs: BTreeMap<RunId, Vec<(Epoch, HeldLease)>> = BTreeMap::new();
    for (epoch, held) in stories.values().flat_map(|story| &story.leases) {
        runs.entry(held.run).or_default().push((*epoch, *held));
    }
    runs
}

/// Checks that every event of a run was written by the holder of the lease at that time.
fn check_run_ownership(
    run: RunId,
    events: &[CommittedEvent],
    leases: &[(Epoch, HeldLease)],
    found: &mut Vec<Violation>,
) {
    let (mut highest, mut started, mut ended) = (Epoch(0), false, false);
    for CommittedEvent { event, committed_at: committed } in events {
        let (seq, epoch) = (event.seq, event.epoch);
        if ended {
            found.push(Violation::EventAfterEnd { stream: event.stream.clone(), seq });
        }
        ended |= event.kind == "RunEnded";
        if event.kind == "RunStarted" && std::mem::replace(&mut started, true) {
            found.push(Violation::StartedTwice { run });
        }
        // Events from other writers have no epoch.
        if epoch == Epoch(0) {
            continue;
        }
        if epoch < highest {
            found.push(Violation::EpochDecreased { run, seq, epoch });
        }
        highest = highest.max(epoch);
        match leases.iter().find(|(of, _)| *of == epoch) {
            None => found.push(Violation::UnknownLease { run, seq, epoch }),
            Some((_, held))
                if *committed < held.from || held.until.is_some_and(|until| *committed > until) =>
            {
                found.push(Violation::OutsideLease { run, seq, epoch });
            }
            Some(_) => {}
        }
    }
}

fn check_outcome(
    log: &RecordedLog,
    task: TaskId,
    story: Option<&TaskHistory>,
    tree: TreeHash,
    found: &mut Vec<Violation>,
) {
    let Some(run) = story.and_then(|story| story.completed_by) else {
        let last = stream_events(log, &StreamId::Task(task))
            .last()
            .map_or("nothing", |last| last.event.kind.as_str());
        found.push(Violation::NotCompleted { task, last: last.to_owned() });
        return;
    };
    let end = stream_events(log, &StreamId::Run(run)).last().and_then(|last| {
        let event = &last.event;
        match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
            Ok(RunEvent::RunEnded(end)) => Some(end),
            _ => None,
        }
    });
    match end {
        None => found.push(Violation::RunNotEnded { run }),
        Some(end) if end.tree != Some(tree) => found.push(Violation::WrongTree { task, found: end.tree }),
        Some(_) => {}
    }
}
