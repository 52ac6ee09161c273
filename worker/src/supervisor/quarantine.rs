//! What this worker cannot do at the moment: faults that its run processes reported. Plain rules without a clock.
//!
//! A fault keeps the tasks that it concerns away for a pause. After it the worker asks for one such task: if that meets
//! the fault again the pause is doubled, otherwise the fault is over. So a worker recovers by itself once the cause is
//! fixed, and one that stays faulty leases a task every two minutes at most. The coordinator counts the attempts of each
//! task, and asks a person after `WORKER_FAULTS_MAX` in a row: no task goes round for ever.
//!
//! A run process works for a task, and what it reports may come of the task. So no task keeps others away for long: a
//! fault that concerns more than its task is tried with a task that has not reported it; one that a single task met
//! twice, or that a task met although others got past it, concerns that task alone.

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

/// First pause after a fault: most are found by a person who then looks at the result of a fix.
const FAULT_PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause. Each attempt leaves two events in a task's stream.
const FAULT_PAUSE_MAX: Duration = Duration::from_secs(120);
/// Longest pause after a refusal of a model: such an outage does not pass by itself, an attempt costs one refused request
/// at most, and a person, who is asked after `WORKER_FAULTS_MAX` attempts, is to know within minutes.
const MODEL_PAUSE_MAX: Duration = Duration::from_secs(15);
/// For so long after a pause only tasks are wanted that have not reported the fault.
const OTHER_TASKS_FIRST: Duration = Duration::from_secs(5);
/// How long a run that tries a fault may take to meet it again: longer than most starts of servers and first answers
/// of models. Then other tasks are taken again, and the end of the run shows whether the fault is over.
const TRIAL_TIME_MAX: Duration = Duration::from_secs(30);
/// After so long without a task to try it, a fault that concerns few tasks is forgotten: they may have ended elsewhere.
const FORGET_AFTER: Duration = Duration::from_secs(300);
/// For so long a report bears on later ones.
const RECENT_WINDOW: Duration = Duration::from_secs(600);
/// So many other tasks that lately met a fault of the same kind, each alone, show that every task does, where they do
/// not all begin with the same files.
const TASKS_BEFORE_ALL: usize = 4;
/// As [`TASKS_BEFORE_ALL`], where all begin with the same files, which may be the cause.
const TASKS_OF_ONE_BASE_BEFORE_ALL: usize = 15;
/// Reporters of a fault that are remembered, the latest.
const REPORTERS_MAX: usize = 8;
/// Doubts that are remembered, the latest.
const DOUBTS_MAX: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct FaultQuarantine {
    entries: Vec<QuarantinedFault>,
    doubts: Vec<DoubtedReport>,
    /// When the latest run began of those that got to their work.
    last_success: Option<Instant>,
    /// Rises whenever [`Quarantine::faults`] changes.
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
    /// When it was met last.
    last_met: Instant,
}

/// Where a fault is between its report and its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultStage {
    /// Tasks are kept away until this instant.
    Paused(Instant),
    /// Until this instant one task is wanted that has not reported the fault.
    WantsOtherTask(Instant),
    /// One task is wanted. A fault that concerns few is forgotten at this instant.
    WantsAnyTask(Instant),
    /// This run shows whether the fault is still there; tasks are kept away until this instant.
    InTrial(LeaseKey, Instant),
    /// The same, and tasks are taken meanwhile.
    InOpenTrial(LeaseKey),
}

/// A task whose word does not keep other tasks away: nothing confirmed it.
#[derive(Debug)]
struct DoubtedReport {
    task: TaskId,
    kind: FaultKind,
    /// The tasks that it said the fault concerns.
    scope: FaultScope,
    /// Another of them got past the fault. Otherwise one that meets it too confirms it.
    is_refuted: bool,
    last_met: Instant,
}

/// A report, as far as it is believed.
struct AcceptedReport {
    fault: WorkerFault,
    /// Tasks that met the fault before, and how often it was met, where that is not with an entry of the same scope.
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
    /// Takes in what a run process reported.
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

    /// The fault, for its task alone where nothing confirms that it concerns others. With what was known of it where
    /// another task now confirms it.
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

    /// The fault, for every task where it was met lately by many that have nothing else in common, and by none of the
    /// runs in between.
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

    /// The fault that keeps this task away now.
    pub(super) fn fault_for(&self, flow: &Flow, task: TaskId) -> Option<&WorkerFault> {
        let keeps = |entry: &&QuarantinedFault| match entry.stage {
            FaultStage::Paused(_) | FaultStage::InTrial(..) => entry.fault.scope.covers_task(flow, task),
            FaultStage::WantsOtherTask(_) => entry.reporters.contains(&task),
            FaultStage::WantsAnyTask(_) | FaultStage::InOpenTrial(_) => false,
        };
        self.entries.iter().find(keeps).map(|entry| &entry.fault)
    }

    /// A run begins: it shows what becomes of the faults that concern it.
    pub(super) fn begin_trial(&mut self, key: LeaseKey, flow: &Flow, now: Instant) {
        for entry in &mut self.entries {
            if entry.is_probed() && entry.fault.scope.covers_task(flow, key.task) {
                entry.stage = FaultStage::InTrial(key, now + TRIAL_TIME_MAX);
                self.version += 1;
            }
        }
    }

    /// A run ended. The faults that it tried are over where it got past what meets them. Otherwise they are tried again,
    /// and the next pause is as long as if this run had not been.
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

    /// Lets time pass.
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

    /// The next instant at which time alone changes something.
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

    /// Whether one task is wanted that shows whether a fault of many tasks is still there. A fault of few does not limit
    /// what else is asked for.
    pub(super) fn is_probing(&self) -> bool {
        self.entries.iter().any(|entry| entry.is_probed() && is_wide(&entry.fault.scope))
    }

    /// What is said of them with a request for work. Where another task is wanted than those that reported a fault,
    /// each of these is kept away.
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

    /// Rises whenever [`Quarantine::faults`] changes.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }
}

/// The pause after a fault that was met again so often.
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

/// Whether a fault concerns so many tasks that one of them is always about.
const fn is_wide(scope: &FaultScope) -> bool {
    scope_breadth(scope) >= 2
}

/// How many tasks a fault concerns, compared with others.
const fn scope_breadth(scope: &FaultScope) -> u8 {
    match scope {
        FaultScope::AnyTask => 3,
        FaultScope::Provider { .. } => 2,
        FaultScope::Model(_) | FaultScope::Setup(_) => 1,
        FaultScope::Task(_) => 0,
    }
}

/// Whether a run that got so far would have met a fault of this kind. Models are asked after the start.
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

/// Whether a fault of this kind, met by many tasks, can be met by every task. The others are of something that only
/// some tasks want.
const fn can_concern_all(kind: FaultKind) -> bool {
    match kind {
        FaultKind::McpServer | FaultKind::Sandbox | FaultKind::Disk | FaultKind::Host => true,
        FaultKind::Toolchain | FaultKind::Key | FaultKind::Model | FaultKind::Engine => false,
    }
}

#[cfg(test)]
mod tests;
