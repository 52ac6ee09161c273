//! Tests of the transition table from a lease's end to its task's next state, enumerated by the decisions
//! themselves, and of every other command.

use docket_schema::{
    api::LeaseLostReason,
    content::BlobRef,
    event::{Head, NewEvent, TypedEvent as _},
    ids::{DecisionHash, Epoch, EventHash, IncarnationId, RunId, Seq, TaskId, Timestamp, TreeHash, Turn},
    message::ModelRef,
    run::{
        BlockedReason, FailureKind, ForkReason, Forked, RunBlocked, RunEnded, RunEvent, RunOutcome, RunPaused,
    },
    snapshot::WorkspaceBase,
    task::{
        Backoff, LeaseEnd, LeaseReleaseReason, SettingsPatch, TaskBlockedReason, TaskEvent, TaskEventMeta,
        TaskRecord, TaskSpec, TaskState, TaskSubmitted, WORKER_FAULTS_MAX,
    },
};
use uuid::Uuid;

use super::*;

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
pub(super) const TASK: TaskId = TaskId(Uuid::from_u128(1));
pub(super) const RUN: RunId = RunId(Uuid::from_u128(2));
const WORKER: IncarnationId = IncarnationId(Uuid::from_u128(3));

pub(super) fn task_spec() -> TaskSpec {
    TaskSpec {
        title: "mend".to_owned(),
        text: "mend it".to_owned(),
        queue: docket_schema::ids::QueueName::default(),
        priority: 0,
        run_at: None,
        dedup_key: None,
        attempts_max: 3,
        crashes_max: 5,
        backoff: Backoff::default(),
        base: WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None },
        engine: "react".to_owned(),
        model: ModelRef { provider: "scripted".to_owned(), name: "x".to_owned(), base_url: None },
        explore_model: None,
        fallback_model: None,
        roles: Vec::new(),
        script: None,
        settings: SettingsPatch::default(),
        tests: None,
        requires: Vec::new(),
        setup: Vec::new(),
        policy: None,
        branch: None,
        delivery: None,
        batch: None,
        batch_name: None,
        conditions: docket_schema::task::LeaseConditions::default(),
    }
}

fn submitted_record() -> TaskRecord {
    let meta = TaskEventMeta { seq: Seq(1), hash: EventHash::ZERO, recorded_at: NOW };
    TaskRecord::from_submitted(
        TASK,
        meta,
        TaskSubmitted { spec: task_spec(), by: String::new(), forked_from: None, delegated_by: None },
    )
}

pub(super) fn apply_plan(record: &TaskRecord, plan: &CommandPlan) -> TaskRecord {
    let mut record = record.clone();
    for event in &plan.task_events {
        let meta = TaskEventMeta { seq: record.seq.next(), hash: EventHash::ZERO, recorded_at: NOW };
        record.apply(meta, event.clone()).expect("a plan's events can follow");
    }
    record
}

pub(super) fn lease_recipient() -> LeaseRecipient {
    LeaseRecipient { incarnation: WORKER, name: "w".to_owned() }
}

pub(super) fn leased_record() -> TaskRecord {
    let record = submitted_record();
    apply_plan(&record, &lease(&record, &lease_recipient(), RUN).expect("available"))
}

fn failed_outcome() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Gates, message: "red".to_owned() }
}

fn over_budget_outcome() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Limit, message: "spent".to_owned() }
}

fn misconfigured_outcome() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Configuration, message: "no such model".to_owned() }
}

fn ending_event(end: &LeaseEnd) -> Option<NewEvent> {
    let decision = DecisionHash::ZERO;
    let event: RunEvent = match end {
        LeaseEnd::Ended(result) => {
            RunEnded { result: result.clone(), summary: None, tree: None, unverified: None, decision: None }
                .into()
        }
        LeaseEnd::Blocked(TaskBlockedReason::Paused) => RunPaused { decision }.into(),
        LeaseEnd::Blocked(why) => {
            let why = match why {
                TaskBlockedReason::Child => BlockedReason::Child,
                TaskBlockedReason::Provider | TaskBlockedReason::Outage => BlockedReason::Provider,
                TaskBlockedReason::Budget => BlockedReason::Budget,
                TaskBlockedReason::Person | TaskBlockedReason::Paused | TaskBlockedReason::WorkerFault => {
                    BlockedReason::Model
                }
            };
            let outages = u32::from(*end == LeaseEnd::Blocked(TaskBlockedReason::Outage));
            RunBlocked { question: "?".into(), why, outages, about: None, decision }.into()
        }
        LeaseEnd::Crashed(_) | LeaseEnd::Released(_) | LeaseEnd::Expired => return None,
    };
    Some(event.encode(Turn(1)))
}

fn run_finish(record: &TaskRecord, event: NewEvent) -> RunFinish {
    RunFinish { run: RUN, seq: Seq(4), epoch: record.epoch, events: vec![event], jitter: 0, retry_plan: None }
}

pub(super) fn decide_lease_end(record: &TaskRecord, end: &LeaseEnd) -> Result<CommandPlan, CommandRejection> {
    if let Some(event) = ending_event(end) {
        return finish_run(record, &run_finish(record, event), NOW);
    }
    match end {
        LeaseEnd::Crashed(how) => record_crash(record, record.epoch, how),
        LeaseEnd::Released(LeaseReleaseReason::WorkerFault) => {
            release_for_fault(record, record.epoch, "no server".to_owned())
        }
        LeaseEnd::Released(why) => release(record, record.epoch, *why),
        LeaseEnd::Expired => expire(record, record.epoch),
        LeaseEnd::Ended(_) | LeaseEnd::Blocked(_) => unreachable!("an event says it"),
    }
}

pub(super) fn all_lease_ends() -> Vec<(&'static str, LeaseEnd)> {
    vec![
        ("run succeeded", LeaseEnd::Ended(RunOutcome::Succeeded)),
        ("run failed", LeaseEnd::Ended(failed_outcome())),
        ("run failed at a budget", LeaseEnd::Ended(over_budget_outcome())),
        ("run failed at its configuration", LeaseEnd::Ended(misconfigured_outcome())),
        ("run cancelled", LeaseEnd::Ended(RunOutcome::Cancelled)),
        ("run superseded", LeaseEnd::Ended(RunOutcome::Superseded)),
        ("run blocked on a person", LeaseEnd::Blocked(TaskBlockedReason::Person)),
        ("run blocked on its provider", LeaseEnd::Blocked(TaskBlockedReason::Provider)),
        ("run blocked on an outage", LeaseEnd::Blocked(TaskBlockedReason::Outage)),
        ("run blocked on a budget", LeaseEnd::Blocked(TaskBlockedReason::Budget)),
        ("run blocked on a child", LeaseEnd::Blocked(TaskBlockedReason::Child)),
        ("run paused", LeaseEnd::Blocked(TaskBlockedReason::Paused)),
        ("run process died", LeaseEnd::Crashed("signal 9".to_owned())),
        ("released (fault of the worker)", LeaseEnd::Released(LeaseReleaseReason::WorkerFault)),
        ("released (drained)", LeaseEnd::Released(LeaseReleaseReason::Drained)),
        ("released (unknown)", LeaseEnd::Released(LeaseReleaseReason::Unknown)),
        ("lease expired", LeaseEnd::Expired),
    ]
}

fn table_row(name: &str, counters: &str, record: &TaskRecord, end: &LeaseEnd) -> String {
    let plan = match decide_lease_end(record, end) {
        Ok(plan) => plan,
        Err(_) => return format!("| {name} | {counters} | refused | | | |\n"),
    };
    let after = apply_plan(record, &plan);
    let fence = match plan.run_write.as_ref().map(|write| write.fence) {
        Some(FenceAfter::Shut) => "shut",
        Some(FenceAfter::Closed) => "closed",
        Some(FenceAfter::Open(_) | FenceAfter::Unchanged) | None => "as before",
    };
    let counted = match (after.failures - record.failures, after.crashes.checked_sub(record.crashes)) {
        (0, Some(0)) if after.worker_faults > record.worker_faults => "worker_faults + 1",
        (0, Some(0)) => "nothing",
        (0, Some(_)) => "crashes + 1",
        (_, Some(0)) => "failures + 1",
        (_, _) => "failures + 1, crashes = 0",
    };
    let next = if after.run.is_some() {
        "the same run"
    } else if after.state.is_ended() {
        "–"
    } else {
        "a new run"
    };
    format!("| {name} | {counters} | {} | {counted} | {next} | {fence} |\n", after.state)
}

/// Merges consecutive rows that differ only in their first cell.
fn group_rows(table: &str) -> String {
    let mut rows: Vec<(String, &str)> = Vec::new();
    for row in table.lines() {
        let Some((name, rest)) = row.strip_prefix("| ").and_then(|row| row.split_once(" | ")) else {
            rows.push((String::new(), row));
            continue;
        };
        match rows.last_mut() {
            Some((names, same)) if *same == rest => {
                let more = name.strip_prefix("run ").unwrap_or(name);
                names.push_str(", ");
                names.push_str(more.strip_prefix("blocked on ").unwrap_or(more));
            }
            _ => rows.push((name.to_owned(), rest)),
        }
    }
    let whole = |(name, rest): (String, &str)| match name.as_str() {
        "" => format!("{rest}\n"),
        name => format!("| {name} | {rest}\n"),
    };
    rows.into_iter().map(whole).collect()
}

#[test]
fn documented_lease_end_table_matches_the_decisions() {
    let mut table = String::from(
        "| how the lease ends | before it | task is then | counted | continues with | run's fence |\n|---|---|---|---|---|---|\n",
    );
    for (name, end) in all_lease_ends() {
        let record = leased_record();
        let (last_failure, last_crash) = (
            TaskRecord { failures: record.spec.attempts_max - 1, crashes: 2, ..record.clone() },
            TaskRecord { crashes: record.spec.crashes_max - 1, ..record.clone() },
        );
        let last_fault = TaskRecord { worker_faults: WORKER_FAULTS_MAX - 1, ..record.clone() };
        match end {
            LeaseEnd::Ended(RunOutcome::Failed {
                why: FailureKind::Limit | FailureKind::Configuration,
                ..
            }) => {
                table += &table_row(name, "any", &record, &end);
            }
            LeaseEnd::Ended(RunOutcome::Failed { .. }) => {
                table += &table_row(name, "failures + 1 < attempts_max", &record, &end);
                table += &table_row(name, "failures + 1 = attempts_max", &last_failure, &end);
            }
            LeaseEnd::Crashed(_) => {
                table += &table_row(name, "crashes + 1 < crashes_max", &record, &end);
                table += &table_row(name, "crashes + 1 = crashes_max", &last_crash, &end);
            }
            LeaseEnd::Released(LeaseReleaseReason::WorkerFault) => {
                let max = WORKER_FAULTS_MAX;
                table += &table_row(name, &format!("worker_faults + 1 < {max}"), &record, &end);
                table += &table_row(name, &format!("worker_faults + 1 = {max}"), &last_fault, &end);
            }
            LeaseEnd::Ended(_) | LeaseEnd::Blocked(_) | LeaseEnd::Released(_) | LeaseEnd::Expired => {
                table += &table_row(name, "any", &record, &end);
            }
        }
    }
    let table = group_rows(&table);
    let page = include_str!("../../docs/architecture/leases.md");
    assert!(
        page.contains(&format!("\n\n{table}\n")),
        "coordinator/docs/architecture/leases.md must contain this table:\n{table}"
    );
}

#[test]
fn lost_lease_cannot_be_ended() {
    let holds = leased_record();
    let expired = apply_plan(&holds, &expire(&holds, Epoch(1)).expect("accepted"));
    let taken = apply_plan(&expired, &lease(&expired, &lease_recipient(), RUN).expect("available"));
    let cancelled = apply_plan(&holds, &cancel(&holds, "me", "").expect("runs"));
    let ended = LeaseEnd::Ended(RunOutcome::Succeeded);
    let done = apply_plan(&holds, &decide_lease_end(&holds, &ended).expect("accepted"));
    for (record, why) in [
        (&expired, LeaseLostReason::Expired),
        (&taken, LeaseLostReason::Fenced),
        (&cancelled, LeaseLostReason::Cancelled),
        (&done, LeaseLostReason::Ended),
    ] {
        assert_eq!(lease_lost_reason(record, Epoch(1)), Some(why));
        let lost = Err(CommandRejection::LeaseLost { asked: Epoch(1), current: record.epoch, why });
        assert_eq!(release(record, Epoch(1), LeaseReleaseReason::Drained), lost);
        assert_eq!(record_crash(record, Epoch(1), "signal 9"), lost);
        assert_eq!(expire(record, Epoch(1)), lost);
        let event = ending_event(&ended).expect("an event");
        let late = finish_run(record, &RunFinish { epoch: Epoch(1), ..run_finish(record, event) }, NOW)
            .expect("a plan");
        assert!(late.task_events.is_empty(), "a late settling moves no task: {late:?}");
    }
    assert_eq!(lease_lost_reason(&holds, Epoch(1)), None);
    assert_eq!(lease_lost_reason(&holds, Epoch(2)), Some(LeaseLostReason::Unknown));
}

#[test]
fn current_run_continues_under_a_higher_epoch() {
    let holds = leased_record();
    let free = apply_plan(&holds, &expire(&holds, Epoch(1)).expect("accepted"));
    let other = RunId(Uuid::from_u128(9));
    let again = apply_plan(&free, &lease(&free, &lease_recipient(), other).expect("available"));
    assert_eq!((again.run, again.epoch, again.runs), (Some(RUN), Epoch(2), 1));
    assert!(lease(&again, &lease_recipient(), other).is_err(), "one lease at a time");
}

pub(super) fn record_in_state(state: TaskState) -> TaskRecord {
    let blocked_why = (state == TaskState::Blocked).then_some(TaskBlockedReason::Person);
    let keeps_run = matches!(state, TaskState::Running | TaskState::Blocked | TaskState::Available);
    TaskRecord { state, blocked_why, run: keeps_run.then_some(RUN), ..leased_record() }
}

#[test]
fn documented_command_table_matches_the_decisions() {
    let forked = || Forked {
        run: RunId(Uuid::from_u128(7)),
        task: TASK,
        parent: RUN,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: Turn(1),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let mut table = String::new();
    for state in TaskState::ALL {
        let record = record_in_state(state);
        let word = |plan: Result<CommandPlan, CommandRejection>| match plan {
            Err(_) => "refused".to_owned(),
            Ok(plan) if plan == CommandPlan::default() => "nothing".to_owned(),
            Ok(plan) => {
                let after = apply_plan(&record, &plan);
                let ended = plan
                    .superseded_run
                    .iter()
                    .chain(&plan.run_write)
                    .any(|write| write.fence == FenceAfter::Closed);
                format!("{}{}", after.state, if ended { "*" } else { "" })
            }
        };
        table += &format!(
            "{state}: cancel {}, retry {}, resume {}, unblock {}, due {}, pause {}, unpause {}, answer {}\n",
            word(cancel(&record, "me", "")),
            word(retry(&record, "me", "", DependencyRetry::Kept)),
            word(resume(&record, "me", forked(), Vec::new())),
            word(unblock(&record, Vec::new())),
            word(Ok(make_available(&record, NOW))),
            word(pause(&record, "me")),
            word(unpause(&record, "me")),
            word(answer(&record, "me", &"this".into())),
        );
    }
    let expected = "\
pending: cancel cancelled, retry refused, resume available, unblock refused, due nothing, pause blocked, unpause refused, answer refused
scheduled: cancel cancelled, retry refused, resume available, unblock refused, due available, pause blocked, unpause refused, answer refused
available: cancel cancelled*, retry refused, resume available*, unblock refused, due nothing, pause blocked, unpause available, answer refused
running: cancel cancelled*, retry refused, resume available*, unblock refused, due nothing, pause running, unpause running, answer refused
retryable: cancel cancelled, retry available, resume available, unblock refused, due available, pause blocked, unpause refused, answer refused
blocked: cancel cancelled*, retry available*, resume available*, unblock available, due nothing, pause refused, unpause refused, answer available
completed: cancel refused, retry available, resume available, unblock refused, due nothing, pause refused, unpause refused, answer refused
cancelled: cancel nothing, retry available, resume available, unblock refused, due nothing, pause refused, unpause refused, answer refused
discarded: cancel refused, retry available, resume available, unblock refused, due nothing, pause refused, unpause refused, answer refused
";
    assert_eq!(table, expected, "* = the run in hand ends");
}

#[test]
fn retry_skips_dependencies_only_when_asked() {
    let waits = record_in_state(TaskState::Pending);
    assert!(retry(&waits, "me", "", DependencyRetry::Kept).is_err());
    let plan = retry(&waits, "me", "", DependencyRetry::Dropped).expect("put back");
    assert_eq!(apply_plan(&waits, &plan).state, TaskState::Available);
    let mut ended = waits;
    ended.spec.conditions.if_failed = docket_schema::task::DependencyFailurePolicy::Cancel;
    ended.spec.conditions.after = vec![docket_schema::ids::TaskId(uuid::Uuid::from_u128(77))];
    ended = apply_plan(&ended, &cancel(&ended, "me", "").expect("cancels"));
    let again = apply_plan(&ended, &retry(&ended, "me", "", DependencyRetry::Kept).expect("put back"));
    assert_eq!((again.state, &again.waits_for), (TaskState::Pending, &ended.spec.conditions.after));
    let on = again.waits_for[0];
    // An earlier failure is why this one is retried; its dependency must be completed first.
    assert_eq!(renew_dependency(&again, on, TaskState::Discarded), CommandPlan::default());
    let free = apply_plan(&again, &renew_dependency(&again, on, TaskState::Completed));
    assert_eq!(free.state, TaskState::Available);
    let failed = apply_plan(&again, &dependency_ended(&again, on, TaskState::Discarded));
    assert_eq!(failed.state, TaskState::Cancelled);
}

#[test]
fn outage_retries_by_the_clock_and_gives_up() {
    let blocked = |outages: u32| {
        let (question, why, decision) = ("away".into(), BlockedReason::Provider, DecisionHash::ZERO);
        let event =
            RunEvent::from(RunBlocked { question, why, outages, about: None, decision }).encode(Turn(1));
        apply_plan(
            &leased_record(),
            &finish_run(&leased_record(), &run_finish(&leased_record(), event), NOW).expect("settles"),
        )
    };
    let mut before = 0;
    for outages in 1..=20 {
        let rests = blocked(outages);
        assert_eq!((rests.state, rests.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Outage)));
        // As between runs: doubled each time up to an hour, here reduced by the full jitter of a quarter.
        let wait = rests.available_at.ms_since(NOW);
        let whole = (10_000_u64 << (outages - 1).min(20)).min(3_600_000);
        assert!(wait == whole - whole / 4 && wait >= before, "{outages}: {wait}");
        before = wait;
        let early = make_available(&rests, NOW.plus_ms(wait - 1));
        assert_eq!(early, CommandPlan::default());
        let plan = make_available(&rests, NOW.plus_ms(wait));
        assert_eq!(plan.run_write.as_ref().expect("the run learns it").events[0].kind, "BlockerAnswered");
        let after = apply_plan(&rests, &plan);
        assert_eq!((after.state, after.run, after.message), (TaskState::Available, Some(RUN), None));
        // A person does not have to wait for the backoff.
        let after = apply_plan(&rests, &retry(&rests, "me", "", DependencyRetry::Kept).expect("blocked"));
        assert_eq!((after.state, after.run), (TaskState::Available, Some(RUN)));
    }
    assert_eq!(blocked(21).blocked_why, Some(TaskBlockedReason::Provider), "from here on a person says so");
    assert_eq!(blocked(0).blocked_why, Some(TaskBlockedReason::Provider));
}

#[test]
fn answer_text_is_required_only_for_questions() {
    for (why, words, silence) in [
        (TaskBlockedReason::Person, true, false),
        (TaskBlockedReason::Provider, true, true),
        (TaskBlockedReason::Outage, true, true),
        (TaskBlockedReason::Paused, false, false),
        (TaskBlockedReason::Child, false, false),
    ] {
        let end = LeaseEnd::Blocked(why);
        let waits =
            apply_plan(&leased_record(), &decide_lease_end(&leased_record(), &end).expect("accepted"));
        assert_eq!(answer(&waits, "me", &"this".into()).is_ok(), words, "{why:?}");
        assert_eq!(answer(&waits, "me", &" \n".into()).is_ok(), silence, "{why:?}");
    }
}

#[test]
fn pause_and_unpause_a_run_and_a_waiting_task() {
    let asked = pause(&leased_record(), "me").expect("running");
    let words =
        |plan: &CommandPlan| plan.run_write.as_ref().map(|write| (write.events[0].kind.clone(), write.fence));
    assert_eq!(words(&asked), Some(("PauseRequested".to_owned(), FenceAfter::Unchanged)));
    assert!(asked.task_events.is_empty(), "the task runs until its run rests");
    let event = ending_event(&LeaseEnd::Blocked(TaskBlockedReason::Paused)).expect("an event");
    let rests = apply_plan(
        &leased_record(),
        &finish_run(&leased_record(), &run_finish(&leased_record(), event), NOW).expect("settles"),
    );
    assert_eq!((rests.state, rests.run, rests.worker), (TaskState::Blocked, Some(RUN), None));
    assert_eq!(pause(&rests, "me"), Ok(CommandPlan::default()), "once is enough");
    let on = unpause(&rests, "me").expect("paused");
    assert_eq!(words(&on), Some(("Unpaused".to_owned(), FenceAfter::Unchanged)));
    let on = apply_plan(&rests, &on);
    assert_eq!((on.state, on.run, on.blocked_why), (TaskState::Available, Some(RUN), None));
    assert_eq!((on.failures, on.crashes, on.runs), (0, 0, 1), "nothing is counted");
    assert!(
        cancel(&rests, "me", "").is_ok_and(|plan| apply_plan(&rests, &plan).state == TaskState::Cancelled)
    );
    // Paused before its time, it waits for that time again; paused later, it may be leased.
    for (state, at, then) in [
        (TaskState::Scheduled, NOW.plus_ms(10_000), TaskState::Scheduled),
        (TaskState::Retryable, NOW.plus_ms(10_000), TaskState::Scheduled),
        (TaskState::Scheduled, NOW, TaskState::Available),
        (TaskState::Available, NOW, TaskState::Available),
    ] {
        let waits = TaskRecord { available_at: at, ..record_in_state(state) };
        let held = apply_plan(&waits, &pause(&waits, "me").expect("waits"));
        assert_eq!((held.state, held.blocked_why), (TaskState::Blocked, Some(TaskBlockedReason::Paused)));
        assert_eq!(
            make_available(&held, NOW.plus_ms(20_000)),
            CommandPlan::default(),
            "the scheduler leaves it"
        );
        let free = apply_plan(&held, &unpause(&held, "me").expect("held"));
        assert_eq!((free.state, free.available_at.max(NOW)), (then, at), "{state}");
    }
}

#[test]
fn completed_task_has_no_failure_message() {
    let holds = leased_record();
    let crashed = apply_plan(&holds, &record_crash(&holds, holds.epoch, "signal 9").expect("accepted"));
    assert_eq!(crashed.message.as_deref(), Some("the run process died: signal 9"));
    let again = apply_plan(&crashed, &lease(&crashed, &lease_recipient(), RUN).expect("available"));
    let done = apply_plan(
        &again,
        &decide_lease_end(&again, &LeaseEnd::Ended(RunOutcome::Succeeded)).expect("accepted"),
    );
    assert_eq!((done.state, done.message), (TaskState::Completed, None));
    let given_up = TaskRecord { crashes: holds.spec.crashes_max - 1, ..again };
    let discarded =
        apply_plan(&given_up, &record_crash(&given_up, given_up.epoch, "signal 9").expect("accepted"));
    assert!(discarded.message.is_some(), "a discarded one does");
}

#[test]
fn task_that_is_not_due_stays_scheduled() {
    let record = TaskRecord { available_at: NOW.plus_ms(1), ..record_in_state(TaskState::Scheduled) };
    assert_eq!(make_available(&record, NOW), CommandPlan::default());
}

#[test]
fn priority_changes_only_before_the_task_ends() {
    let record = record_in_state(TaskState::Available);
    let plan = reprioritize(&record, 5).expect("available");
    assert!(matches!(plan.task_events.as_slice(), [TaskEvent::TaskReprioritized(_)]));
    assert_eq!(reprioritize(&apply_plan(&record, &plan), 5), Ok(CommandPlan::default()));
    assert!(reprioritize(&record_in_state(TaskState::Completed), 5).is_err());
}

#[test]
fn only_the_last_event_ends_a_lease() {
    let end = ending_event(&LeaseEnd::Ended(RunOutcome::Succeeded)).expect("an event");
    let other = NewEvent { kind: "Told".to_owned(), ..end.clone() };
    assert_eq!(lease_end(&[end.clone(), other.clone()]), None);
    assert_eq!(lease_end(&[other.clone(), end]), Some(LeaseEnd::Ended(RunOutcome::Succeeded)));
    let refused = finish_run(&leased_record(), &run_finish(&leased_record(), other), NOW);
    assert!(matches!(refused, Err(CommandRejection::WrongState { .. })));
    assert_eq!(Head::EMPTY.seq, Seq(0));
}
