//! `answer`: a person answers a blocked run's question, and the run resumes.

use docket_schema::{
    content::Content,
    event::TypedEvent as _,
    ids::{Epoch, RunId, Turn},
    run::{BlockerAnswered, RunEvent},
    task::{TaskBlockedReason, TaskRecord, TaskState},
};

use crate::decide::{CommandPlan, CommandRejection, waiting::unblock::unblock};

/// The run whose question an answer was checked against. The question is unchanged while run and epoch match
/// the task's: to ask another one, the run must be leased again under a higher epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuestionedRun {
    pub run: RunId,
    /// The task's epoch when its question was read.
    pub epoch: Epoch,
}

/// Like [`answer`], for an answer that was checked against the question of `asked`.
///
/// # Errors
/// Like [`answer`]; also rejected if the task's run now asks a different question.
pub fn answer_question(
    record: &TaskRecord,
    by: &str,
    text: &Content,
    asked: Option<QuestionedRun>,
) -> Result<CommandPlan, CommandRejection> {
    let asks = record.blocked_why == Some(TaskBlockedReason::Person);
    let now = record.run.filter(|_| asks).map(|run| QuestionedRun { run, epoch: record.epoch });
    if now.is_some() && now != asked {
        let remedy = "its run now asks a different question; read it with `docket show`, then answer it";
        return Err(CommandRejection::WrongState { state: record.state, remedy });
    }
    answer(record, by, text)
}

/// Passes `text` to the run that asked and makes its task available. If the model provider blocked the run,
/// no text is needed: the problem was fixed elsewhere. If worker faults blocked it, no text could be read by
/// anyone.
///
/// # Errors
/// Rejected if the task waits for no answer, if a question is answered with empty text, or if text is given
/// without a question.
pub fn answer(record: &TaskRecord, by: &str, text: &Content) -> Result<CommandPlan, CommandRejection> {
    let refused = |remedy| Err(CommandRejection::WrongState { state: record.state, remedy });
    if record.is_undelivered() {
        return refused(
            "its work is done, but its result could not be delivered: `docket show` shows the remedy; \
             `docket accept` marks it as settled",
        );
    }
    match (record.state, record.blocked_why) {
        (TaskState::Blocked, Some(TaskBlockedReason::Person)) if is_blank(text) => {
            refused("its run asks a question: give an answer with `docket answer ID TEXT`")
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
        // The run asks nothing and may not have started, so it cannot take text.
        (TaskState::Blocked, Some(TaskBlockedReason::WorkerFault)) if is_blank(text) => {
            unblock(record, Vec::new())
        }
        (TaskState::Blocked, Some(TaskBlockedReason::WorkerFault)) => {
            refused("its run asks no question: `docket answer` without text resumes it")
        }
        (TaskState::Blocked, Some(TaskBlockedReason::Paused)) => {
            refused("it is paused and asks no question; `docket unpause` resumes it")
        }
        (TaskState::Blocked, Some(TaskBlockedReason::Child)) => {
            refused("it waits for another task and asks no question; if that task asks one, answer it there")
        }
        (TaskState::Blocked, None) => refused(
            "the log does not say what it waits for, so the log is \
             damaged",
        ),
        (TaskState::Running, _) => refused("it asks no question; `docket tell` sends a message to its run"),
        (TaskState::Pending | TaskState::Scheduled | TaskState::Available | TaskState::Retryable, _) => {
            refused("it asks no question and will run anyway")
        }
        (TaskState::Completed | TaskState::Cancelled | TaskState::Discarded, _) => {
            refused(match record.last_run {
                Some(_) => "it has ended and asks no question; `docket resume` continues its run",
                None => "it has ended without a run and asks no question; `docket retry` starts one",
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
