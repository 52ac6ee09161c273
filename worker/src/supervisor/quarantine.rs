//! Faults of this worker that its run processes reported, and the tasks they keep away. Plain rules without a clock.
//!
//! A fault keeps the tasks it affects away for a pause. After that the worker requests one such task: if it meets the
//! fault again the pause is doubled, otherwise the fault is over. So a worker recovers by itself once the cause is
//! fixed, and one that stays faulty leases a task every two minutes at most. The coordinator counts the attempts of
//! each task, and asks a person after `WORKER_FAULTS_MAX` in a row, so that no task circulates forever.
//!
//! A run process works for a task, and its report may be caused by that task. So no task keeps others away for long:
//! a fault that affects more than its task is tried with a task that has not reported it; one that a single task met
//! twice, or that a task met although others got past it, affects that task alone.

use std::time::{Duration, Instant};

use docket_schema::{
    api::{FAULTS_MAX, FaultKind, FaultScope, WorkerFault},
    ids::{TaskId, TreeHash},
    task::Flow,
};

use super::{
    decide::NowWithJitter,
    state::{LeaseKey, LeasedRun, RunMilestone},
};

/// First pause after a fault: usually a person notices it and then checks whether a fix worked.
const FAULT_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause. Each attempt leaves two events in a task's stream.
const FAULT_PAUSE_MAX: Duration = Duration::from_secs(120);
/// Longest pause after a refusal by a model: such an outage does not pass by itself, an attempt costs at most one
/// refused request, and a person, who is asked after `WORKER_FAULTS_MAX` attempts, should learn of it within minutes.
const MODEL_PAUSE_MAX: Duration = Duration::from_secs(15);
/// How long after a pause only tasks are requested that have not reported the fault.
const OTHER_TASKS_FIRST: Duration = Duration::from_secs(5);
/// How long a run that tries a fault may take to meet it again: longer than most server starts and first replies of
/// models. Then other tasks are leased again, and the end of the run shows whether the fault is over.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// After this time without a task to try it, a fault that affects few tasks is forgotten: they may have ended
/// elsewhere.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// How long a report influences later ones.
const RECENT_WINDOW: Duration = Duration::from_secs(600);
/// Number of other tasks that recently met a fault of the same kind, each alone, after which it is assumed to affect
/// every task, unless they all begin with the same files.
const TASKS_BEFORE_ALL: usize = 4;
/// Like [`TASKS_BEFORE_ALL`], for tasks that all begin with the same files, which may be the cause.
const TASKS_OF_ONE_BASE_BEFORE_ALL: usize = 15;
/// Most recent reporters remembered per fault.
const REPORTERS_MAX: usize = 8;
/// Most recent doubted reports remembered.
const DOUBTS_MAX: usize = 64;

/// The faults of this worker and their state.
#[derive(Debug, Default)]
pub(super) struct FaultQuarantine {
    entries: Vec<QuarantinedFault>,
    doubts: Vec<DoubtedReport>,
    /// When the latest run started that reached its work.
    last_success: Option<Instant>,
    /// Rises whenever [`FaultQuarantine::reported_faults`] changes.
    version: u64,
}

/// The task whose run process reports a fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct FaultReporter {
    pub(super) task: TaskId,
    /// The files that the task begins with.
    pub(super) base: TreeHash,
}

#[derive(Debug)]
struct QuarantinedFault {
    fault: WorkerFault,
    /// How often it was met again after a pause.
    repeats: u32,
    stage: FaultStage,
    /// Tasks that met it, the latest last.
    reporters: Vec<TaskId>,
    /// The files that the latest of them begins with.
    base: TreeHash,
    /// When it was last met.
    last_met: Instant,
}

/// The stage of a fault between its report and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultStage {
    /// Tasks are kept away until this instant.
    Paused(Instant),
    /// Until this instant, one task is wanted that has not reported the fault.
    WantsOtherTask(Instant),
    /// Any one task is wanted. A fault that affects few tasks is forgotten at this instant.
    WantsAnyTask(Instant),
    /// This run shows whether the fault persists; tasks are kept away until this instant.
    InTrial(LeaseKey, Instant),
    /// The same, but other tasks are leased meanwhile.
    InOpenTrial(LeaseKey),
}

/// A task whose unconfirmed report does not keep other tasks away.
#[derive(Debug)]
struct DoubtedReport {
    task: TaskId,
    kind: FaultKind,
    /// The tasks it claimed the fault affects.
    scope: FaultScope,
    /// Another of them got past the fault. Until then, another task that meets it confirms it.
    is_refuted: bool,
    last_met: Instant,
}

/// A report, narrowed to the confirmed scope.
struct AcceptedReport {
    fault: WorkerFault,
    /// Tasks that met the fault before, and how often, if they are not in an entry of the same scope.
    earlier: Vec<TaskId>,
    repeats: u32,
}

impl QuarantinedFault {
    fn matches_fault(&self, kind: FaultKind, scope: &FaultScope) -> bool {
        self.fault.kind == kind && self.fault.scope == *scope
    }

    const fn is_probed(&self) -> bool {
        matches!(self.stage, FaultStage::WantsOtherTask(_) | FaultStage::WantsAnyTask(_))
    }

    fn is_tried_by(&self, key: LeaseKey) -> bool {
        matches!(self.stage, FaultStage::InTrial(by, _) | FaultStage::InOpenTrial(by) if by == key)
    }

    fn add_reporters(&mut self, tasks: impl IntoIterator<Item = TaskId>) {
        for task in tasks {
            self.reporters.retain(|known| *known != task);
            self.reporters.push(task);
        }
        let surplus = self.reporters.len().saturating_sub(REPORTERS_MAX);
        self.reporters.drain(..surplus);
    }
}

impl FaultQuarantine {
    /// Records a fault that a run process reported.
    pub(super) fn report_fault(&mut self, fault: WorkerFault, by: FaultReporter, at: NowWithJitter) {
        self.version += 1;
        self.doubts.retain(|doubt| doubt.last_met + RECENT_WINDOW > at.now);
        let narrowed = self.narrow_scope(fault, by.task, at.now);
        let AcceptedReport { fault, earlier, repeats } = self.widen_scope(narrowed, by, at.now);
        let kind = fault.kind;
        let paused = |repeats| FaultStage::Paused(at.jittered_deadline(fault_pause(repeats, kind)));
        let before = self.entries.iter().position(|entry| entry.matches_fault(fault.kind, &fault.scope));
        let mut entry = match before.map(|nth| self.entries.remove(nth)) {
            // Several runs may have met it before the first report.
            Some(entry) if matches!(entry.stage, FaultStage::Paused(_)) => entry,
            Some(entry) => {
                let repeats = entry.repeats.saturating_add(1);
                QuarantinedFault { repeats, stage: paused(repeats), ..entry }
            }
            None => {
                let (fault, stage, met) = (fault.clone(), paused(repeats), at.now);
                QuarantinedFault {
                    fault,
                    repeats,
                    stage,
                    reporters: Vec::new(),
                    base: by.base,
                    last_met: met,
                }
            }
        };
        entry.add_reporters(earlier.into_iter().chain([by.task]));
        (entry.fault, entry.base, entry.last_met) = (fault, by.base, at.now);
        self.entries.push(entry);
        if self.entries.len() > FAULTS_MAX {
            let least =
                (0..self.entries.len()).min_by_key(|nth| scope_breadth(&self.entries[*nth].fault.scope));
            if let Some(nth) = least {
                self.entries.remove(nth);
            }
        }
    }

    /// Narrows the fault to its task if nothing confirms that it affects others. If this report confirms an earlier
    /// one, the history of the fault is included.
    fn narrow_scope(&mut self, fault: WorkerFault, task: TaskId, now: Instant) -> AcceptedReport {
        let (kind, alone) = (fault.kind, FaultScope::Task(task));
        if fault.scope == alone {
            return AcceptedReport { fault, earlier: Vec::new(), repeats: 0 };
        }
        if let Some(doubt) = self.doubts.iter_mut().find(|doubt| doubt.task == task && doubt.kind == kind) {
            doubt.last_met = now;
            return AcceptedReport {
                fault: WorkerFault { scope: alone, ..fault },
                earlier: Vec::new(),
                repeats: 0,
            };
        }
        let is_only_word = |entry: &QuarantinedFault| {
            let is_again = !matches!(entry.stage, FaultStage::Paused(_));
            entry.matches_fault(kind, &fault.scope) && is_again && entry.reporters == [task]
        };
        if let Some(nth) = self.entries.iter().position(is_only_word) {
            let repeats = self.entries.remove(nth).repeats.saturating_add(1);
            self.remember_doubt(DoubtedReport {
                task,
                kind,
                scope: fault.scope.clone(),
                is_refuted: false,
                last_met: now,
            });
            return AcceptedReport {
                fault: WorkerFault { scope: alone, ..fault },
                earlier: Vec::new(),
                repeats,
            };
        }
        let confirmed =
            |doubt: &mut DoubtedReport| doubt.kind == kind && doubt.scope == fault.scope && !doubt.is_refuted;
        let earlier: Vec<TaskId> = self.doubts.extract_if(.., confirmed).map(|doubt| doubt.task).collect();
        let is_of_earlier = |entry: &mut QuarantinedFault| {
            entry.fault.kind == kind
                && matches!(entry.fault.scope, FaultScope::Task(task) if earlier.contains(&task))
        };
        let repeats =
            self.entries.extract_if(.., is_of_earlier).map(|entry| entry.repeats).max().unwrap_or(0);
        AcceptedReport { fault, earlier, repeats }
    }

    fn remember_doubt(&mut self, doubt: DoubtedReport) {
        self.doubts.retain(|known| known.task != doubt.task || known.kind != doubt.kind);
        self.doubts.push(doubt);
        let surplus = self.doubts.len().saturating_sub(DOUBTS_MAX);
        self.doubts.drain(..surplus);
    }

    /// Widens the fault to every task if many tasks with nothing else in common met it recently, and no run in
    /// between got past it.
    fn widen_scope(&mut self, told: AcceptedReport, by: FaultReporter, now: Instant) -> AcceptedReport {
        let (fault, success) = (&told.fault, self.last_success);
        if !matches!(fault.scope, FaultScope::Task(_)) || !can_concern_all(fault.kind) {
            return told;
        }
        let kind = fault.kind;
        let is_alike = |entry: &&QuarantinedFault| {
            entry.fault.kind == kind
                && matches!(entry.fault.scope, FaultScope::Task(task) if task != by.task)
                && entry.last_met + RECENT_WINDOW > now
                && success.is_none_or(|success| entry.last_met > success)
        };
        let alike: Vec<&QuarantinedFault> = self.entries.iter().filter(is_alike).collect();
        let needed = match alike.iter().any(|entry| entry.base != by.base) {
            true => TASKS_BEFORE_ALL,
            false => TASKS_OF_ONE_BASE_BEFORE_ALL,
        };
        if alike.len() < needed {
            return told;
        }
        let earlier = alike.iter().flat_map(|entry| entry.reporters.iter().copied()).collect();
        let is_covered = |entry: &QuarantinedFault| {
            entry.fault.kind == kind && matches!(entry.fault.scope, FaultScope::Task(_))
        };
        self.entries.retain(|entry| !is_covered(entry));
        AcceptedReport {
            fault: WorkerFault { scope: FaultScope::AnyTask, ..told.fault },
            earlier,
            repeats: 0,
        }
    }

    /// Returns the fault that keeps this task away now.
    pub(super) fn fault_for(&self, flow: &Flow, task: TaskId) -> Option<&WorkerFault> {
        let keeps = |entry: &&QuarantinedFault| match entry.stage {
            FaultStage::Paused(_) | FaultStage::InTrial(..) => entry.fault.scope.covers_task(flow, task),
            FaultStage::WantsOtherTask(_) => entry.reporters.contains(&task),
            FaultStage::WantsAnyTask(_) | FaultStage::InOpenTrial(_) => false,
        };
        self.entries.iter().find(keeps).map(|entry| &entry.fault)
    }

    /// Begins a trial of the faults that affect this run.
    pub(super) fn begin_trial(&mut self, key: LeaseKey, flow: &Flow, now: Instant) {
        for entry in &mut self.entries {
            if entry.is_probed() && entry.fault.scope.covers_task(flow, key.task) {
                entry.stage = FaultStage::InTrial(key, now + TRIAL_TIME_MAX);
                self.version += 1;
            }
        }
    }

    /// Ends a trial. The faults it tried are over if the run got past the point where they occur. Otherwise they are
    /// tried again, and the next pause is as long as if this run had not happened.
    pub(super) fn end_trial(&mut self, key: LeaseKey, run: &LeasedRun, reach: RunMilestone, now: Instant) {
        if reach >= RunMilestone::Working {
            self.last_success = self.last_success.max(Some(run.started_at));
        }
        for doubt in self.doubts.iter_mut().filter(|doubt| has_outlasted_fault(reach, doubt.kind)) {
            doubt.is_refuted |=
                run.started_at > doubt.last_met && doubt.scope.covers_task(&run.flow, key.task);
        }
        let is_over = |entry: &mut QuarantinedFault| {
            entry.is_tried_by(key) && has_outlasted_fault(reach, entry.fault.kind)
        };
        let over: Vec<QuarantinedFault> = self.entries.extract_if(.., is_over).collect();
        self.version += u64::from(!over.is_empty());
        for QuarantinedFault { fault: WorkerFault { kind, scope, .. }, reporters, last_met: met, .. } in over
        {
            if matches!(scope, FaultScope::Task(_)) {
                continue;
            }
            for task in reporters {
                self.remember_doubt(DoubtedReport {
                    task,
                    kind,
                    scope: scope.clone(),
                    is_refuted: true,
                    last_met: met,
                });
            }
        }
        for entry in self.entries.iter_mut().filter(|entry| entry.is_tried_by(key)) {
            entry.stage = FaultStage::WantsAnyTask(now + FORGET_AFTER);
            self.version += 1;
        }
    }

    /// Advances the time.
    pub(super) fn advance_time(&mut self, now: Instant) {
        let is_forgotten = |entry: &mut QuarantinedFault| {
            !is_wide(&entry.fault.scope)
                && matches!(entry.stage, FaultStage::WantsAnyTask(until) if until <= now)
        };
        self.version += self.entries.extract_if(.., is_forgotten).count() as u64;
        for entry in &mut self.entries {
            let stage = match entry.stage {
                FaultStage::Paused(until) if until <= now => match entry.fault.scope {
                    FaultScope::Task(_) => FaultStage::WantsAnyTask(now + FORGET_AFTER),
                    FaultScope::AnyTask
                    | FaultScope::Provider { .. }
                    | FaultScope::Model(_)
                    | FaultScope::Setup(_) => FaultStage::WantsOtherTask(now + OTHER_TASKS_FIRST),
                },
                FaultStage::WantsOtherTask(until) if until <= now => {
                    FaultStage::WantsAnyTask(now + FORGET_AFTER)
                }
                FaultStage::InTrial(key, until) if until <= now => FaultStage::InOpenTrial(key),
                FaultStage::Paused(_)
                | FaultStage::WantsOtherTask(_)
                | FaultStage::WantsAnyTask(_)
                | FaultStage::InTrial(..)
                | FaultStage::InOpenTrial(_) => continue,
            };
            entry.stage = stage;
            self.version += 1;
        }
    }

    /// Returns the next instant at which time alone changes something.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let wake = |entry: &QuarantinedFault| match entry.stage {
            FaultStage::Paused(until) | FaultStage::WantsOtherTask(until) | FaultStage::InTrial(_, until) => {
                Some(until)
            }
            FaultStage::WantsAnyTask(until) => (!is_wide(&entry.fault.scope)).then_some(until),
            FaultStage::InOpenTrial(_) => None,
        };
        self.entries.iter().filter_map(wake).min()
    }

    /// Whether one task is wanted to try a fault of many tasks. A fault of few tasks does not limit other requests.
    pub(super) fn is_probing(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_probed() && is_wide(&entry.fault.scope))
    }

    /// Returns the faults to send with a lease request. If a task other than the reporters of a fault is wanted, each
    /// of the reporters is kept away.
    pub(super) fn reported_faults(&self) -> Vec<WorkerFault> {
        let listed = self.entries.iter().filter(|entry| !matches!(entry.stage, FaultStage::InOpenTrial(_)));
        let said = listed.map(|entry| WorkerFault { is_probed: entry.is_probed(), ..entry.fault.clone() });
        let wanting =
            self.entries.iter().filter(|entry| matches!(entry.stage, FaultStage::WantsOtherTask(_)));
        let kept_away = wanting.flat_map(|entry| {
            let of_task =
                |task: &TaskId| WorkerFault { scope: FaultScope::Task(*task), ..entry.fault.clone() };
            entry.reporters.iter().map(of_task)
        });
        said.chain(kept_away).take(FAULTS_MAX).collect()
    }

    /// Rises whenever [`FaultQuarantine::reported_faults`] changes.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }
}

/// Returns the pause after a fault that was met again `repeats` times.
fn fault_pause(repeats: u32, kind: FaultKind) -> Duration {
    let longest = match kind {
        FaultKind::Model => MODEL_PAUSE_MAX,
        FaultKind::McpServer
        | FaultKind::Sandbox
        | FaultKind::Toolchain
        | FaultKind::Key
        | FaultKind::Engine
        | FaultKind::Disk
        | FaultKind::Host => FAULT_PAUSE_MAX,
    };
    FAULT_PAUSE_MIN.saturating_mul(1 << repeats.min(10)).min(longest)
}

/// Whether a fault affects so many tasks that one of them is always available.
const fn is_wide(scope: &FaultScope) -> bool {
    scope_breadth(scope) >= 2
}

/// Ranks how many tasks a fault affects.
const fn scope_breadth(scope: &FaultScope) -> u8 {
    match scope {
        FaultScope::AnyTask => 3,
        FaultScope::Provider { .. } => 2,
        FaultScope::Model(_) | FaultScope::Setup(_) => 1,
        FaultScope::Task(_) => 0,
    }
}

/// Whether a run that got this far would have met a fault of this kind. Models are called after the start.
fn has_outlasted_fault(reach: RunMilestone, kind: FaultKind) -> bool {
    match kind {
        FaultKind::Key | FaultKind::Model => reach >= RunMilestone::Ended,
        FaultKind::McpServer
        | FaultKind::Sandbox
        | FaultKind::Toolchain
        | FaultKind::Engine
        | FaultKind::Disk
        | FaultKind::Host => reach >= RunMilestone::Working,
    }
}

/// Whether a fault of this kind, met by many tasks, may affect every task. The other kinds concern something that
/// only some tasks need.
const fn can_concern_all(kind: FaultKind) -> bool {
    match kind {
        FaultKind::McpServer | FaultKind::Sandbox | FaultKind::Disk | FaultKind::Host => true,
        FaultKind::Toolchain | FaultKind::Key | FaultKind::Model | FaultKind::Engine => false,
    }
}

#[cfg(test)]
mod tests;
