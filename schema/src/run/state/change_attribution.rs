//! Whose hands changed the workspace: the run's, or those of a person in `docket shell`.
//!
//! A person's change is `WorkspaceEdited` and the snapshots that directly follow it; whatever else follows
//! ends it. The fold tells the model by this rule what was changed, and whoever shows a turn tells a person's
//! files apart from the run's by it. Pure.

use crate::run::events::{run_event::RunEvent, turn_events::SnapshotTaken};

/// Paths of a person's change that the model is told by name: more would crowd out the work.
const EDITED_NAMES_MAX: usize = 40;

/// Shown every event in order, it knows whose the snapshots are.
#[derive(Debug, Clone, Default)]
pub struct ChangeAttribution {
    person: Option<String>,
}

impl ChangeAttribution {
    /// Takes the next event. Who changed what a snapshot holds, where that was a person.
    pub fn attribute_event(&mut self, event: &RunEvent) -> Option<&str> {
        if matches!(event, RunEvent::SnapshotTaken(_)) {
            return self.person();
        }
        self.person =
            if let RunEvent::WorkspaceEdited(edited) = event { Some(edited.by.clone()) } else { None };
        None
    }

    /// The person whose change is being recorded; none while the run works.
    pub fn person(&self) -> Option<&str> {
        self.person.as_deref()
    }
}

/// What the model is told of a person's change: which paths, not what is in them.
pub fn describe_person_changes(event: &SnapshotTaken) -> String {
    let mut names: Vec<String> = event
        .changes
        .iter()
        .map(|change| format!("{}{}", change.path, if change.entry.is_some() { "" } else { " (removed)" }))
        .collect();
    let more = names.len().saturating_sub(EDITED_NAMES_MAX);
    names.truncate(EDITED_NAMES_MAX);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    if !event.git_changes.is_empty() {
        names.push("the repository's own .git".to_owned());
    }
    format!(
        "A person changed the workspace while you were away. Read again what you rely on. Changed: {}",
        names.join(", ")
    )
}
