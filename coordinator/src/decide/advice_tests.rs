//! Every command that `docket why` advises is accepted in the state in which it is advised.

use docket_schema::{
    ids::{EventHash, RunId, Seq, TaskId},
    run::{ForkWhy, Forked},
    task::{ForkedFrom, TaskBlockedWhy, TaskRecord, TaskState},
};
use uuid::Uuid;

use super::{
    table::{NOW, RUN, TASK, in_state},
    *,
};

const OTHER: TaskId = TaskId(Uuid::from_u128(9));

/// Commands that are about something else than a task's state: a queue, a batch, a worker.
const OF_OTHERS: [&str; 7] =
    ["queue unpause", "queue set", "batch budget", "limit set", "worker", "archive restore", "why"];

fn forked() -> Forked {
    Forked {
        run: RunId(Uuid::from_u128(7)),
        task: TASK,
        parent: RUN,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: docket_schema::ids::Turn(1),
        why: ForkWhy::Resume,
        engine: None,
        models: None,
        hint: None,
    }
}

/// What the decisions say to `command`, as a person would type it after `docket`.
fn ask(record: &TaskRecord, command: &str) -> Result<Plan, Rejection> {
    let mut words = command.split_whitespace();
    match (words.next(), words.nth(1)) {
        (Some("retry"), None) => retry(record, "me", "", Dependencies::Kept),
        (Some("retry"), Some("--without-dependencies")) => retry(record, "me", "", Dependencies::Dropped),
        (Some("resume"), None) => resume(record, "me", forked(), Vec::new()),
        (Some("answer"), text) => answer(record, "me", &text.unwrap_or_default().into()),
        (Some("unpause"), None) => unpause(record, "me"),
        (Some("accept"), None) => {
            accept(record, ResultVerdict { by: "me", run: record.last_run.expect("a run"), comment: "" })
        }
        _ => panic!("`docket {command}` is advised, and this test does not know it"),
    }
}

fn standing(record: TaskRecord, dependencies: Vec<Dependency>) -> Standing {
    Standing {
        record,
        queue: docket_schema::queue::QueueSettings::default(),
        spent: None,
        waits: None,
        running_in_queue: 0,
        sharing: Vec::new(),
        ahead: 0,
        workers: Vec::new(),
        claim_ms: 0,
        dependencies,
    }
}

/// Every state, of a task and of a fork, with each thing that a blocked task can wait for.
fn records() -> Vec<TaskRecord> {
    let mut all = Vec::new();
    for state in TaskState::ALL {
        let record = in_state(state);
        if state != TaskState::Blocked {
            all.push(record);
            continue;
        }
        for why in [
            TaskBlockedWhy::Person,
            TaskBlockedWhy::Child,
            TaskBlockedWhy::Paused,
            TaskBlockedWhy::Provider,
            TaskBlockedWhy::Budget,
            TaskBlockedWhy::Outage,
            TaskBlockedWhy::WorkerFault,
        ] {
            all.push(TaskRecord { blocked_why: Some(why), ..record.clone() });
        }
        // Its work is done, and not delivered.
        all.push(TaskRecord { run: None, ..record });
    }
    let from = ForkedFrom { run: RUN, seq: Seq(3), turn: docket_schema::ids::Turn(1) };
    let forks = all.clone().into_iter().map(|record| TaskRecord { forked_from: Some(from), ..record });
    all.into_iter().chain(forks).collect()
}

#[test]
fn every_command_that_why_advises_is_accepted_in_that_state() {
    let mut advised = 0;
    for record in records() {
        let failed = |state, again| vec![Dependency { task: OTHER, state, again }];
        let waits = match record.state {
            TaskState::Pending => vec![
                failed(TaskState::Running, TakeUp::Retry),
                failed(TaskState::Discarded, TakeUp::Retry),
                failed(TaskState::Cancelled, TakeUp::Restore),
            ],
            _ => vec![Vec::new()],
        };
        for dependencies in waits {
            let text = why(&standing(record.clone(), dependencies), NOW).text;
            for command in text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("docket "))
            {
                let about_others = OF_OTHERS.iter().any(|other| command.starts_with(other));
                if about_others || command.contains(&OTHER.to_string()) {
                    continue;
                }
                advised += 1;
                let fork = if record.forked_from.is_some() { "fork" } else { "task" };
                let asked = ask(&record, command);
                assert!(asked.is_ok(), "a {fork} that is {}: `docket {command}`: {asked:?}", record.state);
            }
        }
    }
    assert!(advised >= 10, "{advised} commands are advised");
}

#[test]
fn a_task_that_another_waits_for_is_taken_up_again_by_a_command_that_it_admits() {
    for record in records()
        .into_iter()
        .filter(|record| matches!(record.state, TaskState::Cancelled | TaskState::Discarded))
    {
        let command = match TakeUp::of(&record) {
            TakeUp::Retry => "retry ID",
            TakeUp::Resume => "resume ID",
            TakeUp::Restore => panic!("it is here"),
        };
        assert!(ask(&record, command).is_ok(), "{command}: {record:?}");
    }
}
