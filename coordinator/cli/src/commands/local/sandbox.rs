//! `docket sandbox`: runs one command in the sandbox of a run, to try out its limits or a policy.

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

/// Time or resource limit reached; `timeout` uses the same code.
const EXIT_LIMIT: u8 = 124;
/// docket could not run the command.
const EXIT_NOT_RUN: u8 = 125;
/// The policy refuses the command or would ask a person.
const EXIT_FORBIDDEN: u8 = 126;
/// Added to the signal number, as shells do.
const EXIT_SIGNAL_BASE: u8 = 128;

/// Command-line arguments of `docket sandbox`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The command runs like a run's own commands: an allow list of system files, read-only; the
workspace as /workspace, writable except for the hooks and configuration of git and docket; no
network except what the policy lists; the same limits. A single argument is a shell command, as a
model gives it; several arguments are a program and its arguments. Standard input is empty. Output
is passed through; on a terminal, control characters are shown as text.

With --policy the command is first checked against that policy and the one in docket.toml; a
refused command is not run. If docket runs as root, the workspace is owned by the sandbox user
while the command runs, and restored afterwards.

The exit code is that of the command, 128 + N after signal N, 124 if it exceeded its time or a
resource limit, 125 if docket could not run it, and 126 if a policy refuses it or would ask a
person.

Examples:
  docket sandbox --workspace . -- 'cargo test 2>&1 | tail'
  docket sandbox --policy strict.toml --workspace /tmp/try -- git push origin main
  docket sandbox --workspace . --memory 512MiB --timeout 10 -- python3 hog.py
  docket --json sandbox --workspace . -- true | jq .layers"
)]
pub(crate) struct SandboxArgs {
    /// Folder that the command may write to
    #[arg(long, value_name = "DIR")]
    workspace: PathBuf,
    /// Policy file (TOML), in addition to the policy in docket.toml; the stricter verdict wins
    #[arg(long, value_name = "FILE")]
    policy: Option<PathBuf>,
    /// Sandbox: auto, bubblewrap, namespaces, none [default: `worker.sandbox` of docket.toml, auto]
    #[arg(long, value_name = "KIND", value_parser = worker_supervisor::parse_sandbox_arg)]
    sandbox: Option<SandboxChoice>,
    /// Time limit in seconds
    #[arg(long, value_name = "S", default_value_t = 300, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    timeout: u64,
    #[command(flatten)]
    limits: SandboxLimitArgs,
    /// Command to run
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// Limits for this command, in place of those in `[worker]`.
#[derive(Debug, Default, clap::Args)]
struct SandboxLimitArgs {
    /// Memory limit for all processes together, e.g. 512MiB
    #[arg(long, value_name = "SIZE", value_parser = crate::config::parse_size)]
    memory: Option<u64>,
    /// Maximum number of processes and threads
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    processes: Option<u64>,
    /// Disk limit of the workspace, e.g. 2GiB
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

/// The output of `--json`; a stable format.
#[derive(Debug, Serialize)]
struct SandboxRow<'a> {
    /// `exit`, `signal`, `timed_out` or `exceeded`.
    ended: &'static str,
    /// The exit status or the signal number.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<i32>,
    /// The resource whose limit was exceeded.
    #[serde(skip_serializing_if = "Option::is_none")]
    exceeded: Option<ExceededResource>,
    stdout: String,
    stderr: String,
    /// Bytes omitted from the middle of each output.
    left_out: [u64; 2],
    /// Protected paths that were restored.
    put_back: &'a [String],
    duration_ms: u64,
    /// Network access that was used or refused, if the policy grants any.
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<&'a NetworkActivity>,
    /// The sandbox layers.
    layers: &'a SandboxReport,
}

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

/// Builds the tool call that a model would make for the command.
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
            "{} contains docket's home or is inside it; choose another folder, or another home with --home",
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
    // A signal ends the command like a timeout does, so that protected files and ownership are still
    // restored.
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

/// Resolves on the first termination signal and reports it.
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

/// The workspace while it is owned by the sandbox user.
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

/// Passes both outputs through as they arrive.
fn passthrough_output() -> CommandIo {
    fn passthrough_listener(
        mut stream: impl std::io::Write + Send + 'static,
        is_terminal: bool,
    ) -> OutputListener {
        let mut rest = Vec::new();
        Box::new(move |bytes| {
            // The reader of our output may be gone; the command still runs to its end.
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

/// Escapes bytes for a terminal. An incomplete character at the end is kept in `rest`.
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
        CommandExit::TimedOut => display::print_note(&format!("time limit of {timeout_s} s exceeded")),
        CommandExit::Exceeded(what) => {
            display::print_note(&format!("{} limit exceeded", what.as_noun()));
        }
    }
    for path in &output.restored_paths {
        display::print_note(&format!("restored: {}", display::sanitize_line(path)));
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
