//! One hostile command: its description, what its control must observe without the sandbox, and how it is
//! run.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

use docket_sandbox::{
    BackendChoice, CheckedHost, CommandExit, CommandOutput, CommandSpec, Sandbox, SandboxConfig, SandboxError,
};
use docket_schema::tool::ExceededResource;

use super::{
    capture_fixture::CaptureFixture,
    host_fixture::{ENV_SECRET, EscapeKind, HostFixture, give_to_workspace_owner},
};

/// Printed by a script that ran to its end, so that one that never attempted its escape does not count as
/// contained.
const COMPLETED_MARK: &str = "TRIED";

/// Time limit for containing a command. Far longer than any case takes.
const CASE_TIMEOUT: Duration = Duration::from_secs(30);

const CONTROL_CHECKS_MAX: usize = 10;

/// Prepended to the code of each Python case: raw system calls and labels for their results.
pub(super) const PYTHON_PRELUDE: &str = r#"
import ctypes, errno, os, signal, socket, stat, struct, sys, time
_c = ctypes.CDLL(None, use_errno=True)
def sc(number, *args):
    ctypes.set_errno(0)
    _c.syscall.restype = ctypes.c_long
    got = _c.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in args])
    return got if got >= 0 else -ctypes.get_errno()
def got(what):
    print("ESCAPED", what, flush=True)
def told(result, what):
    if result >= 0: got(what)
    else: print("refused", what, errno.errorcode.get(-result, -result), flush=True)
class no:
    def __enter__(self): return self
    def __exit__(self, kind, error, trace):
        if kind and issubclass(kind, OSError):
            print("refused", errno.errorcode.get(error.errno, error), flush=True)
            return True
def beat(sock, address):
    with no():
        sock.settimeout(1)
        sock.connect(address)
        sock.send(b"hello")
"#;

#[derive(Clone, Copy)]
enum CaseScript {
    Shell(&'static str),
    Python(&'static str),
}

/// How a case shows that the check detects an escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EscapeControl {
    /// No control: the case's own output shows that the attempt was made and refused.
    ExpectedOutput,
    /// The same command without a sandbox (`BackendChoice::None`).
    Unsandboxed(EscapeKind),
    /// The same command as a plain process, because even without a sandbox no process of a call survives it.
    PlainProcess(EscapeKind),
}

/// One case of the battery.
#[derive(Clone)]
pub(super) struct EscapeCase {
    pub(super) id: &'static str,
    script: CaseScript,
    /// Run in the same workspace as a separate call, after the first has ended.
    second_call: Option<&'static str>,
    control: EscapeControl,
    expected_output: Vec<&'static str>,
    required_programs: Vec<&'static str>,
    expected_end: Option<CommandExit>,
    allowed_limit: Option<ExceededResource>,
    timeout: Duration,
    capture: bool,
}

/// A case with a shell script.
pub(super) fn shell_case(id: &'static str, line: &'static str) -> EscapeCase {
    EscapeCase::new(id, CaseScript::Shell(line))
}

/// A case with Python code.
pub(super) fn python_case(id: &'static str, code: &'static str) -> EscapeCase {
    EscapeCase { required_programs: vec!["python3"], ..EscapeCase::new(id, CaseScript::Python(code)) }
}

impl EscapeCase {
    fn new(id: &'static str, text: CaseScript) -> Self {
        Self {
            id,
            script: text,
            second_call: None,
            control: EscapeControl::ExpectedOutput,
            expected_output: Vec::new(),
            required_programs: Vec::new(),
            expected_end: None,
            allowed_limit: None,
            timeout: CASE_TIMEOUT,
            capture: false,
        }
    }

    /// Sets the escape that the control without a sandbox must show. Only for commands that harm nothing
    /// outside their case's host fixture.
    pub(super) fn expect_escape(self, what: EscapeKind) -> Self {
        Self { control: EscapeControl::Unsandboxed(what), ..self }
    }

    /// Sets the escape that the control as a plain process must show.
    pub(super) fn expect_escape_as_process(self, what: EscapeKind) -> Self {
        Self { control: EscapeControl::PlainProcess(what), ..self }
    }

    /// Sets the output expected inside the sandbox: the refusal itself.
    pub(super) fn expect_output(mut self, words: &'static str) -> Self {
        self.expected_output.push(words);
        self
    }

    /// Sets a program that the case requires.
    pub(super) fn require_program(mut self, program: &'static str) -> Self {
        self.required_programs.push(program);
        self
    }

    /// Adds a second call in the same workspace.
    pub(super) fn then_run(self, line: &'static str) -> Self {
        Self { second_call: Some(line), ..self }
    }

    /// Sets the expected exit of a command that does not end by itself.
    pub(super) fn end_with(self, ended: CommandExit) -> Self {
        Self { expected_end: Some(ended), ..self }
    }

    /// Also accepts that a resource limit ends it first, on a fast machine or if others fill the disk too.
    pub(super) fn or_exceed(self, what: ExceededResource) -> Self {
        Self { allowed_limit: Some(what), ..self }
    }

    pub(super) fn with_timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Makes docket capture the workspace afterwards, make a patch and deliver it.
    pub(super) fn with_capture(self) -> Self {
        Self { capture: true, ..self }
    }

    pub(super) fn case_class(&self) -> &'static str {
        self.id.rsplit_once('-').map_or(self.id, |(class, _)| class)
    }

    /// Whether the case can tell an attempt from doing nothing.
    pub(super) fn can_fail(&self) -> bool {
        self.control != EscapeControl::ExpectedOutput
            || !self.expected_output.is_empty()
            || self.expected_end.is_some()
            || self.capture
    }

    pub(super) fn has_control(&self) -> bool {
        self.control != EscapeControl::ExpectedOutput
    }

    pub(super) fn missing_program(&self) -> Option<&'static str> {
        self.required_programs.iter().copied().find(|program| !is_available(program))
    }

    fn command_specs(&self, world: &HostFixture) -> Vec<CommandSpec> {
        let shell = |line: &str| {
            CommandSpec::shell(format!("{}\necho {COMPLETED_MARK}", world.substitute_names(line)))
        };
        let first = match self.script {
            CaseScript::Shell(line) => shell(line),
            CaseScript::Python(code) => {
                let code = format!(
                    "{PYTHON_PRELUDE}{}\nprint('{COMPLETED_MARK}', flush=True)",
                    world.substitute_names(code)
                );
                CommandSpec::new([find_python().into_os_string(), "-c".into(), code.into()])
            }
        };
        let mut all = vec![first];
        all.extend(self.second_call.map(shell));
        for spec in &mut all {
            spec.timeout = self.timeout;
        }
        all
    }

    /// Runs the case in a sandbox; returns a description of the outcome if it is not the expected one.
    pub(super) async fn run_in_sandbox(
        &self,
        backend: BackendChoice,
        checked: &CheckedHost,
        ground: &CaptureFixture,
    ) -> Vec<String> {
        let mut world = HostFixture::new();
        let mut workspace = None;
        if self.capture {
            workspace = Some(ground.materialize_workspace(&world).await);
        } else {
            give_to_workspace_owner(&world.workspace_path());
        }
        let sandbox = create_sandbox(backend, &world, Some(checked)).await;
        let mut wrong = Vec::new();
        let mut said = Vec::new();
        for spec in self.command_specs(&world) {
            let begun = Instant::now();
            match sandbox.run(spec).await {
                Ok(out) => {
                    wrong.extend(self.describe_wrong_end(&out));
                    said.extend(combined_output(&out));
                    said.push(b'\n');
                }
                Err(SandboxError::InvalidCwd { .. }) => said.extend(b"refused cwd\n"),
                Err(error) => wrong.push(format!("the sandbox failed: {error:?}")),
            }
            if begun.elapsed() > self.timeout + Duration::from_secs(10) {
                wrong.push(format!("the call took {:?}", begun.elapsed()));
            }
        }
        let text = String::from_utf8_lossy(&said).into_owned();
        let silent = self.expected_output.iter().filter(|words| !text.contains(**words));
        wrong.extend(silent.map(|words| format!("it does not say {words:?}")));
        wrong.extend(world.find_escapes(&said).into_iter().map(|(sees, what)| format!("{sees:?}: {what}")));
        if let Some(workspace) = workspace {
            wrong.extend(ground.capture_and_deliver(&world, workspace).await);
            let after = world.find_escapes(b"").into_iter();
            wrong.extend(after.map(|(sees, what)| format!("after the capture: {sees:?}: {what}")));
        }
        if wrong.is_empty() {
            wrong
        } else {
            [wrong, vec![format!("said: {}", truncate_output(&text))]].concat()
        }
    }

    fn describe_wrong_end(&self, out: &CommandOutput) -> Option<String> {
        let tried = String::from_utf8_lossy(&out.stdout.bytes).contains(COMPLETED_MARK);
        match self.expected_end {
            _ if self.allowed_limit.is_some_and(|what| out.exit == CommandExit::Exceeded(what)) => None,
            Some(ends) => (out.exit != ends).then(|| format!("it ended with {:?}", out.exit)),
            None if out.exit == CommandExit::Exit(0) && tried => None,
            None => Some(format!("it was not tried to its end: {:?}", out.exit)),
        }
    }

    /// Runs the control, if there is one; returns a description of its failure.
    pub(super) async fn run_control(&self, ground: &CaptureFixture) -> Option<String> {
        let wanted = match self.control {
            EscapeControl::ExpectedOutput => return None,
            EscapeControl::Unsandboxed(sees) | EscapeControl::PlainProcess(sees) => sees,
        };
        let mut world = HostFixture::new();
        if self.capture {
            drop(ground.materialize_workspace(&world).await);
        } else {
            give_to_workspace_owner(&world.workspace_path());
        }
        let mut said = Vec::new();
        match self.control {
            EscapeControl::PlainProcess(_) => {
                for spec in self.command_specs(&world) {
                    said.extend(run_as_plain_process(&spec, &world));
                }
            }
            EscapeControl::Unsandboxed(_) | EscapeControl::ExpectedOutput => {
                let sandbox = create_sandbox(BackendChoice::None, &world, None).await;
                for spec in self.command_specs(&world) {
                    match sandbox.run(spec).await {
                        Ok(out) => said.extend(combined_output(&out)),
                        Err(error) => said.extend(format!("{error:?}").bytes()),
                    }
                }
            }
        }
        let mut seen = world.find_escapes(&said);
        // A process that keeps forking and exiting can be missed by a single scan, and signals take time on a
        // busy machine.
        for _ in 0..CONTROL_CHECKS_MAX {
            if seen.iter().any(|(sees, _)| *sees == wanted) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.extend(world.find_escapes(b""));
        }
        let found = seen.iter().any(|(sees, _)| *sees == wanted);
        (!found).then(|| {
            let text = truncate_output(&String::from_utf8_lossy(&said));
            format!("the check did not see {wanted:?} without the sandbox, only {seen:?}; it said: {text}")
        })
    }
}

/// Creates a sandbox for a host fixture's workspace.
pub(super) async fn create_sandbox(
    backend: BackendChoice,
    world: &HostFixture,
    checked: Option<&CheckedHost>,
) -> Sandbox {
    let mut config = SandboxConfig::new(backend, &world.workspace_path());
    config.env.push(("DOCKET_HOSTILE_CASE".to_owned(), world.nonce.clone()));
    match checked {
        Some(checked) => Sandbox::for_checked_host(&config, checked).unwrap(),
        None => Sandbox::prepare(config).await.unwrap(),
    }
}

/// Returns both output streams of a call.
pub(super) fn combined_output(out: &CommandOutput) -> Vec<u8> {
    [&out.stdout.bytes[..], b"\n", &out.stderr.bytes].concat()
}

fn truncate_output(text: &str) -> String {
    const SHOWN_CHARS: usize = 1_500;
    text.chars().take(SHOWN_CHARS).collect()
}

/// Runs the command as any program of the user would start it, with a key in its environment.
#[expect(clippy::disallowed_methods, reason = "the control of a sandbox test runs outside the sandbox")]
fn run_as_plain_process(spec: &CommandSpec, world: &HostFixture) -> Vec<u8> {
    let said = world.path_to("said");
    let file = fs::OpenOptions::new().create(true).append(true).open(&said).unwrap();
    let mut command = Command::new(&spec.argv[0]);
    command.args(&spec.argv[1..]).current_dir(world.workspace_path()).stdin(Stdio::null());
    command.env(ENV_SECRET.0, ENV_SECRET.1).env("DOCKET_HOSTILE_CASE", &world.nonce);
    command.stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Only the process started here: the check must see the processes that it left running.
    let _ = child.kill();
    let _ = child.wait();
    fs::read(said).unwrap()
}

/// Python itself, not a wrapper script that searches for one.
pub(super) fn find_python() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| query_program("python3", "import sys; print(sys.executable)").into()).clone()
}

#[expect(clippy::disallowed_methods, reason = "asks the host which programs it has")]
fn query_program(program: &str, code: &str) -> String {
    let out = Command::new(program).args(["-c", code]).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default()
}

fn is_available(program: &str) -> bool {
    static KNOWN: OnceLock<std::sync::Mutex<BTreeMap<String, bool>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Default::default).lock().unwrap();
    *known.entry(program.to_owned()).or_insert_with(|| match program {
        "python3" => !find_python().as_os_str().is_empty(),
        "pytest" => query_program("python3", "import pytest; print(1)") == "1",
        "setuptools" => query_program("python3", "import setuptools; print(1)") == "1",
        "ipv6" => std::net::TcpListener::bind("[::1]:0").is_ok(),
        _ => {
            let path: OsString = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder: PathBuf| Path::new(&folder).join(program).is_file())
        }
    })
}
