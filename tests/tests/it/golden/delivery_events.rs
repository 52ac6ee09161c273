//! Made by hand: a task whose result could not be delivered, was pushed, and was judged both ways.

use anyhow::{Result, ensure};
use docket_schema::{
    content::BlobRef,
    event::Envelope,
    export::InMemoryExport,
    ids::{Epoch, IncarnationId, RunId, TaskId, TreeHash, Turn},
    run::FailureKind,
    snapshot::WorkspaceBase,
    task::*,
};
use docket_worker::engine::Action;

use super::handmade::{AT, StartedRun, fixed_uuid, submitted_task};

/// Words at most until the engine takes them for the end.
const TURNS_MAX: usize = 5;

pub(super) async fn delivered_run() -> Result<InMemoryExport> {
    let mut begun = StartedRun::new(31, 32).await?;
    begun.hand.push_turn("PLAN:\n- [x] look around\n\nI look around.", Some("list_files")).await?;
    for turn in 0.. {
        ensure!(turn < TURNS_MAX, "the run does not end");
        if matches!(begun.hand.next_decision()?.act, Action::End { .. }) {
            break;
        }
        begun
            .hand
            .push_turn("PLAN:\n- [x] look around\n\nIt is empty; nothing is to be changed.", None)
            .await?;
    }
    begun.finish(task_events)
}

fn task_events(task: TaskId, run: RunId, base: WorkspaceBase) -> Vec<Envelope> {
    let mut stream = submitted_task(task, base);
    stream.epoch = Epoch(1);
    let (by, commit, branch) = ("a person".to_owned(), "1".repeat(40), "fix/it".to_owned());
    let (worker, worker_name) = (IncarnationId(fixed_uuid(3)), "by hand".to_owned());
    let leased = TaskLeased { epoch: Epoch(1), run, worker, worker_name };
    stream.push(Turn(0), &TaskEvent::from(leased));
    stream.push(Turn(0), &TaskEvent::from(TaskCompleted { run, unverified: None }));
    stream.epoch = Epoch(0);
    let remote = "origin".to_owned();
    let events: [TaskEvent; 7] = [
        TaskDeliveryBlocked {
            run,
            branch: branch.clone(),
            why: DeliveryBlockedReason::Conflict,
            paths: vec!["a.txt".to_owned()],
            kept: Some(format!("docket/{}", run.short())),
            message: "the result conflicts with what came onto `main`".to_owned(),
            by: by.clone(),
        }
        .into(),
        TaskDeliveryRequested {
            run,
            branch: branch.clone(),
            commit: commit.clone(),
            remote: remote.clone(),
            by: by.clone(),
        }
        .into(),
        TaskDelivered {
            run,
            branch: branch.clone(),
            commit: commit.clone(),
            remote: Some(remote),
            by: by.clone(),
        }
        .into(),
        TaskDeliveryHookRan {
            run,
            commit: commit.clone(),
            exit: Some(0),
            output: "opened\n".to_owned(),
            by: by.clone(),
        }
        .into(),
        TaskDelivered { run, branch, commit, remote: None, by: by.clone() }.into(),
        // With no run after it: the log of this one run is all there is.
        TaskRejected { run, by: by.clone(), comment: "the README says nothing of it".to_owned() }.into(),
        TaskAccepted { run, by, comment: "good after all".to_owned() }.into(),
    ];
    for event in events {
        stream.push(Turn(0), &event);
    }
    stream.events
}

/// The stream of a task whose run stood on another's history, failed, was tried again from there, and changed nothing.
pub(super) fn claimed_task_events() -> Vec<Envelope> {
    let (task, first, second) = (TaskId(fixed_uuid(33)), RunId(fixed_uuid(34)), RunId(fixed_uuid(35)));
    let base = WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: TreeHash::ZERO, git: None };
    let mut stream = submitted_task(task, base);
    let by = "a person".to_owned();
    let resumed = TaskResumed { by: by.clone(), run: first, parent: RunId(fixed_uuid(36)) };
    stream.push(Turn(0), &TaskEvent::from(resumed));
    let (worker, worker_name) = (IncarnationId(fixed_uuid(3)), "by hand".to_owned());
    let leased =
        |epoch, run| TaskEvent::from(TaskLeased { epoch, run, worker, worker_name: worker_name.clone() });
    stream.push(Turn(0), &leased(Epoch(1), first));
    let failed = TaskRunFailed {
        run: first,
        why: FailureKind::Model,
        message: "the model is overloaded".to_owned(),
        retry_at: AT.plus_ms(60_000),
        next: Some(second),
    };
    stream.push(Turn(0), &TaskEvent::from(failed));
    let retried = TaskRetried { by: by.clone(), reason: String::new(), run: Some(second), waits: false };
    stream.push(Turn(0), &TaskEvent::from(retried));
    stream.push(Turn(0), &leased(Epoch(2), second));
    stream.push(Turn(0), &TaskEvent::from(TaskCompleted { run: second, unverified: None }));
    let claimed = TaskDeliveryClaimed {
        run: second,
        deliverer: "a host/1".to_owned(),
        term_ms: 60_000,
        push: true,
        hook: true,
        by: by.clone(),
    };
    stream.push(Turn(0), &TaskEvent::from(claimed));
    stream.push(Turn(0), &TaskEvent::from(TaskNeededNoDelivery { run: second, by }));
    stream.events
}
