//! `git_add`: stages files.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_add";
pub(in super::super) const DESCRIPTION: &str = "Stages files as they are now, deleted ones included, for git_commit. \
    What the ignore files name is left out.";

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// Files and folders, relative to the workspace; `.` is all of it.
    #[schemars(length(min = 1))]
    paths: Vec<String>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        Git::new("add", &["--all"]).paths(&self.paths)
    }
}

pub(in super::super) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    match args.git() {
        Ok(git) => git.run(context, NAME, Leaves::Changes).await,
        Err(text) => ToolOutcome::error(NAME, text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::call::tests::repository, *};

    #[test]
    fn changed_new_and_deleted_files_are_staged_by_name() {
        let mut w = repository(&[("a", "1\n"), ("gone", "1\n"), (".gitignore", "*.log\n")]);
        w.write("a", "2\n");
        w.write("a b;c", "new\n");
        w.write("x.log", "noise\n");
        std::fs::remove_file(w.path("gone")).expect("removed");
        let out = w.call(NAME, json!({"paths": ["."]}));
        assert!(!out.is_error && out.facts.may_have_changed_tree, "{}", out.text());
        let status = w.call("git_status", json!({}));
        assert!(status.text().ends_with("M  a\nA  \"a b;c\"\nD  gone\n"), "{}", status.text());
        // What is not there is told, and one path in place of a list is one.
        assert!(w.call(NAME, json!({"paths": ["nowhere"]})).is_error);
        assert!(w.call(NAME, json!({"paths": "a"})).is_error);
    }
}
