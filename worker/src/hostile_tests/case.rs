//! One hostile command: what it is, what its control must see without the sandbox, and how it is run.

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
    BackendChoice, Checked, CommandOutput, CommandSpec, Ended, Sandbox, SandboxConfig, SandboxError,
};
use docket_schema::tool::Exceeded;

use super::{
    ground::Ground,
    world::{ENV_SECRET, Sees, World, own},
};

/// Said by a line that ran to its end, so that one that never tried its misdeed does not count as contained.
const TRIED: &str = "TRIED";

/// A command that takes longer is no longer contained in time. Far above what any case takes.
const CASE_TIMEOUT: Duration = Duration::from_secs(30);

const LOOKS_MAX: usize = 10;

/// Laid before the code of each case in Python: raw system calls, and words for what they gave.
pub(super) const PRELUDE: &str = r#"
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
enum Text {
    Shell(&'static str),
    Python(&'static str),
}

/// What shows that the check sees an escape.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Control {
    /// None: the case shows by its own words that the attempt was made and refused.
    Words,
    /// The same command without walls (`BackendChoice::None`).
    Unwalled(Sees),
    /// The same command as a plain process: without walls nothing of a call lives on either.
    Plain(Sees),
}

/// One row of the battery.
#[derive(Clone)]
pub(super) struct Case {
    pub(super) id: &'static str,
    text: Text,
    /// Run in the same workspace as a call of its own, after the first has ended.
    then: Option<&'static str>,
    control: Control,
    words: Vec<&'static str>,
    needs: Vec<&'static str>,
    ends: Option<Ended>,
    exceeds: Option<Exceeded>,
    timeout: Duration,
    capture: bool,
}

/// A line of shell.
pub(super) fn sh(id: &'static str, line: &'static str) -> Case {
    Case::new(id, Text::Shell(line))
}

/// Python code.
pub(super) fn py(id: &'static str, code: &'static str) -> Case {
    Case { needs: vec!["python3"], ..Case::new(id, Text::Python(code)) }
}

impl Case {
    fn new(id: &'static str, text: Text) -> Self {
        Self {
            id,
            text,
            then: None,
            control: Control::Words,
            words: Vec::new(),
            needs: Vec::new(),
            ends: None,
            exceeds: None,
            timeout: CASE_TIMEOUT,
            capture: false,
        }
    }

    /// Without walls this is seen. Only where it harms nothing but the world of its case.
    pub(super) fn sees(self, what: Sees) -> Self {
        Self { control: Control::Unwalled(what), ..self }
    }

    /// As a plain process this is seen.
    pub(super) fn plainly_sees(self, what: Sees) -> Self {
        Self { control: Control::Plain(what), ..self }
    }

    /// What it must say inside: the refusal itself.
    pub(super) fn says(mut self, words: &'static str) -> Self {
        self.words.push(words);
        self
    }

    /// A program without which the case cannot be tried.
    pub(super) fn needs(mut self, program: &'static str) -> Self {
        self.needs.push(program);
        self
    }

    /// A second call in the same workspace.
    pub(super) fn then(self, line: &'static str) -> Self {
        Self { then: Some(line), ..self }
    }

    /// It does not come to its end by itself.
    pub(super) fn ends(self, ended: Ended) -> Self {
        Self { ends: Some(ended), ..self }
    }

    /// Or a bound ends it first, where the machine is fast or others fill the disk too.
    pub(super) fn or_exceeds(self, what: Exceeded) -> Self {
        Self { exceeds: Some(what), ..self }
    }

    pub(super) fn within(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Afterwards docket captures the workspace, makes a patch and delivers it.
    pub(super) fn captured(self) -> Self {
        Self { capture: true, ..self }
    }

    pub(super) fn class(&self) -> &'static str {
        self.id.rsplit_once('-').map_or(self.id, |(class, _)| class)
    }

    /// Whether there is anything that could tell an attempt from nothing at all.
    pub(super) fn can_fail(&self) -> bool {
        self.control != Control::Words || !self.words.is_empty() || self.ends.is_some() || self.capture
    }

    pub(super) fn has_control(&self) -> bool {
        self.control != Control::Words
    }

    pub(super) fn missing(&self) -> Option<&'static str> {
        self.needs.iter().copied().find(|program| !is_there(program))
    }

    fn specs(&self, world: &World) -> Vec<CommandSpec> {
        let shell = |line: &str| CommandSpec::shell(format!("{}\necho {TRIED}", world.fill(line)));
        let first = match self.text {
            Text::Shell(line) => shell(line),
            Text::Python(code) => {
                let code = format!("{PRELUDE}{}\nprint('{TRIED}', flush=True)", world.fill(code));
                CommandSpec::new([python().into_os_string(), "-c".into(), code.into()])
            }
        };
        let mut all = vec![first];
        all.extend(self.then.map(shell));
        for spec in &mut all {
            spec.timeout = self.timeout;
        }
        all
    }

    /// Runs the case behind a wall; what is wrong with how it ended, if anything.
    pub(super) async fn inside(
        &self,
        backend: BackendChoice,
        checked: &Checked,
        ground: &Ground,
    ) -> Vec<String> {
        let mut world = World::new();
        let mut workspace = None;
        if self.capture {
            workspace = Some(ground.workspace(&world).await);
        } else {
            own(&world.workspace());
        }
        let sandbox = sandbox(backend, &world, Some(checked)).await;
        let mut wrong = Vec::new();
        let mut said = Vec::new();
        for spec in self.specs(&world) {
            let begun = Instant::now();
            match sandbox.run(spec).await {
                Ok(out) => {
                    wrong.extend(self.ended_wrongly(&out));
                    said.extend(all_of(&out));
                    said.push(b'\n');
                }
                Err(SandboxError::Cwd { .. }) => said.extend(b"refused cwd\n"),
                Err(error) => wrong.push(format!("the sandbox failed: {error:?}")),
            }
            if begun.elapsed() > self.timeout + Duration::from_secs(10) {
                wrong.push(format!("the call took {:?}", begun.elapsed()));
            }
        }
        let text = String::from_utf8_lossy(&said).into_owned();
        let silent = self.words.iter().filter(|words| !text.contains(**words));
        wrong.extend(silent.map(|words| format!("it does not say {words:?}")));
        wrong.extend(world.escapes(&said).into_iter().map(|(sees, what)| format!("{sees:?}: {what}")));
        if let Some(workspace) = workspace {
            wrong.extend(ground.capture(&world, workspace).await);
            let after = world.escapes(b"").into_iter();
            wrong.extend(after.map(|(sees, what)| format!("after the capture: {sees:?}: {what}")));
        }
        if wrong.is_empty() { wrong } else { [wrong, vec![format!("said: {}", cut(&text))]].concat() }
    }

    fn ended_wrongly(&self, out: &CommandOutput) -> Option<String> {
        let tried = String::from_utf8_lossy(&out.stdout.bytes).contains(TRIED);
        match self.ends {
            _ if self.exceeds.is_some_and(|what| out.ended == Ended::Exceeded(what)) => None,
            Some(ends) => (out.ended != ends).then(|| format!("it ended with {:?}", out.ended)),
            None if out.ended == Ended::Exit(0) && tried => None,
            None => Some(format!("it was not tried to its end: {:?}", out.ended)),
        }
    }

    /// Runs the control, if there is one; what is wrong with it.
    pub(super) async fn outside(&self, ground: &Ground) -> Option<String> {
        let wanted = match self.control {
            Control::Words => return None,
            Control::Unwalled(sees) | Control::Plain(sees) => sees,
        };
        let mut world = World::new();
        if self.capture {
            drop(ground.workspace(&world).await);
        } else {
            own(&world.workspace());
        }
        let mut said = Vec::new();
        match self.control {
            Control::Plain(_) => {
                for spec in self.specs(&world) {
                    said.extend(plainly(&spec, &world));
                }
            }
            Control::Unwalled(_) | Control::Words => {
                let sandbox = sandbox(BackendChoice::None, &world, None).await;
                for spec in self.specs(&world) {
                    match sandbox.run(spec).await {
                        Ok(out) => said.extend(all_of(&out)),
                        Err(error) => said.extend(format!("{error:?}").bytes()),
                    }
                }
            }
        }
        let mut seen = world.escapes(&said);
        // One that forks and ends again and again is missed by a single look, and a signal takes its time where the
        // machine is busy.
        for _ in 0..LOOKS_MAX {
            if seen.iter().any(|(sees, _)| *sees == wanted) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            seen.extend(world.escapes(b""));
        }
        let found = seen.iter().any(|(sees, _)| *sees == wanted);
        (!found).then(|| {
            let text = cut(&String::from_utf8_lossy(&said));
            format!("the check did not see {wanted:?} without the sandbox, only {seen:?}; it said: {text}")
        })
    }
}

/// A sandbox around a world's workspace.
pub(super) async fn sandbox(backend: BackendChoice, world: &World, checked: Option<&Checked>) -> Sandbox {
    let mut config = SandboxConfig::new(backend, &world.workspace());
    config.env.push(("DOCKET_HOSTILE_CASE".to_owned(), world.nonce.clone()));
    match checked {
        Some(checked) => Sandbox::on(&config, checked).unwrap(),
        None => Sandbox::prepare(config).await.unwrap(),
    }
}

/// Both streams of a call.
pub(super) fn all_of(out: &CommandOutput) -> Vec<u8> {
    [&out.stdout.bytes[..], b"\n", &out.stderr.bytes].concat()
}

fn cut(text: &str) -> String {
    const SHOWN_CHARS: usize = 1_500;
    text.chars().take(SHOWN_CHARS).collect()
}

/// A process as any program of a person's would start it, with an environment that holds a key.
#[expect(clippy::disallowed_methods, reason = "the control of a sandbox test runs outside the sandbox")]
fn plainly(spec: &CommandSpec, world: &World) -> Vec<u8> {
    let said = world.at("said");
    let file = fs::OpenOptions::new().create(true).append(true).open(&said).unwrap();
    let mut command = Command::new(&spec.argv[0]);
    command.args(&spec.argv[1..]).current_dir(world.workspace()).stdin(Stdio::null());
    command.env(ENV_SECRET.0, ENV_SECRET.1).env("DOCKET_HOSTILE_CASE", &world.nonce);
    command.stdout(file.try_clone().unwrap()).stderr(file);
    let mut child = command.spawn().unwrap();
    let begun = Instant::now();
    while child.try_wait().unwrap().is_none() && begun.elapsed() < Duration::from_secs(5) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Only the process started here: what it left alive is what the check must see.
    let _ = child.kill();
    let _ = child.wait();
    fs::read(said).unwrap()
}

/// Python itself, not a script that looks for one.
pub(super) fn python() -> PathBuf {
    static FOUND: OnceLock<PathBuf> = OnceLock::new();
    FOUND.get_or_init(|| asked("python3", "import sys; print(sys.executable)").into()).clone()
}

#[expect(clippy::disallowed_methods, reason = "asks the host which programs it has")]
fn asked(program: &str, code: &str) -> String {
    let out = Command::new(program).args(["-c", code]).output();
    out.map(|out| String::from_utf8_lossy(&out.stdout).trim().to_owned()).unwrap_or_default()
}

fn is_there(program: &str) -> bool {
    static KNOWN: OnceLock<std::sync::Mutex<BTreeMap<String, bool>>> = OnceLock::new();
    let mut known = KNOWN.get_or_init(Default::default).lock().unwrap();
    *known.entry(program.to_owned()).or_insert_with(|| match program {
        "python3" => !python().as_os_str().is_empty(),
        "pytest" => asked("python3", "import pytest; print(1)") == "1",
        "setuptools" => asked("python3", "import setuptools; print(1)") == "1",
        "ipv6" => std::net::TcpListener::bind("[::1]:0").is_ok(),
        _ => {
            let path: OsString = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder: PathBuf| Path::new(&folder).join(program).is_file())
        }
    })
}
