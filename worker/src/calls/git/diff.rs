//! `git_diff`: what changed, in the work tree, in the index, or between commits.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::Git;

pub(crate) const NAME: &str = "git_diff";
pub(crate) const DESCRIPTION: &str = "Shows changes as a unified diff: of the work tree against what is \
    staged; staged ones against the last commit; or against or between commits.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
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
    pub(crate) fn git(&self) -> Result<Git, String> {
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
