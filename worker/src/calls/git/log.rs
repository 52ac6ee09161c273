//! `git_log`: lists commits, newest first.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_log";
pub(crate) const DESCRIPTION: &str = "Lists commits, the last ones first: id, day, author, title. The \
    history before the task's own commit may not be here.";

const COUNT_DEFAULT: u32 = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitLogArgs {
    /// Only commits that changed this file or folder, relative to the workspace.
    #[serde(default)]
    path: Option<String>,
    /// From this commit, branch or tag back; HEAD where it is left out.
    #[serde(default)]
    rev: Option<String>,
    /// How many, 20 where it is left out.
    #[serde(default)]
    #[schemars(range(min = 1, max = 200))]
    count: Option<u32>,
}

impl GitLogArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        let count = format!("--max-count={}", self.count.unwrap_or(COUNT_DEFAULT));
        let mut git = GitCommand::new(
            "log",
            &["--no-color", "--no-show-signature", "--no-mailmap", "--date=short", "--format=%h %ad %an: %s"],
        );
        git = git.with_arg(count);
        if let Some(rev) = &self.rev {
            git = git.with_revision("rev", rev)?;
        }
        git.with_paths(self.path.as_slice())
    }
}
