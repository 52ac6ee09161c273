//! Attribution of workspace changes to the run or to a person in `docket shell`.
//!
//! A person's change consists of `WorkspaceEdited` and the snapshots directly after it; any other event ends
//! it. The fold uses this rule to tell the model what was changed, and views use it to separate a person's
//! files from the run's. Pure.

use crate::run::events::{run_event::RunEvent, turn_events::SnapshotTaken};

/// Maximum number of a person's changed paths listed to the model; more would crowd out the work.
const EDITED_NAMES_MAX: usize = 40;

/// Attributes snapshots. It must see every event in order.
#[derive(Debug, Clone, Default)]
pub struct ChangeAttribution {
    person: Option<String>,
}

impl ChangeAttribution {
    /// Applies the next event. Returns the person who made a snapshot's changes, if it was a person.
    pub fn attribute_event(&mut self, event: &RunEvent) -> Option<&str> {
        if matches!(event, RunEvent::SnapshotTaken(_)) {
            return self.person();
        }
        self.person =
            if let RunEvent::WorkspaceEdited(edited) = event { Some(edited.by.clone()) } else { None };
        None
    }

    /// Returns the person whose change is being recorded; none while the run works.
    pub fn person(&self) -> Option<&str> {
        self.person.as_deref()
    }
}

/// Describes a person's changes to the model: the paths, not the contents.
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
