//! `why`: explains in one line what keeps a task from running.

use std::collections::BTreeMap;

use docket_schema::{
    api::{ProviderWait, WhyKind, WhyView, WorkerFault, WorkerView},
    ids::{TaskId, Timestamp},
    queue::QueueSettings,
    task::{Flow, TaskBlockedReason, TaskRecord, TaskState, WORKER_FAULTS_MAX},
};

/// Most workers and tasks named in the line.
const LISTED_MAX: usize = 3;

/// Least time, in milliseconds, that a silent worker keeps its claim to a single-task queue; a waiting worker
/// sends a request every 20 s.
const CLAIM_MS_MIN: u64 = 30_000;

/// Time, in milliseconds, that a silent worker keeps its claim to a single-task queue. The choice of tasks
/// and [`explain_waiting`] must agree on it.
pub const fn queue_claim_ms(lease_ms: u64) -> u64 {
    if lease_ms > CLAIM_MS_MIN { lease_ms } else { CLAIM_MS_MIN }
}

/// Inputs of the explanation.
#[derive(Debug, Clone)]
pub struct TaskSituation {
    pub record: TaskRecord,
    /// Settings of its queue.
    pub queue: QueueSettings,
    /// Why its batch's budget does not cover another call.
    pub budget_spent: Option<String>,
    /// The provider rate limit that its run waits for.
    pub provider_wait: Option<ProviderWait>,
    /// Number of running tasks in its queue.
    pub running_in_queue: u64,
    /// Running tasks that share its concurrency key, with the limit that each states.
    pub same_key_tasks: Vec<(TaskId, u32)>,
    /// Number of tasks ahead of it in its flow.
    pub tasks_ahead: u64,
    /// Workers heard from recently.
    pub workers: Vec<WorkerView>,
    /// How long a silent worker keeps its claim to a single-task queue, in milliseconds ([`queue_claim_ms`]).
    pub queue_claim_ms: u64,
    /// Its unfinished dependencies and their states.
    pub dependencies: Vec<DependencyStatus>,
}

/// A dependency of the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DependencyStatus {
    pub task: TaskId,
    pub state: TaskState,
    /// The command that restarts it after a failure.
    pub restart: RestartCommand,
}

/// The command that restarts an ended task. Each is rejected for the other cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartCommand {
    /// `docket retry`: runs it from its start.
    Retry,
    /// `docket resume`: a fork has no start of its own.
    Resume,
    /// `docket archive restore` first: it is in the archive.
    Restore,
}

impl RestartCommand {
    /// Returns the command for a task that is in the log.
    pub const fn for_task(record: &TaskRecord) -> Self {
        if record.forked_from.is_some() { Self::Resume } else { Self::Retry }
    }

    /// Formats the advice for `task`.
    fn format_advice(self, task: TaskId) -> String {
        match self {
            Self::Retry => format!("`docket retry {task}` runs it again"),
            Self::Resume => format!("`docket resume {task}` continues its run"),
            Self::Restore => format!("`docket archive restore {task}` restores it from the archive"),
        }
    }
}

/// Returns the explanation.
pub fn explain_waiting(standing: &TaskSituation, now: Timestamp) -> WhyView {
    let record = &standing.record;
    let mut tasks = Vec::new();
    let (kind, text) = match record.state {
        TaskState::Running => match &standing.provider_wait {
            None => (WhyKind::Runs, describe_running(standing, now)),
            Some(wait) => (WhyKind::ProviderLimit, describe_provider_wait(standing, wait, now)),
        },
        TaskState::Completed | TaskState::Cancelled | TaskState::Discarded => {
            (WhyKind::Ended, describe_ended(record))
        }
        TaskState::Pending => {
            tasks = standing.dependencies.iter().map(|on| on.task).collect();
            (WhyKind::Dependencies, describe_dependencies(standing))
        }
        TaskState::Scheduled => (
            WhyKind::Schedule,
            format!(
                "it is scheduled for {}, {}",
                record.available_at,
                format_until(record.available_at, now)
            ),
        ),
        TaskState::Retryable => {
            let what = record.message.as_deref().unwrap_or("a run failed");
            let again = format_until(record.available_at, now);
            let at_once = match RestartCommand::for_task(record) {
                RestartCommand::Retry => format!(", `docket retry {}` starts one at once", record.id),
                RestartCommand::Resume | RestartCommand::Restore => String::new(),
            };
            (WhyKind::Backoff, format!("{what}; another run {again}{at_once}"))
        }
        TaskState::Blocked => (WhyKind::Blocked, describe_blocked(record, now)),
        TaskState::Available => {
            tasks = standing.same_key_tasks.iter().map(|(task, _)| *task).collect();
            describe_available(standing, now)
        }
    };
    if !matches!(kind, WhyKind::Dependencies | WhyKind::KeyFull) {
        tasks.clear();
    }
    // A question or program output can have several lines.
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    WhyView { task: record.id, state: record.state, kind, text, tasks }
}

fn describe_running(standing: &TaskSituation, now: Timestamp) -> String {
    let record = &standing.record;
    let name = record.worker.map(|worker| {
        let known = standing.workers.iter().find(|known| known.incarnation == worker);
        known.map_or_else(|| worker.to_string(), |known| known.name.clone())
    });
    let since =
        record.leased_at.map_or_else(String::new, |at| format!(" for {}", format_duration(now.ms_since(at))));
    format!("it is running on worker {}{since}", name.unwrap_or_else(|| "unknown".to_owned()))
}

fn describe_provider_wait(standing: &TaskSituation, wait: &ProviderWait, now: Timestamp) -> String {
    let when = match wait.until {
        Some(at) => format!("the next call is allowed {} at the earliest", format_until(at, now)),
        None => "a call in progress must end first".to_owned(),
    };
    let provider = &wait.provider;
    let has = describe_running(standing, now);
    format!("{has}; {wait}: {when}, `docket limit set {provider}` changes the limit")
}

fn describe_ended(record: &TaskRecord) -> String {
    let message = record.message.as_ref().or(record.unverified.as_ref());
    let message = message.map_or_else(String::new, |message| format!(": {message}"));
    let state = match record.unverified {
        Some(_) => format!("{}, unverified", record.state),
        None => record.state.to_string(),
    };
    let remedy = match record.state {
        TaskState::Discarded | TaskState::Cancelled => {
            format!("; {}", RestartCommand::for_task(record).format_advice(record.id))
        }
        TaskState::Completed
        | TaskState::Pending
        | TaskState::Scheduled
        | TaskState::Available
        | TaskState::Running
        | TaskState::Retryable
        | TaskState::Blocked => String::new(),
    };
    format!("it is {state}{message}{remedy}")
}

fn describe_dependencies(standing: &TaskSituation) -> String {
    let failed = standing
        .dependencies
        .iter()
        .find(|on| matches!(on.state, TaskState::Cancelled | TaskState::Discarded));
    if let Some(DependencyStatus { task, state, restart: again }) = failed {
        let record = &standing.record;
        let without = match RestartCommand::for_task(record) {
            RestartCommand::Retry => {
                format!(", `docket retry {} --without-dependencies` skips it", record.id)
            }
            RestartCommand::Resume | RestartCommand::Restore => String::new(),
        };
        return format!(
            "it waits for task {task}, which was {state}: {}{without}",
            again.format_advice(*task)
        );
    }
    let named: Vec<String> = standing
        .dependencies
        .iter()
        .take(LISTED_MAX)
        .map(|on| format!("task {} ({})", on.task, on.state))
        .collect();
    format!("it waits for {}{}", named.join(", "), format_more(standing.dependencies.len()))
}

fn describe_blocked(record: &TaskRecord, now: Timestamp) -> String {
    let id = record.id;
    let asked =
        record.message.as_ref().map_or_else(String::new, |message| format!(": {}", message.trim_end()));
    if record.is_undelivered() {
        return format!(
            "its work is done but not delivered{asked}; `docket accept {id}` marks it as settled"
        );
    }
    match record.blocked_why {
        Some(TaskBlockedReason::Person) => format!("its run asks a person{asked}; `docket answer {id} TEXT`"),
        Some(TaskBlockedReason::Child) => {
            let out: Vec<String> =
                record.waits_for.iter().take(LISTED_MAX).map(|task| format!("task {task}")).collect();
            format!(
                "its run waits for delegated work, {}{}; run `docket why` on that task for details",
                out.join(", "),
                format_more(record.waits_for.len())
            )
        }
        Some(TaskBlockedReason::Paused) => format!("it is paused; `docket unpause {id}`"),
        Some(TaskBlockedReason::Provider) => {
            format!("its model's provider needs a person{asked}; then `docket answer {id}`")
        }
        Some(TaskBlockedReason::WorkerFault) => {
            format!("no worker could run it{asked}; once a worker can, `docket answer {id}` resumes it")
        }
        Some(TaskBlockedReason::Outage) => {
            format!(
                "its model's provider is unavailable{asked}; it resumes {}",
                format_until(record.available_at, now)
            )
        }
        Some(TaskBlockedReason::Budget) => {
            format!(
                "its batch's budget is used up{asked}; `docket batch budget` raises it, and the task then \
                 resumes by itself"
            )
        }
        None => "it is blocked, and its log does not say why: `docket verify`".to_owned(),
    }
}

fn describe_available(standing: &TaskSituation, now: Timestamp) -> (WhyKind, String) {
    let spec = &standing.record.spec;
    let queue = &spec.queue;
    if let Some(spent) = &standing.budget_spent {
        let batch = spec.batch_name.clone().or_else(|| spec.batch.map(|batch| batch.to_string()));
        let batch = batch.unwrap_or_default();
        let text = format!(
            "its batch's budget is used up: {spent}; `docket batch budget '{batch}'` raises \
             it"
        );
        return (WhyKind::Budget, text);
    }
    if standing.queue.paused {
        return (WhyKind::QueuePaused, format!("queue {queue} is paused; `docket queue unpause {queue}`"));
    }
    if let Some(max) = standing.queue.running_max.filter(|max| standing.running_in_queue >= u64::from(*max)) {
        let running = standing.running_in_queue;
        let text = format!(
            "{running} tasks of queue {queue} are running, and the limit is {max}; `docket queue set` \
             changes it"
        );
        return (WhyKind::QueueFull, text);
    }
    if let Some(shared) = &spec.conditions.concurrency
        && let max =
            standing.same_key_tasks.iter().map(|(_, max)| *max).min().unwrap_or(u32::MAX).min(shared.max)
        && standing.same_key_tasks.len() >= max as usize
    {
        let named: Vec<String> =
            standing.same_key_tasks.iter().take(LISTED_MAX).map(|(task, _)| format!("task {task}")).collect();
        let (named, more) = (named.join(", "), format_more(standing.same_key_tasks.len()));
        let text = format!("{named}{more} runs, and at most {max} of key {} may", shared.key);
        return (WhyKind::KeyFull, text);
    }
    let workers: Vec<&WorkerView> = standing.workers.iter().filter(|worker| worker.is_present()).collect();
    if workers.is_empty() {
        let text = "no worker has been heard from recently; `docket worker` starts one".to_owned();
        return (WhyKind::NoWorker, text);
    }
    let flow = Flow::from_spec(spec);
    let is_claimed = is_claimed(standing, &flow, now);
    let mut lacks: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    let mut faulty: Vec<(&str, &WorkerFault)> = Vec::new();
    let mut serving: Vec<&WorkerView> = Vec::new();
    for worker in &workers {
        match (describe_unmet_needs(worker, &flow, is_claimed), find_fault(worker, &flow, standing.record.id))
        {
            (Some(lack), _) => lacks.entry(lack).or_default().push(&worker.name),
            (None, Some(fault)) => faulty.push((&worker.name, fault)),
            (None, None) => serving.push(worker),
        }
    }
    if serving.is_empty() && !faulty.is_empty() {
        return (WhyKind::WorkerFault, describe_faults(&faulty) + &describe_fault_count(&standing.record));
    }
    if serving.is_empty() {
        return (WhyKind::NoneServes, describe_no_match(workers.len(), &lacks));
    }
    let before = match standing.tasks_ahead {
        0 => String::new(),
        ahead => format!("; {ahead} similar tasks are ahead of it"),
    };
    let full: Vec<String> = serving
        .iter()
        .filter_map(|worker| worker.full_reason().map(|why| format!("{}: {why}", worker.name)))
        .collect();
    if full.len() == serving.len() {
        let (named, more) = (full[..full.len().min(LISTED_MAX)].join(", "), format_more(full.len()));
        return (WhyKind::NoRoom, format!("no matching worker has a free slot: {named}{more}{before}"));
    }
    let faults = describe_fault_count(&standing.record);
    (WhyKind::Next, format!("a matching worker has a free slot and is about to request work{before}{faults}"))
}

/// Whether the flow's queue is a single-task queue whose own worker is alive; workers of all queues leave its
/// task to that worker.
fn is_claimed(standing: &TaskSituation, flow: &Flow, now: Timestamp) -> bool {
    let names = |worker: &WorkerView| worker.about.as_ref().is_some_and(|it| it.queues.contains(&flow.queue));
    flow.queue.is_single_task()
        && standing.workers.iter().any(|worker| {
            !worker.draining && now.ms_since(worker.seen_at) <= standing.queue_claim_ms && names(worker)
        })
}

/// Returns what a worker lacks to take tasks of a flow; `None` if it takes them.
fn describe_unmet_needs(worker: &WorkerView, flow: &Flow, is_claimed: bool) -> Option<String> {
    let Some(about) = &worker.about else { return Some("has not reported its capabilities".to_owned()) };
    let mut lacks = Vec::new();
    if about.queues.is_empty() && is_claimed {
        lacks.push(format!("leaves queue {} to the worker of its single task", flow.queue));
    }
    if !about.queues.is_empty() && !about.queues.contains(&flow.queue) {
        lacks.push(format!("does not serve queue {}", flow.queue));
    }
    if !about.engines.is_empty() && !about.engines.iter().any(|engine| engine.name == flow.engine) {
        lacks.push(format!("lacks engine {}", flow.engine));
    }
    if !about.labels.matches_selector(&flow.selector) {
        lacks.push(format!("lacks the labels {}", flow.selector));
    }
    (!lacks.is_empty()).then(|| lacks.join(" and "))
}

/// Returns the fault that keeps a worker from the task, even while the worker probes whether it persists.
fn find_fault<'a>(worker: &'a WorkerView, flow: &Flow, task: TaskId) -> Option<&'a WorkerFault> {
    worker.about.as_ref()?.faults.iter().find(|fault| fault.scope.covers_task(flow, task))
}

/// Describes the faults of the workers that would otherwise take the task.
fn describe_faults(faulty: &[(&str, &WorkerFault)]) -> String {
    let named: Vec<String> = faulty
        .iter()
        .take(LISTED_MAX)
        .map(|(name, fault)| format!("worker {name} cannot run it: {}", fault.message))
        .collect();
    format!(
        "{}{}; the task waits, and no failure is counted against it; a worker tries again periodically",
        named.join("; "),
        format_more(faulty.len())
    )
}

/// Describes how close a task is to being blocked for a person by worker faults.
fn describe_fault_count(record: &TaskRecord) -> String {
    match record.worker_faults {
        0 => String::new(),
        faults => format!(
            "; {faults} consecutive attempts ended with a worker fault, and after {WORKER_FAULTS_MAX} it \
             asks a person"
        ),
    }
}

/// Describes what each worker lacks.
fn describe_no_match(count: usize, lacks: &BTreeMap<String, Vec<&str>>) -> String {
    let of = match count {
        1 => "the only worker does not match".to_owned(),
        count => format!("none of the {count} workers matches"),
    };
    let said: Vec<String> = lacks
        .iter()
        .take(LISTED_MAX)
        .map(|(lack, names)| {
            let named = names[..names.len().min(LISTED_MAX)].join(", ");
            format!("{named}{} {lack}", format_more(names.len()))
        })
        .collect();
    format!("{of}: {}{}", said.join("; "), format_more(lacks.len()))
}

fn format_more(count: usize) -> String {
    match count.saturating_sub(LISTED_MAX) {
        0 => String::new(),
        more => format!(" and {more} more"),
    }
}

fn format_until(at: Timestamp, now: Timestamp) -> String {
    match at.ms_since(now) {
        0 => "at any moment".to_owned(),
        ms => format!("in {}", format_duration(ms)),
    }
}

/// Formats a duration for people: `40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`.
fn format_duration(ms: u64) -> String {
    let s = ms.div_ceil(1000);
    match (s / 86_400, s / 3600 % 24, s / 60 % 60) {
        (0, 0, 0) => format!("{s} s"),
        (0, 0, min) => format!("{min} min"),
        (0, h, min) => format!("{h} h {min} min"),
        (d, h, _) => format!("{d} d {h} h"),
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        api::{FaultKind, FaultScope, WorkerCapabilities, WorkerCapacity},
        ids::{EventHash, IncarnationId, QueueName, Seq},
        run::EngineRef,
        task::{ConcurrencyLimit, TaskEventMeta, TaskSubmitted},
    };
    use uuid::Uuid;

    use super::*;
    use crate::decide::transition_table::task_spec;

    const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
    const OTHER: TaskId = TaskId(Uuid::from_u128(9));

    fn situation(change: impl FnOnce(&mut docket_schema::task::TaskSpec)) -> TaskSituation {
        let mut spec = task_spec();
        change(&mut spec);
        let meta = TaskEventMeta { seq: Seq(1), hash: EventHash::ZERO, recorded_at: NOW };
        let first = TaskSubmitted { spec, by: String::new(), forked_from: None, delegated_by: None };
        let record = TaskRecord::from_submitted(TaskId(Uuid::from_u128(1)), meta, first);
        let about = WorkerCapabilities {
            queues: Vec::new(),
            engines: vec![EngineRef { name: "react".to_owned(), version: 1 }],
            labels: "gpu=a100".parse().expect("labels"),
            layers: Vec::new(),
            faults: Vec::new(),
        };
        let worker = WorkerView {
            incarnation: IncarnationId(Uuid::from_u128(5)),
            name: "w1".to_owned(),
            held: 0,
            seen_at: NOW,
            about: Some(about),
            room: Some(WorkerCapacity { slots: 2, full: None }),
            draining: false,
        };
        TaskSituation {
            record,
            queue: QueueSettings::default(),
            budget_spent: None,
            provider_wait: None,
            running_in_queue: 0,
            same_key_tasks: Vec::new(),
            tasks_ahead: 0,
            workers: vec![worker],
            queue_claim_ms: queue_claim_ms(0),
            dependencies: Vec::new(),
        }
    }

    fn explain(standing: &TaskSituation) -> (WhyKind, String) {
        let view = explain_waiting(standing, NOW);
        assert!(!view.text.contains('\n'), "one line");
        (view.kind, view.text)
    }

    #[test]
    fn multiline_question_is_shown_on_one_line() {
        let mut all = situation(|_| {});
        all.record.state = TaskState::Blocked;
        all.record.blocked_why = Some(TaskBlockedReason::Person);
        all.record.message = Some("which port?\n\n- 80\n- 8080\n".to_owned());
        let text = explain(&all).1;
        assert!(text.contains(": which port? - 80 - 8080; "), "{text}");
    }

    #[test]
    fn fault_of_the_only_matching_worker_is_named() {
        let mut all = situation(|spec| spec.model.provider = "openai".to_owned());
        let scope = FaultScope::for_provider(&all.record.spec.model);
        let mut fault = WorkerFault::new(FaultKind::Key, scope, "the key is refused");
        all.workers[0].about.as_mut().expect("it said").faults = vec![fault.clone()];
        let (kind, text) = explain(&all);
        assert_eq!(kind, WhyKind::WorkerFault);
        assert!(text.contains("worker w1 cannot run it: the key is refused"), "{text}");
        assert!(!text.contains("consecutive attempts"), "{text}");
        all.record.worker_faults = 3;
        let text = explain(&all).1;
        assert!(text.contains("3 consecutive attempts") && text.contains("after 20 it asks"), "{text}");
        // While the worker probes, the fault still holds the task back.
        fault.is_probed = true;
        all.workers[0].about.as_mut().expect("it said").faults = vec![fault.clone()];
        assert_eq!(explain(&all).0, WhyKind::WorkerFault);
        // Another worker without the fault takes the task.
        let mut other = all.workers[0].clone();
        other.about.as_mut().expect("it said").faults.clear();
        all.workers.push(other);
        assert_eq!(explain(&all).0, WhyKind::Next);
        all.workers.pop();
        // A fault with another scope does not hold the task back.
        fault.scope = FaultScope::Task(OTHER);
        all.workers[0].about.as_mut().expect("it said").faults = vec![fault];
        assert_eq!(explain(&all).0, WhyKind::Next);
    }

    #[test]
    fn fault_of_the_claiming_worker_is_shown_despite_other_workers() {
        let mut all = situation(|spec| {
            spec.queue = QueueName::for_single_task(TaskId(Uuid::from_u128(1)));
            spec.model.provider = "openai".to_owned();
        });
        let scope = FaultScope::for_provider(&all.record.spec.model);
        let mut own = all.workers[0].clone();
        own.name = "run".to_owned();
        let about = own.about.as_mut().expect("it said");
        about.queues = vec![all.record.spec.queue.clone()];
        about.faults = vec![WorkerFault::new(FaultKind::Key, scope, "the key is refused")];
        all.workers.push(own);
        let (kind, text) = explain(&all);
        assert_eq!(kind, WhyKind::WorkerFault, "{text}");
        assert!(text.contains("worker run cannot run it: the key is refused"), "{text}");
        all.workers[1].draining = true;
        assert_eq!(explain(&all).0, WhyKind::Next);
        all.workers[1].draining = false;
        all.workers[1].seen_at = NOW.minus_ms(all.queue_claim_ms + 1);
        assert_eq!(explain(&all).0, WhyKind::Next);
    }

    #[test]
    fn obstacles_of_an_available_task_are_reported_by_importance() {
        let mut all = situation(|spec| {
            let key = "branch/main".to_owned();
            spec.conditions.concurrency = Some(ConcurrencyLimit { key, max: 1 });
            spec.conditions.selector = "gpu=h100".parse().expect("labels");
        });
        all.queue = QueueSettings { paused: true, running_max: Some(3) };
        all.running_in_queue = 3;
        all.same_key_tasks = vec![(OTHER, 2)];
        all.budget_spent = Some("9 of 10 tokens are used".to_owned());
        let mut kinds = vec![explain(&all)];
        all.budget_spent = None;
        kinds.push(explain(&all));
        all.queue.paused = false;
        kinds.push(explain(&all));
        all.queue.running_max = None;
        kinds.push(explain(&all));
        assert_eq!(explain_waiting(&all, NOW).tasks, [OTHER]);
        all.same_key_tasks.clear();
        kinds.push(explain(&all));
        all.record.spec.conditions.selector = docket_schema::task::LabelSet::default();
        all.workers[0].held = 2;
        all.tasks_ahead = 4;
        kinds.push(explain(&all));
        all.workers[0].held = 1;
        kinds.push(explain(&all));
        all.workers.clear();
        kinds.push(explain(&all));
        let (kinds, texts): (Vec<WhyKind>, Vec<String>) = kinds.into_iter().unzip();
        assert_eq!(
            kinds,
            [
                WhyKind::Budget,
                WhyKind::QueuePaused,
                WhyKind::QueueFull,
                WhyKind::KeyFull,
                WhyKind::NoneServes,
                WhyKind::NoRoom,
                WhyKind::Next,
                WhyKind::NoWorker
            ]
        );
        for (text, part) in texts.iter().zip([
            "9 of 10 tokens are used; `docket batch budget",
            "docket queue unpause default",
            "3 tasks of queue default are running, and the limit is 3",
            "of key branch/main",
            "w1 lacks the labels gpu=h100",
            "w1: its 2 slots are taken; 4 similar tasks are ahead of it",
            "about to request work",
            "docket worker",
        ]) {
            assert!(text.contains(part), "{part} in {text}");
        }
        let elsewhere = situation(|spec| spec.queue = "slow".parse::<QueueName>().expect("name"));
        assert_eq!(explain(&elsewhere).0, WhyKind::Next, "a worker without queues serves all");
    }

    #[test]
    fn unmet_needs_are_listed_per_worker() {
        let mut both = situation(|spec| {
            spec.queue = "slow".parse().expect("a name");
            spec.conditions.selector = "gpu=a100".parse().expect("labels");
        });
        let mut other = both.workers[0].clone();
        other.name = "w2".to_owned();
        let about = |worker: &mut WorkerView, queue: &str, labels: &str| {
            let about = worker.about.as_mut().expect("said");
            about.queues = vec![queue.parse().expect("a name")];
            about.labels = labels.parse().expect("labels");
        };
        about(&mut both.workers[0], "slow", "");
        about(&mut other, "fast", "gpu=a100");
        both.workers.push(other);
        let (kind, text) = explain(&both);
        assert_eq!(kind, WhyKind::NoneServes);
        let lacks = ["w1 lacks the labels gpu=a100", "w2 does not serve queue slow"];
        assert!(lacks.iter().all(|lack| text.contains(lack)) && !text.contains("none of them"), "{text}");
    }

    #[test]
    fn drained_worker_does_not_count() {
        let mut gone = situation(|_| {});
        gone.workers[0].room = Some(WorkerCapacity { slots: 2, full: Some("it drains".to_owned()) });
        assert_eq!(explain(&gone).0, WhyKind::NoWorker);
        gone.workers[0].held = 1;
        assert_eq!(explain(&gone).0, WhyKind::NoRoom, "it ends what it has");
        gone.workers[0].held = 0;
        gone.workers[0].room = None;
        gone.workers[0].draining = true;
        assert_eq!(explain(&gone).0, WhyKind::NoWorker);
    }

    #[test]
    fn failed_dependency_lists_both_remedies() {
        let mut waits = situation(|spec| spec.conditions.after = vec![OTHER]);
        let on = |state, again| vec![DependencyStatus { task: OTHER, state, restart: again }];
        waits.dependencies = on(TaskState::Running, RestartCommand::Retry);
        assert!(explain(&waits).1.contains("(running)"));
        waits.dependencies = on(TaskState::Discarded, RestartCommand::Retry);
        let text = explain(&waits).1;
        assert!(
            text.contains(&format!("docket retry {OTHER}"))
                && text.contains("--without-dependencies` skips it"),
            "{text}"
        );
        for (again, advice) in
            [(RestartCommand::Resume, "docket resume"), (RestartCommand::Restore, "docket archive restore")]
        {
            waits.dependencies = on(TaskState::Cancelled, again);
            let text = explain(&waits).1;
            assert!(text.contains(&format!("`{advice} {OTHER}`")), "{text}");
            assert!(!text.contains(&format!("docket retry {OTHER}")), "{text}");
        }
    }

    #[test]
    fn durations_are_formatted_briefly() {
        let cases = [
            (400, "1 s"),
            (59_000, "59 s"),
            (60_000, "1 min"),
            (3_660_000, "1 h 1 min"),
            (90_000_000, "1 d 1 h"),
        ];
        for (ms, text) in cases {
            assert_eq!(format_duration(ms), text);
        }
    }
}
