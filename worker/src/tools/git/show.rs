//! `git_show`: a commit, or a file as it was in one.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        files::work_path,
        line::{Leaves, Line},
    },
    call::{Git, check_rev},
};

pub(in super::super) const NAME: &str = "git_show";
pub(in super::super) const DESCRIPTION: &str = "Shows a commit with its diff; or, where file is given, that file as it \
    was in the commit.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// The commit, branch or tag.
    rev: String,
    /// A file, relative to the workspace.
    #[serde(default)]
    file: Option<String>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
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

pub(in super::super) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    match args.git() {
        Ok(git) => git.run(context, NAME, Leaves::Nothing).await,
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::call::tests::repository, *};

    #[test]
    fn a_commit_and_a_file_of_it_are_shown() {
        let mut w = repository(&[("d/a", "was\n")]);
        w.write("d/a", "is\n");
        let out = w.call(NAME, json!({"rev": "HEAD"}));
        assert!(out.text().contains("    first\n") && out.text().contains("+was\n"), "{}", out.text());
        let out = w.call(NAME, json!({"rev": "main", "file": "./d/a"}));
        assert_eq!(out.text(), "exit status 0\nstdout:\nwas\n");
        let out = w.call(NAME, json!({"rev": "main", "file": "d/b"}));
        assert!(out.is_error && out.facts.error_signature.is_some(), "{}", out.text());
    }
}
