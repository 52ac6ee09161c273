//! What policies say of names that no call names: files that a search finds, and what lies in a folder that is moved.

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

/// The policies that a run pinned, as its tools hold names against them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathVisibility {
    policies: Arc<[Policy]>,
    is_legacy: bool,
}

/// What becomes of what a person would be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AskVisibility {
    /// It is not seen, whoever was asked.
    Hidden,
    /// Only what rules with paths ask about: a call that shows many files was asked about itself where all are.
    HiddenByPathRules,
}

impl PathVisibility {
    /// Through these.
    #[must_use]
    pub fn new(policies: &[Policy]) -> Self {
        Self { policies: policies.into(), is_legacy: false }
    }

    /// What a run goes by.
    #[must_use]
    pub fn for_run(run: &RunState) -> Self {
        match RuleScope::for_run(run) {
            RuleScope::Descendants => Self::new(&run.policies),
            RuleScope::NamedPaths => Self::for_legacy_run(),
        }
    }

    /// Of a run that began before names were held against anything: its tools do as they did.
    #[must_use]
    pub fn for_legacy_run() -> Self {
        Self { is_legacy: true, ..Self::default() }
    }

    /// Whether it is of such a run.
    #[must_use]
    pub const fn is_legacy(&self) -> bool {
        self.is_legacy
    }

    /// What can be seen of files by all of these tools, each of which reads the file that its `path` names.
    #[must_use]
    pub fn filter_for(&self, tools: &[&str], asking: AskVisibility) -> VisibilityFilter {
        let each = |tool: &&str| {
            let tool = (*tool).to_owned();
            self.policies.iter().map(move |policy| PolicyFilter::new(policy, &tool, asking))
        };
        VisibilityFilter(tools.iter().flat_map(each).collect())
    }

    /// The first of these calls that a rule refuses or asks about, or that none allows where all else is refused, with that
    /// rule's name. `calls` are what a call for a folder, `whole`, comes to for each name in it; a rule that spoke of the
    /// call itself has had its say, and so has what a person answered to it.
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

/// The rule for which a piece is not done with the folder that it lies in.
fn barring_rule(policy: &Policy, heard: &[&PolicyRule], unit: &CallPart, tool: &str) -> Option<String> {
    let speaking = || policy.rules.iter().filter(|rule| rule_matches(rule, unit, tool));
    let refuses = |rule: &&PolicyRule| {
        rule.verdict != RuleVerdict::Allow && !heard.iter().any(|heard| std::ptr::eq(*heard, *rule))
    };
    if let Some(rule) = speaking().find(refuses) {
        return Some(rule.id.clone());
    }
    // Where nothing spoke of the folder itself either, the default let it through, or a person did.
    let default = policy.default != RuleVerdict::Allow && speaking().next().is_none() && !heard.is_empty();
    default.then(|| DEFAULT_RULE.to_owned())
}

/// What can be seen of one file after another: what does not depend on the file is settled once.
#[derive(Debug)]
pub struct VisibilityFilter(Vec<PolicyFilter>);

impl VisibilityFilter {
    /// Whether all is seen.
    #[must_use]
    pub fn shows_everything(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file at this path, from the workspace, is. Nobody is asked for one file of many.
    #[must_use]
    pub fn is_visible(&self, path: &str) -> bool {
        self.0.iter().all(|look| look.ruling_for(path) == RuleVerdict::Allow)
    }
}

/// One policy through one tool.
#[derive(Debug)]
struct PolicyFilter {
    default: RuleVerdict,
    /// The rules that may speak, with their globs; none of them = whatever the path.
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
        super::{RuleScope, evaluate, parse_policy_text},
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
        /// A file is seen where the call that reads it alone would be let through, and nowhere else.
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

    /// A person who was asked about a call that shows many files was asked about them; not so where a rule names some.
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
        // It was asked about already, or let through by name.
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
