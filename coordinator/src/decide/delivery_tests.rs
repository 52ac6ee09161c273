//! Tests of failed deliveries and of their resolution, and of accepted and rejected results.

use docket_schema::{
    api::DeliveryStep,
    event::TypedEvent,
    ids::{EventHash, RunId, Seq, Turn},
    run::{ForkReason, Forked, RunOutcome},
    task::{DeliveryBlockedReason, DeliveryMode, LeaseEnd, TaskRecord, TaskState},
};
use uuid::Uuid;

use super::{
    DependencyRetry,
    transition_table::{RUN, TASK, apply_plan, decide_lease_end, leased_record, record_in_state},
    *,
};

fn apply_delivery_step(record: &TaskRecord, step: DeliveryStep) -> TaskRecord {
    let plan =
        record_delivery_step(record, "ann", record.last_run.expect("a run"), step).expect("it was done");
    apply_plan(record, &plan)
}

fn result_verdict(run: RunId, comment: &str) -> ResultVerdict<'_> {
    ResultVerdict { by: "ann", run, comment }
}

fn blocked_delivery() -> DeliveryStep {
    DeliveryStep::Blocked {
        branch: "fix/it".to_owned(),
        why: DeliveryBlockedReason::Conflict,
        paths: vec!["a.txt".to_owned()],
        kept: None,
        message: "conflicts in a.txt".to_owned(),
    }
}

fn delivered_step() -> DeliveryStep {
    DeliveryStep::Delivered { branch: "fix/it".to_owned(), commit: "1".repeat(40), remote: None }
}

/// A task completed by its run, with `delivery` requested.
fn completed_task(delivery: Option<DeliveryMode>) -> TaskRecord {
    let mut record = leased_record();
    record.spec.delivery = delivery;
    let plan = decide_lease_end(&record, &LeaseEnd::Ended(RunOutcome::Succeeded)).expect("it ends");
    apply_plan(&record, &plan)
}

#[test]
fn undeliverable_result_blocks_the_task_until_settled() {
    let told = apply_delivery_step(&completed_task(None), blocked_delivery());
    assert!(told.state == TaskState::Completed && told.message.is_none(), "no one waits for it: {told:?}");

    for wanted in [DeliveryMode::Branch, DeliveryMode::Push] {
        let blocked = apply_delivery_step(&completed_task(Some(wanted)), blocked_delivery());
        assert!(
            blocked.is_undelivered() && blocked.ended_at.is_none() && blocked.run.is_none(),
            "{blocked:?}"
        );
        assert_eq!(blocked.message.as_deref(), Some("conflicts in a.txt"));
        assert!(answer(&blocked, "ann", &"go on".into()).is_err(), "no run is there to hear it");
        assert!(pause(&blocked, "ann").is_err() && unpause(&blocked, "ann").is_err());
        assert!(
            retry(&blocked, "ann", "", DependencyRetry::Kept).is_ok() && cancel(&blocked, "ann", "").is_ok()
        );

        let run = blocked.last_run.expect("a run");
        let accepted = accept_result(&blocked, result_verdict(run, "by hand")).expect("settled");
        for settled in [apply_delivery_step(&blocked, delivered_step()), apply_plan(&blocked, &accepted)] {
            assert_eq!((settled.state, settled.message.as_deref()), (TaskState::Completed, None));
            assert!(settled.ended_at.is_some() && settled.blocked_why.is_none());
        }
        let again = apply_delivery_step(
            &blocked,
            DeliveryStep::Blocked {
                branch: "fix/it".to_owned(),
                why: DeliveryBlockedReason::Taken,
                paths: Vec::new(),
                kept: None,
                message: "taken".to_owned(),
            },
        );
        assert!(again.is_undelivered() && again.message.as_deref() == Some("taken"));
    }
}

#[test]
fn only_the_completing_run_can_be_reviewed_and_rejection_resumes() {
    let forked = |parent| Forked {
        run: RunId(Uuid::from_u128(77)),
        task: TASK,
        parent,
        seq: Seq(3),
        hash: EventHash::ZERO,
        turn: Turn(1),
        why: ForkReason::Resume,
        engine: None,
        models: None,
        hint: Some("no".into()),
    };
    for record in [
        completed_task(None),
        apply_delivery_step(&completed_task(Some(DeliveryMode::Push)), blocked_delivery()),
    ] {
        let run = record.last_run.expect("a run");
        let other = RunId(Uuid::from_u128(99));
        assert!(accept_result(&record, result_verdict(other, "")).is_err());
        assert!(reject_result(&record, result_verdict(other, "no"), forked(other), Vec::new()).is_err());
        let plan =
            reject_result(&record, result_verdict(run, "no"), forked(run), Vec::new()).expect("it continues");
        let kinds: Vec<&str> = plan.task_events.iter().map(TypedEvent::kind).collect();
        assert_eq!(kinds, ["TaskRejected", "TaskResumed"], "both in one step");
        let after = apply_plan(&record, &plan);
        assert_eq!((after.state, after.run), (TaskState::Available, Some(RunId(Uuid::from_u128(77)))));
        assert!(after.ended_at.is_none() && after.message.is_none());
    }
    for state in TaskState::ALL.into_iter().filter(|state| *state != TaskState::Completed) {
        let record = record_in_state(state);
        assert!(
            accept_result(&record, result_verdict(record.last_run.unwrap_or(RUN), "")).is_err(),
            "{state}"
        );
    }
}

#[test]
fn concurrent_delivery_claims_have_one_winner() {
    let record = completed_task(Some(DeliveryMode::Push));
    let claim = |expected, who: &str| DeliveryStep::Claimed {
        deliverer: who.to_owned(),
        term_ms: 60_000,
        expected,
        push: true,
        hook: false,
    };
    let looked = record.seq;
    let after = apply_delivery_step(&record, claim(looked, "one"));
    assert_eq!((after.state, after.message.as_deref()), (TaskState::Completed, None), "it moves no task");
    let run = record.last_run.expect("a run");
    let late = record_delivery_step(&after, "ann", run, claim(looked, "two"));
    assert!(matches!(late, Err(CommandRejection::WrongState { .. })), "{late:?}");
    assert!(record_delivery_step(&after, "ann", run, claim(after.seq, "two")).is_ok(), "who looks again may");
}

#[test]
fn unneeded_delivery_settles_the_task_and_hook_failure_is_recorded() {
    let blocked = apply_delivery_step(&completed_task(Some(DeliveryMode::Branch)), blocked_delivery());
    let settled = apply_delivery_step(&blocked, DeliveryStep::Needless {});
    assert_eq!((settled.state, settled.message.as_deref()), (TaskState::Completed, None));

    let hook = |exit, output: &str| DeliveryStep::HookRan {
        commit: "1".repeat(40),
        exit,
        output: output.to_owned(),
    };
    let record = apply_delivery_step(&completed_task(Some(DeliveryMode::Branch)), delivered_step());
    let failed = apply_delivery_step(&record, hook(Some(7), "so\nno network\n\n"));
    assert_eq!(failed.state, TaskState::Completed, "the delivery is unchanged");
    let message = failed.message.clone().expect("it is seen");
    assert!(message.contains("(exit 7: no network)"), "{message}");
    assert!(
        apply_delivery_step(&record, hook(None, "")).message.is_some_and(|m| m.contains("no exit status"))
    );
    assert_eq!(apply_delivery_step(&failed, hook(Some(0), "opened")).message, None);
}
