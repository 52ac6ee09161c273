//! Network grants of open calls, and the runner that applies a grant to one call.
//!
//! Invariants: only a call whose intent says `external` gets the network, because a call announced otherwise may be
//! repeated after a crash (unless its server declares that safe). A worker never grants more than its own policy
//! lists, even if the run began on another worker.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};

use docket_schema::{
    message::CallId,
    policy::{AllowList, Policy},
    run::{PolicyVerdict, RunState},
    tool::{NetworkActivity, RecoveryClass},
};
use futures_util::future::BoxFuture;

use super::sandbox_runner::SandboxRunner;
use crate::{
    policy::{self, RuleScope},
    tools::{CommandOutput, CommandRunner, CommandSpec, RunnerError},
};

/// Places of each kind that a result lists for the model.
const PLACES_SHOWN_MAX: usize = 10;

/// What each open call may reach. Without a policy of this worker that grants it, nothing.
#[derive(Default)]
pub(in crate::run) struct NetworkGrants {
    worker_policy: Option<Policy>,
    grants_by_call: BTreeMap<CallId, Arc<AllowList>>,
}

impl NetworkGrants {
    /// Creates the grants of a worker with this policy. A run may have begun on another worker, whose grants do not
    /// apply here.
    pub(in crate::run) const fn for_policy(own: Option<Policy>) -> Self {
        Self { worker_policy: own, grants_by_call: BTreeMap::new() }
    }

    /// Recomputes the grants for the open calls.
    pub(in crate::run) fn update_open_calls(&mut self, state: &RunState) {
        self.grants_by_call.clear();
        let Some(own) = &self.worker_policy else { return };
        let policies: Vec<Policy> = state.policies.iter().chain([own]).cloned().collect();
        let pins = state.pins.as_deref();
        let again = |name: &str| {
            let tool = pins.and_then(|pins| pins.external_tool(name));
            tool.is_some_and(|tool| tool.read_only || tool.idempotent)
        };
        let external = state.open_tools.iter().filter(|(open, _)| {
            (open.class == RecoveryClass::External || again(&open.tool))
                && matches!(open.policy, PolicyVerdict::Allow { .. })
        });
        let reach = RuleScope::for_run(state);
        self.grants_by_call.extend(external.filter_map(|(open, tool)| {
            // The class is `external` only if the pinned policies granted it.
            policy::network_grant(&state.policies, tool, reach)?;
            Some((open.call.clone(), Arc::new(policy::network_grant(&policies, tool, reach)?)))
        }));
    }

    /// Returns what a call may reach.
    pub(in crate::run) fn grant_for(&self, call: &CallId) -> Option<Arc<AllowList>> {
        self.grants_by_call.get(call).map(Arc::clone)
    }
}

/// Runs the command of one call with the network it was granted.
pub(in crate::run) struct NetworkRunner<'a> {
    runner: &'a SandboxRunner,
    allow: Arc<AllowList>,
    seen: Mutex<Option<NetworkActivity>>,
}

impl<'a> NetworkRunner<'a> {
    pub(in crate::run) fn new(runner: &'a SandboxRunner, allow: Arc<AllowList>) -> Self {
        Self { runner, allow, seen: Mutex::new(None) }
    }

    /// Returns the command's network activity; `None` if no command ran or there is no sandbox.
    pub(in crate::run) fn into_network_seen(self) -> Option<NetworkActivity> {
        self.seen.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommandRunner for NetworkRunner<'_> {
    fn run(&self, spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async move {
            let (output, seen) = self.runner.run_with_network(spec, Some(Arc::clone(&self.allow))).await?;
            *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = seen;
            Ok(output)
        })
    }
}

/// Renders a call's network activity for the model.
pub(in crate::run) fn format_network_use(seen: &NetworkActivity) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    for one in seen.reached.iter().take(PLACES_SHOWN_MAX) {
        let (place, sent, received) = (&one.place, one.sent_bytes, one.received_bytes);
        let _ = writeln!(out, "network: reached {place}, {sent} bytes sent, {received} received");
    }
    for one in seen.refused.iter().take(PLACES_SHOWN_MAX) {
        let times = if one.times > 1 { format!(", {} times", one.times) } else { String::new() };
        let _ = writeln!(out, "network: refused: {} ({}{times})", one.place, one.why);
    }
    let beyond = |places: usize| places.saturating_sub(PLACES_SHOWN_MAX);
    let more = beyond(seen.reached.len()) + beyond(seen.refused.len()) + seen.left_out as usize;
    if more > 0 {
        let _ = writeln!(out, "network: and {more} more");
    }
    out
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::DecisionHash,
        message::ToolUse,
        policy::{ConnectionKind, HostPort, NetworkPolicy},
        run::{ExternalTool, RunStarted, ToolRequested},
        tool::RefusedHost,
    };

    use super::*;

    fn policy_allowing(hosts: &[&str]) -> Policy {
        let hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        Policy { network: Some(NetworkPolicy { hosts, ..NetworkPolicy::default() }), ..Policy::default() }
    }

    fn state_with_open_call(class: RecoveryClass, policies: Vec<Policy>) -> RunState {
        state_with_open_tool("run_command", class, policies)
    }

    fn state_with_open_tool(name: &str, class: RecoveryClass, policies: Vec<Policy>) -> RunState {
        let call = CallId("t1-0".to_owned());
        let args = serde_json::json!({ "command": "fetch" });
        let tool = ToolUse { call: call.clone(), name: name.to_owned(), args, malformed: None };
        let policy = PolicyVerdict::Allow { rule: "default".to_owned() };
        let (labels, decision) = (Vec::new(), DecisionHash::ZERO);
        let asked = ToolRequested { call, tool: tool.name.clone(), class, policy, labels, decision };
        let mut state = RunState::default();
        state.policies = policies;
        state.open_tools = vec![(asked, tool)];
        state
    }

    #[test]
    fn external_call_gets_only_hosts_listed_by_both_run_and_worker() {
        use RecoveryClass::{External, Workspace};
        let both = policy_allowing(&["a.org", "b.org"]);
        let of = |own: Option<Policy>, class, policies: &[&Policy]| {
            let mut grants = NetworkGrants::for_policy(own);
            grants.update_open_calls(&state_with_open_call(
                class,
                policies.iter().map(|&policy| policy.clone()).collect(),
            ));
            grants.grant_for(&CallId("t1-0".to_owned()))
        };
        let list = of(Some(policy_allowing(&["a.org"])), External, &[&both]).expect("both give it");
        let allows = |host: &str| {
            list.allows(&HostPort::parse(host, Some(443)).expect("a place"), ConnectionKind::Tunnel)
        };
        assert!(allows("a.org") && !allows("b.org"));
        for (own, class, policies) in [
            // The run began on another worker, or is only inspected.
            (None, External, &[&both][..]),
            (Some(Policy::default()), External, &[&both]),
            // The policy was changed after a crash.
            (Some(both.clone()), Workspace, &[&both]),
            // `external` for another reason: the network was not granted when the call was decided.
            (Some(both.clone()), External, &[]),
            (Some(both.clone()), External, &[&both, &Policy::default()]),
        ] {
            assert_eq!(of(own, class, policies), None, "{class:?} {policies:?}");
        }
    }

    /// After a crash, a server's call that was announced without the network is repeated without it.
    #[test]
    fn mcp_call_gets_network_if_external_or_safe_to_repeat() {
        use RecoveryClass::{External, Reads, Workspace};
        let gives = policy_allowing(&["a.org"]);
        for (class, read_only, idempotent, gets) in [
            (External, false, false, true),
            (Workspace, false, false, false),
            (Workspace, false, true, true),
            (Reads, true, false, true),
        ] {
            let mut state = state_with_open_tool("mcp__s__t", class, vec![gives.clone()]);
            let (name, server, tool) = ("mcp__s__t".to_owned(), "s".to_owned(), "t".to_owned());
            let external = ExternalTool { name, server, tool, read_only, idempotent };
            let pins = RunStarted { external: vec![external], ..crate::engine::react_tests::sample_pins() };
            state.pins = Some(Arc::new(pins));
            let mut grants = NetworkGrants::for_policy(Some(gives.clone()));
            grants.update_open_calls(&state);
            assert_eq!(grants.grant_for(&CallId("t1-0".to_owned())).is_some(), gets, "{class:?}");
        }
    }

    #[test]
    fn network_text_names_the_first_places_and_counts_the_rest() {
        let refused = |nth| RefusedHost { place: format!("h{nth}:443"), why: "no".to_owned(), times: nth };
        let seen = NetworkActivity {
            refused: (1..=12).map(refused).collect(),
            left_out: 3,
            ..NetworkActivity::default()
        };
        let told = format_network_use(&seen);
        assert!(
            told.starts_with("network: refused: h1:443 (no)\nnetwork: refused: h2:443 (no, 2 times)\n"),
            "{told}"
        );
        assert!(told.ends_with("h10:443 (no, 10 times)\nnetwork: and 5 more\n"), "{told}");
    }
}
