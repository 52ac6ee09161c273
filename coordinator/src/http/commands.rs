//! Commands as the store takes them: each wraps a pure decision with what the request brought. The
//! only place of the HTTP layer that names decisions.

use docket_schema::{
    content::Content,
    event::NewEvent,
    ids::{Epoch, RunId, TaskId, Timestamp},
    run::Forked,
    task::{ReleaseWhy, TaskSubmitted},
    wire::DeliveryStep,
};

use crate::{
    decide::{self, AskedRun, Dependencies, ResultVerdict, Settling},
    store::Decide,
};

pub(super) fn cancel(by: String, reason: String) -> Decide {
    Box::new(move |record| decide::cancel(record, &by, &reason))
}

pub(super) fn retry(by: String, reason: String, dependencies: Dependencies) -> Decide {
    Box::new(move |record| decide::retry(record, &by, &reason, dependencies))
}

pub(super) fn answer(by: String, text: Content, asked: Option<AskedRun>) -> Decide {
    Box::new(move |record| decide::answer_question(record, &by, &text, asked))
}

pub(super) fn pause(by: String) -> Decide {
    Box::new(move |record| decide::pause(record, &by))
}

pub(super) fn unpause(by: String) -> Decide {
    Box::new(move |record| decide::unpause(record, &by))
}

pub(super) fn reprioritize(priority: i16) -> Decide {
    Box::new(move |record| decide::reprioritize(record, priority))
}

pub(super) fn release(epoch: Epoch) -> Decide {
    Box::new(move |record| decide::release(record, epoch, ReleaseWhy::Drained))
}

pub(super) fn release_for_fault(epoch: Epoch, message: String) -> Decide {
    Box::new(move |record| decide::release_for_fault(record, epoch, message.clone()))
}

pub(super) fn crash(epoch: Epoch, how: String) -> Decide {
    Box::new(move |record| decide::crash(record, epoch, &how))
}

pub(super) fn settle(settling: Settling, now: Timestamp) -> Decide {
    Box::new(move |record| decide::settle(record, &settling, now))
}

pub(super) fn delegate(epoch: Epoch, child: TaskId, submitted: TaskSubmitted) -> Decide {
    Box::new(move |record| decide::delegate(record, epoch, child, submitted.clone()))
}

pub(super) fn deliver(by: String, run: RunId, step: DeliveryStep) -> Decide {
    Box::new(move |record| decide::deliver(record, &by, run, step.clone()))
}

pub(super) fn accept(by: String, run: RunId, comment: String) -> Decide {
    Box::new(move |record| decide::accept(record, ResultVerdict { by: &by, run, comment: &comment }))
}

pub(super) fn reject(
    by: String,
    run: RunId,
    comment: String,
    forked: Forked,
    edits: Vec<NewEvent>,
) -> Decide {
    Box::new(move |record| {
        let verdict = ResultVerdict { by: &by, run, comment: &comment };
        decide::reject(record, verdict, forked.clone(), edits.clone())
    })
}

pub(super) fn resume(by: String, forked: Forked, edits: Vec<NewEvent>) -> Decide {
    Box::new(move |record| decide::resume(record, &by, forked.clone(), edits.clone()))
}
