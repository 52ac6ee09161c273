//! `git_add`: stages files.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_add";
pub(crate) const DESCRIPTION: &str = "Stages files as they are now, deleted ones included, for git_commit. \
    What the ignore files name is left out.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitAddArgs {
    /// Files and folders, relative to the workspace; `.` is all of it.
    #[schemars(length(min = 1))]
    paths: Vec<String>,
}

impl GitAddArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        GitCommand::new("add", &["--all"]).with_paths(&self.paths)
    }
}
