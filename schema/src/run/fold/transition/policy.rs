//! A policy that is changed while its run works.

use crate::policy::Policy;
use crate::run::{events::inbox::PolicyChanged, state::run_state::RunState};

impl RunState {
    pub(super) fn policy_changed(&mut self, event: PolicyChanged) {
        self.policy = Some(event.policy);
        match event.rules {
            Some(rules) if event.of_task && self.pins.is_none() => self.policy_wanted = Some(rules),
            Some(rules) if event.of_task => self.tasks_policy(rules),
            rules => self.policies = rules.into_iter().collect(),
        }
    }

    /// The first policy is the worker's, and no other ever widens it: where it has none that stands there, too.
    pub(super) fn tasks_policy(&mut self, rules: Policy) {
        self.policies.truncate(1);
        if self.policies.is_empty() {
            self.policies.push(Policy::default());
        }
        self.policies.push(rules);
        self.permits.forget_rules();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{
        events::event::RunEvent,
        tests::{folded, started},
    };
    use crate::{content::BlobRef, policy::Ruling};

    fn policy(default: Ruling) -> Policy {
        Policy { default, ..Policy::default() }
    }

    fn changed(default: Ruling, of_task: bool) -> RunEvent {
        let rules = Some(policy(default));
        PolicyChanged { policy: BlobRef::of(b"policy"), rules, of_task, by: String::new() }.into()
    }

    /// A start with these policies pinned.
    fn start(policies: &[Ruling]) -> RunEvent {
        let RunEvent::RunStarted(mut start) = started() else { panic!("a start") };
        start.policies = policies.iter().map(|default| policy(*default)).collect();
        start.into()
    }

    #[test]
    fn a_tasks_policy_is_replaced_and_a_workers_never() {
        use Ruling::{Allow, Ask, Deny};
        let cases: [(&[RunEvent], &[Ruling]); 7] = [
            (&[start(&[])], &[]),
            (&[start(&[]), changed(Ask, true)], &[Allow, Ask]),
            (&[start(&[Deny]), changed(Ask, true)], &[Deny, Ask]),
            (&[start(&[Deny, Allow]), changed(Ask, true)], &[Deny, Ask]),
            (&[start(&[Deny]), changed(Ask, true), changed(Allow, true)], &[Deny, Allow]),
            // It was said before the worker began.
            (&[changed(Ask, true), start(&[Deny, Allow])], &[Deny, Ask]),
            // As logs have it from before a task had a policy of its own.
            (&[start(&[Deny]), changed(Ask, false)], &[Ask]),
        ];
        for (events, expected) in cases {
            let events: Vec<(u32, RunEvent)> = events.iter().cloned().map(|event| (0, event)).collect();
            let found: Vec<Ruling> = folded(&events).policies.iter().map(|policy| policy.default).collect();
            assert_eq!(found, expected, "{events:?}");
        }
    }

    #[test]
    fn what_was_always_allowed_is_asked_again_under_another_policy() {
        use crate::{content::Content, message::CallId, run::AboutCall};
        let mut state = folded(&[(0, start(&[Ruling::Allow]))]);
        let about = AboutCall { call: CallId("t1-0".to_owned()), rule: "r".to_owned() };
        state.permits.record(about, &Content::Text("always".to_owned())).expect("an answer");
        assert!(state.permits.always("r"));
        state.tasks_policy(policy(Ruling::Ask));
        assert!(!state.permits.always("r"));
    }
}
