//! `git_checkout`: switches branches, or restores files.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::GitCommand;

pub(crate) const NAME: &str = "git_checkout";
pub(crate) const DESCRIPTION: &str = "Switches the workspace to a branch, which it may make; or puts files \
    back as they are in the index or in a commit, whatever was changed in them.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitCheckoutArgs {
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

impl GitCheckoutArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        match (&self.branch, &self.paths) {
            (Some(branch), None) => {
                if self.from.is_some() {
                    return Err("`from` goes with `paths`".to_owned());
                }
                let git = GitCommand::new("checkout", &["--no-recurse-submodules", "--no-guess"]);
                let git = if self.create == Some(true) { git.with_arg("-b") } else { git };
                // After `--` nothing is read as a file.
                git.with_revision("branch", branch)?.with_paths(&[])
            }
            (None, Some(paths)) if !paths.is_empty() => {
                let mut git = GitCommand::new("checkout", &["--no-recurse-submodules"]);
                if let Some(from) = &self.from {
                    git = git.with_revision("from", from)?;
                }
                git.with_paths(paths)?.with_written_paths(paths)
            }
            (Some(_), Some(_)) => Err("`branch` and `paths` were both given: give one of them".to_owned()),
            (None, _) => Err("give `branch`, or `paths` to put back".to_owned()),
        }
    }
}
