//! `git_status`: shows the branch, and changed, staged and untracked files.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_status";
pub(crate) const DESCRIPTION: &str = "Shows the branch of the workspace, and which files are changed, staged \
    and untracked, in git's short form.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitStatusArgs {}

impl GitStatusArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        Ok(GitCommand::new("status", &["--short", "--branch", "--ignore-submodules=all"]))
    }
}
