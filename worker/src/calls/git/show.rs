//! `git_show`: shows a commit, or a file as of a commit.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::parse_workspace_path,
    git_command::{GitCommand, check_revision},
};

pub(crate) const NAME: &str = "git_show";
pub(crate) const DESCRIPTION: &str = "Shows a commit with its diff; or, where file is given, that file as it \
    was in the commit.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GitShowArgs {
    /// The commit, branch or tag.
    rev: String,
    /// A file, relative to the workspace.
    #[serde(default)]
    file: Option<String>,
}

impl GitShowArgs {
    pub(crate) fn to_git_command(&self) -> Result<GitCommand, String> {
        let git =
            GitCommand::new("show", &["--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature"]);
        match self.file.as_deref().filter(|file| !file.trim().is_empty()) {
            None => git.with_revision("rev", &self.rev)?.with_paths(&[]),
            Some(file) => {
                check_revision("rev", &self.rev)?;
                let path = parse_workspace_path(file).map_err(|error| format!("`file`: {error}"))?;
                Ok(git.with_arg(format!("{}:{path}", self.rev)).with_named_path(path.to_string()))
            }
        }
    }
}
