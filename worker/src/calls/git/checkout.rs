//! `git_checkout`: another branch, or files as they were.

use schemars::JsonSchema;
use serde::Deserialize;

use super::git_command::Git;

pub(crate) const NAME: &str = "git_checkout";
pub(crate) const DESCRIPTION: &str = "Switches the workspace to a branch, which it may make; or puts files \
    back as they are in the index or in a commit, whatever was changed in them.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
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

impl Args {
    pub(crate) fn git(&self) -> Result<Git, String> {
        match (&self.branch, &self.paths) {
            (Some(branch), None) => {
                if self.from.is_some() {
                    return Err("`from` goes with `paths`".to_owned());
                }
                let git = Git::new("checkout", &["--no-recurse-submodules", "--no-guess"]);
                let git = if self.create == Some(true) { git.word("-b") } else { git };
                // Behind `--` nothing is taken for a file.
                git.rev("branch", branch)?.paths(&[])
            }
            (None, Some(paths)) if !paths.is_empty() => {
                let mut git = Git::new("checkout", &["--no-recurse-submodules"]);
                if let Some(from) = &self.from {
                    git = git.rev("from", from)?;
                }
                git.paths(paths)?.writing(paths)
            }
            (Some(_), Some(_)) => Err("`branch` and `paths` were both given: give one of them".to_owned()),
            (None, _) => Err("give `branch`, or `paths` to put back".to_owned()),
        }
    }
}
