//! Tests of tasks that are blocked by something outside their run and then continue the current run: a
//! provider that needs a person, and consecutive worker faults.

use docket_schema::task::{
    LeaseEnd, LeaseReleaseReason, TaskBlockedReason, TaskRecord, TaskState, WORKER_FAULTS_MAX,
};

use super::{
    CommandPlan, DependencyRetry, FenceAfter, answer, lease, make_available, release_for_fault, retry,
    transition_table::{
        NOW, RUN, all_lease_ends, apply_plan, decide_lease_end, lease_recipient, leased_record,
    },
};

#[test]
fn run_stopped_by_provider_continues_from_the_same_point() {
    let holds = leased_record();
    let end = LeaseEnd::Blocked(TaskBlockedReason::Provider);
    let stopped = apply_plan(&holds, &decide_lease_end(&holds, &end).expect("accepted"));
    assert_eq!((stopped.state, stopped.message.as_deref()), (TaskState::Blocked, Some("?")));
    let plan = retry(&stopped, "me", "", DependencyRetry::Kept).expect("blocked");
    let answered = plan.run_write.clone().expect("the run learns it");
    assert_eq!(
        (answered.events[0].kind.as_str(), answered.fence),
        ("BlockerAnswered", FenceAfter::Unchanged)
    );
    assert_eq!(plan.superseded_run, None);
    let after = apply_plan(&stopped, &plan);
    assert_eq!((after.state, after.run, after.message), (TaskState::Available, Some(RUN), None));
}

#[test]
fn consecutive_worker_faults_block_the_task() {
    let again =
        |record: &TaskRecord| apply_plan(record, &lease(record, &lease_recipient(), RUN).expect("available"));
    let faulted = |record: &TaskRecord| {
        let plan = release_for_fault(record, record.epoch, "no server".to_owned()).expect("accepted");
        apply_plan(record, &plan)
    };
    let fault_after = |record: &TaskRecord, count: u32| {
        (0..count).fold(record.clone(), |record, _| again(&faulted(&record)))
    };
    let last_but_one = fault_after(&leased_record(), WORKER_FAULTS_MAX - 1);
    assert_eq!(last_but_one.state, TaskState::Running);
    // A lease lost this way does not reset the fault count: the next fault is still the last.
    for end in [
        LeaseEnd::Released(LeaseReleaseReason::Drained),
        LeaseEnd::Released(LeaseReleaseReason::Unknown),
        LeaseEnd::Expired,
    ] {
        let taken = apply_plan(&last_but_one, &decide_lease_end(&last_but_one, &end).expect("accepted"));
        assert_eq!(taken.worker_faults, WORKER_FAULTS_MAX - 1, "{end:?}");
        assert_eq!(faulted(&again(&taken)).state, TaskState::Blocked, "{end:?}");
    }
    // Every other end shows that the run got past the fault.
    for (name, end) in all_lease_ends() {
        let says_nothing = matches!(end, LeaseEnd::Released(_) | LeaseEnd::Expired);
        if let (false, Ok(plan)) = (says_nothing, decide_lease_end(&last_but_one, &end)) {
            let after = apply_plan(&last_but_one, &plan);
            assert!(after.worker_faults == 0 || after.state == TaskState::Cancelled, "{name}: {after:?}");
        }
    }
    let blocked = faulted(&last_but_one);
    let waits = (blocked.state, blocked.blocked_why, blocked.run, blocked.worker_faults);
    let why = Some(TaskBlockedReason::WorkerFault);
    assert_eq!(waits, (TaskState::Blocked, why, Some(RUN), WORKER_FAULTS_MAX));
    assert_eq!((blocked.failures, blocked.crashes, blocked.runs), (0, 0, 1));
    let message = blocked.message.clone().expect("a message");
    assert!(message.starts_with("20 attempts in a row") && message.ends_with("no server"), "{message}");
    assert_eq!(make_available(&blocked, NOW.plus_ms(1_000_000)), CommandPlan::default(), "not by the clock");
    assert!(answer(&blocked, "me", &"mended".into()).is_err(), "its run asks nothing");
    let retried = retry(&blocked, "me", "mended", DependencyRetry::Kept);
    for plan in [answer(&blocked, "me", &"".into()), retried] {
        let plan = plan.expect("resumes");
        assert_eq!(plan.superseded_run, None);
        assert!(plan.run_write.as_ref().is_some_and(|write| write.events.is_empty()), "{plan:?}");
        let after = apply_plan(&blocked, &plan);
        assert_eq!(
            (after.state, after.run, after.message.as_deref()),
            (TaskState::Available, Some(RUN), None)
        );
        assert_eq!(after.worker_faults, 0, "the count begins again");
    }
}
