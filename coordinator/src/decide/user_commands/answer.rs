//! `answer`: a person answers what a blocked run asked, and it goes on where it stood.

use docket_schema::{
    content::Content,
    event::TypedEvent as _,
    ids::{Epoch, RunId, Turn},
    run::{BlockerAnswered, RunEvent},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, CommandRejection, waiting::unblock::unblock};

/// The run whose question an answer was checked against. While both are the task's, it is the same question: to ask
/// another one, the run must be leased again, under a higher epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionedRun {
    /// The run.
    pub run: RunId,
    /// The task's epoch when its question was read.
    pub epoch: Epoch,
}

/// As [`answer`], for an answer that was checked against the question of `asked`.
///
/// # Errors
/// As [`answer`]; or the task's run asks a question by now that the answer was not checked against.
pub fn answer_question(
    record: &TaskRecord,
    by: &str,
    text: &Content,
    asked: Option<QuestionedRun>,
) -> Result<CommandPlan, CommandRejection> {
    let asks = record.blocked_why == Some(TaskBlockedReason::Person);
    let now = record.run.filter(|_| asks).map(|run| QuestionedRun { run, epoch: record.epoch });
    if now.is_some() && now != asked {
        let remedy = "its run asks something else by now; read that with `docket show`, then answer it";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    answer(record, by, text)
}

/// Gives `text` to the run that asked, and makes its task available. Where the model's provider stopped the
/// run, no words are needed: what it asked for was done elsewhere. Where workers could not carry it out, nobody would
/// hear any.
///
/// # Errors
/// The task waits for nobody's answer, its run asked something and `text` says nothing, or it asked nothing and `text`
/// says something.
pub fn answer(record: &TaskRecord, by: &str, text: &Content) -> Result<CommandPlan, CommandRejection> {
    let refused = |remedy| Err(CommandRejection::WrongState { state: record.state, remedy });
    if record.is_undelivered() {
        return refused(
            "its work is done, and its result could not be delivered: `docket show` says what helps; \
             `docket accept` says that it is settled",
        );
    }
    match (record.state, record.blocked_why) {
        (TaskState::Blocked, Some(TaskBlockedReason::Person)) if is_blank(text) => {
            refused("its run asks something: give an answer, as `docket answer ID TEXT`")
        }
        (
            TaskState::Blocked,
            Some(
                TaskBlockedReason::Person
                | TaskBlockedReason::Provider
                | TaskBlockedReason::Outage
                | TaskBlockedReason::Budget,
            ),
        ) => {
            let answered = BlockerAnswered { text: text.clone(), by: by.to_owned() };
            unblock(record, vec![RunEvent::from(answered).encode(Turn(0))])
        }
        // Its run asks nothing, and may not have begun: it has no place for words.
        (TaskState::Blocked, Some(TaskBlockedReason::WorkerFault)) if is_blank(text) => {
            unblock(record, Vec::new())
        }
        (TaskState::Blocked, Some(TaskBlockedReason::WorkerFault)) => {
            refused("its run asks nothing: `docket answer` without words lets it go on")
        }
        (TaskState::Blocked, Some(TaskBlockedReason::Paused)) => {
            refused("it is paused and asks nothing; `docket unpause` lets it go on")
        }
        (TaskState::Blocked, Some(TaskBlockedReason::Child)) => {
            refused("it waits for another task and asks nothing; answer that one, if it asks")
        }
        (TaskState::Blocked, None) => refused("it does not say for what: the log is damaged"),
        (TaskState::Running, _) => refused("it asks nothing; `docket tell` says something to its run"),
        (TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Retryable, _) => {
            refused("it asks nothing, and is going to run anyway")
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused(match record.last_run {
                Some(_) => "it has ended and asks nothing; `docket resume` goes on with its run",
                None => "it has ended without a run and asks nothing; `docket retry` begins one",
            })
        }
    }
}

fn is_blank(text: &Content) -> bool {
    match text {
        Content::Text(text) => text.trim().is_empty(),
        Content::B64(_) | Content::Blob(_) => false,
    }
}
