//! The report on a child task that its parent's model reads as the result of the delegating call.

use docket_schema::{
    api::TaskView,
    content::WorkspacePath,
    ids::{RunId, TaskId},
    run::RunSpending,
    task::TaskState,
};

use crate::workspace::MergeConflict;

/// Paths listed in a result.
const PATHS_NAMED_MAX: usize = 100;

/// Characters of a conflict's lines shown in a result.
const CONFLICT_CHARS_MAX: usize = 2000;

/// Renders the report on a child.
pub(in crate::run) struct ChildReport<'a> {
    pub(in crate::run) task: &'a TaskView,
    pub(in crate::run) run: Option<RunId>,
    pub(in crate::run) spent: RunSpending,
    pub(in crate::run) writes: bool,
    pub(in crate::run) reply_text: String,
    pub(in crate::run) changed: Vec<WorkspacePath>,
    pub(in crate::run) merged: Vec<WorkspacePath>,
    pub(in crate::run) conflicts: Vec<MergeConflict>,
}

impl<'a> ChildReport<'a> {
    /// Starts a report that knows nothing but the child's task.
    pub(in crate::run) fn new(task: &'a TaskView, writes: bool) -> Self {
        Self {
            task,
            run: None,
            spent: RunSpending::default(),
            writes,
            reply_text: String::new(),
            changed: Vec::new(),
            merged: Vec::new(),
            conflicts: Vec::new(),
        }
    }

    pub(in crate::run) fn render_text(&self) -> String {
        let TaskView { task, .. } = self.task;
        let id: TaskId = task.id;
        let mut out = match self.run {
            Some(run) => format!("The child task {id} (its run {run}) is {}.", task.state),
            None => format!("The child task {id} is {}; it never ran.", task.state),
        };
        if let Some(message) = &task.message {
            out.push_str(&format!(" {message}"));
        }
        if let Some(why) = &task.unverified {
            out.push_str(&format!(" Its result is unverified: {why}."));
        }
        if !self.reply_text.trim().is_empty() {
            out.push_str(&format!("\n\nIt says:\n{}\n", self.reply_text.trim()));
        }
        out.push_str(&self.render_changes());
        for conflict in &self.conflicts {
            out.push_str(&format!("\nConflict in {}: {}.", conflict.path, conflict.why));
            if let Some(lines) = &conflict.lines {
                let shown: String = lines.chars().take(CONFLICT_CHARS_MAX).collect();
                out.push_str(&format!("\n{shown}"));
            }
        }
        if let (false, Some(run)) = (self.conflicts.is_empty(), self.run) {
            out.push_str(&format!(
                "\nThese files are as you left them; the child's versions stay in its run {run}. Settle them by hand."
            ));
        }
        out.push_str(&format!("\n\nIt used {} tokens.", self.spent.tokens));
        out
    }

    fn render_changes(&self) -> String {
        if self.changed.is_empty() {
            return "\nIt changed no files.".to_owned();
        }
        let named = |paths: &[WorkspacePath]| {
            let mut text: Vec<String> = paths.iter().take(PATHS_NAMED_MAX).map(ToString::to_string).collect();
            if paths.len() > PATHS_NAMED_MAX {
                text.push(format!("and {} more", paths.len() - PATHS_NAMED_MAX));
            }
            text.join(", ")
        };
        let changed = named(&self.changed);
        if !self.writes {
            return format!("\nIt changed {changed}; that is dropped, for its changes were not asked for.");
        }
        if self.task.task.state != TaskState::Completed {
            return format!("\nIt changed {changed}; that is not taken over, for it did not end well.");
        }
        match (self.merged.is_empty(), self.conflicts.is_empty()) {
            (false, _) => format!("\nTaken over into your workspace: {}.", named(&self.merged)),
            (true, true) => format!("\nIt changed {changed}, as you did already."),
            (true, false) => "\nNothing of what it changed could be taken over.".to_owned(),
        }
    }
}
