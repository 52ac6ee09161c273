//! How far rules look into a call.

use docket_schema::run::RunState;

/// How far rules look into a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// At what stands in it, by name, and so it was in logs from before there was another.
    NamedPaths,
    /// Also at what it comes to. Where it acts on folders, all below it is meant: a rule that refuses or asks for a whole
    /// folder speaks of what moves, deletes or puts back that folder, or one above it. Files that a tool's own command reads
    /// are files that it names. And what a virtual environment runs is known to nobody.
    Descendants,
}

impl RuleScope {
    /// By the rules that a run goes by.
    #[must_use]
    pub fn for_run(run: &RunState) -> Self {
        let is_newer = run.pins.as_ref().is_some_and(|pins| pins.settings.role_rules > 1);
        if is_newer { Self::Descendants } else { Self::NamedPaths }
    }
}
