//! `git_commit`: commits the staged changes in docket's name.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_commit";
pub(crate) const DESCRIPTION: &str = "Commits what is staged, in the workspace's own repository. The result \
    of the task is the work tree: it is kept whether it is committed or not.";

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitCommitArgs {
    /// The message: a title, and a body behind an empty line if there is more to say.
    message: String,
    /// Stage changed and deleted files first; new ones need git_add.
    #[serde(default)]
    all: Option<bool>,
}

impl GitCommitArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        let message = self.message.trim();
        if message.is_empty() || message.contains('\0') {
            return Err("`message` is empty, or holds a NUL character".to_owned());
        }
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(format!("`message` has {} bytes, more than {MESSAGE_BYTES_MAX}", message.len()));
        }
        let git = GitCommand::new("commit", &["--no-verify", "--cleanup=whitespace"]);
        let git = if self.all == Some(true) { git.with_arg("--all") } else { git };
        Ok(git.with_arg("-m").with_arg(message))
    }
}
