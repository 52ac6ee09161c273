//! `docket shell`: a person in a run's workspace as it was at a turn, behind the walls of its commands;
//! and what they changed there, as the beginning of a run that goes on from it.

use crate::history::blobs;
use crate::history::lineage;
use std::{ffi::OsString, io::IsTerminal as _, path::Path};

use docket_sandbox::{Attended, CommandSpec, Ended};
use docket_schema::{
    content::WorkPath,
    ids::{RunId, Turn},
    run::RunState,
    task::TaskSpec,
    wire::{ForkRequest, ResumeRequest, ResumeResponse},
};
use docket_worker::{
    client::Client,
    run::{Changed, Visit, VisitPlace},
    workspace::BlobSink as _,
};

use crate::{
    commands::runs::{fork, resume::turn_of},
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    history::blobs::Remote,
    output::{
        display,
        fail::{Exit, FailWith as _, Failure, Outcome},
        signals::Stop,
    },
};

/// Changed paths that are shown before a person is asked: a screen of them.
const SHOWN_MAX: usize = 20;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The workspace is made anew in a folder of its own, byte for byte as it was at the end of turn N, and the
task's setup commands are run. Nothing you do there reaches the run, the network or the rest of this
machine: the walls are those of the run's own commands. DOCKET_RUN and DOCKET_TURN say where you are.

When you leave, what you changed is shown. Then you choose: resume (a new run of the same task goes on
from what you left, and the old one ends if it still runs), fork (a new task goes on from it, the run is
not touched), or discard. The model is told which paths a person changed.

With a command the exit code is 0 where it succeeded and 1 where it did not. With --json standard output
holds one JSON object, which says what was changed and what became of it; what a command says then goes
to standard error.

Examples:
  docket shell 3f9c01ab
  docket shell 3f9c01ab --turn 7
  docket shell 3f9c01ab --turn 7 -- git log --oneline
  docket shell 3f9c01ab --turn 7 --then fork -- sed -i s/old/new/ src/config.py"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// The turn at whose end the workspace is wanted [default: the last one that ended]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// What becomes of what was changed [default: asked on a terminal, else discard]
    #[arg(long, value_enum, value_name = "WHAT")]
    then: Option<Then>,
    /// A command to run there, in place of a shell
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What becomes of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "snake_case")]
enum Then {
    /// A new run of the same task goes on from it
    Resume,
    /// A new task goes on from it
    Fork,
    /// It is thrown away
    Discard,
}

/// A visit as `--json` shows it: stable.
#[derive(Debug, serde::Serialize)]
struct Row {
    /// The run that was visited.
    run: RunId,
    turn: Turn,
    /// Whether the command, or the shell, ended well.
    succeeded: bool,
    changed: Vec<WorkPath>,
    /// Whether commits, branches or stashes changed.
    git_changed: bool,
    /// Null where nothing was changed.
    then: Option<Then>,
    /// What goes on from the change; null where nothing does.
    made: Option<fork::Row>,
}

impl Row {
    fn of(target: &Target, succeeded: bool, changed: Option<&Changed>) -> Self {
        let paths = changed.map_or(&[][..], |changed| &changed.paths);
        Self {
            run: target.run,
            turn: target.turn,
            succeeded,
            changed: paths.iter().map(|change| change.path.clone()).collect(),
            git_changed: changed.is_some_and(|changed| changed.git),
            then: None,
            made: None,
        }
    }
}

/// What is visited.
struct Target {
    run: RunId,
    turn: Turn,
    state: RunState,
    spec: TaskSpec,
}

/// Opens the workspace, and goes on from what was changed.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    // The home is not held while a person works.
    let access = Access::open(&cx, Need::Read).await?;
    let target = target(&access.client, &args).await?;
    let scratch = tempfile::Builder::new().prefix("shell-").tempdir_in(cx.home.folder("scratch")?)?;
    let mut visit = open(&cx, &access.client, &target, scratch.path()).await?;
    access.close().await?;
    let succeeded = attend(&cx, &visit, &target, args.command).await?;
    let changed = visit.changed().fail_as(Exit::Failed)?;
    let mut row = Row::of(&target, succeeded, changed.as_ref());
    if let Some(changed) = changed {
        show(&cx, &changed);
        let then = args.then.map_or_else(ask, Ok)?;
        row.then = Some(then);
        match then {
            Then::Discard => display::note("discarded"),
            Then::Resume | Then::Fork => row.made = go_on(&cx, &target, changed, then).await?,
        }
    } else {
        display::note("nothing was changed");
    }
    if cx.json() {
        display::say_json(&row);
    }
    Ok(if succeeded { Exit::Ok } else { Exit::Failed })
}

async fn target(client: &Client, args: &Args) -> Outcome<Target> {
    let run = resolve::run(client, &args.id).await?;
    let task = client.run(run).await?.task;
    let spec = client.task(task).await?.task.spec;
    let history = lineage::history(client, run).await?;
    let turn = turn_of(&history, args.turn)?;
    let state = history.state_at_end(turn).fail_as(Exit::Refused)?;
    Ok(Target { run, turn, state, spec })
}

async fn open(cx: &Context, client: &Client, target: &Target, scratch: &Path) -> Outcome<Visit> {
    let (run, turn) = (target.run.short(), target.turn);
    let terminal = std::env::var("TERM").unwrap_or_else(|_| "dumb".to_owned());
    let env = [
        ("DOCKET_RUN", target.run.to_string()),
        ("DOCKET_TURN", turn.to_string()),
        ("TERM", terminal),
        ("PS1", format!("{run}@{turn} \\w $ ")),
    ];
    let place = VisitPlace {
        folder: scratch.join("workspace"),
        cache: cx.home.folder("cache")?,
        sandbox: cx.config.sandbox,
        limits: cx.config.limits,
        env: env.map(|(name, value)| (name.to_owned(), value)).into(),
    };
    Visit::open(place, &target.spec, &target.state, &Remote(client)).await.fail_as(Exit::Failed)
}

/// Whether the command, or the shell, ended well.
async fn attend(cx: &Context, visit: &Visit, target: &Target, command: Vec<OsString>) -> Outcome<bool> {
    let on_terminal = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
    let spec = if command.is_empty() {
        if !on_terminal {
            let message = "a shell needs a terminal; give a command after `--` where there is none";
            return Err(Failure::new(Exit::Usage, message));
        }
        display::note(&format!(
            "run {} at the end of turn {}, in a copy; leave with exit or Ctrl-D",
            target.run.short(),
            target.turn
        ));
        CommandSpec::interactive()
    } else {
        CommandSpec::new(command)
    };
    let how = match (on_terminal, cx.json()) {
        (true, _) => Attended::Terminal,
        (false, true) => Attended::Aside,
        (false, false) => Attended::Pipes,
    };
    let stop = Stop::listen()?;
    tokio::select! {
        ended = visit.sandbox().attend(spec, how) => match ended.fail_as(Exit::Failed)? {
            Ended::Exit(status) => Ok(status == 0),
            Ended::Signal(_) | Ended::TimedOut | Ended::Exceeded(_) => Ok(false),
        },
        () = stop.drain.cancelled() => Err(Failure::new(Exit::Failed, "interrupted; nothing was kept")),
    }
}

fn show(cx: &Context, changed: &Changed) {
    if cx.json() {
        return;
    }
    display::note(&format!("changed: {} paths", changed.paths.len()));
    for change in changed.paths.iter().take(SHOWN_MAX) {
        let mark = if change.entry.is_some() { "~" } else { "-" };
        display::note(&format!("  {mark} {}", display::line(&change.path.to_string())));
    }
    if changed.paths.len() > SHOWN_MAX {
        display::note(&format!("  and {} more", changed.paths.len() - SHOWN_MAX));
    }
    if changed.git {
        display::note("  ~ .git (commits, branches or stashes)");
    }
}

/// Asks what becomes of it; where there is nobody to ask, it is thrown away.
fn ask() -> Outcome<Then> {
    if !std::io::stdin().is_terminal() {
        return Ok(Then::Discard);
    }
    loop {
        display::note("go on from this? [r]esume the task, [f]ork a new one, [d]iscard");
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line)? == 0 {
            return Ok(Then::Discard);
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "r" | "resume" => return Ok(Then::Resume),
            "f" | "fork" => return Ok(Then::Fork),
            "d" | "discard" => return Ok(Then::Discard),
            _ => {}
        }
    }
}

async fn go_on(cx: &Context, target: &Target, changed: Changed, then: Then) -> Outcome<Option<fork::Row>> {
    let access = Access::open(cx, Need::Write).await?;
    let client = &access.client;
    let mut upload = blobs::Upload::new(client);
    let stored = || "what was changed could not be stored".to_owned();
    for (blob, bytes) in changed.blobs {
        upload.put(blob, bytes).await.fail_with(Exit::Failed, stored)?;
    }
    upload.flush().await.fail_with(Exit::Failed, stored)?;
    let (turn, edit) = (Some(target.turn.0), Some(changed.edit));
    let row = match then {
        Then::Fork => {
            let asked = fork::Change::default().check(cx)?.request(client, turn, 1).await?;
            let made = client.fork(target.run, &ForkRequest { edit, ..asked }).await?;
            if !cx.json() {
                fork::say(cx, &made);
            }
            fork::rows(&made).next()
        }
        Then::Resume => {
            let made = client.resume_with(target.run, &ResumeRequest { turn, edit, hint: None }).await?;
            if !cx.json() {
                crate::commands::runs::resume::say(cx, &made);
            }
            let ResumeResponse { task, run, parent, turn } = made;
            Some(fork::Row { task, run, parent: parent.run, parent_seq: parent.seq.0, turn })
        }
        Then::Discard => None,
    };
    if access.is_alone() {
        display::note("nobody works here now; `docket up` starts workers");
    }
    access.close().await?;
    Ok(row)
}
