//! What a turn says in words: who told the model what, and what else happened in it. Pure.

use docket_schema::{
    content::Content,
    history::{MessageSource, TurnDetail},
    run::{Compacted, ForkWhy, RunEvent},
};

use super::run::Run;
use crate::output::{display::duration, events, facts};

/// Words, and whose they are.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Remark {
    /// Whose.
    pub(super) by: String,
    /// The words.
    pub(super) text: Content,
}

/// What the model was newly told in a turn; what the runtime adds to a request is shown with it.
pub(super) fn told(detail: &TurnDetail) -> Vec<Remark> {
    let mut remarks = Vec::new();
    for message in &detail.messages {
        let by = match &message.from {
            MessageSource::Task => "the task".to_owned(),
            MessageSource::Person(by) => format!("{by} says"),
            MessageSource::Answer(by) => format!("{by} answers"),
            MessageSource::Child { task, call } => format!("task {} answers call {call}", task.short()),
            MessageSource::Hint => "a hint for the model".to_owned(),
            MessageSource::Edit => "the runtime says".to_owned(),
            MessageSource::Nudge => continue,
        };
        remarks.push(Remark { by, text: message.text.clone() });
    }
    remarks
}

/// What else happened in a turn.
pub(super) fn notes(run: &Run, detail: &TurnDetail) -> Vec<Remark> {
    let mut notes = Vec::new();
    let mut note = |by: &str, text: Content| notes.push(Remark { by: by.to_owned(), text });
    for milestone in &detail.milestones {
        let Some(envelope) = run.events().get(milestone.place) else { continue };
        let event = match &milestone.event {
            Ok(event) => event,
            Err(error) => {
                note("docket", format!("event {} cannot be read: {error}", envelope.seq).into());
                continue;
            }
        };
        match event {
            // It is told.
            RunEvent::ChildAnswered(_) => {}
            RunEvent::ModelFailed(e) => {
                let again =
                    e.retry_in_ms.map_or_else(String::new, |ms| format!("; again in {}", duration(ms)));
                note("the model failed", format!("{}: {}{again}", e.error, e.message).into());
            }
            RunEvent::Forked(e) => {
                let why = match e.why {
                    ForkWhy::Resume => "resumed",
                    ForkWhy::Fork => "forked",
                    ForkWhy::Rejected => "rejected, and goes on with the comment",
                };
                note(why, format!("from run {} after turn {}", e.parent.short(), e.turn).into());
            }
            RunEvent::BaseChecked(e) => {
                note(&format!("before the work: check {} {}", e.gate.name, e.came_to()), "".into());
            }
            RunEvent::SetupFinished(e) => {
                let exit = e.exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
                let by = format!("setup `{}`: {exit} in {}", e.command, duration(e.duration_ms));
                note(&by, e.content.clone());
            }
            RunEvent::RunBlocked(e) => note("blocked; it asks", e.question.clone()),
            RunEvent::Compacted(e) => note(&events::compacted(e), replacement(e)),
            RunEvent::RoleBegan(e) => e.opening.iter().for_each(|text| note(&facts::role(e), text.clone())),
            RunEvent::Concluded(e) => note("concluded", facts::words(e).into()),
            _ => note("event", events::summary(envelope).into()),
        }
    }
    notes
}

/// What is in the place of the history that went.
fn replacement(event: &Compacted) -> Content {
    if event.messages > 0 { event.summary.clone() } else { event.ledger.clone().unwrap_or_default() }
}
