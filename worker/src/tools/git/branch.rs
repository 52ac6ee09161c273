//! `git_branch`: lists branches, makes one, or removes one that is merged.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_branch";
pub(in super::super) const DESCRIPTION: &str = "Lists the branches of the workspace's repository; makes one where name \
    is given, or deletes it where it is merged.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// The branch; without it branches are listed.
    #[serde(default)]
    name: Option<String>,
    /// Where a new one begins; HEAD where it is left out.
    #[serde(default)]
    from: Option<String>,
    /// Delete it, where another branch has its commits.
    #[serde(default)]
    delete: Option<bool>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        let git = Git::new("branch", &["--no-color"]);
        match (&self.name, &self.from, self.delete == Some(true)) {
            (None, None, false) => Ok(git.word("--list").word("--verbose")),
            (None, _, _) => Err("give `name`, the branch".to_owned()),
            (Some(name), from, false) => {
                let git = git.word("--no-track").rev("name", name)?;
                match from {
                    Some(from) => git.rev("from", from),
                    None => Ok(git),
                }
            }
            (Some(name), None, true) => git.word("-d").rev("name", name),
            (Some(_), Some(_), true) => Err("`from` and `delete` do not go together".to_owned()),
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
    fn branches_are_made_listed_and_removed_where_nothing_is_lost() {
        let mut w = repository(&[("a", "1\n")]);
        assert!(!w.call(NAME, json!({"name": "fix/one"})).is_error);
        assert!(!w.call(NAME, json!({"name": "two", "from": "main"})).is_error);
        let list = w.call(NAME, json!({}));
        assert!(list.text().contains("  fix/one") && list.text().contains("* main"), "{}", list.text());
        assert!(!w.call(NAME, json!({"name": "two", "delete": true})).is_error);
        w.call("git_checkout", json!({"branch": "fix/one"}));
        w.write("a", "2\n");
        w.call("git_commit", json!({"message": "only here", "all": true}));
        w.call("git_checkout", json!({"branch": "main"}));
        let out = w.call(NAME, json!({"name": "fix/one", "delete": true}));
        assert!(out.is_error && out.text().contains("not fully merged"), "{}", out.text());
        for args in [json!({"name": "main"}), json!({"name": "a..b"}), json!({"delete": true})] {
            assert!(w.call(NAME, args.clone()).is_error, "{args}");
        }
    }
}
