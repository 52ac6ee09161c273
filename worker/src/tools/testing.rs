//! Test helpers for tools: a workspace in a temporary folder, and a runner that really starts shells.

use std::{
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
};

use cap_std::{ambient_authority, fs::Dir};
use futures_util::future::{BoxFuture, LocalBoxFuture};
use serde_json::Value;

use super::{
    BaseView, CapturedStream, CommandEnd, CommandOutput, CommandRunner, CommandSpec, FullOutputs, NoMemory,
    ReadSet, RunnerError, RunnerFault, TestRunnerConfig, ToolContext, ToolOutcome, ToolSettings,
    execute_tool,
};

/// Whether a program or Python module is installed. With `CI` set a missing one fails, like every dependency of a
/// test; otherwise the test reports that it is skipped.
#[expect(clippy::print_stderr, reason = "a skipped part must be visible")]
pub(crate) fn has_program(name: &str) -> bool {
    let line = format!("command -v {name} >/dev/null || python3 -c 'import {name}' 2>/dev/null");
    let spec = CommandSpec { shell: line, cwd: None, timeout_ms: 10_000 };
    let there = run_shell(Path::new("/"), &spec).is_ok_and(|output| output.ended == CommandEnd::Exit(0));
    assert!(there || std::env::var_os("CI").is_none(), "CI needs {name}; .ci/run installs it");
    if !there {
        eprintln!("skipped: there is no {name}");
    }
    there
}

pub(crate) struct TestWorkspace {
    temp: tempfile::TempDir,
    runner: ShellRunner,
    pub(crate) dir: Dir,
    pub(crate) read_set: ReadSet,
    pub(crate) settings: ToolSettings,
    pub(crate) test_runner: Option<TestRunnerConfig>,
    pub(crate) outputs: FullOutputs,
    pub(crate) base: BaseView,
}

impl TestWorkspace {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let temp = tempfile::tempdir().expect("temporary folder");
        let dir = Dir::open_ambient_dir(temp.path(), ambient_authority()).expect("opens");
        let runner = ShellRunner { root: temp.path().to_owned(), failure: RunnerFailure::Never };
        let (read_set, settings) = (ReadSet::new(), ToolSettings::default());
        let (outputs, base) = (FullOutputs::new(), BaseView::default());
        let out = Self { temp, runner, dir, read_set, settings, test_runner: None, outputs, base };
        for (path, text) in files {
            out.write_file(path, text);
        }
        out
    }

    /// From now on the end of a command is unknown: it ran, but its sandbox is lost.
    pub(crate) fn lose_sandbox(&mut self) {
        self.runner.failure = RunnerFailure::Host;
    }

    /// From now on a command runs to its end, but the workspace cannot be restored after it.
    pub(crate) fn fail_restore(&mut self) {
        self.runner.failure = RunnerFailure::Workspace;
    }

    pub(crate) fn full_path(&self, path: &str) -> PathBuf {
        self.temp.path().join(path)
    }

    pub(crate) fn write_file(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.full_path(path);
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("makes folders");
        std::fs::write(path, bytes).expect("writes");
    }

    pub(crate) fn read_file(&self, path: &str) -> String {
        std::fs::read_to_string(self.full_path(path)).expect("reads")
    }

    pub(crate) fn create_link(&self, name: &str, target: impl AsRef<Path>) {
        std::os::unix::fs::symlink(target, self.full_path(name)).expect("links");
    }

    pub(crate) fn file_mode(&self, path: &str) -> u32 {
        std::fs::metadata(self.full_path(path)).expect("is there").permissions().mode() & 0o7777
    }

    pub(crate) fn set_mode(&self, path: &str, mode: u32) {
        std::fs::set_permissions(self.full_path(path), std::fs::Permissions::from_mode(mode))
            .expect("changes mode");
    }

    /// All files, sorted.
    pub(crate) fn file_names(&self) -> Vec<String> {
        fn collect_names(base: &Path, at: &Path, out: &mut Vec<String>) {
            for entry in std::fs::read_dir(at).expect("lists") {
                let path = entry.expect("entry").path();
                if path.is_dir() {
                    collect_names(base, &path, out);
                } else {
                    out.push(path.strip_prefix(base).expect("below").to_string_lossy().into_owned());
                }
            }
        }
        let mut out = Vec::new();
        collect_names(self.temp.path(), self.temp.path(), &mut out);
        out.sort();
        out
    }

    /// Runs a closure with the context that a tool gets.
    pub(crate) fn with_context<'a, T>(
        &'a self,
        act: impl FnOnce(ToolContext<'a>) -> LocalBoxFuture<'a, T>,
    ) -> T {
        let context = ToolContext {
            root: &self.dir,
            runner: &self.runner,
            read_set: &self.read_set,
            settings: &self.settings,
            test_runner: self.test_runner.as_ref(),
            outputs: &self.outputs,
            base: &self.base,
            memory: &NoMemory,
            call: None,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("runtime");
        runtime.block_on(act(context))
    }

    /// Runs a tool and adds what it read to the read set, as the run loop does.
    pub(crate) fn call_tool(&mut self, name: &str, args: Value) -> ToolOutcome {
        let outcome = self.with_context(|context| Box::pin(execute_tool(context, name, &args)));
        for seen in &outcome.facts.read {
            self.read_set.insert(seen.path.clone(), seen.hash);
        }
        outcome
    }
}

struct ShellRunner {
    root: PathBuf,
    failure: RunnerFailure,
}

/// A failure after a command.
enum RunnerFailure {
    Never,
    Host,
    Workspace,
}

impl CommandRunner for ShellRunner {
    fn run(&self, spec: CommandSpec) -> BoxFuture<'_, Result<CommandOutput, RunnerError>> {
        Box::pin(async move {
            let done = run_shell(&self.root, &spec)
                .map_err(|error| RunnerError::from_host_fault(error.to_string()))?;
            match self.failure {
                RunnerFailure::Never => Ok(done),
                RunnerFailure::Host => Err(RunnerError::from_host_fault("the sandbox is lost")),
                RunnerFailure::Workspace => Err(RunnerError {
                    reason: "folders nest too deep".to_owned(),
                    fault: RunnerFault::Workspace,
                    output: Some(Box::new(done)),
                }),
            }
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "a stand-in for the sandbox, which these tests do not build")]
fn run_shell(root: &Path, spec: &CommandSpec) -> std::io::Result<CommandOutput> {
    let cwd = spec
        .cwd
        .as_ref()
        .map_or_else(|| root.to_owned(), |cwd| root.join(super::file_access::files::os_path(cwd)));
    // `timeout` ends the whole line; its own status for that is 124.
    let seconds = format!("{}", spec.timeout_ms.div_ceil(1000));
    let mut child = std::process::Command::new("timeout")
        .args(["--signal=KILL", &seconds, "/bin/sh", "-c", &spec.shell])
        .current_dir(cwd)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()?;
    let mut stderr = child.stderr.take().expect("piped");
    let errors = std::thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let mut stdout = Vec::new();
    child.stdout.take().expect("piped").read_to_end(&mut stdout)?;
    let stderr = errors.join().expect("no panic")?;
    let status = child.wait()?;
    let ended = match (status.code(), status.signal()) {
        (Some(124 | 137), _) | (None, Some(9)) => CommandEnd::TimedOut,
        (Some(code), _) => CommandEnd::Exit(code),
        (None, signal) => CommandEnd::Signal(signal.unwrap_or(0)),
    };
    let captured =
        |bytes: Vec<u8>| CapturedStream { total_bytes: bytes.len() as u64, head: bytes, tail: Vec::new() };
    Ok(CommandOutput {
        ended,
        stdout: captured(stdout),
        stderr: captured(stderr),
        restored_paths: Vec::new(),
    })
}
