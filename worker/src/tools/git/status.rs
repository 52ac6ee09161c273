//! `git_status`: branch, and what is changed, staged and untracked.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_status";
pub(in super::super) const DESCRIPTION: &str = "Shows the branch of the workspace, and which files are changed, staged \
    and untracked, in git's short form.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(git().line())
    }
}

fn git() -> Git {
    Git::new("status", &["--short", "--branch", "--ignore-submodules=all"])
}

pub(in super::super) async fn run(context: ToolContext<'_>, _: Args) -> ToolOutcome {
    git().run(context, NAME, Leaves::Nothing).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::call::tests::repository, *};

    #[test]
    fn what_is_staged_changed_and_untracked_is_told() {
        let mut w = repository(&[("a", "1\n"), ("b", "1\n")]);
        assert_eq!(w.call(NAME, json!({})).text(), "exit status 0\nstdout:\n## main\n");
        w.write("a", "2\n");
        w.write("b", "2\n");
        w.write("c", "2\n");
        w.call("git_add", json!({"paths": ["a"]}));
        let out = w.call(NAME, json!({}));
        assert_eq!(out.text(), "exit status 0\nstdout:\n## main\nM  a\n M b\n?? c\n");
        assert!(!out.facts.may_have_changed_tree);
    }

    #[test]
    fn a_workspace_without_a_repository_is_told_so() {
        let mut w = super::super::super::testing::Workspace::new(&[]);
        let out = w.call(NAME, json!({}));
        assert!(out.is_error && out.text().contains("not a git repository"), "{}", out.text());
    }
}
