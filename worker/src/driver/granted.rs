//! Calls that policy grants the network: which of the open ones, and the runner that gives it to one call.
//!
//! Invariant: only a call whose intent says `external` gets it. One that was announced otherwise may be run again
//! after a crash, and nothing that reaches out may.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use docket_schema::{
    message::CallId,
    policy::AllowList,
    run::{RunState, Verdict},
    tool::{NetworkSeen, RecoveryClass},
};
use futures_util::future::BoxFuture;

use super::start::SandboxRunner;
use crate::{
    policy,
    tools::{CommandOutput, CommandSpec, Runner, RunnerError},
};

/// Places that a result names to the model, of each kind.
const TOLD_MAX: usize = 10;

/// What each open call may reach.
pub(super) type Grants = BTreeMap<CallId, Arc<AllowList>>;

/// The grants of the open calls.
pub(super) fn grants(state: &RunState) -> Grants {
    let external = state.open_tools.iter().filter(|(open, _)| {
        open.class == RecoveryClass::External && matches!(open.policy, Verdict::Allow { .. })
    });
    let granted = external.filter_map(|(open, tool)| {
        let list = policy::network(&state.policies, tool)?;
        Some((open.call.clone(), Arc::new(list)))
    });
    granted.collect()
}

/// Runs the command of one call with the network that it was granted.
pub(super) struct Granted<'a> {
    runner: &'a SandboxRunner,
    allow: Arc<AllowList>,
    seen: Mutex<Option<NetworkSeen>>,
}

impl<'a> Granted<'a> {
    pub(super) fn new(runner: &'a SandboxRunner, allow: Arc<AllowList>) -> Self {
        Self { runner, allow, seen: Mutex::new(None) }
    }

    /// What its command did; none where none ran, or where there are no walls.
    pub(super) fn seen(self) -> Option<NetworkSeen> {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Runner for Granted<'_> {
    fn run(&self, spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async move {
            let (output, seen) = self.runner.run_with(spec, Some(Arc::clone(&self.allow))).await?;
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
            Ok(output)
        })
    }
}

/// What a call did on the network, as the model reads it.
pub(super) fn told(seen: &NetworkSeen) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for one in seen.reached.iter().take(TOLD_MAX) {
        let (place, sent, received) = (&one.place, one.sent_bytes, one.received_bytes);
        let _ = writeln!(out, "network: reached {place}, {sent} bytes sent, {received} received");
    }
    for one in seen.refused.iter().take(TOLD_MAX) {
        let times = if one.times > 1 { format!(", {} times", one.times) } else { String::new() };
        let _ = writeln!(out, "network: refused: {} ({}{times})", one.place, one.why);
    }
    let beyond = |places: usize| places.saturating_sub(TOLD_MAX);
    let more = beyond(seen.reached.len()) + beyond(seen.refused.len()) + seen.left_out as usize;
    if more > 0 {
        let _ = writeln!(out, "network: and {more} more");
    }
    out
}

#[cfg(test)]
mod tests {
    use docket_schema::tool::PlaceRefused;

    use super::*;

    #[test]
    fn a_result_names_the_first_places_and_counts_the_rest() {
        let refused = |nth| PlaceRefused { place: format!("h{nth}:443"), why: "no".to_owned(), times: nth };
        let seen =
            NetworkSeen { refused: (1..=12).map(refused).collect(), left_out: 3, ..NetworkSeen::default() };
        let told = told(&seen);
        assert!(
            told.starts_with("network: refused: h1:443 (no)\nnetwork: refused: h2:443 (no, 2 times)\n"),
            "{told}"
        );
        assert!(told.ends_with("h10:443 (no, 10 times)\nnetwork: and 5 more\n"), "{told}");
    }
}
