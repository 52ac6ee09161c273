//! `git_diff`: what changed, in the work tree, in the index, or between commits.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_diff";
pub(in super::super) const DESCRIPTION: &str = "Shows changes as a unified diff: of the work tree against what is \
    staged; staged ones against the last commit; or against or between commits.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// Only this file or folder, relative to the workspace.
    #[serde(default)]
    path: Option<String>,
    /// What is staged, in place of what is not.
    #[serde(default)]
    staged: Option<bool>,
    /// A commit or branch to compare with.
    #[serde(default)]
    from: Option<String>,
    /// A second one: what changed from the first to it.
    #[serde(default)]
    to: Option<String>,
    /// Only how many lines changed in each file.
    #[serde(default)]
    stat: Option<bool>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        let mut git =
            Git::new("diff", &["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"]);
        if self.stat == Some(true) {
            git = git.word("--stat=120");
        }
        if self.staged == Some(true) {
            if self.to.is_some() {
                return Err("`staged` and `to` were both given: give one of them".to_owned());
            }
            git = git.word("--cached");
        }
        match (&self.from, &self.to) {
            (Some(from), None) => git = git.rev("from", from)?,
            (Some(from), Some(to)) => git = git.rev("from", from)?.rev("to", to)?,
            (None, Some(_)) => return Err("`to` was given without `from`".to_owned()),
            (None, None) => {}
        }
        git.paths(self.path.as_slice())
    }
}

pub(in super::super) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    match args.git() {
        Ok(git) => git.run(context, NAME, Leaves::Nothing).await,
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::call::tests::repository, *};

    #[test]
    fn each_pair_of_places_is_compared() {
        let mut w = repository(&[("a", "1\n"), ("-b", "1\n"), ("*", "1\n")]);
        w.write("a", "2\n");
        w.call("git_add", json!({"paths": ["a"]}));
        w.write("a", "3\n");
        w.write("-b", "3\n");
        let mut diff = |args: serde_json::Value| w.call(NAME, args).text().into_owned();
        assert!(diff(json!({"path": "a"})).contains("-2\n+3\n"));
        assert!(diff(json!({"staged": true})).contains("-1\n+2\n"));
        assert!(diff(json!({"from": "HEAD", "path": "a"})).contains("-1\n+3\n"));
        assert!(diff(json!({"path": "-b"})).contains("-1\n+3\n"));
        // A path is a name, not a pattern.
        assert_eq!(diff(json!({"path": "*"})), "exit status 0\n");
        assert!(diff(json!({"stat": true})).contains("2 files changed"));
        assert!(diff(json!({"to": "HEAD"})).contains("without `from`"));
        assert!(diff(json!({"from": "nowhere"})).contains("exit status 128"));
    }

    #[test]
    fn a_long_diff_is_kept_whole() {
        let mut w = repository(&[("a", "")]);
        w.write("a", "a line that is added\n".repeat(2000));
        let out = w.call(NAME, json!({}));
        assert!(out.content.len() < 5000 && out.full.is_some_and(|full| full.len() > 40_000));
    }
}
