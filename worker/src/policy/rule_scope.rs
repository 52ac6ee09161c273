//! Defines how deeply rules look into a call.

use docket_schema::run::RunState;

/// How deeply rules look into a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RuleScope {
    /// Only paths that the call names; used by logs from before `Descendants` existed.
    NamedPaths,
    /// Also the call's effects. An action on a folder includes everything below it: a deny or ask rule for a whole
    /// folder applies to calls that move, delete or restore that folder or one of its parents. Files that a tool's
    /// own command reads count as named. What a virtual environment runs is unknown.
    Descendants,
}

impl RuleScope {
    /// The scope that applies to a run.
    #[must_use]
    pub fn for_run(run: &RunState) -> Self {
        let is_newer = run.pins.as_ref().is_some_and(|pins| pins.settings.role_rules > 1);
        if is_newer { Self::Descendants } else { Self::NamedPaths }
    }
}
