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
    BackendChoice, CapturedStream, CommandExit, CommandIo, CommandOutput, CommandSpec, Limits,
    OutputListener, OwnershipError, OwnershipGuard, Sandbox, SandboxConfig, SandboxReport,
};
use docket_schema::{
    message::{CallId, ToolUse},
    policy::{AllowList, Policy, RuleVerdict},
    tool::{ExceededResource, NetworkActivity},
};
use docket_worker::{
    bootstrap::SandboxChoice,
    policy::{PolicyDecision, RuleScope, evaluate_policies, network_grant},
    tools::quote,
};
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    context::CliContext,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    services::worker_supervisor,
};

/// What `timeout` and others answer with: ended for its time, or for using too much.
const EXIT_LIMIT: u8 = 124;
/// docket itself could not run it.
const EXIT_NOT_RUN: u8 = 125;
/// A policy forbids it, or would ask.
const EXIT_FORBIDDEN: u8 = 126;
/// Added to the number of a signal, as shells do.
const EXIT_SIGNAL_BASE: u8 = 128;

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
pub(crate) struct SandboxArgs {
    /// The folder that the command may write to
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// A policy in TOML, beside the one of docket.toml; the strictest verdict wins
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Which walls: auto, bubblewrap, namespaces, none [default: `worker.sandbox` of docket.toml, auto]
    #[arg(long, value_name = "KIND", value_parser = worker_supervisor::parse_sandbox_arg)]
    sandbox: Option<SandboxChoice>,
    /// Seconds after which it is ended
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    limits: SandboxLimitArgs,
    /// The command
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Limits for this command in place of those of `[worker]`.
#[derive(Debug, Default, clap::Args)]
struct SandboxLimitArgs {
    /// Memory of all its processes together, such as 512MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::config::parse_size)]
    memory: Option<u64>,
    /// Processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processes: Option<u64>,
    /// What the workspace may hold, such as 2GiB
    #[arg(long, value_name = "SIZE", value_parser = crate::config::parse_size)]
    disk: Option<u64>,
}

impl SandboxLimitArgs {
    fn apply_to(&self, limits: Limits) -> Limits {
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
struct SandboxRow<'a> {
    /// `exit`, `signal`, `timed_out` or `exceeded`.
    ended: &'static str,
    /// Its own status, or the signal's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// Of what it used too much.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<ExceededResource>,
    stdout: String,
    stderr: String,
    /// What was left out in the middle of each, in bytes.
    left_out: [u64; 2],
    /// Protected paths that were made as before again.
    put_back: &'a [String],
    duration_ms: u64,
    /// What it reached, and what it was refused, where the policy gives it the network.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a NetworkActivity>,
    /// The walls.
    layers: &'a SandboxReport,
}

/// Runs it.
pub(crate) async fn run_sandbox(cx: CliContext, args: SandboxArgs) -> CliResult {
    let policies = load_policies(&cx, args.policy.as_deref())?;
    let judged = evaluate_policies(&policies, &as_tool(&args.command), RuleScope::Descendants);
    if judged.ruling != RuleVerdict::Allow {
        print_refusal(&cx, &judged);
        return Ok(ExitKind::Status(EXIT_FORBIDDEN));
    }
    let network = network_grant(&policies, &as_tool(&args.command), RuleScope::Descendants);
    match Box::pin(run_sandboxed(&cx, &args, network)).await {
        Err(failure) if failure.exit == ExitKind::Failed => {
            Err(CliError { exit: ExitKind::Status(EXIT_NOT_RUN), error: failure.error })
        }
        other => other,
    }
}

fn load_policies(cx: &CliContext, file: Option<&Path>) -> CliResult<Vec<Policy>> {
    let given = file.map(policy_file::read_policy_file).transpose()?;
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

fn print_refusal(cx: &CliContext, judged: &PolicyDecision) {
    let (reason, about) = (display::sanitize_line(&judged.reason), display::sanitize_line(&judged.subject));
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "ended": "refused", "verdict": judged.ruling, "rule": judged.rule_id, "reason": judged.reason,
            "about": judged.subject,
        }));
        return;
    }
    let says = if judged.ruling == RuleVerdict::Ask { "a person would be asked" } else { "refused" };
    let why = if reason.is_empty() { String::new() } else { format!(": {reason}") };
    display::print_note(&format!("{says} by the policy's rule `{}`{why} ({about})", judged.rule_id));
}

async fn run_sandboxed(cx: &CliContext, args: &SandboxArgs, network: Option<AllowList>) -> CliResult {
    let choice = values::to_backend_choice(args.sandbox.unwrap_or(cx.config.sandbox));
    let (workspace, home) = (args.workspace.canonicalize(), cx.home.path().canonicalize());
    if let (Ok(workspace), Ok(home)) = (workspace, home)
        && (workspace.starts_with(&home) || home.starts_with(&workspace))
    {
        let message = format!(
            "{} holds docket's own home, or lies in it: name another folder, or another home with --home",
            workspace.display()
        );
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let lent = borrow_workspace(&args.workspace, choice)?;
    let mut config =
        SandboxConfig::new(choice, lent.as_ref().map_or(&args.workspace, |lent| lent.0.folder()));
    config.workspace = config.workspace.canonicalize().unwrap_or(config.workspace);
    config.limits = args.limits.apply_to(cx.config.sandbox_limits);
    let sandbox = Sandbox::prepare(config).await.fail_as(ExitKind::Failed)?;
    let mut spec = match &args.command[..] {
        [line] => CommandSpec::shell(line),
        words => CommandSpec::new(words),
    };
    spec.timeout = Duration::from_secs(args.timeout);
    spec.network = network.map(Arc::new);
    let mut heard = if cx.is_json() { CommandIo::default() } else { passthrough_output() };
    let (stop, stopped) = tokio::sync::watch::channel(false);
    heard.stop = Some(stopped);
    let waited = tokio::spawn(wait_for_signal(stop)?);
    // A signal ends the command as its deadline would: what it changed of protected names is put back all the same, and
    // the folder given back.
    let output = sandbox.run_with_io(spec, heard).await.fail_as(ExitKind::Failed)?;
    let interrupted = waited.is_finished();
    waited.abort();
    if cx.is_json() {
        display::print_json(&sandbox_row(&output, sandbox.report()));
    } else {
        print_notes(&output, args.timeout);
    }
    drop(sandbox);
    drop(lent);
    if interrupted {
        return Err(CliError::new(ExitKind::Failed, "interrupted; the command was ended"));
    }
    Ok(ExitKind::Status(match output.exit {
        CommandExit::Exit(status) => u8::try_from(status & 0xff).unwrap_or(1),
        CommandExit::Signal(signal) => u8::try_from(signal).unwrap_or(0).saturating_add(EXIT_SIGNAL_BASE),
        CommandExit::TimedOut | CommandExit::Exceeded(_) => EXIT_LIMIT,
    }))
}

/// Ends at the first signal that asks for an end, and says so.
fn wait_for_signal(stop: tokio::sync::watch::Sender<bool>) -> CliResult<impl Future<Output = ()>> {
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
struct BorrowedWorkspace(OwnershipGuard);

fn borrow_workspace(workspace: &Path, choice: BackendChoice) -> CliResult<Option<BorrowedWorkspace>> {
    if choice == BackendChoice::None {
        return Ok(None);
    }
    match OwnershipGuard::new(workspace) {
        Ok(lent) => Ok(Some(BorrowedWorkspace(lent))),
        Err(error @ OwnershipError::SystemFolder(_)) => Err(error).fail_as(ExitKind::Usage),
        Err(error) => Err(error).fail_as(ExitKind::Failed),
    }
}

/// Both outputs to docket's own, as they come.
fn passthrough_output() -> CommandIo {
    fn passthrough_listener(
        mut stream: impl std::io::Write + Send + 'static,
        is_terminal: bool,
    ) -> OutputListener {
        let mut rest = Vec::new();
        Box::new(move |bytes| {
            // Who reads our output may be gone: the command goes on to its end all the same.
            let _ = if is_terminal {
                stream.write_all(escape_for_terminal(&mut rest, bytes).as_bytes())
            } else {
                stream.write_all(bytes)
            };
            let _ = stream.flush();
        })
    }
    CommandIo {
        stdout: Some(passthrough_listener(std::io::stdout(), std::io::stdout().is_terminal())),
        stderr: Some(passthrough_listener(std::io::stderr(), std::io::stderr().is_terminal())),
        stdin: None,
        stop: None,
    }
}

/// Bytes for a terminal. The first part of a character whose rest has not come waits in `rest`.
fn escape_for_terminal(rest: &mut Vec<u8>, bytes: &[u8]) -> String {
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
    display::sanitize_text(&String::from_utf8_lossy(&now)).into_owned()
}

fn sandbox_row<'a>(output: &'a CommandOutput, layers: &'a SandboxReport) -> SandboxRow<'a> {
    let (ended, status, exceeded) = match output.exit {
        CommandExit::Exit(status) => ("exit", Some(status), None),
        CommandExit::Signal(signal) => ("signal", Some(signal), None),
        CommandExit::TimedOut => ("timed_out", None, None),
        CommandExit::Exceeded(what) => ("exceeded", None, Some(what)),
    };
    let text = |captured: &CapturedStream| String::from_utf8_lossy(&captured.bytes).into_owned();
    let left = |captured: &CapturedStream| captured.total_bytes.saturating_sub(captured.bytes.len() as u64);
    SandboxRow {
        ended,
        status,
        exceeded,
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
        left_out: [left(&output.stdout), left(&output.stderr)],
        put_back: &output.restored_paths,
        duration_ms: output.duration_ms,
        network: output.network.as_ref(),
        layers,
    }
}

fn print_notes(output: &CommandOutput, timeout_s: u64) {
    match output.exit {
        CommandExit::Exit(_) | CommandExit::Signal(_) => {}
        CommandExit::TimedOut => display::print_note(&format!("ended after its time limit of {timeout_s} s")),
        CommandExit::Exceeded(what) => {
            display::print_note(&format!("ended, for it used more {} than allowed", what.as_noun()));
        }
    }
    for path in &output.restored_paths {
        display::print_note(&format!("made as before again: {}", display::sanitize_line(path)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn split_characters_are_joined_and_invalid_bytes_shown_at_once() {
        let mut rest = Vec::new();
        let euro = "€".as_bytes();
        assert_eq!(escape_for_terminal(&mut rest, &euro[..2]), "");
        assert_eq!(escape_for_terminal(&mut rest, &euro[2..]), "€");
        assert_eq!(escape_for_terminal(&mut rest, b"a\x1b[31m\xff"), "a\\e[31m\u{fffd}");
        assert!(rest.is_empty());
    }

    #[test]
    fn arguments_are_quoted_for_the_shell() {
        let tool = as_tool(&["git".into(), "commit".into(), "-m".into(), "it's; rm".into()]);
        assert_eq!(tool.args["command"], r"git commit -m 'it'\''s; rm'");
        assert_eq!(as_tool(&["a | b".into()]).args["command"], "a | b");
    }
}
