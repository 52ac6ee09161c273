//! `git_checkout`: another branch, or files as they were.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_checkout";
pub(in super::super) const DESCRIPTION: &str = "Switches the workspace to a branch, which it may make; or puts files \
    back as they are in the index or in a commit, whatever was changed in them.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// The branch to switch to. Changes that it would write over are not lost: git refuses.
    #[serde(default)]
    branch: Option<String>,
    /// Make the branch first, from HEAD.
    #[serde(default)]
    create: Option<bool>,
    /// In place of a branch: files and folders to put back, relative to the workspace.
    #[serde(default)]
    paths: Option<Vec<String>>,
    /// The commit that files are put back from; the index where it is left out.
    #[serde(default)]
    from: Option<String>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        match (&self.branch, &self.paths) {
            (Some(branch), None) => {
                if self.from.is_some() {
                    return Err("`from` goes with `paths`".to_owned());
                }
                let git = Git::new("checkout", &["--no-recurse-submodules", "--no-guess"]);
                let git = if self.create == Some(true) { git.word("-b") } else { git };
                // Behind `--` nothing is taken for a file.
                git.rev("branch", branch)?.paths(&[])
            }
            (None, Some(paths)) if !paths.is_empty() => {
                let mut git = Git::new("checkout", &["--no-recurse-submodules"]);
                if let Some(from) = &self.from {
                    git = git.rev("from", from)?;
                }
                git.paths(paths)?.writing(paths)
            }
            (Some(_), Some(_)) => Err("`branch` and `paths` were both given: give one of them".to_owned()),
            (None, _) => Err("give `branch`, or `paths` to put back".to_owned()),
        }
    }
}

pub(in super::super) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    match args.git() {
        Ok(git) => git.run(context, NAME, Leaves::Changes).await,
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::call::tests::repository, *};

    #[test]
    fn branches_are_switched_and_no_change_is_lost_by_it() {
        let mut w = repository(&[("a", "1\n")]);
        let out = w.call(NAME, json!({"branch": "other", "create": true}));
        assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
        w.write("a", "2\n");
        w.call("git_commit", json!({"message": "two", "all": true}));
        assert!(!w.call(NAME, json!({"branch": "main"})).is_error);
        assert_eq!(w.read("a"), "1\n");
        w.write("a", "mine\n");
        let out = w.call(NAME, json!({"branch": "other"}));
        assert!(out.is_error && out.text().contains("would be overwritten"), "{}", out.text());
        assert_eq!(w.read("a"), "mine\n");
        // A file's name is no branch.
        assert!(w.call(NAME, json!({"branch": "a"})).is_error);
        assert_eq!(w.read("a"), "mine\n");
    }

    #[test]
    fn files_are_put_back_from_the_index_or_a_commit() {
        let mut w = repository(&[("a", "1\n"), ("b", "1\n")]);
        w.write("a", "2\n");
        w.write("b", "2\n");
        w.call("git_commit", json!({"message": "two", "all": true}));
        w.write("a", "3\n");
        assert!(!w.call(NAME, json!({"paths": ["a"]})).is_error);
        assert!(!w.call(NAME, json!({"paths": ["b"], "from": "HEAD~1"})).is_error);
        assert_eq!((w.read("a").as_str(), w.read("b").as_str()), ("2\n", "1\n"));
        for args in [
            json!({"paths": ["a"], "branch": "main"}),
            json!({"paths": []}),
            json!({"branch": "main", "from": "HEAD"}),
            json!({"paths": ["nowhere"]}),
        ] {
            assert!(w.call(NAME, args.clone()).is_error, "{args}");
        }
    }
}
