//! Store commands: each wraps a pure decision with the values of the request. The only place in the
//! HTTP layer that refers to decisions.

use docket_schema::{
    api::DeliveryStep,
    content::Content,
    event::NewEvent,
    ids::{Epoch, RunId, TaskId, Timestamp},
    run::Forked,
    task::{LeaseReleaseReason, TaskSubmitted},
};

use crate::{
    decide::{self, DependencyRetry, QuestionedRun, ResultVerdict, RunFinish},
    store::DecideFn,
};

pub(in crate::http) fn cancel(by: String, reason: String) -> DecideFn {
    Box::new(move |record| decide::cancel(record, &by, &reason))
}

pub(in crate::http) fn retry(by: String, reason: String, dependencies: DependencyRetry) -> DecideFn {
    Box::new(move |record| decide::retry(record, &by, &reason, dependencies))
}

pub(in crate::http) fn answer(by: String, text: Content, asked: Option<QuestionedRun>) -> DecideFn {
    Box::new(move |record| decide::answer_question(record, &by, &text, asked))
}

pub(in crate::http) fn pause(by: String) -> DecideFn {
    Box::new(move |record| decide::pause(record, &by))
}

pub(in crate::http) fn unpause(by: String) -> DecideFn {
    Box::new(move |record| decide::unpause(record, &by))
}

pub(in crate::http) fn reprioritize(priority: i16) -> DecideFn {
    Box::new(move |record| decide::reprioritize(record, priority))
}

pub(in crate::http) fn release(epoch: Epoch) -> DecideFn {
    Box::new(move |record| decide::release(record, epoch, LeaseReleaseReason::Drained))
}

pub(in crate::http) fn release_for_fault(epoch: Epoch, message: String) -> DecideFn {
    Box::new(move |record| decide::release_for_fault(record, epoch, message.clone()))
}

pub(in crate::http) fn crash(epoch: Epoch, how: String) -> DecideFn {
    Box::new(move |record| decide::record_crash(record, epoch, &how))
}

pub(in crate::http) fn finish_run(settling: RunFinish, now: Timestamp) -> DecideFn {
    Box::new(move |record| decide::finish_run(record, &settling, now))
}

pub(in crate::http) fn delegate(epoch: Epoch, child: TaskId, submitted: TaskSubmitted) -> DecideFn {
    Box::new(move |record| decide::delegate(record, epoch, child, submitted.clone()))
}

pub(in crate::http) fn deliver(by: String, run: RunId, step: DeliveryStep) -> DecideFn {
    Box::new(move |record| decide::record_delivery_step(record, &by, run, step.clone()))
}

pub(in crate::http) fn accept(by: String, run: RunId, comment: String) -> DecideFn {
    Box::new(move |record| decide::accept_result(record, ResultVerdict { by: &by, run, comment: &comment }))
}

pub(in crate::http) fn reject(
    by: String,
    run: RunId,
    comment: String,
    forked: Forked,
    edits: Vec<NewEvent>,
) -> DecideFn {
    Box::new(move |record| {
        let verdict = ResultVerdict { by: &by, run, comment: &comment };
        decide::reject_result(record, verdict, forked.clone(), edits.clone())
    })
}

pub(in crate::http) fn resume(by: String, forked: Forked, edits: Vec<NewEvent>) -> DecideFn {
    Box::new(move |record| decide::resume(record, &by, forked.clone(), edits.clone()))
}
