//! Results that cannot be delivered, are settled, taken and not taken.

use docket_schema::{
    event::TypedEvent,
    ids::{EventHash, RunId, Seq, Turn},
    run::{ForkWhy, Forked, RunOutcome},
    task::{Delivery, DeliveryBlockedWhy, LeaseEnd, TaskRecord, TaskState},
    wire::DeliveryStep,
};
use uuid::Uuid;

use super::{
    Dependencies,
    table::{RUN, TASK, carried_out, decided, in_state, leased},
    *,
};

fn step(record: &TaskRecord, step: DeliveryStep) -> TaskRecord {
    let plan = deliver(record, "ann", record.last_run.expect("a run"), step).expect("it was done");
    carried_out(record, &plan)
}

fn verdict(run: RunId, comment: &str) -> ResultVerdict<'_> {
    ResultVerdict { by: "ann", run, comment }
}

fn blocked_delivery() -> DeliveryStep {
    DeliveryStep::Blocked {
        branch: "fix/it".to_owned(),
        why: DeliveryBlockedWhy::Conflict,
        paths: vec!["a.txt".to_owned()],
        kept: None,
        message: "conflicts in a.txt".to_owned(),
    }
}

fn delivered() -> DeliveryStep {
    DeliveryStep::Delivered { branch: "fix/it".to_owned(), commit: "1".repeat(40), remote: None }
}

/// A task that its run completed, and that was to give `delivery`.
fn done(delivery: Option<Delivery>) -> TaskRecord {
    let mut record = leased();
    record.spec.delivery = delivery;
    let plan = decided(&record, &LeaseEnd::Ended(RunOutcome::Succeeded)).expect("it ends");
    carried_out(&record, &plan)
}

#[test]
fn what_was_to_be_delivered_and_cannot_be_blocks_until_it_is_settled() {
    let told = step(&done(None), blocked_delivery());
    assert!(told.state == TaskState::Completed && told.message.is_none(), "nobody waits for it: {told:?}");

    for wanted in [Delivery::Branch, Delivery::Push] {
        let blocked = step(&done(Some(wanted)), blocked_delivery());
        assert!(
            blocked.is_undelivered() && blocked.ended_at.is_none() && blocked.run.is_none(),
            "{blocked:?}"
        );
        assert_eq!(blocked.message.as_deref(), Some("conflicts in a.txt"));
        assert!(answer(&blocked, "ann", &"go on".into()).is_err(), "no run is there to hear it");
        assert!(pause(&blocked, "ann").is_err() && unpause(&blocked, "ann").is_err());
        assert!(
            retry(&blocked, "ann", "", Dependencies::Kept).is_ok() && cancel(&blocked, "ann", "").is_ok()
        );

        let run = blocked.last_run.expect("a run");
        let accepted = accept(&blocked, verdict(run, "by hand")).expect("settled");
        for settled in [step(&blocked, delivered()), carried_out(&blocked, &accepted)] {
            assert_eq!((settled.state, settled.message.as_deref()), (TaskState::Completed, None));
            assert!(settled.ended_at.is_some() && settled.blocked_why.is_none());
        }
        let again = step(
            &blocked,
            DeliveryStep::Blocked {
                branch: "fix/it".to_owned(),
                why: DeliveryBlockedWhy::Taken,
                paths: Vec::new(),
                kept: None,
                message: "taken".to_owned(),
            },
        );
        assert!(again.is_undelivered() && again.message.as_deref() == Some("taken"));
    }
}

#[test]
fn only_the_run_that_completed_a_task_is_judged_and_a_no_goes_on() {
    let forked = |parent| Forked {
        run: RunId(Uuid::from_u128(77)),
        task: TASK,
        parent,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: Turn(1),
        why: ForkWhy::Resume,
        engine: None,
        models: None,
        hint: Some("no".into()),
    };
    for record in [done(None), step(&done(Some(Delivery::Push)), blocked_delivery())] {
        let run = record.last_run.expect("a run");
        let other = RunId(Uuid::from_u128(99));
        assert!(accept(&record, verdict(other, "")).is_err());
        assert!(reject(&record, verdict(other, "no"), forked(other), Vec::new()).is_err());
        let plan = reject(&record, verdict(run, "no"), forked(run), Vec::new()).expect("it goes on");
        let kinds: Vec<&str> = plan.task.iter().map(TypedEvent::kind).collect();
        assert_eq!(kinds, ["TaskRejected", "TaskResumed"], "one step, so that none stands alone");
        let after = carried_out(&record, &plan);
        assert_eq!((after.state, after.run), (TaskState::Available, Some(RunId(Uuid::from_u128(77)))));
        assert!(after.ended_at.is_none() && after.message.is_none());
    }
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Completed) {
        let record = in_state(state);
        assert!(accept(&record, verdict(record.last_run.unwrap_or(RUN), "")).is_err(), "{state}");
    }
}

#[test]
fn of_two_who_looked_at_once_one_gets_the_claim() {
    let record = done(Some(Delivery::Push));
    let claim = |expected, who: &str| DeliveryStep::Claimed {
        deliverer: who.to_owned(),
        term_ms: 60_000,
        expected,
        push: true,
        hook: false,
    };
    let looked = record.seq;
    let after = step(&record, claim(looked, "one"));
    assert_eq!((after.state, after.message.as_deref()), (TaskState::Completed, None), "it moves no task");
    let run = record.last_run.expect("a run");
    let late = deliver(&after, "ann", run, claim(looked, "two"));
    assert!(matches!(late, Err(Rejection::WrongState { .. })), "{late:?}");
    assert!(deliver(&after, "ann", run, claim(after.seq, "two")).is_ok(), "who looks again may");
}

#[test]
fn what_needs_no_delivery_is_settled_and_a_hook_that_fails_is_shown() {
    let blocked = step(&done(Some(Delivery::Branch)), blocked_delivery());
    let settled = step(&blocked, DeliveryStep::Needless {});
    assert_eq!((settled.state, settled.message.as_deref()), (TaskState::Completed, None));

    let hook = |exit, output: &str| DeliveryStep::HookRan {
        commit: "1".repeat(40),
        exit,
        output: output.to_owned(),
    };
    let record = step(&done(Some(Delivery::Branch)), delivered());
    let failed = step(&record, hook(Some(7), "so\nno network\n\n"));
    assert_eq!(failed.state, TaskState::Completed, "the delivery stands");
    let message = failed.message.clone().expect("it is seen");
    assert!(message.contains("(exit 7: no network)"), "{message}");
    assert!(step(&record, hook(None, "")).message.is_some_and(|m| m.contains("no exit status")));
    assert_eq!(step(&failed, hook(Some(0), "opened")).message, None);
}
