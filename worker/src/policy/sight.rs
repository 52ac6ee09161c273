//! What policies say of names that no call names: files that a search finds, and what lies in a folder that is moved.

use std::sync::Arc;

use docket_schema::{
    message::{CallId, ToolUse},
    policy::{Policy, Rule, Ruling},
    run::RunState,
};
use globset::GlobMatcher;
use serde_json::json;

use super::{
    judge::{DEFAULT, glob_of, is_meant, speaks},
    reach::Reach,
    unit::{Unit, units},
};

/// The policies that a run pinned, as its tools hold names against them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sight {
    policies: Arc<[Policy]>,
    is_older: bool,
}

/// What becomes of what a person would be asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    /// It is not seen, whoever was asked.
    Hides,
    /// Only what rules with paths ask about: a call that shows many files was asked about itself where all are.
    ByPath,
}

impl Sight {
    /// Through these.
    #[must_use]
    pub fn of(policies: &[Policy]) -> Self {
        Self { policies: policies.into(), is_older: false }
    }

    /// What a run goes by.
    #[must_use]
    pub fn in_run(run: &RunState) -> Self {
        match Reach::of(run) {
            Reach::Below => Self::of(&run.policies),
            Reach::Name => Self::older(),
        }
    }

    /// Of a run that began before names were held against anything: its tools do as they did.
    #[must_use]
    pub fn older() -> Self {
        Self { is_older: true, ..Self::default() }
    }

    /// Whether it is of such a run.
    #[must_use]
    pub const fn is_older(&self) -> bool {
        self.is_older
    }

    /// What can be seen of files by all of these tools, each of which reads the file that its `path` names.
    #[must_use]
    pub fn through(&self, tools: &[&str], asking: Asking) -> Looks {
        let each = |tool: &&str| {
            let tool = (*tool).to_owned();
            self.policies.iter().map(move |policy| Look::of(policy, &tool, asking))
        };
        Looks(tools.iter().flat_map(each).collect())
    }

    /// The first of these calls that a rule refuses or asks about, or that none allows where all else is refused, with that
    /// rule's name. `calls` are what a call for a folder, `whole`, comes to for each name in it; a rule that spoke of the
    /// call itself has had its say, and so has what a person answered to it.
    #[must_use]
    pub fn bars<'a>(&self, whole: &ToolUse, calls: &'a [ToolUse]) -> Option<(&'a ToolUse, String)> {
        let folder = units(whole);
        for policy in self.policies.iter() {
            let spoke = |rule: &&Rule| folder.iter().any(|unit| speaks(rule, unit, &whole.name));
            let heard: Vec<&Rule> = policy.rules.iter().filter(spoke).collect();
            for call in calls {
                let units = units(call);
                let barred = units.iter().find_map(|unit| barring(policy, &heard, unit, &call.name));
                if let Some(rule) = barred {
                    return Some((call, rule));
                }
            }
        }
        None
    }
}

/// The rule for which a piece is not done with the folder that it lies in.
fn barring(policy: &Policy, heard: &[&Rule], unit: &Unit, tool: &str) -> Option<String> {
    let speaking = || policy.rules.iter().filter(|rule| speaks(rule, unit, tool));
    let refuses = |rule: &&Rule| {
        rule.verdict != Ruling::Allow && !heard.iter().any(|heard| std::ptr::eq(*heard, *rule))
    };
    if let Some(rule) = speaking().find(refuses) {
        return Some(rule.id.clone());
    }
    // Where nothing spoke of the folder itself either, the default let it through, or a person did.
    let default = policy.default != Ruling::Allow && speaking().next().is_none() && !heard.is_empty();
    default.then(|| DEFAULT.to_owned())
}

/// What can be seen of one file after another: what does not depend on the file is settled once.
#[derive(Debug)]
pub struct Looks(Vec<Look>);

impl Looks {
    /// Whether all is seen.
    #[must_use]
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the file at this path, from the workspace, is. Nobody is asked for one file of many.
    #[must_use]
    pub fn sees(&self, path: &str) -> bool {
        self.0.iter().all(|look| look.ruling(path) == Ruling::Allow)
    }
}

/// One policy through one tool.
#[derive(Debug)]
struct Look {
    default: Ruling,
    /// The rules that may speak, with their globs; none of them = whatever the path.
    rules: Vec<(Rule, Vec<Option<GlobMatcher>>)>,
}

impl Look {
    fn of(policy: &Policy, tool: &str, asking: Asking) -> Self {
        let (call, args) = (CallId::own(0), json!({ "path": "any" }));
        let call = ToolUse { call, name: tool.to_owned(), args, malformed: None };
        let units = units(&call);
        let may_speak = |rule: &&Rule| {
            let anywhere = Rule { paths: Vec::new(), ..(*rule).clone() };
            units.iter().any(|unit| speaks(&anywhere, unit, tool))
        };
        let was_asked = |verdict: Ruling| verdict == Ruling::Ask && asking == Asking::ByPath;
        let counts = |rule: &&Rule| !(was_asked(rule.verdict) && rule.paths.is_empty());
        let globs = |rule: &Rule| rule.paths.iter().map(|glob| glob_of(glob).ok()).collect();
        let speaking = policy.rules.iter().filter(may_speak).filter(counts);
        let rules = speaking.map(|rule| (rule.clone(), globs(rule))).collect();
        Self { default: if was_asked(policy.default) { Ruling::Allow } else { policy.default }, rules }
    }

    fn ruling(&self, path: &str) -> Ruling {
        let speaks = |(rule, globs): &&(Rule, Vec<Option<GlobMatcher>>)| {
            globs.is_empty() || globs.iter().any(|glob| is_meant(rule, glob.as_ref(), path))
        };
        self.rules.iter().filter(speaks).map(|(rule, _)| rule.verdict).max().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        super::{Reach, judge, parse},
        *,
    };

    fn call(name: &str, args: serde_json::Value) -> ToolUse {
        ToolUse { call: CallId::own(0), name: name.to_owned(), args, malformed: None }
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
        fn a_file_is_seen_where_it_may_be_read(
            one in 0..POLICIES.len(), other in 0..POLICIES.len(), path in "(a|secrets|b)(/(a|x))?/(f|g)(\\.key|\\.py)?",
        ) {
            let policies = [parse(POLICIES[one]).expect("a policy"), parse(POLICIES[other]).expect("a policy")];
            let looks = Sight::of(&policies).through(&["read_file"], Asking::Hides);
            let read = judge(&policies, &call("read_file", json!({ "path": path })), Reach::Name);
            prop_assert_eq!(looks.sees(&path), read.ruling == Ruling::Allow);
        }
    }

    /// A person who was asked about a call that shows many files was asked about them; not so where a rule names some.
    #[test]
    fn what_a_person_allowed_is_seen() {
        for (policy, seen, hidden) in [
            ("default = \"ask\"\n", &["a", "infra/b"][..], &[][..]),
            ("[[rules]]\nid = \"r\"\nverdict = \"ask\"\nlabels = [\"reads\"]\n", &["a"], &[]),
            ("[[rules]]\nid = \"r\"\nverdict = \"ask\"\npaths = [\"infra/**\"]\n", &["a"], &["infra/b"]),
            ("[[rules]]\nid = \"r\"\nverdict = \"deny\"\ntools = [\"read_file\"]\n", &[], &["a"]),
            ("default = \"deny\"\n", &[], &["a"]),
        ] {
            let sight = Sight::of(&[parse(policy).expect("a policy")]);
            let looks = sight.through(&["search_codebase", "read_file"], Asking::ByPath);
            assert!(seen.iter().all(|path| looks.sees(path)), "{policy}");
            assert!(!hidden.iter().any(|path| looks.sees(path)), "{policy}");
        }
    }

    #[test]
    fn what_lies_in_a_folder_is_held_against_rules_that_did_not_speak_of_it() {
        let whole = |path: &str| call("delete_file", json!({ "path": path, "recursive": true }));
        let below = |paths: &[&str]| paths.iter().map(|path| whole(path)).collect::<Vec<_>>();
        let bars = |policy: &str, folder: &str, paths: &[&str]| {
            let sight = Sight::of(&[parse(policy).expect("a policy")]);
            sight.bars(&whole(folder), &below(paths)).map(|(call, rule)| (call.args["path"].clone(), rule))
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
