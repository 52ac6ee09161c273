//! `git_status`: branch, and what is changed, staged and untracked.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::Git;

pub(crate) const NAME: &str = "git_status";
pub(crate) const DESCRIPTION: &str = "Shows the branch of the workspace, and which files are changed, staged \
    and untracked, in git's short form.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {}

impl Args {
    pub(crate) fn git(&self) -> Result<Git, String> {
        Ok(Git::new("status", &["--short", "--branch", "--ignore-submodules=all"]))
    }
}
