//! `docket shell`: opens a run's workspace, as it was at a turn, in the run's sandbox; a new run
//! can continue from the changes made there.

use crate::history::blobs;
use crate::history::lineage;
use std::{ffi::OsString, io::IsTerminal as _, path::Path};

use docket_sandbox::{CommandExit, CommandSpec, InteractionMode};
use docket_schema::{
    api::{ForkRequest, ResumeRequest, ResumeResponse},
    content::WorkspacePath,
    ids::{RunId, Turn},
    run::RunState,
    task::TaskSpec,
};
use docket_worker::{
    client::CoordinatorClient,
    run::{SessionChanges, ShellSession, ShellSessionConfig},
    workspace::BlobSink as _,
};

use crate::{
    commands::runs::{fork, resume::resolve_turn},
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    history::blobs::RemoteBlobs,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
        signals::StopSignals,
    },
};

/// Maximum number of changed paths listed before asking what to do.
const CHANGES_LISTED_MAX: usize = 20;

/// Command-line arguments of `docket shell`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Restores the workspace into a separate folder, exactly as it was at the end of turn N, and runs
the task's setup commands. Nothing you do there affects the run, the network or the rest of this
machine: the sandbox is that of the run's own commands. DOCKET_RUN and DOCKET_TURN identify the
run and the turn.

When you leave, your changes are listed and you choose: resume (a new run of the same task
continues from your changes; the old run ends if it is still running), fork (a new task continues
from them; the run is not changed), or discard. The model learns which paths a person changed.

With a command, the exit code is 0 if it succeeded and 1 if it did not. With --json, standard
output has one JSON object that describes the changes and what was done with them; the output of a
command goes to standard error.

Examples:
  docket shell 3f9c01ab
  docket shell 3f9c01ab --turn 7
  docket shell 3f9c01ab --turn 7 -- git log --oneline
  docket shell 3f9c01ab --turn 7 --then fork -- sed -i s/old/new/ src/config.py"
)]
pub(crate) struct ShellArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Turn at whose end the workspace is restored [default: the last completed turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// What to do with the changes [default: ask on a terminal, otherwise discard]
    #[arg(long, value_enum, value_name = "WHAT")]
    then: Option<AfterShell>,
    /// Command to run instead of a shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What to do with the changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum AfterShell {
    /// Continue in a new run of the same task
    Resume,
    /// Continue in a new task
    Fork,
    /// Discard the changes
    Discard,
}

/// A shell session in the output of `--json`; a stable format.
#[derive(Debug, serde::Serialize)]
struct ShellRow {
    /// The run whose workspace was opened.
    run: RunId,
    turn: Turn,
    /// Whether the command or shell succeeded.
    succeeded: bool,
    changed: Vec<WorkspacePath>,
    /// Whether commits, branches or stashes changed.
    git_changed: bool,
    /// Null if nothing was changed.
    then: Option<AfterShell>,
    /// The run that continues from the changes, or null.
    made: Option<fork::ForkRow>,
}

impl ShellRow {
    fn from_changes(target: &ShellTarget, succeeded: bool, changed: Option<&SessionChanges>) -> Self {
        let paths = changed.map_or(&[][..], |changed| &changed.paths);
        Self {
            run: target.run,
            turn: target.turn,
            succeeded,
            changed: paths.iter().map(|change| change.path.clone()).collect(),
            git_changed: changed.is_some_and(|changed| changed.git_changed),
            then: None,
            made: None,
        }
    }
}

/// The workspace to open.
struct ShellTarget {
    run: RunId,
    turn: Turn,
    state: RunState,
    spec: TaskSpec,
}

/// Opens the workspace and then continues from the changes.
pub(crate) async fn run_shell(cx: CliContext, args: ShellArgs) -> CliResult {
    // The home is not locked while a person works.
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let target = resolve_target(&access.client, &args).await?;
    let scratch = tempfile::Builder::new().prefix("shell-").tempdir_in(cx.home.ensure_folder("scratch")?)?;
    let mut visit = open_session(&cx, &access.client, &target, scratch.path()).await?;
    access.close().await?;
    let succeeded = run_attended(&cx, &visit, &target, args.command).await?;
    let changed = visit.collect_changes().fail_as(ExitKind::Failed)?;
    let mut row = ShellRow::from_changes(&target, succeeded, changed.as_ref());
    if let Some(changed) = changed {
        print_changes(&cx, &changed);
        let then = args.then.map_or_else(ask_next_step, Ok)?;
        row.then = Some(then);
        match then {
            AfterShell::Discard => display::print_note("discarded"),
            AfterShell::Resume | AfterShell::Fork => {
                row.made = continue_from_changes(&cx, &target, changed, then).await?
            }
        }
    } else {
        display::print_note("nothing was changed");
    }
    if cx.is_json() {
        display::print_json(&row);
    }
    Ok(if succeeded { ExitKind::Ok } else { ExitKind::Failed })
}

async fn resolve_target(client: &CoordinatorClient, args: &ShellArgs) -> CliResult<ShellTarget> {
    let run = resolve::resolve_run(client, &args.id).await?;
    let task = client.get_run(run).await?.task;
    let spec = client.get_task(task).await?.task.spec;
    let history = lineage::read_folded_run(client, run).await?;
    let turn = resolve_turn(&history, args.turn)?;
    let state = history.state_at_end(turn).fail_as(ExitKind::Refused)?;
    Ok(ShellTarget { run, turn, state, spec })
}

async fn open_session(
    cx: &CliContext,
    client: &CoordinatorClient,
    target: &ShellTarget,
    scratch: &Path,
) -> CliResult<ShellSession> {
    let (run, turn) = (target.run.short(), target.turn);
    let terminal = std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned());
    let env = [
        ("DOCKET_RUN", target.run.to_string()),
        ("DOCKET_TURN", turn.to_string()),
        ("TERM", terminal),
        ("PS1", format!("{run}@{turn} \\w $ ")),
    ];
    let place = ShellSessionConfig {
        folder: scratch.join("workspace"),
        cache: cx.home.ensure_folder("cache")?,
        sandbox: cx.config.sandbox,
        limits: cx.config.sandbox_limits,
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
    };
    ShellSession::open(place, &target.spec, &target.state, &RemoteBlobs(client))
        .await
        .fail_as(ExitKind::Failed)
}

/// Returns whether the command or shell succeeded.
async fn run_attended(
    cx: &CliContext,
    visit: &ShellSession,
    target: &ShellTarget,
    command: Vec<OsString>,
) -> CliResult<bool> {
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let spec = if command.is_empty() {
        if !on_terminal {
            let message = "a shell needs a terminal; without one, specify a command after `--`";
            return Err(CliError::new(ExitKind::Usage, message));
        }
        display::print_note(&format!(
            "copy of run {} at the end of turn {}; leave with exit or Ctrl-D",
            target.run.short(),
            target.turn
        ));
        CommandSpec::interactive_shell()
    } else {
        CommandSpec::new(command)
    };
    let how = match (on_terminal, cx.is_json()) {
        (true, _) => InteractionMode::Terminal,
        (false, true) => InteractionMode::PipesToStderr,
        (false, false) => InteractionMode::Pipes,
    };
    let stop = StopSignals::listen()?;
    tokio::select! {
        ended = visit.sandbox().run_interactive(spec, how) => match ended.fail_as(ExitKind::Failed)? {
            CommandExit::Exit(status) => Ok(status == 0),
            CommandExit::Signal(_) | CommandExit::TimedOut | CommandExit::Exceeded(_) => Ok(false),
        },
        () = stop.drain.cancelled() => Err(CliError::new(ExitKind::Failed, "interrupted; the changes were discarded")),
    }
}

fn print_changes(cx: &CliContext, changed: &SessionChanges) {
    if cx.is_json() {
        return;
    }
    display::print_note(&format!("changed: {} paths", changed.paths.len()));
    for change in changed.paths.iter().take(CHANGES_LISTED_MAX) {
        let mark = if change.entry.is_some() { "~" } else { "-" };
        display::print_note(&format!("  {mark} {}", display::sanitize_line(&change.path.to_string())));
    }
    if changed.paths.len() > CHANGES_LISTED_MAX {
        display::print_note(&format!("  and {} more", changed.paths.len() - CHANGES_LISTED_MAX));
    }
    if changed.git_changed {
        display::print_note("  ~ .git (commits, branches or stashes)");
    }
}

/// Asks what to do with the changes; without a terminal they are discarded.
fn ask_next_step() -> CliResult<AfterShell> {
    if !std::io::stdin().is_terminal() {
        return Ok(AfterShell::Discard);
    }
    loop {
        display::print_note("continue from these changes? [r]esume the task, [f]ork a new one, [d]iscard");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(AfterShell::Discard);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "r" | "resume" => return Ok(AfterShell::Resume),
            "f" | "fork" => return Ok(AfterShell::Fork),
            "d" | "discard" => return Ok(AfterShell::Discard),
            _ => {}
        }
    }
}

async fn continue_from_changes(
    cx: &CliContext,
    target: &ShellTarget,
    changed: SessionChanges,
    then: AfterShell,
) -> CliResult<Option<fork::ForkRow>> {
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let client = &access.client;
    let mut upload = blobs::BlobUpload::new(client);
    let stored = || "cannot store the changes".to_owned();
    for (blob, bytes) in changed.blobs {
        upload.put(blob, bytes).await.fail_with(ExitKind::Failed, stored)?;
    }
    upload.flush().await.fail_with(ExitKind::Failed, stored)?;
    let (turn, edit) = (Some(target.turn.0), Some(changed.edit));
    let row = match then {
        AfterShell::Fork => {
            let asked = fork::ForkChangeArgs::default().check(cx)?.build_request(client, turn, 1).await?;
            let made = client.fork(target.run, &ForkRequest { edit, ..asked }).await?;
            if !cx.is_json() {
                fork::print_forks(cx, &made);
            }
            fork::fork_rows(&made).next()
        }
        AfterShell::Resume => {
            let made = client.resume_with(target.run, &ResumeRequest { turn, edit, hint: None }).await?;
            if !cx.is_json() {
                crate::commands::runs::resume::print_resumed(cx, &made);
            }
            let ResumeResponse { task, run, parent, turn } = made;
            Some(fork::ForkRow { task, run, parent: parent.run, parent_seq: parent.seq.0, turn })
        }
        AfterShell::Discard => None,
    };
    if access.is_local() {
        display::print_note("no workers are running; start them with `docket up`");
    }
    access.close().await?;
    Ok(row)
}
