//! Path visibility: applies path rules to files that a call reaches without naming them (search hits, children of a
//! moved folder).

use std::sync::Arc;

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, PolicyRule, RuleVerdict},
    run::RunState,
};
use globset::GlobMatcher;
use serde_json::json;

use super::{
    call_parts::{CallPart, call_parts},
    evaluate::{DEFAULT_RULE, compile_glob, glob_matches, rule_matches},
    rule_scope::RuleScope,
};

/// A run's pinned policies, as its tools check paths against them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathVisibility {
    policies: Arc<[Policy]>,
    is_legacy: bool,
}

/// Visibility of files that need a person's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskVisibility {
    /// Hidden, even if a person approved the call.
    Hidden,
    /// Hidden only if a rule with paths asks: a rule without paths already asked about the call that shows many
    /// files.
    HiddenByPathRules,
}

impl PathVisibility {
    #[must_use]
    pub fn new(policies: &[Policy]) -> Self {
        Self { policies: policies.into(), is_legacy: false }
    }

    /// The visibility rules that apply to a run.
    #[must_use]
    pub fn for_run(run: &RunState) -> Self {
        match RuleScope::for_run(run) {
            RuleScope::Descendants => Self::new(&run.policies),
            RuleScope::NamedPaths => Self::for_legacy_run(),
        }
    }

    /// For a run that began before path visibility existed: its tools behave as they did then.
    #[must_use]
    pub fn for_legacy_run() -> Self {
        Self { is_legacy: true, ..Self::default() }
    }

    /// Whether this belongs to such a run.
    #[must_use]
    pub const fn is_legacy(&self) -> bool {
        self.is_legacy
    }

    /// Builds a filter for files that all of these tools may show; each of them reads the file that its `path` names.
    #[must_use]
    pub fn filter_for(&self, tools: &[&str], asking: AskVisibility) -> VisibilityFilter {
        let each = |tool: &&str| {
            let tool = (*tool).to_owned();
            self.policies.iter().map(move |policy| PolicyFilter::new(policy, &tool, asking))
        };
        VisibilityFilter(tools.iter().flat_map(each).collect())
    }

    /// Returns the first of these calls that a rule denies or asks about, or that no rule allows although the default
    /// does not, with the rule's name. `calls` are the calls that the folder call `whole` amounts to, one per path in
    /// it. A rule that already matched the folder call itself was decided there, possibly by a person, and is not
    /// applied again.
    #[must_use]
    pub fn first_barred_call<'a>(
        &self,
        whole: &ToolUse,
        calls: &'a [ToolUse],
    ) -> Option<(&'a ToolUse, String)> {
        let folder = call_parts(whole);
        for policy in self.policies.iter() {
            let spoke = |rule: &&PolicyRule| folder.iter().any(|unit| rule_matches(rule, unit, &whole.name));
            let heard: Vec<&PolicyRule> = policy.rules.iter().filter(spoke).collect();
            for call in calls {
                let units = call_parts(call);
                let barred = units.iter().find_map(|unit| barring_rule(policy, &heard, unit, &call.name));
                if let Some(rule) = barred {
                    return Some((call, rule));
                }
            }
        }
        None
    }
}

/// Returns the rule that excludes a part from a call on the folder it is in.
fn barring_rule(policy: &Policy, heard: &[&PolicyRule], unit: &CallPart, tool: &str) -> Option<String> {
    let speaking = || policy.rules.iter().filter(|rule| rule_matches(rule, unit, tool));
    let refuses = |rule: &&PolicyRule| {
        rule.verdict != RuleVerdict::Allow && !heard.iter().any(|heard| std::ptr::eq(*heard, *rule))
    };
    if let Some(rule) = speaking().find(refuses) {
        return Some(rule.id.clone());
    }
    // If no rule matched the folder either, it was allowed by the default or by a person.
    let default = policy.default != RuleVerdict::Allow && speaking().next().is_none() && !heard.is_empty();
    default.then(|| DEFAULT_RULE.to_owned())
}

/// Filters files one by one; everything that does not depend on the file is computed once.
#[derive(Debug)]
pub struct VisibilityFilter(Vec<PolicyFilter>);

impl VisibilityFilter {
    #[must_use]
    pub fn shows_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file at this workspace path is visible. Approval is never requested for a single file of many.
    #[must_use]
    pub fn is_visible(&self, path: &str) -> bool {
        self.0.iter().all(|look| look.ruling_for(path) == RuleVerdict::Allow)
    }
}

/// One policy applied through one tool.
#[derive(Debug)]
struct PolicyFilter {
    default: RuleVerdict,
    /// The rules that may match, with their compiled globs; without globs a rule matches any path.
    rules: Vec<(PolicyRule, Vec<Option<GlobMatcher>>)>,
}

impl PolicyFilter {
    fn new(policy: &Policy, tool: &str, asking: AskVisibility) -> Self {
        let (call, args) = (CallId::for_runtime(0), json!({ "path": "any" }));
        let call = ToolUse { call, name: tool.to_owned(), args, malformed: None };
        let units = call_parts(&call);
        let may_speak = |rule: &&PolicyRule| {
            let anywhere = PolicyRule { paths: Vec::new(), ..(*rule).clone() };
            units.iter().any(|unit| rule_matches(&anywhere, unit, tool))
        };
        let was_asked =
            |verdict: RuleVerdict| verdict == RuleVerdict::Ask && asking == AskVisibility::HiddenByPathRules;
        let counts = |rule: &&PolicyRule| !(was_asked(rule.verdict) && rule.paths.is_empty());
        let globs = |rule: &PolicyRule| rule.paths.iter().map(|glob| compile_glob(glob).ok()).collect();
        let speaking = policy.rules.iter().filter(may_speak).filter(counts);
        let rules = speaking.map(|rule| (rule.clone(), globs(rule))).collect();
        Self { default: if was_asked(policy.default) { RuleVerdict::Allow } else { policy.default }, rules }
    }

    fn ruling_for(&self, path: &str) -> RuleVerdict {
        let speaks = |(rule, globs): &&(PolicyRule, Vec<Option<GlobMatcher>>)| {
            globs.is_empty() || globs.iter().any(|glob| glob_matches(rule, glob.as_ref(), path))
        };
        self.rules.iter().filter(speaks).map(|(rule, _)| rule.verdict).max().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{RuleScope, evaluate_policies, parse_policy_text},
        *,
    };

    fn call(name: &str, args: serde_json::Value) -> ToolUse {
        ToolUse { call: CallId::for_runtime(0), name: name.to_owned(), args, malformed: None }
    }

    const POLICIES: [&str; 5] = [
        "[[rules]]\nid = \"s\"\nverdict = \"deny\"\npaths = [\"secrets/**\", \"*.key\"]\n",
        "[[rules]]\nid = \"s\"\nverdict = \"ask\"\ntools = [\"read_file\"]\npaths = [\"a/*\"]\n",
        "default = \"deny\"\n[[rules]]\nid = \"l\"\nverdict = \"allow\"\ntools = [\"read_file\", \"search_codebase\"]\npaths = [\"a/**\"]\n",
        "default = \"ask\"\n[[rules]]\nid = \"r\"\nverdict = \"allow\"\nlabels = [\"reads\"]\n",
        "[[rules]]\nid = \"c\"\nverdict = \"deny\"\ncommands = [\"cat *\"]\n",
    ];

    proptest! {
        /// A file is visible exactly if a call that reads it alone would be allowed.
        #[test]
        fn readable_files_are_visible(
            one in 0..POLICIES.len(), other in 0..POLICIES.len(), path in "(a|secrets|b)(/(a|x))?/(f|g)(\\.key|\\.py)?",
        ) {
            let policies = [parse_policy_text(POLICIES[one]).expect("a policy"), parse_policy_text(POLICIES[other]).expect("a policy")];
            let looks = PathVisibility::new(&policies).filter_for(&["read_file"], AskVisibility::Hidden);
            let read = evaluate_policies(&policies, &call("read_file", json!({ "path": path })), RuleScope::NamedPaths);
            prop_assert_eq!(looks.is_visible(&path), read.ruling == RuleVerdict::Allow);
        }
    }

    /// A person who approved a call that shows many files approved those files too, unless a rule names some of them.
    #[test]
    fn files_a_person_approved_are_visible() {
        for (policy, seen, hidden) in [
            ("default = \"ask\"\n", &["a", "infra/b"][..], &[][..]),
            ("[[rules]]\nid = \"r\"\nverdict = \"ask\"\nlabels = [\"reads\"]\n", &["a"], &[]),
            ("[[rules]]\nid = \"r\"\nverdict = \"ask\"\npaths = [\"infra/**\"]\n", &["a"], &["infra/b"]),
            ("[[rules]]\nid = \"r\"\nverdict = \"deny\"\ntools = [\"read_file\"]\n", &[], &["a"]),
            ("default = \"deny\"\n", &[], &["a"]),
        ] {
            let sight = PathVisibility::new(&[parse_policy_text(policy).expect("a policy")]);
            let looks = sight.filter_for(&["search_codebase", "read_file"], AskVisibility::HiddenByPathRules);
            assert!(seen.iter().all(|path| looks.is_visible(path)), "{policy}");
            assert!(!hidden.iter().any(|path| looks.is_visible(path)), "{policy}");
        }
    }

    #[test]
    fn folder_contents_are_checked_against_rules_that_did_not_match_the_folder() {
        let whole = |path: &str| call("delete_file", json!({ "path": path, "recursive": true }));
        let below = |paths: &[&str]| paths.iter().map(|path| whole(path)).collect::<Vec<_>>();
        let bars = |policy: &str, folder: &str, paths: &[&str]| {
            let sight = PathVisibility::new(&[parse_policy_text(policy).expect("a policy")]);
            sight
                .first_barred_call(&whole(folder), &below(paths))
                .map(|(call, rule)| (call.args["path"].clone(), rule))
        };
        let terraform = "[[rules]]\nid = \"tf\"\nverdict = \"ask\"\npaths = [\"*.tf\"]\n";
        assert_eq!(
            bars(terraform, "x", &["x/a", "x/b/main.tf"]),
            Some((json!("x/b/main.tf"), "tf".to_owned()))
        );
        assert_eq!(bars(terraform, "x", &["x/a"]), None);
        // The folder call was approved already, or allowed by name.
        let deletes = "[[rules]]\nid = \"d\"\nverdict = \"ask\"\nlabels = [\"deletes\"]\n";
        assert_eq!(bars(deletes, "x", &["x/a"]), None);
        let infra = "[[rules]]\nid = \"i\"\nverdict = \"ask\"\npaths = [\"infra/**\"]\n";
        assert_eq!(bars(infra, "infra", &["infra/a"]), None);
        let list = "default = \"deny\"\n[[rules]]\nid = \"n\"\nverdict = \"allow\"\npaths = [\"notes/*\"]\n";
        assert_eq!(bars(list, "notes/a", &["notes/a/b"]), Some((json!("notes/a/b"), "default".to_owned())));
        let config = "[[rules]]\nid = \"c\"\nverdict = \"deny\"\nlabels = [\"config\"]\n";
        assert_eq!(bars(config, "x", &["x/package.json"]), Some((json!("x/package.json"), "c".to_owned())));
    }
}
