//! `docket sandbox`: one command behind the walls that a run's commands have, for a person who wants to see what they
//! hold, or what a policy says.

use crate::config::values;
use crate::tasks::policy_file;
use std::{
    ffi::OsString,
    io::IsTerminal as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use docket_sandbox::{
    BackendChoice, Captured, CommandOutput, CommandSpec, Ended, Heard, LendError, Lent, Limits, Listener,
    Sandbox, SandboxConfig, SandboxReport,
};
use docket_schema::{
    message::{CallId, ToolUse},
    policy::{AllowList, Policy, Ruling},
    tool::{Exceeded, NetworkSeen},
};
use docket_worker::{
    bootstrap::SandboxChoice,
    policy::{Judgement, Reach, judge, network},
    tools::quote,
};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    context::Context,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    services::supervise,
};

/// What `timeout` and others answer with: ended for its time, or for using too much.
const CUT: u8 = 124;
/// docket itself could not run it.
const NOT_RUN: u8 = 125;
/// A policy forbids it, or would ask.
const FORBIDDEN: u8 = 126;
/// Added to the number of a signal, as shells do.
const SIGNALLED: u8 = 128;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The command stands as a run's own commands do: an allow list of the system, read-only; the workspace as
/workspace, writable but for hooks and configuration of git and of docket; no network but what the
policy lists; the same limits.
One argument is a shell line, as a model gives it; several are a program and its arguments. Its input is
empty. What it says is passed on as it comes; on a terminal control characters are shown as text.

With --policy the command is first held against that policy, and docket.toml's own; a refusal runs nothing.
Where docket is root the workspace is given to the user that commands run as, and given back at the end.

The exit code is the command's own, and 128 + N after signal N, 124 where its time or a limit ended it,
125 where docket could not run it, 126 where a policy refuses it or would ask a person.

Examples:
  docket sandbox --workspace . -- 'cargo test 2>&1 | tail'
  docket sandbox --policy strict.toml --workspace /tmp/try -- git push origin main
  docket sandbox --workspace . --memory 512MiB --timeout 10 -- python3 hog.py
  docket --json sandbox --workspace . -- true | jq .layers"
)]
pub(crate) struct Args {
    /// The folder that the command may write to
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// A policy in TOML, beside the one of docket.toml; the strictest verdict wins
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Which walls: auto, bubblewrap, namespaces, none [default: `worker.sandbox` of docket.toml, auto]
    #[arg(long, value_name = "KIND", value_parser = supervise::sandbox)]
    sandbox: Option<SandboxChoice>,
    /// Seconds after which it is ended
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    limits: LimitArgs,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Limits for this command in place of those of `[worker]`.
#[derive(Debug, Default, clap::Args)]
struct LimitArgs {
    /// Memory of all its processes together, such as 512MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::config::size)]
    memory: Option<u64>,
    /// Processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processes: Option<u64>,
    /// What the workspace may hold, such as 2GiB
    #[arg(long, value_name = "SIZE", value_parser = crate::config::size)]
    disk: Option<u64>,
}

impl LimitArgs {
    fn over(&self, limits: Limits) -> Limits {
        Limits {
            memory_bytes: self.memory.unwrap_or(limits.memory_bytes),
            processes: self.processes.unwrap_or(limits.processes),
            disk_bytes: self.disk.unwrap_or(limits.disk_bytes),
            ..limits
        }
    }
}

/// What `--json` shows: stable.
#[derive(Debug, Serialize)]
struct Row<'a> {
    /// `exit`, `signal`, `timed_out` or `exceeded`.
    ended: &'static str,
    /// Its own status, or the signal's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// Of what it used too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<Exceeded>,
    stdout: String,
    stderr: String,
    /// What was left out in the middle of each, in bytes.
    left_out: [u64; 2],
    /// Protected paths that were made as before again.
    put_back: &'a [String],
    duration_ms: u64,
    /// What it reached, and what it was refused, where the policy gives it the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a NetworkSeen>,
    /// The walls.
    layers: &'a SandboxReport,
}

/// Runs it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let policies = policies(&cx, args.policy.as_deref())?;
    let judged = judge(&policies, &as_tool(&args.command), Reach::Below);
    if judged.ruling != Ruling::Allow {
        say_refused(&cx, &judged);
        return Ok(Exit::Status(FORBIDDEN));
    }
    let network = network(&policies, &as_tool(&args.command), Reach::Below);
    match Box::pin(sandboxed(&cx, &args, network)).await {
        Err(failure) if failure.exit == Exit::Failed => {
            Err(Failure { exit: Exit::Status(NOT_RUN), error: failure.error })
        }
        other => other,
    }
}

fn policies(cx: &Context, file: Option<&Path>) -> Outcome<Vec<Policy>> {
    let given = file.map(policy_file::read).transpose()?;
    Ok(cx.config.policy.iter().cloned().chain(given).collect())
}

/// The command as a model would ask for it.
fn as_tool(command: &[OsString]) -> ToolUse {
    let line = match command {
        [line] => line.to_string_lossy().into_owned(),
        words => words.iter().map(|word| quote(&word.to_string_lossy())).collect::<Vec<_>>().join(" "),
    };
    let args = serde_json::json!({ "command": line });
    ToolUse { call: CallId("sandbox".to_owned()), name: "run_command".to_owned(), args, malformed: None }
}

fn say_refused(cx: &Context, judged: &Judgement) {
    let (reason, about) = (display::line(&judged.reason), display::line(&judged.about));
    if cx.json() {
        display::say_json(&serde_json::json!({
            "ended": "refused", "verdict": judged.ruling, "rule": judged.rule, "reason": judged.reason,
            "about": judged.about,
        }));
        return;
    }
    let says = if judged.ruling == Ruling::Ask { "a person would be asked" } else { "refused" };
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    display::note(&format!("{says} by the policy's rule `{}`{why} ({about})", judged.rule));
}

async fn sandboxed(cx: &Context, args: &Args, network: Option<AllowList>) -> Outcome {
    let choice = values::backend(args.sandbox.unwrap_or(cx.config.sandbox));
    let (workspace, home) = (args.workspace.canonicalize(), cx.home.path().canonicalize());
    if let (Ok(workspace), Ok(home)) = (workspace, home)
        && (workspace.starts_with(&home) || home.starts_with(&workspace))
    {
        let message = format!(
            "{} holds docket's own home, or lies in it: name another folder, or another home with --home",
            workspace.display()
        );
        return Err(Failure::new(Exit::Usage, message));
    }
    let lent = lend(&args.workspace, choice)?;
    let mut config =
        SandboxConfig::new(choice, lent.as_ref().map_or(&args.workspace, |lent| lent.0.folder()));
    config.workspace = config.workspace.canonicalize().unwrap_or(config.workspace);
    config.limits = args.limits.over(cx.config.limits);
    let sandbox = Sandbox::prepare(config).await.fail_as(Exit::Failed)?;
    let mut spec = match &args.command[..] {
        [line] => CommandSpec::shell(line),
        words => CommandSpec::new(words),
    };
    spec.timeout = Duration::from_secs(args.timeout);
    spec.network = network.map(Arc::new);
    let mut heard = if cx.json() { Heard::default() } else { passed_on() };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    heard.stop = Some(stopped);
    let waited = tokio::spawn(wait_for_signal(stop)?);
    // A signal ends the command as its deadline would: what it changed of protected names is put back all the same, and
    // the folder given back.
    let output = sandbox.run_heard(spec, heard).await.fail_as(Exit::Failed)?;
    let interrupted = waited.is_finished();
    waited.abort();
    if cx.json() {
        display::say_json(&row(&output, sandbox.report()));
    } else {
        tell(&output, args.timeout);
    }
    drop(sandbox);
    drop(lent);
    if interrupted {
        return Err(Failure::new(Exit::Failed, "interrupted; the command was ended"));
    }
    Ok(Exit::Status(match output.ended {
        Ended::Exit(status) => u8::try_from(status & 0xff).unwrap_or(1),
        Ended::Signal(signal) => u8::try_from(signal).unwrap_or(0).saturating_add(SIGNALLED),
        Ended::TimedOut | Ended::Exceeded(_) => CUT,
    }))
}

/// Ends at the first signal that asks for an end, and says so.
fn wait_for_signal(stop: tokio::sync::watch::Sender<bool>) -> Outcome<impl Future<Output = ()>> {
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup(), SignalKind::quit()];
    let mut signals = Vec::new();
    for kind in kinds {
        signals.push(signal(kind)?);
    }
    Ok(async move {
        let first = signals.iter_mut().map(|signal| Box::pin(signal.recv()));
        futures_util::future::select_all(first).await;
        let _ = stop.send(true);
    })
}

/// The workspace in the hands of the user that commands run as.
struct Given(Lent);

fn lend(workspace: &Path, choice: BackendChoice) -> Outcome<Option<Given>> {
    if choice == BackendChoice::None {
        return Ok(None);
    }
    match Lent::new(workspace) {
        Ok(lent) => Ok(Some(Given(lent))),
        Err(error @ LendError::System(_)) => Err(error).fail_as(Exit::Usage),
        Err(error) => Err(error).fail_as(Exit::Failed),
    }
}

/// Both outputs to docket's own, as they come.
fn passed_on() -> Heard {
    fn to(mut stream: impl std::io::Write + Send + 'static, is_terminal: bool) -> Listener {
        let mut rest = Vec::new();
        Box::new(move |bytes| {
            // Who reads our output may be gone: the command goes on to its end all the same.
            let _ = if is_terminal {
                stream.write_all(harmless(&mut rest, bytes).as_bytes())
            } else {
                stream.write_all(bytes)
            };
            let _ = stream.flush();
        })
    }
    Heard {
        stdout: Some(to(std::io::stdout(), std::io::stdout().is_terminal())),
        stderr: Some(to(std::io::stderr(), std::io::stderr().is_terminal())),
        stdin: None,
        stop: None,
    }
}

/// Bytes for a terminal. The first part of a character whose rest has not come waits in `rest`.
fn harmless(rest: &mut Vec<u8>, bytes: &[u8]) -> String {
    const CHARACTER_BYTES_MAX: usize = 4;
    rest.extend_from_slice(bytes);
    let whole = match std::str::from_utf8(rest) {
        Err(error)
            if error.error_len().is_none() && rest.len() - error.valid_up_to() < CHARACTER_BYTES_MAX =>
        {
            error.valid_up_to()
        }
        Ok(_) | Err(_) => rest.len(),
    };
    let now: Vec<u8> = rest.drain(..whole).collect();
    display::block(&String::from_utf8_lossy(&now)).into_owned()
}

fn row<'a>(output: &'a CommandOutput, layers: &'a SandboxReport) -> Row<'a> {
    let (ended, status, exceeded) = match output.ended {
        Ended::Exit(status) => ("exit", Some(status), None),
        Ended::Signal(signal) => ("signal", Some(signal), None),
        Ended::TimedOut => ("timed_out", None, None),
        Ended::Exceeded(what) => ("exceeded", None, Some(what)),
    };
    let text = |captured: &Captured| String::from_utf8_lossy(&captured.bytes).into_owned();
    let left = |captured: &Captured| captured.total_bytes.saturating_sub(captured.bytes.len() as u64);
    Row {
        ended,
        status,
        exceeded,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        left_out: [left(&output.stdout), left(&output.stderr)],
        put_back: &output.put_back,
        duration_ms: output.duration_ms,
        network: output.network.as_ref(),
        layers,
    }
}

fn tell(output: &CommandOutput, timeout_s: u64) {
    match output.ended {
        Ended::Exit(_) | Ended::Signal(_) => {}
        Ended::TimedOut => display::note(&format!("ended after its time limit of {timeout_s} s")),
        Ended::Exceeded(what) => {
            display::note(&format!("ended, for it used more {} than allowed", what.noun()));
        }
    }
    for path in &output.put_back {
        display::note(&format!("made as before again: {}", display::line(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_come_in_parts_are_shown_whole_and_bad_ones_at_once() {
        let mut rest = Vec::new();
        let euro = "€".as_bytes();
        assert_eq!(harmless(&mut rest, &euro[..2]), "");
        assert_eq!(harmless(&mut rest, &euro[2..]), "€");
        assert_eq!(harmless(&mut rest, b"a\x1b[31m\xff"), "a\\e[31m\u{fffd}");
        assert!(rest.is_empty());
    }

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        let tool = as_tool(&["git".into(), "commit".into(), "-m".into(), "it's; rm".into()]);
        assert_eq!(tool.args["command"], r"git commit -m 'it'\''s; rm'");
        assert_eq!(as_tool(&["a | b".into()]).args["command"], "a | b");
    }
}
