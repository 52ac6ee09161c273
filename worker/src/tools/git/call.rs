//! What the git tools share: how git is started, and what may be an argument.

use super::super::{
    context::{ToolContext, ToolOutcome},
    files::work_path,
    line::{self, Leaves, Line, Running, joined},
};

/// Longest name of a revision or branch, in bytes.
const NAME_BYTES_MAX: usize = 200;
/// Paths of one call at most.
const PATHS_MAX: usize = 500;

/// What is set for each git that a tool starts: nobody's configuration but the repository's own, which a run cannot
/// change; no prompt, no pager; docket's name on what it commits.
const ENVIRONMENT: &str = "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_PAGER=cat \
    GIT_EDITOR=: GIT_AUTHOR_NAME=docket GIT_AUTHOR_EMAIL=docket@localhost GIT_COMMITTER_NAME=docket \
    GIT_COMMITTER_EMAIL=docket@localhost GIT_LITERAL_PATHSPECS=1 LC_ALL=C.UTF-8";

/// Options before the verb: whatever a repository's configuration says, no program of its is started and nothing is
/// fetched.
const OPTIONS: &str = "--no-pager -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 \
    -c maintenance.auto=false -c commit.gpgSign=false -c protocol.allow=never -c advice.detachedHead=false \
    -c safe.directory=*";

/// A git command.
pub(super) struct Git {
    verb: &'static str,
    /// Options that are always given and say only how it is shown or that nothing else is started: policy need not
    /// read them, so that a rule about `git status` speaks of this one.
    usual: &'static [&'static str],
    words: Vec<String>,
    /// Files of the work tree that it may write.
    writes: Vec<String>,
    /// Files that it is about.
    names: Vec<String>,
}

impl Git {
    pub(super) const fn new(verb: &'static str, usual: &'static [&'static str]) -> Self {
        Self { verb, usual, words: Vec::new(), writes: Vec::new(), names: Vec::new() }
    }

    pub(super) fn word(mut self, word: impl Into<String>) -> Self {
        self.words.push(word.into());
        self
    }

    /// A commit, branch or tag.
    pub(super) fn rev(self, field: &str, rev: &str) -> Result<Self, String> {
        check_rev(field, rev)?;
        Ok(self.word(rev))
    }

    /// The paths that it is about, behind `--`; `.` is the whole workspace.
    pub(super) fn paths(mut self, paths: &[String]) -> Result<Self, String> {
        if paths.len() > PATHS_MAX {
            return Err(format!(
                "`paths` names {} paths, more than {PATHS_MAX}: name their folder",
                paths.len()
            ));
        }
        // Behind it nothing is taken for a name of a commit, and before it nothing for a file.
        self.words.push("--".to_owned());
        for path in paths {
            self = self.naming(path_of(path)?);
            self.words.extend(self.names.last().cloned());
        }
        Ok(self)
    }

    /// It is about this file, whose name stands somewhere in its words.
    pub(super) fn naming(mut self, path: String) -> Self {
        self.names.push(path);
        self
    }

    /// It writes the files that it is about.
    pub(super) fn writing(mut self, paths: &[String]) -> Result<Self, String> {
        self.writes = paths.iter().map(|path| path_of(path)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// As policies and people read it.
    pub(super) fn line(&self) -> Line {
        let bare = match self.words.as_slice() {
            [words @ .., last] if last == "--" => words,
            words => words,
        };
        let words: Vec<&str> = [self.verb].into_iter().chain(bare.iter().map(String::as_str)).collect();
        let reads = if self.writes.is_empty() { self.names.clone() } else { Vec::new() };
        Line { shell: format!("git {}", joined(&words)), cwd: None, paths: self.writes.clone(), reads }
    }

    /// Runs it.
    pub(super) async fn run(
        self,
        context: ToolContext<'_>,
        tool: &'static str,
        leaves: Leaves,
    ) -> ToolOutcome {
        let locks = if leaves == Leaves::Nothing { "GIT_OPTIONAL_LOCKS=0 " } else { "" };
        let words = [&[self.verb], self.usual].concat();
        let (usual, words) = (joined(&words), joined(&self.words));
        let shell = format!("exec env {ENVIRONMENT} {locks}git {OPTIONS} {usual} {words}");
        let timeout_ms = context.settings.command_timeout_ms;
        let running = Running { tool, shell, cwd: None, timeout_ms, leaves, must_end_well: true };
        line::run(context, running).await
    }
}

fn path_of(path: &str) -> Result<String, String> {
    match path.trim_end_matches('/') {
        "." | "./" | "" if !path.is_empty() => Ok(".".to_owned()),
        _ => work_path(path).map(|path| path.to_string()).map_err(|error| error.to_string()),
    }
}

/// Whether it can only be read as a name: no option, no range of git's deeper grammar that starts anything.
pub(super) fn check_rev(field: &str, rev: &str) -> Result<(), String> {
    let legal = |c: char| c.is_alphanumeric() || "._-/~^@{}+=#%,".contains(c);
    if rev.is_empty() || rev.len() > NAME_BYTES_MAX || rev.starts_with('-') || !rev.chars().all(legal) {
        return Err(format!("`{field}` is no name of a commit, branch or tag, as main, HEAD~2 or 1a2b3c4"));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::super::super::testing::Workspace;

    /// A workspace with a repository of one commit.
    pub(in super::super) fn repository(files: &[(&str, &str)]) -> Workspace {
        let mut w = Workspace::new(files);
        let line =
            "git init -q -b main && git add -A && git -c user.name=a -c user.email=a@b commit -qm first";
        let out = w.call("run_command", json!({"command": line}));
        assert_eq!(out.facts.exit, Some(0), "{}", out.text());
        w
    }

    #[test]
    fn no_tool_takes_an_option_for_a_name_or_leaves_the_workspace() {
        let mut w = repository(&[("a", "1\n")]);
        for (tool, args) in [
            ("git_log", json!({"rev": "--output=x"})),
            ("git_log", json!({"rev": "a b"})),
            ("git_log", json!({"rev": "$(id)"})),
            ("git_log", json!({"rev": ""})),
            ("git_log", json!({"path": "../x"})),
            ("git_diff", json!({"from": "--no-index"})),
            ("git_diff", json!({"from": "HEAD", "to": "-O/etc/passwd"})),
            ("git_diff", json!({"path": "/etc/passwd"})),
            ("git_show", json!({"rev": "-x"})),
            ("git_show", json!({"rev": "HEAD", "file": "../../etc/passwd"})),
            ("git_add", json!({"paths": ["../x"]})),
            ("git_add", json!({"paths": []})),
            ("git_add", json!({"paths": [""]})),
            ("git_branch", json!({"name": "-D"})),
            ("git_branch", json!({"name": "x;touch y"})),
            ("git_checkout", json!({"branch": "--orphan"})),
            ("git_checkout", json!({"paths": ["/etc"]})),
            ("git_checkout", json!({})),
            ("git_commit", json!({"message": ""})),
        ] {
            let out = w.call(tool, args.clone());
            assert!(out.is_error && !out.facts.may_have_changed_tree, "{tool} {args}: {}", out.text());
        }
        assert!(!w.path("y").exists() && !w.path("x").exists());
    }

    #[test]
    fn neither_hooks_nor_configured_programs_run_and_nothing_is_fetched() {
        let mut w = repository(&[("a.txt", "1\n"), (".gitattributes", "*.txt diff=evil\n")]);
        for hook in ["pre-commit", "post-commit", "post-checkout", "commit-msg"] {
            w.write(&format!(".git/hooks/{hook}"), "#!/bin/sh\ntouch ran\n");
            w.chmod(&format!(".git/hooks/{hook}"), 0o755);
        }
        let config = "git config diff.evil.textconv 'touch ran; cat' && git config diff.evil.command 'touch ran' && \
             git config core.fsmonitor 'touch ran' && git config core.pager 'touch ran; cat' && \
             git config alias.status '!touch ran' && git config diff.external 'touch ran'";
        assert_eq!(w.call("run_command", json!({"command": config})).facts.exit, Some(0));
        w.write("a.txt", "2\n");
        for (tool, args) in [
            ("git_status", json!({})),
            ("git_diff", json!({})),
            ("git_add", json!({"paths": ["a.txt"]})),
            ("git_diff", json!({"staged": true})),
            ("git_commit", json!({"message": "second"})),
            ("git_show", json!({"rev": "HEAD"})),
            ("git_log", json!({"path": "a.txt"})),
            ("git_checkout", json!({"branch": "other", "create": true})),
        ] {
            let out = w.call(tool, args);
            assert!(!out.is_error, "{tool}: {}", out.text());
            assert!(!w.path("ran").exists(), "{tool} ran what the repository says");
        }
    }
}
