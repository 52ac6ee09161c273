//! Texts of a turn: who told the model what, and what else happened. Pure.

use docket_schema::{
    content::Content,
    history::{MessageSource, TurnDetail},
    run::{Compacted, ForkReason, RunEvent},
};

use super::run::Run;
use crate::output::{display::format_duration, event_format, fact_format};

/// A text and its author.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TurnMessage {
    pub(super) by: String,
    pub(super) text: Content,
}

/// Returns the messages that are new to the model in a turn, including what the runtime adds to the request.
pub(super) fn messages_to_model(detail: &TurnDetail) -> Vec<TurnMessage> {
    let mut remarks = Vec::new();
    for message in &detail.messages {
        let by = match &message.from {
            MessageSource::Task => "the task".to_owned(),
            MessageSource::Person(by) => format!("{by} says"),
            MessageSource::Answer(by) => format!("{by} answers"),
            MessageSource::Child { task, call } => format!("task {} answers call {call}", task.short()),
            MessageSource::Hint => "hint for the model".to_owned(),
            MessageSource::Edit => "the runtime says".to_owned(),
            MessageSource::Nudge => continue,
        };
        remarks.push(TurnMessage { by, text: message.text.clone() });
    }
    remarks
}

/// Returns the other events of a turn.
pub(super) fn other_events(run: &Run, detail: &TurnDetail) -> Vec<TurnMessage> {
    let mut notes = Vec::new();
    let mut note = |by: &str, text: Content| notes.push(TurnMessage { by: by.to_owned(), text });
    for milestone in &detail.notes {
        let Some(envelope) = run.events().get(milestone.event_index) else { continue };
        let event = match &milestone.event {
            Ok(event) => event,
            Err(error) => {
                note("docket", format!("event {} cannot be read: {error}", envelope.seq).into());
                continue;
            }
        };
        match event {
            // Shown as a message instead.
            RunEvent::ChildAnswered(_) => {}
            RunEvent::ModelFailed(e) => {
                let again = e
                    .retry_in_ms
                    .map_or_else(String::new, |ms| format!("; again in {}", format_duration(ms)));
                note("the model call failed", format!("{}: {}{again}", e.error, e.message).into());
            }
            RunEvent::Forked(e) => {
                let why = match e.why {
                    ForkReason::Resume => "resumed",
                    ForkReason::Fork => "forked",
                    ForkReason::Rejected => "rejected; continues with the comment",
                };
                note(why, format!("from run {} after turn {}", e.parent.short(), e.turn).into());
            }
            RunEvent::BaseChecked(e) => {
                note(&format!("before the run: check {} {}", e.gate.name, e.outcome_label()), "".into());
            }
            RunEvent::SetupFinished(e) => {
                let exit = e.exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
                let by = format!("setup `{}`: {exit} in {}", e.command, format_duration(e.duration_ms));
                note(&by, e.content.clone());
            }
            RunEvent::RunBlocked(e) => note("blocked, asking", e.question.clone()),
            RunEvent::Compacted(e) => note(&event_format::format_compaction(e), compaction_text(e)),
            RunEvent::RoleBegan(e) => {
                e.opening.iter().for_each(|text| note(&fact_format::format_role(e), text.clone()))
            }
            RunEvent::Concluded(e) => note("concluded", fact_format::format_conclusion(e).into()),
            _ => note("event", event_format::format_event(envelope).into()),
        }
    }
    notes
}

/// The text that replaces the compacted history.
fn compaction_text(event: &Compacted) -> Content {
    if event.messages > 0 { event.summary.clone() } else { event.ledger.clone().unwrap_or_default() }
}
