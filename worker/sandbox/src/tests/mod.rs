//! Runs hostile commands against every backend this machine supports, each with a control that shows the
//! probe works.
//!
//! The test binary is its own init and its own probe: the hook below runs before `main`, while there is
//! only one thread, exactly when the real binary's `main` does the check.

mod command_ends;
mod isolation;
mod limits;
mod network;
mod probe;
pub(super) mod servers;

use std::{
    fs,
    os::unix::fs::chown,
    path::{Path, PathBuf},
    time::Duration,
};

use tempfile::TempDir;

use super::{
    BackendChoice, CommandExit, CommandOutput, CommandSpec, Sandbox, SandboxConfig, SandboxError,
    sandbox_init_args, sandbox_init_main, workspace_owner,
};

extern "C" fn before_main() {
    if let Some(args) = sandbox_init_args(std::env::args_os()) {
        sandbox_init_main(args);
    }
    probe::run_if_requested();
}

#[used]
#[unsafe(link_section = ".init_array")]
#[expect(unsafe_code, reason = "the only place before the test harness starts its threads")]
static BEFORE_MAIN: extern "C" fn() = before_main;

/// A writable workspace and its context.
struct SandboxFixture {
    dir: TempDir,
}

impl SandboxFixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let fixture = Self { dir };
        fs::create_dir(fixture.workspace()).unwrap();
        fixture.set_workspace_owner(&fixture.workspace());
        fixture
    }

    fn workspace(&self) -> PathBuf {
        self.dir.path().join("workspace")
    }

    fn set_workspace_owner(&self, path: &Path) {
        if let Some((uid, gid)) = workspace_owner() {
            chown(path, Some(uid), Some(gid)).unwrap();
        }
    }

    fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.workspace().join(name);
        for folder in Path::new(name).ancestors().skip(1).collect::<Vec<_>>().into_iter().rev() {
            let folder = self.workspace().join(folder);
            if !folder.exists() {
                fs::create_dir(&folder).unwrap();
                self.set_workspace_owner(&folder);
            }
        }
        fs::write(&path, text).unwrap();
        self.set_workspace_owner(&path);
        path
    }

    fn sandbox_config(&self, backend: BackendChoice) -> SandboxConfig {
        let mut config = SandboxConfig::new(backend, &self.workspace());
        config.readonly.push(own_binary());
        config
    }

    async fn sandbox(&self, backend: BackendChoice) -> Sandbox {
        Sandbox::prepare(self.sandbox_config(backend))
            .await
            .unwrap_or_else(|error| panic!("{backend:?}: {error:?}"))
    }
}

fn own_binary() -> PathBuf {
    std::env::current_exe().unwrap()
}

/// Returns the isolating backends available here; prints the unavailable ones.
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn sandboxed_backends() -> Vec<BackendChoice> {
    let mut all = vec![BackendChoice::Namespaces];
    if super::host::find_bubblewrap().is_some() {
        all.push(BackendChoice::Bubblewrap);
    } else {
        eprintln!("bubblewrap is not installed here: its backend was not tried");
    }
    all
}

/// Returns whether a program is installed. If `CI` is set, a missing one fails the test.
#[expect(clippy::print_stderr, reason = "a part that is not tried must be told")]
fn has_program(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let is_installed = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    assert!(is_installed || std::env::var_os("CI").is_none(), "CI needs {program}; .ci/run installs it");
    if !is_installed {
        eprintln!("skipped: {program} is not installed");
    }
    is_installed
}

async fn run_shell(sandbox: &Sandbox, line: &str) -> CommandOutput {
    sandbox.run(shell_spec(line)).await.unwrap_or_else(|error| panic!("{line}: {error:?}"))
}

fn shell_spec(line: &str) -> CommandSpec {
    CommandSpec { timeout: Duration::from_secs(60), ..CommandSpec::shell(line) }
}

fn to_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a probe of this binary inside and returns its status: 0 if it succeeded, else an errno.
async fn probe_inside(sandbox: &Sandbox, args: &[&str]) -> i32 {
    let mut argv = vec![own_binary().into_os_string(), probe::MARKER.into()];
    argv.extend(args.iter().map(Into::into));
    let out = sandbox
        .run(CommandSpec { timeout: Duration::from_secs(60), ..CommandSpec::new(argv) })
        .await
        .unwrap();
    match out.exit {
        CommandExit::Exit(status) => status,
        other => panic!("probe {args:?}: {other:?} {}", to_text(&out.stderr.bytes)),
    }
}

/// Runs the probe on the host, to show that it works.
#[expect(clippy::disallowed_methods, reason = "the control of a sandbox test runs outside the sandbox")]
fn probe_outside(args: &[&str]) -> i32 {
    let mut command = std::process::Command::new(own_binary());
    command.arg(probe::MARKER).args(args).env_clear();
    command.status().unwrap().code().unwrap()
}
