//! The table "how a lease ends → what becomes of its task", enumerated by the decisions
//! themselves; and the tests of every other command.

use docket_schema::{
    content::BlobRef,
    event::{Head, NewEvent, TypedEvent as _},
    ids::{DecisionHash, Epoch, EventHash, IncarnationId, RunId, Seq, TaskId, Timestamp, TreeHash, Turn},
    message::ModelRef,
    run::{BlockedWhy, FailureKind, ForkWhy, Forked, RunBlocked, RunEnded, RunEvent, RunOutcome, RunPaused},
    snapshot::Base,
    task::{
        Backoff, LeaseEnd, ReleaseWhy, SettingsPatch, TaskBlockedWhy, TaskEvent, TaskEventMeta, TaskRecord,
        TaskSpec, TaskState, TaskSubmitted, WORKER_FAULTS_MAX,
    },
    wire::LostWhy,
};
use uuid::Uuid;

use super::*;

pub(super) const NOW: Timestamp = Timestamp(1_700_000_000_000_000);
pub(super) const TASK: TaskId = TaskId(Uuid::from_u128(1));
pub(super) const RUN: RunId = RunId(Uuid::from_u128(2));
const WORKER: IncarnationId = IncarnationId(Uuid::from_u128(3));

pub(super) fn spec() -> TaskSpec {
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
        base: Base { manifest: BlobRef::of(b""), tree: TreeHash::ZERO, git: None },
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
        conditions: docket_schema::task::Conditions::default(),
    }
}

fn submitted() -> TaskRecord {
    let meta = TaskEventMeta { seq: Seq(1), hash: EventHash::ZERO, recorded_at: NOW };
    TaskRecord::submitted(
        TASK,
        meta,
        TaskSubmitted { spec: spec(), by: String::new(), forked_from: None, delegated_by: None },
    )
}

pub(super) fn carried_out(record: &TaskRecord, plan: &Plan) -> TaskRecord {
    let mut record = record.clone();
    for event in &plan.task {
        let meta = TaskEventMeta { seq: record.seq.next(), hash: EventHash::ZERO, recorded_at: NOW };
        record.apply(meta, event.clone()).expect("a plan's events can follow");
    }
    record
}

pub(super) fn lessee() -> Lessee {
    Lessee { incarnation: WORKER, name: "w".to_owned() }
}

pub(super) fn leased() -> TaskRecord {
    let record = submitted();
    carried_out(&record, &lease(&record, &lessee(), RUN).expect("available"))
}

fn failed() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Gates, message: "red".to_owned() }
}

fn over_budget() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Limit, message: "spent".to_owned() }
}

fn misconfigured() -> RunOutcome {
    RunOutcome::Failed { why: FailureKind::Configuration, message: "no such model".to_owned() }
}

fn event_of(end: &LeaseEnd) -> Option<NewEvent> {
    let decision = DecisionHash::ZERO;
    let event: RunEvent = match end {
        LeaseEnd::Ended(result) => {
            RunEnded { result: result.clone(), summary: None, tree: None, unverified: None, decision: None }
                .into()
        }
        LeaseEnd::Blocked(TaskBlockedWhy::Paused) => RunPaused { decision }.into(),
        LeaseEnd::Blocked(why) => {
            let why = match why {
                TaskBlockedWhy::Child => BlockedWhy::Child,
                TaskBlockedWhy::Provider | TaskBlockedWhy::Outage => BlockedWhy::Provider,
                TaskBlockedWhy::Budget => BlockedWhy::Budget,
                TaskBlockedWhy::Person | TaskBlockedWhy::Paused | TaskBlockedWhy::WorkerFault => {
                    BlockedWhy::Model
                }
            };
            let outages = u32::from(*end == LeaseEnd::Blocked(TaskBlockedWhy::Outage));
            RunBlocked { question: "?".into(), why, outages, about: None, decision }.into()
        }
        LeaseEnd::Crashed(_) | LeaseEnd::Released(_) | LeaseEnd::Expired => return None,
    };
    Some(event.encode(Turn(1)))
}

fn settling(record: &TaskRecord, event: NewEvent) -> Settling {
    Settling { run: RUN, seq: Seq(4), epoch: record.epoch, events: vec![event], jitter: 0, again: None }
}

pub(super) fn decided(record: &TaskRecord, end: &LeaseEnd) -> Result<Plan, Rejection> {
    if let Some(event) = event_of(end) {
        return settle(record, &settling(record, event), NOW);
    }
    match end {
        LeaseEnd::Crashed(how) => crash(record, record.epoch, how),
        LeaseEnd::Released(ReleaseWhy::WorkerFault) => {
            release_for_fault(record, record.epoch, "no server".to_owned())
        }
        LeaseEnd::Released(why) => release(record, record.epoch, *why),
        LeaseEnd::Expired => expire(record, record.epoch),
        LeaseEnd::Ended(_) | LeaseEnd::Blocked(_) => unreachable!("an event says it"),
    }
}

pub(super) fn ends() -> Vec<(&'static str, LeaseEnd)> {
    vec![
        ("run succeeded", LeaseEnd::Ended(RunOutcome::Succeeded)),
        ("run failed", LeaseEnd::Ended(failed())),
        ("run failed at a budget", LeaseEnd::Ended(over_budget())),
        ("run failed at its configuration", LeaseEnd::Ended(misconfigured())),
        ("run cancelled", LeaseEnd::Ended(RunOutcome::Cancelled)),
        ("run superseded", LeaseEnd::Ended(RunOutcome::Superseded)),
        ("run blocked on a person", LeaseEnd::Blocked(TaskBlockedWhy::Person)),
        ("run blocked on its provider", LeaseEnd::Blocked(TaskBlockedWhy::Provider)),
        ("run blocked on an outage", LeaseEnd::Blocked(TaskBlockedWhy::Outage)),
        ("run blocked on a budget", LeaseEnd::Blocked(TaskBlockedWhy::Budget)),
        ("run blocked on a child", LeaseEnd::Blocked(TaskBlockedWhy::Child)),
        ("run paused", LeaseEnd::Blocked(TaskBlockedWhy::Paused)),
        ("run process died", LeaseEnd::Crashed("signal 9".to_owned())),
        ("released (fault of the worker)", LeaseEnd::Released(ReleaseWhy::WorkerFault)),
        ("released (drained)", LeaseEnd::Released(ReleaseWhy::Drained)),
        ("released (unknown)", LeaseEnd::Released(ReleaseWhy::Unknown)),
        ("lease expired", LeaseEnd::Expired),
    ]
}

fn line(name: &str, counters: &str, record: &TaskRecord, end: &LeaseEnd) -> String {
    let plan = match decided(record, end) {
        Ok(plan) => plan,
        Err(_) => return format!("| {name} | {counters} | refused | | | |\n"),
    };
    let after = carried_out(record, &plan);
    let fence = match plan.run.as_ref().map(|write| write.fence) {
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

/// Rows in a row that differ in their first cell alone become one.
fn grouped(table: &str) -> String {
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
fn the_table_of_lease_ends_is_what_the_decisions_say() {
    let mut table = String::from(
        "| how the lease ends | before it | task is then | counted | goes on with | run's fence |\n|---|---|---|---|---|---|\n",
    );
    for (name, end) in ends() {
        let record = leased();
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
                table += &line(name, "any", &record, &end);
            }
            LeaseEnd::Ended(RunOutcome::Failed { .. }) => {
                table += &line(name, "failures + 1 < attempts_max", &record, &end);
                table += &line(name, "failures + 1 = attempts_max", &last_failure, &end);
            }
            LeaseEnd::Crashed(_) => {
                table += &line(name, "crashes + 1 < crashes_max", &record, &end);
                table += &line(name, "crashes + 1 = crashes_max", &last_crash, &end);
            }
            LeaseEnd::Released(ReleaseWhy::WorkerFault) => {
                let max = WORKER_FAULTS_MAX;
                table += &line(name, &format!("worker_faults + 1 < {max}"), &record, &end);
                table += &line(name, &format!("worker_faults + 1 = {max}"), &last_fault, &end);
            }
            LeaseEnd::Ended(_) | LeaseEnd::Blocked(_) | LeaseEnd::Released(_) | LeaseEnd::Expired => {
                table += &line(name, "any", &record, &end);
            }
        }
    }
    let table = grouped(&table);
    let kept = include_str!("lease_ends.md");
    assert_eq!(table, kept, "coordinator/src/decide/lease_ends.md must hold the table above");
}

#[test]
fn no_decision_ends_a_lease_that_does_not_stand() {
    let holds = leased();
    let expired = carried_out(&holds, &expire(&holds, Epoch(1)).expect("stands"));
    let taken = carried_out(&expired, &lease(&expired, &lessee(), RUN).expect("available"));
    let cancelled = carried_out(&holds, &cancel(&holds, "me", "").expect("runs"));
    let ended = LeaseEnd::Ended(RunOutcome::Succeeded);
    let done = carried_out(&holds, &decided(&holds, &ended).expect("stands"));
    for (record, why) in [
        (&expired, LostWhy::Expired),
        (&taken, LostWhy::Fenced),
        (&cancelled, LostWhy::Cancelled),
        (&done, LostWhy::Ended),
    ] {
        assert_eq!(lost_why(record, Epoch(1)), Some(why));
        let lost = Err(Rejection::LeaseLost { asked: Epoch(1), current: record.epoch, why });
        assert_eq!(release(record, Epoch(1), ReleaseWhy::Drained), lost);
        assert_eq!(crash(record, Epoch(1), "signal 9"), lost);
        assert_eq!(expire(record, Epoch(1)), lost);
        let event = event_of(&ended).expect("an event");
        let late =
            settle(record, &Settling { epoch: Epoch(1), ..settling(record, event) }, NOW).expect("a plan");
        assert!(late.task.is_empty(), "a late settling moves no task: {late:?}");
    }
    assert_eq!(lost_why(&holds, Epoch(1)), None);
    assert_eq!(lost_why(&holds, Epoch(2)), Some(LostWhy::Unknown));
}

#[test]
fn a_run_in_hand_goes_on_under_a_higher_epoch() {
    let holds = leased();
    let free = carried_out(&holds, &expire(&holds, Epoch(1)).expect("stands"));
    let other = RunId(Uuid::from_u128(9));
    let again = carried_out(&free, &lease(&free, &lessee(), other).expect("available"));
    assert_eq!((again.run, again.epoch, again.runs), (Some(RUN), Epoch(2), 1));
    assert!(lease(&again, &lessee(), other).is_err(), "one lease at a time");
}

pub(super) fn in_state(state: TaskState) -> TaskRecord {
    let blocked_why = (state == TaskState::Blocked).then_some(TaskBlockedWhy::Person);
    let keeps_run = matches!(state, TaskState::Running | TaskState::Blocked | TaskState::Available);
    TaskRecord { state, blocked_why, run: keeps_run.then_some(RUN), ..leased() }
}

#[test]
fn which_state_admits_which_command_of_a_person() {
    let forked = || Forked {
        run: RunId(Uuid::from_u128(7)),
        task: TASK,
        parent: RUN,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: Turn(1),
        why: ForkWhy::Resume,
        engine: None,
        models: None,
        hint: None,
    };
    let mut table = String::new();
    for state in TaskState::ALL {
        let record = in_state(state);
        let word = |plan: Result<Plan, Rejection>| match plan {
            Err(_) => "refused".to_owned(),
            Ok(plan) if plan == Plan::default() => "nothing".to_owned(),
            Ok(plan) => {
                let after = carried_out(&record, &plan);
                let ended =
                    plan.superseded.iter().chain(&plan.run).any(|write| write.fence == FenceAfter::Closed);
                format!("{}{}", after.state, if ended { "*" } else { "" })
            }
        };
        table += &format!(
            "{state}: cancel {}, retry {}, resume {}, unblock {}, due {}, pause {}, unpause {}, answer {}\n",
            word(cancel(&record, "me", "")),
            word(retry(&record, "me", "", Dependencies::Kept)),
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
fn who_waits_for_others_goes_without_them_only_where_that_is_said() {
    let waits = in_state(TaskState::Pending);
    assert!(retry(&waits, "me", "", Dependencies::Kept).is_err());
    let plan = retry(&waits, "me", "", Dependencies::Dropped).expect("put back");
    assert_eq!(carried_out(&waits, &plan).state, TaskState::Available);
    let mut ended = waits;
    ended.spec.conditions.if_failed = docket_schema::task::IfFailed::Cancel;
    ended.spec.conditions.after = vec![docket_schema::ids::TaskId(uuid::Uuid::from_u128(77))];
    ended = carried_out(&ended, &cancel(&ended, "me", "").expect("cancels"));
    let again = carried_out(&ended, &retry(&ended, "me", "", Dependencies::Kept).expect("put back"));
    assert_eq!((again.state, &again.waits_for), (TaskState::Pending, &ended.spec.conditions.after));
    let on = again.waits_for[0];
    // That it failed before is why this one is retried; that it is completed is what it waits for.
    assert_eq!(dependency_stands(&again, on, TaskState::Discarded), Plan::default());
    let free = carried_out(&again, &dependency_stands(&again, on, TaskState::Completed));
    assert_eq!(free.state, TaskState::Available);
    let failed = carried_out(&again, &dependency_ended(&again, on, TaskState::Discarded));
    assert_eq!(failed.state, TaskState::Cancelled);
}

#[test]
fn an_outage_wakes_by_the_clock_and_not_for_ever() {
    let blocked = |outages: u32| {
        let (question, why, decision) = ("away".into(), BlockedWhy::Provider, DecisionHash::ZERO);
        let event =
            RunEvent::from(RunBlocked { question, why, outages, about: None, decision }).encode(Turn(1));
        carried_out(&leased(), &settle(&leased(), &settling(&leased(), event), NOW).expect("settles"))
    };
    let mut before = 0;
    for outages in 1..=20 {
        let rests = blocked(outages);
        assert_eq!((rests.state, rests.blocked_why), (TaskState::Blocked, Some(TaskBlockedWhy::Outage)));
        // As between runs: twice as long each time, up to an hour, less a quarter here for want of luck.
        let wait = rests.available_at.ms_since(NOW);
        let whole = (10_000_u64 << (outages - 1).min(20)).min(3_600_000);
        assert!(wait == whole - whole / 4 && wait >= before, "{outages}: {wait}");
        before = wait;
        let early = make_available(&rests, NOW.plus_ms(wait - 1));
        assert_eq!(early, Plan::default());
        let plan = make_available(&rests, NOW.plus_ms(wait));
        assert_eq!(plan.run.as_ref().expect("the run learns it").events[0].kind, "BlockerAnswered");
        let after = carried_out(&rests, &plan);
        assert_eq!((after.state, after.run, after.message), (TaskState::Available, Some(RUN), None));
        // A person need not wait for that.
        let after = carried_out(&rests, &retry(&rests, "me", "", Dependencies::Kept).expect("blocked"));
        assert_eq!((after.state, after.run), (TaskState::Available, Some(RUN)));
    }
    assert_eq!(blocked(21).blocked_why, Some(TaskBlockedWhy::Provider), "from here on a person says so");
    assert_eq!(blocked(0).blocked_why, Some(TaskBlockedWhy::Provider));
}

#[test]
fn an_answer_needs_words_where_the_run_asks_and_none_where_its_provider_does() {
    for (why, words, silence) in [
        (TaskBlockedWhy::Person, true, false),
        (TaskBlockedWhy::Provider, true, true),
        (TaskBlockedWhy::Outage, true, true),
        (TaskBlockedWhy::Paused, false, false),
        (TaskBlockedWhy::Child, false, false),
    ] {
        let end = LeaseEnd::Blocked(why);
        let waits = carried_out(&leased(), &decided(&leased(), &end).expect("stands"));
        assert_eq!(answer(&waits, "me", &"this".into()).is_ok(), words, "{why:?}");
        assert_eq!(answer(&waits, "me", &" \n".into()).is_ok(), silence, "{why:?}");
    }
}

#[test]
fn a_pause_asks_a_run_holds_a_task_and_is_undone() {
    let asked = pause(&leased(), "me").expect("running");
    let words = |plan: &Plan| plan.run.as_ref().map(|write| (write.events[0].kind.clone(), write.fence));
    assert_eq!(words(&asked), Some(("PauseRequested".to_owned(), FenceAfter::Unchanged)));
    assert!(asked.task.is_empty(), "the task runs until its run rests");
    let event = event_of(&LeaseEnd::Blocked(TaskBlockedWhy::Paused)).expect("an event");
    let rests =
        carried_out(&leased(), &settle(&leased(), &settling(&leased(), event), NOW).expect("settles"));
    assert_eq!((rests.state, rests.run, rests.worker), (TaskState::Blocked, Some(RUN), None));
    assert_eq!(pause(&rests, "me"), Ok(Plan::default()), "once is enough");
    let on = unpause(&rests, "me").expect("paused");
    assert_eq!(words(&on), Some(("Unpaused".to_owned(), FenceAfter::Unchanged)));
    let on = carried_out(&rests, &on);
    assert_eq!((on.state, on.run, on.blocked_why), (TaskState::Available, Some(RUN), None));
    assert_eq!((on.failures, on.crashes, on.runs), (0, 0, 1), "nothing is counted");
    assert!(
        cancel(&rests, "me", "").is_ok_and(|plan| carried_out(&rests, &plan).state == TaskState::Cancelled)
    );
    // Held before its time it waits for that again; held after, it may be leased.
    for (state, at, then) in [
        (TaskState::Scheduled, NOW.plus_ms(10_000), TaskState::Scheduled),
        (TaskState::Retryable, NOW.plus_ms(10_000), TaskState::Scheduled),
        (TaskState::Scheduled, NOW, TaskState::Available),
        (TaskState::Available, NOW, TaskState::Available),
    ] {
        let waits = TaskRecord { available_at: at, ..in_state(state) };
        let held = carried_out(&waits, &pause(&waits, "me").expect("waits"));
        assert_eq!((held.state, held.blocked_why), (TaskState::Blocked, Some(TaskBlockedWhy::Paused)));
        assert_eq!(make_available(&held, NOW.plus_ms(20_000)), Plan::default(), "the scheduler leaves it");
        let free = carried_out(&held, &unpause(&held, "me").expect("held"));
        assert_eq!((free.state, free.available_at.max(NOW)), (then, at), "{state}");
    }
}

#[test]
fn a_completed_task_bears_no_word_of_what_went_wrong_on_the_way() {
    let holds = leased();
    let crashed = carried_out(&holds, &crash(&holds, holds.epoch, "signal 9").expect("stands"));
    assert_eq!(crashed.message.as_deref(), Some("the run process died: signal 9"));
    let again = carried_out(&crashed, &lease(&crashed, &lessee(), RUN).expect("available"));
    let done =
        carried_out(&again, &decided(&again, &LeaseEnd::Ended(RunOutcome::Succeeded)).expect("stands"));
    assert_eq!((done.state, done.message), (TaskState::Completed, None));
    let given_up = TaskRecord { crashes: holds.spec.crashes_max - 1, ..again };
    let discarded = carried_out(&given_up, &crash(&given_up, given_up.epoch, "signal 9").expect("stands"));
    assert!(discarded.message.is_some(), "a discarded one does");
}

#[test]
fn what_is_not_due_yet_stays() {
    let record = TaskRecord { available_at: NOW.plus_ms(1), ..in_state(TaskState::Scheduled) };
    assert_eq!(make_available(&record, NOW), Plan::default());
}

#[test]
fn a_priority_changes_once_and_only_before_the_end() {
    let record = in_state(TaskState::Available);
    let plan = reprioritize(&record, 5).expect("available");
    assert!(matches!(plan.task.as_slice(), [TaskEvent::TaskReprioritized(_)]));
    assert_eq!(reprioritize(&carried_out(&record, &plan), 5), Ok(Plan::default()));
    assert!(reprioritize(&in_state(TaskState::Completed), 5).is_err());
}

#[test]
fn only_the_last_event_ends_a_lease() {
    let end = event_of(&LeaseEnd::Ended(RunOutcome::Succeeded)).expect("an event");
    let other = NewEvent { kind: "Told".to_owned(), ..end.clone() };
    assert_eq!(ending(&[end.clone(), other.clone()]), None);
    assert_eq!(ending(&[other.clone(), end]), Some(LeaseEnd::Ended(RunOutcome::Succeeded)));
    let refused = settle(&leased(), &settling(&leased(), other), NOW);
    assert!(matches!(refused, Err(Rejection::WrongState { .. })));
    assert_eq!(Head::EMPTY.seq, Seq(0));
}
