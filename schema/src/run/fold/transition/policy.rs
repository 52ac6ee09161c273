//! Policy changes during a run.

use crate::policy::Policy;
use crate::run::{events::control_events::PolicyChanged, state::run_state::RunState};

impl RunState {
    pub(super) fn apply_policy_changed(&mut self, event: PolicyChanged) {
        self.policy = Some(event.policy);
        match event.rules {
            Some(rules) if event.of_task && self.pins.is_none() => self.requested_policy = Some(rules),
            Some(rules) if event.of_task => self.replace_task_policy(rules),
            rules => self.policies = rules.into_iter().collect(),
        }
    }

    /// Replaces the task's policy. `policies[0]` is always the worker's and is kept (the default if it has
    /// none), so a task can only restrict it.
    pub(super) fn replace_task_policy(&mut self, rules: Policy) {
        self.policies.truncate(1);
        if self.policies.is_empty() {
            self.policies.push(Policy::default());
        }
        self.policies.push(rules);
        self.approvals.clear_rules();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{
        events::run_event::RunEvent,
        tests::{fold_events, run_started},
    };
    use crate::{content::BlobRef, policy::RuleVerdict};

    fn policy(default: RuleVerdict) -> Policy {
        Policy { default, ..Policy::default() }
    }

    fn policy_changed(default: RuleVerdict, of_task: bool) -> RunEvent {
        let rules = Some(policy(default));
        PolicyChanged { policy: BlobRef::for_bytes(b"policy"), rules, of_task, by: String::new() }.into()
    }

    /// Returns a start event with these policies pinned.
    fn run_started_with(policies: &[RuleVerdict]) -> RunEvent {
        let RunEvent::RunStarted(mut start) = run_started() else { panic!("a start") };
        start.policies = policies.iter().map(|default| policy(*default)).collect();
        start.into()
    }

    #[test]
    fn task_policy_is_replaced_but_worker_policy_never_is() {
        use RuleVerdict::{Allow, Ask, Deny};
        let cases: [(&[RunEvent], &[RuleVerdict]); 7] = [
            (&[run_started_with(&[])], &[]),
            (&[run_started_with(&[]), policy_changed(Ask, true)], &[Allow, Ask]),
            (&[run_started_with(&[Deny]), policy_changed(Ask, true)], &[Deny, Ask]),
            (&[run_started_with(&[Deny, Allow]), policy_changed(Ask, true)], &[Deny, Ask]),
            (
                &[run_started_with(&[Deny]), policy_changed(Ask, true), policy_changed(Allow, true)],
                &[Deny, Allow],
            ),
            // Changed before the worker started the run.
            (&[policy_changed(Ask, true), run_started_with(&[Deny, Allow])], &[Deny, Ask]),
            // Logs from before tasks had their own policy.
            (&[run_started_with(&[Deny]), policy_changed(Ask, false)], &[Ask]),
        ];
        for (events, expected) in cases {
            let events: Vec<(u32, RunEvent)> = events.iter().cloned().map(|event| (0, event)).collect();
            let found: Vec<RuleVerdict> =
                fold_events(&events).policies.iter().map(|policy| policy.default).collect();
            assert_eq!(found, expected, "{events:?}");
        }
    }

    #[test]
    fn rule_approvals_end_when_the_policy_changes() {
        use crate::{content::Content, message::CallId, run::BlockedCall};
        let mut state = fold_events(&[(0, run_started_with(&[RuleVerdict::Allow]))]);
        let about = BlockedCall { call: CallId("t1-0".to_owned()), rule: "r".to_owned() };
        state.approvals.record(about, &Content::Text("always".to_owned())).expect("an answer");
        assert!(state.approvals.is_rule_approved("r"));
        state.replace_task_policy(policy(RuleVerdict::Ask));
        assert!(!state.approvals.is_rule_approved("r"));
    }
}
