//! `git_log`: commits, the last ones first.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_log";
pub(in super::super) const DESCRIPTION: &str = "Lists commits, the last ones first: id, day, author, title. The \
    history before the task's own commit may not be here.";

const COUNT_DEFAULT: u32 = 20;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
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

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        let count = format!("--max-count={}", self.count.unwrap_or(COUNT_DEFAULT));
        let mut git = Git::new(
            "log",
            &["--no-color", "--no-show-signature", "--no-mailmap", "--date=short", "--format=%h %ad %an: %s"],
        );
        git = git.word(count);
        if let Some(rev) = &self.rev {
            git = git.rev("rev", rev)?;
        }
        git.paths(self.path.as_slice())
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
    fn commits_are_listed_by_path_and_number() {
        let mut w = repository(&[("a", "1\n")]);
        w.write("b", "1\n");
        w.call("git_add", json!({"paths": ["."]}));
        w.call("git_commit", json!({"message": "second\n\nwith a body"}));
        let mut log = |args: serde_json::Value| w.call(NAME, args).text().into_owned();
        let all = log(json!({}));
        assert!(all.contains(" docket: second\n") && all.contains(" a: first\n"), "{all}");
        assert!(!log(json!({"path": "b"})).contains("first") && !log(json!({"count": 1})).contains("first"));
        assert!(!log(json!({"rev": "HEAD~1"})).contains("second"));
        assert!(log(json!({"rev": "nowhere"})).contains("exit status 128"));
    }
}
