//! `git_diff`: shows changes in the work tree, in the index, or between commits.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_diff";
pub(crate) const DESCRIPTION: &str = "Shows changes as a unified diff: of the work tree against what is \
    staged; staged ones against the last commit; or against or between commits.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitDiffArgs {
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

impl GitDiffArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        let mut git = GitCommand::new(
            "diff",
            &["--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=all"],
        );
        if self.stat == Some(true) {
            git = git.with_arg("--stat=120");
        }
        if self.staged == Some(true) {
            if self.to.is_some() {
                return Err("`staged` and `to` were both given: give one of them".to_owned());
            }
            git = git.with_arg("--cached");
        }
        match (&self.from, &self.to) {
            (Some(from), None) => git = git.with_revision("from", from)?,
            (Some(from), Some(to)) => git = git.with_revision("from", from)?.with_revision("to", to)?,
            (None, Some(_)) => return Err("`to` was given without `from`".to_owned()),
            (None, None) => {}
        }
        git.with_paths(self.path.as_slice())
    }
}
