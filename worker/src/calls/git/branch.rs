//! `git_branch`: lists branches, creates one, or deletes a merged one.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_branch";
pub(crate) const DESCRIPTION: &str = "Lists the branches of the workspace's repository; makes one where name \
    is given, or deletes it where it is merged.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitBranchArgs {
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

impl GitBranchArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        let git = GitCommand::new("branch", &["--no-color"]);
        match (&self.name, &self.from, self.delete == Some(true)) {
            (None, None, false) => Ok(git.with_arg("--list").with_arg("--verbose")),
            (None, _, _) => Err("give `name`, the branch".to_owned()),
            (Some(name), from, false) => {
                let git = git.with_arg("--no-track").with_revision("name", name)?;
                match from {
                    Some(from) => git.with_revision("from", from),
                    None => Ok(git),
                }
            }
            (Some(name), None, true) => git.with_arg("-d").with_revision("name", name),
            (Some(_), Some(_), true) => Err("`from` and `delete` do not go together".to_owned()),
        }
    }
}
