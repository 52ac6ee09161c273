//! Checks of the source repository and its remote before a task is submitted: whether its branch is free,
//! whether there is a remote to push to, and whether its commands are valid shell syntax. Each check runs once,
//! however many tasks need it.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    time::Duration,
};

use docket_worker::{
    process::{TrustedSpec, run_trusted},
    workspace::{DeliverError, PushError, RemoteBranch, check_branch_is_free, check_remote_branch},
};

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind},
    },
};

/// The shell that workers prefer; without it the syntax is not checked.
const CHECK_SHELL: &str = "/bin/bash";
/// Checking one line takes a moment.
const SHELL_CHECK_TIME_MAX: Duration = Duration::from_secs(10);

/// A field with a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SourceFault {
    /// The field, as a flag without its dashes.
    pub(crate) field: &'static str,
    /// The problem and how to fix it.
    pub(crate) message: String,
}

impl From<SourceFault> for CliError {
    fn from(fault: SourceFault) -> Self {
        Self::new(ExitKind::Usage, format!("--{}: {}", fault.field, fault.message))
    }
}

/// The fields of one task that are checked here.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceFields<'a> {
    /// `--tests`.
    pub(crate) tests: Option<&'a str>,
    /// `--setup`.
    pub(crate) setup: &'a [String],
    /// `--repo`.
    pub(crate) repository: Option<&'a Path>,
    /// `--branch`.
    pub(crate) branch: Option<&'a str>,
    /// `--push`.
    pub(crate) push: bool,
}

/// Runs the checks and caches their results.
pub(crate) struct SourceChecks<'a> {
    cx: &'a CliContext,
    /// The shell's message for invalid lines.
    line_faults: HashMap<String, Option<String>>,
    /// The result of a push to this branch of a repository's remote.
    push_faults: HashMap<(PathBuf, String), Option<SourceFault>>,
    /// Remotes that did not respond; reported once each.
    silent_remotes: Vec<PathBuf>,
}

impl<'a> SourceChecks<'a> {
    pub(crate) fn new(cx: &'a CliContext) -> Self {
        Self { cx, line_faults: HashMap::new(), push_faults: HashMap::new(), silent_remotes: Vec::new() }
    }

    /// Checks one task.
    ///
    /// # Errors
    /// Fails when docket's own directory cannot be used. The inner error is a fault of the task.
    pub(crate) async fn check(&mut self, fields: SourceFields<'_>) -> CliResult<Result<(), SourceFault>> {
        let lines = fields.tests.map(|line| ("tests", line));
        for (field, line) in lines.into_iter().chain(fields.setup.iter().map(|line| ("setup", line.as_str())))
        {
            if let Some(message) = self.check_shell_line(line).await {
                return Ok(Err(SourceFault { field, message }));
            }
        }
        let Some(repository) = fields.repository else { return Ok(Ok(())) };
        if let Some(branch) = fields.branch
            && let Err(error) = check_branch_is_free(repository, branch).await
        {
            let field = if matches!(error, DeliverError::Target(_)) { "repo" } else { "branch" };
            return Ok(Err(SourceFault { field, message: error.to_string() }));
        }
        if fields.push
            && let Some(fault) = self.check_push(repository, fields.branch).await?
        {
            return Ok(Err(fault));
        }
        Ok(Ok(()))
    }

    async fn check_shell_line(&mut self, line: &str) -> Option<String> {
        if let Some(known) = self.line_faults.get(line) {
            return known.clone();
        }
        let fault = if line.trim().is_empty() {
            Some("an empty command always passes; leave it out".to_owned())
        } else if line.contains('\0') {
            Some("the shell command contains a NUL character, which is not allowed".to_owned())
        } else {
            syntax_fault(line).await.map(|said| format!("`{line}` is not valid shell syntax: {said}"))
        };
        self.line_faults.insert(line.to_owned(), fault.clone());
        fault
    }

    async fn check_push(
        &mut self,
        repository: &Path,
        branch: Option<&str>,
    ) -> CliResult<Option<SourceFault>> {
        // Without a name the branch is derived from the task's new id, so no remote has it yet.
        let wanted = branch.unwrap_or("docket/new").to_owned();
        let key = (repository.to_owned(), wanted);
        if let Some(known) = self.push_faults.get(&key) {
            return Ok(known.clone());
        }
        let remote = self.cx.config.delivery.remote.as_str();
        let scratch = self.cx.home.ensure_folder("scratch")?;
        let fault = match check_remote_branch(repository, remote, &key.1, &scratch).await {
            Ok(RemoteBranch::At(at)) if branch.is_some() => Some(SourceFault {
                field: "branch",
                message: format!(
                    "the branch `{}` already exists on the remote {remote}, at {at}; give another name, or delete it there first",
                    key.1
                ),
            }),
            Ok(RemoteBranch::Free | RemoteBranch::At(_)) => None,
            Ok(RemoteBranch::Unknown(said)) => {
                self.note_silent_remote(repository, remote, &said);
                None
            }
            Err(error) => {
                let field = if matches!(error, PushError::Repository(_)) { "repo" } else { "push" };
                Some(SourceFault { field, message: error.to_string() })
            }
        };
        self.push_faults.insert(key, fault.clone());
        Ok(fault)
    }

    fn note_silent_remote(&mut self, repository: &Path, remote: &str, said: &str) {
        if self.silent_remotes.iter().any(|known| known == repository) {
            return;
        }
        self.silent_remotes.push(repository.to_owned());
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        display::print_note(&display::sanitize_line(&format!(
            "warning: cannot query the remote {remote} of {} now ({said}); the result is pushed when it responds",
            repository.display()
        )));
    }
}

/// Returns bash's message for a line with invalid syntax. Nothing of the line is executed.
async fn syntax_fault(line: &str) -> Option<String> {
    if !Path::new(CHECK_SHELL).exists() {
        return None;
    }
    let spec = TrustedSpec {
        program: PathBuf::from(CHECK_SHELL),
        args: ["--norc", "--noprofile", "-n", "-c", line].iter().map(Into::into).collect(),
        cwd: PathBuf::from("/"),
        env: vec![("LC_ALL".into(), "C".into())],
        stdin: Vec::new(),
        timeout: SHELL_CHECK_TIME_MAX,
        stdout_bytes_max: 1024,
    };
    // A shell that does not start tells nothing about the line.
    let read = run_trusted(spec).await.ok().filter(|read| !read.is_success())?;
    let said = String::from_utf8_lossy(&read.stderr);
    let first = said.lines().next().unwrap_or_default();
    Some(first.trim_start_matches(CHECK_SHELL).trim_start_matches(": ").trim_start_matches("-c: ").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn invalid_shell_syntax_is_reported_without_running_the_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let made = folder.path().join("made");
        let line = format!("touch {}", made.display());
        assert_eq!(syntax_fault(&line).await, None);
        assert!(!made.exists(), "it was run");
        for good in ["pytest -q && ruff check .", "a=(1 2); [[ -n ${a[0]} ]]", "diff <(ls) <(ls -a)"] {
            assert_eq!(syntax_fault(good).await, None, "{good}");
        }
        for bad in ["pytest -q \"", "if true; then", "(cd a", "ls |"] {
            let said = syntax_fault(bad).await;
            assert!(
                said.as_deref().is_some_and(|said| !said.is_empty() && !said.contains(CHECK_SHELL)),
                "{bad}: {said:?}"
            );
        }
    }
}
