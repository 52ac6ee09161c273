//! `git_show`: a commit, or a file as it was in one.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::work_path,
    git_command::{Git, check_rev},
};

pub(crate) const NAME: &str = "git_show";
pub(crate) const DESCRIPTION: &str = "Shows a commit with its diff; or, where file is given, that file as it \
    was in the commit.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Args {
    /// The commit, branch or tag.
    rev: String,
    /// A file, relative to the workspace.
    #[serde(default)]
    file: Option<String>,
}

impl Args {
    pub(crate) fn git(&self) -> Result<Git, String> {
        let git = Git::new("show", &["--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature"]);
        match self.file.as_deref().filter(|file| !file.trim().is_empty()) {
            None => git.rev("rev", &self.rev)?.paths(&[]),
            Some(file) => {
                check_rev("rev", &self.rev)?;
                let path = work_path(file).map_err(|error| format!("`file`: {error}"))?;
                Ok(git.word(format!("{}:{path}", self.rev)).naming(path.to_string()))
            }
        }
    }
}
