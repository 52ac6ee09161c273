//! Shared by the git tools: how git is started, and which arguments are allowed.

use super::super::{ShellLine, join_quoted, parse_workspace_path};

/// Longest name of a revision or branch, in bytes.
const REVISION_BYTES_MAX: usize = 200;
/// Paths of one call at most.
const PATHS_MAX: usize = 500;

/// Environment of each git that a tool starts: no configuration but the repository's own, which a run cannot change;
/// no prompt, no pager; docket's name on commits.
const GIT_ENVIRONMENT: &str = "GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_TERMINAL_PROMPT=0 GIT_PAGER=cat \
    GIT_EDITOR=: GIT_AUTHOR_NAME=docket GIT_AUTHOR_EMAIL=docket@localhost GIT_COMMITTER_NAME=docket \
    GIT_COMMITTER_EMAIL=docket@localhost GIT_LITERAL_PATHSPECS=1 LC_ALL=C.UTF-8";

/// Options before the verb: whatever a repository's configuration says, it starts no program and fetches nothing.
const GIT_OPTIONS: &str = "--no-pager -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 \
    -c maintenance.auto=false -c commit.gpgSign=false -c protocol.allow=never -c advice.detachedHead=false \
    -c safe.directory=*";

/// A git command.
pub(crate) struct GitCommand {
    subcommand: &'static str,
    /// Options that are always given and only affect display or keep other programs from starting. Policies do not
    /// see them, so that a rule for `git status` matches this command.
    default_options: &'static [&'static str],
    args: Vec<String>,
    /// Files of the work tree that it may write.
    written_paths: Vec<String>,
    /// Files that it names.
    named_paths: Vec<String>,
}

impl GitCommand {
    pub(super) const fn new(verb: &'static str, usual: &'static [&'static str]) -> Self {
        Self {
            subcommand: verb,
            default_options: usual,
            args: Vec::new(),
            written_paths: Vec::new(),
            named_paths: Vec::new(),
        }
    }

    pub(super) fn with_arg(mut self, word: impl Into<String>) -> Self {
        self.args.push(word.into());
        self
    }

    /// Adds a commit, branch or tag.
    pub(super) fn with_revision(self, field: &str, rev: &str) -> Result<Self, String> {
        check_revision(field, rev)?;
        Ok(self.with_arg(rev))
    }

    /// Adds paths after `--`; `.` is the whole workspace.
    pub(super) fn with_paths(mut self, paths: &[String]) -> Result<Self, String> {
        if paths.len() > PATHS_MAX {
            return Err(format!(
                "`paths` names {} paths, more than {PATHS_MAX}: name their folder",
                paths.len()
            ));
        }
        // After `--` nothing is read as a revision, and before it nothing as a file.
        self.args.push("--".to_owned());
        for path in paths {
            self = self.with_named_path(normalize_path(path)?);
            self.args.extend(self.named_paths.last().cloned());
        }
        Ok(self)
    }

    /// Notes a file whose name is part of another argument.
    pub(super) fn with_named_path(mut self, path: String) -> Self {
        self.named_paths.push(path);
        self
    }

    /// Notes the files that it writes.
    pub(super) fn with_written_paths(mut self, paths: &[String]) -> Result<Self, String> {
        self.written_paths = paths.iter().map(|path| normalize_path(path)).collect::<Result<_, _>>()?;
        Ok(self)
    }

    /// Returns the line that policies and people read.
    pub(crate) fn to_shell_line(&self) -> ShellLine {
        let bare = match self.args.as_slice() {
            [words @ .., last] if last == "--" => words,
            words => words,
        };
        let words: Vec<&str> = [self.subcommand].into_iter().chain(bare.iter().map(String::as_str)).collect();
        let reads = if self.written_paths.is_empty() { self.named_paths.clone() } else { Vec::new() };
        ShellLine {
            command: format!("git {}", join_quoted(&words)),
            cwd: None,
            written_paths: self.written_paths.clone(),
            read_paths: reads,
        }
    }

    /// Returns the line that is executed.
    pub(crate) fn to_shell_script(&self, reads: bool) -> String {
        let locks = if reads { "GIT_OPTIONAL_LOCKS=0 " } else { "" };
        let words = [&[self.subcommand], self.default_options].concat();
        let (usual, words) = (join_quoted(&words), join_quoted(&self.args));
        format!("exec env {GIT_ENVIRONMENT} {locks}git {GIT_OPTIONS} {usual} {words}")
    }
}

fn normalize_path(path: &str) -> Result<String, String> {
    match path.trim_end_matches('/') {
        "." | "./" | "" if !path.is_empty() => Ok(".".to_owned()),
        _ => parse_workspace_path(path).map(|path| path.to_string()).map_err(|error| error.to_string()),
    }
}

/// Checks that the text can only be read as a revision name: not an option, and none of the revision syntax that
/// starts programs.
pub(super) fn check_revision(field: &str, rev: &str) -> Result<(), String> {
    let legal = |c: char| c.is_alphanumeric() || "._-/~^@{}+=#%,".contains(c);
    if rev.is_empty() || rev.len() > REVISION_BYTES_MAX || rev.starts_with('-') || !rev.chars().all(legal) {
        return Err(format!("`{field}` is no name of a commit, branch or tag, as main, HEAD~2 or 1a2b3c4"));
    }
    Ok(())
}
