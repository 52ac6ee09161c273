//! Made by hand: a task whose result could not be delivered, was pushed, and was judged both ways.

use anyhow::{Result, ensure};
use docket_schema::{
    event::Envelope,
    export::Export,
    ids::{Epoch, IncarnationId, RunId, TaskId, Turn},
    snapshot::Base,
    task::*,
};
use docket_worker::engine::Act;

use super::made::{Begun, id, submitted};

/// Words at most until the engine takes them for the end.
const TURNS_MAX: usize = 5;

pub(super) async fn run() -> Result<Export> {
    let mut begun = Begun::new(31, 32).await?;
    begun.hand.turn("PLAN:\n- [x] look around\n\nI look around.", Some("list_files")).await?;
    for turn in 0.. {
        ensure!(turn < TURNS_MAX, "the run does not end");
        if matches!(begun.hand.decide()?.act, Act::End { .. }) {
            break;
        }
        begun.hand.turn("PLAN:\n- [x] look around\n\nIt is empty; nothing is to be changed.", None).await?;
    }
    begun.end(task_events)
}

fn task_events(task: TaskId, run: RunId, base: Base) -> Vec<Envelope> {
    let mut stream = submitted(task, base);
    stream.epoch = Epoch(1);
    let (by, commit, branch) = ("a person".to_owned(), "1".repeat(40), "fix/it".to_owned());
    let (worker, worker_name) = (IncarnationId(id(3)), "by hand".to_owned());
    let leased = TaskLeased { epoch: Epoch(1), run, worker, worker_name };
    stream.push(Turn(0), &TaskEvent::from(leased));
    stream.push(Turn(0), &TaskEvent::from(TaskCompleted { run }));
    stream.epoch = Epoch(0);
    let remote = "origin".to_owned();
    let events: [TaskEvent; 7] = [
        TaskDeliveryBlocked {
            run,
            branch: branch.clone(),
            why: DeliveryBlockedWhy::Conflict,
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
