//! Tests that every command advised by `docket why` is accepted in the state in which it is advised.

use docket_schema::{
    ids::{EventHash, RunId, Seq, TaskId},
    run::{ForkReason, Forked},
    task::{ForkedFrom, TaskBlockedReason, TaskRecord, TaskState},
};
use uuid::Uuid;

use super::{
    transition_table::{NOW, RUN, TASK, record_in_state},
    *,
};

const OTHER: TaskId = TaskId(Uuid::from_u128(9));

/// Commands that concern a queue, a batch or a worker and not a task's state.
const COMMANDS_NOT_ABOUT_TASKS: [&str; 7] =
    ["queue unpause", "queue set", "batch budget", "limit set", "worker", "archive restore", "why"];

fn sample_fork() -> Forked {
    Forked {
        run: RunId(Uuid::from_u128(7)),
        task: TASK,
        parent: RUN,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: docket_schema::ids::Turn(1),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    }
}

/// Returns the decision on `command`, as typed after `docket`.
fn decide_command(record: &TaskRecord, command: &str) -> Result<CommandPlan, CommandRejection> {
    let mut words = command.split_whitespace();
    match (words.next(), words.nth(1)) {
        (Some("retry"), None) => retry(record, "me", "", DependencyRetry::Kept),
        (Some("retry"), Some("--without-dependencies")) => retry(record, "me", "", DependencyRetry::Dropped),
        (Some("resume"), None) => resume(record, "me", sample_fork(), Vec::new()),
        (Some("answer"), text) => answer(record, "me", &text.unwrap_or_default().into()),
        (Some("unpause"), None) => unpause(record, "me"),
        (Some("accept"), None) => accept_result(
            record,
            ResultVerdict { by: "me", run: record.last_run.expect("a run"), comment: "" },
        ),
        _ => panic!("`docket {command}` is advised, and this test does not know it"),
    }
}

fn explain_input(record: TaskRecord, dependencies: Vec<DependencyStatus>) -> TaskSituation {
    TaskSituation {
        record,
        queue: docket_schema::queue::QueueSettings::default(),
        budget_spent: None,
        provider_wait: None,
        running_in_queue: 0,
        same_key_tasks: Vec::new(),
        tasks_ahead: 0,
        workers: Vec::new(),
        queue_claim_ms: 0,
        dependencies,
    }
}

/// Every state of a task and of a fork, with everything a blocked task can wait for.
fn all_records() -> Vec<TaskRecord> {
    let mut all = Vec::new();
    for state in TaskState::ALL {
        let record = record_in_state(state);
        if state != TaskState::Blocked {
            all.push(record);
            continue;
        }
        for why in [
            TaskBlockedReason::Person,
            TaskBlockedReason::Child,
            TaskBlockedReason::Paused,
            TaskBlockedReason::Provider,
            TaskBlockedReason::Budget,
            TaskBlockedReason::Outage,
            TaskBlockedReason::WorkerFault,
        ] {
            all.push(TaskRecord { blocked_why: Some(why), ..record.clone() });
        }
        // Work done but not delivered.
        all.push(TaskRecord { run: None, ..record });
    }
    let from = ForkedFrom { run: RUN, seq: Seq(3), turn: docket_schema::ids::Turn(1) };
    let forks = all.clone().into_iter().map(|record| TaskRecord { forked_from: Some(from), ..record });
    all.into_iter().chain(forks).collect()
}

#[test]
fn every_command_that_why_advises_is_accepted_in_that_state() {
    let mut advised = 0;
    for record in all_records() {
        let failed = |state, again| vec![DependencyStatus { task: OTHER, state, restart: again }];
        let waits = match record.state {
            TaskState::Pending => vec![
                failed(TaskState::Running, RestartCommand::Retry),
                failed(TaskState::Discarded, RestartCommand::Retry),
                failed(TaskState::Cancelled, RestartCommand::Restore),
            ],
            _ => vec![Vec::new()],
        };
        for dependencies in waits {
            let text = explain_waiting(&explain_input(record.clone(), dependencies), NOW).text;
            for command in text.split('`').skip(1).step_by(2).filter_map(|code| code.strip_prefix("docket "))
            {
                let about_others = COMMANDS_NOT_ABOUT_TASKS.iter().any(|other| command.starts_with(other));
                if about_others || command.contains(&OTHER.to_string()) {
                    continue;
                }
                advised += 1;
                let fork = if record.forked_from.is_some() { "fork" } else { "task" };
                let asked = decide_command(&record, command);
                assert!(asked.is_ok(), "a {fork} that is {}: `docket {command}`: {asked:?}", record.state);
            }
        }
    }
    assert!(advised >= 10, "{advised} commands are advised");
}

#[test]
fn advised_command_restarts_a_failed_dependency() {
    for record in all_records()
        .into_iter()
        .filter(|record| matches!(record.state, TaskState::Cancelled | TaskState::Discarded))
    {
        let command = match RestartCommand::for_task(&record) {
            RestartCommand::Retry => "retry ID",
            RestartCommand::Resume => "resume ID",
            RestartCommand::Restore => panic!("it is here"),
        };
        assert!(decide_command(&record, command).is_ok(), "{command}: {record:?}");
    }
}
