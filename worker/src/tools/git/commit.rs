//! `git_commit`: what is staged becomes a commit, in docket's name.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{
        context::{ToolContext, ToolOutcome},
        line::{Leaves, Line},
    },
    call::Git,
};

pub(in super::super) const NAME: &str = "git_commit";
pub(in super::super) const DESCRIPTION: &str = "Commits what is staged, in the workspace's own repository. The result \
    of the task is the work tree: it is kept whether it is committed or not.";

/// Longest message, in bytes.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in super::super) struct Args {
    /// The message: a title, and a body behind an empty line if there is more to say.
    message: String,
    /// Stage changed and deleted files first; new ones need git_add.
    #[serde(default)]
    all: Option<bool>,
}

impl Args {
    pub(in super::super) fn line(&self) -> Result<Line, String> {
        Ok(self.git()?.line())
    }

    fn git(&self) -> Result<Git, String> {
        let message = self.message.trim();
        if message.is_empty() || message.contains('\0') {
            return Err("`message` is empty, or holds a NUL character".to_owned());
        }
        if message.len() > MESSAGE_BYTES_MAX {
            return Err(format!("`message` has {} bytes, more than {MESSAGE_BYTES_MAX}", message.len()));
        }
        let git = Git::new("commit", &["--no-verify", "--cleanup=whitespace"]);
        let git = if self.all == Some(true) { git.word("--all") } else { git };
        Ok(git.word("-m").word(message))
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
    fn a_commit_bears_dockets_name_and_its_words_are_only_words() {
        let mut w = repository(&[("a", "1\n")]);
        w.write("a", "2\n");
        let words = "it's $(touch ran) `touch ran` \"quoted\"\n\n# no comment\n--amend";
        let out = w.call(NAME, json!({"message": words, "all": true}));
        assert!(!out.is_error, "{}", out.text());
        let told = w.call("run_command", json!({"command": "git log -1 --format='%an <%ae> %cn%n%B'"}));
        let want = format!("stdout:\ndocket <docket@localhost> docket\n{words}\n");
        assert!(told.text().contains(&want), "{}", told.text());
        assert!(!w.path("ran").exists());
        // Nothing is left to commit: that is told, and is no success.
        let out = w.call(NAME, json!({"message": "again"}));
        assert!(out.is_error && out.text().contains("nothing to commit"), "{}", out.text());
        assert!(w.call(NAME, json!({"message": "x".repeat(MESSAGE_BYTES_MAX + 1)})).is_error);
    }
}
