//! `docket schedule`: tasks that come again and again.

use crate::history::blobs;
use crate::tasks::pinning;
use crate::tasks::task_args;
use docket_schema::{
    ids::TaskId,
    snapshot::Base,
    system::{Missed, Overlap, Schedule, ScheduleName},
    wire::{RunScheduleRequest, ScheduleView, SetScheduleRequest},
};
use docket_worker::{
    client::Client,
    workspace::{DirtyTree, Source},
};
use std::path::{Path, PathBuf};

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        events,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    tasks::task_args::TaskArgs,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The repository is pinned when the schedule is added: every task of it starts from that commit, for a coordinator
has no repository. `repin` takes the newer one; run it from a cron of the machine that has the repository, or after a merge.

Schedules fire while a coordinator runs (`docket up`, `docket serve`); of several each firing gives one task. Cron lines have
five fields (minute, hour, day of the month, month, day of the week), or are @hourly, @daily, @weekly, @monthly. A time that
the change of clocks leaves out, or brings twice, fires once.

Examples:
  docket schedule add nightly --cron \"0 3 * * 1-5\" --tz Europe/Berlin \"Mend what is flaky\" --repo . --push
  docket schedule list
  docket schedule repin nightly
  docket schedule run nightly
  docket schedule pause nightly && docket schedule unpause nightly"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Add a schedule: a task as of `docket submit`, and when it comes
    Add(Box<AddArgs>),
    /// The schedules, and when each fires next (as without a subcommand)
    #[command(after_help = "Examples:
  docket schedule list
  docket schedule list --json")]
    List,
    /// One schedule
    #[command(after_help = "Examples:
  docket schedule show nightly")]
    Show {
        /// Its name
        name: ScheduleName,
    },
    /// Let it rest
    #[command(after_help = "Examples:
  docket schedule pause nightly")]
    Pause {
        /// Its name
        name: ScheduleName,
    },
    /// Let it go on; what was due meanwhile is not made up for
    #[command(after_help = "Examples:
  docket schedule unpause nightly")]
    Unpause {
        /// Its name
        name: ScheduleName,
    },
    /// End it; its tasks stay
    #[command(after_help = "Examples:
  docket schedule remove nightly")]
    Remove {
        /// Its name
        name: ScheduleName,
    },
    /// Submit its task now, whatever its times; also while it rests or its last task has not ended
    #[command(after_help = "Examples:
  docket schedule run nightly
  docket schedule run nightly --json")]
    Run {
        /// Its name
        name: ScheduleName,
    },
    /// Pin its repository again, at what it is now
    #[command(after_help = "Examples:
  docket schedule repin nightly
  docket schedule repin nightly --repo ~/src/shop --commit main")]
    Repin {
        /// Its name
        name: ScheduleName,
        /// The repository [default: where it was pinned the last time]
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
        /// Branch, tag or commit to start from [default: HEAD]
        #[arg(long, value_name = "REV")]
        commit: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket schedule add nightly --cron \"0 3 * * 1-5\" --tz Europe/Berlin \"Mend what is flaky\" --repo . --push
  docket schedule add weekly --cron @weekly --file tidy.md --repo ~/src/shop --missed skip")]
struct AddArgs {
    /// Its name: letters, digits, . _ - after a first letter or digit
    name: ScheduleName,
    /// When: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "LINE")]
    cron: String,
    /// The zone of those times
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Firings that were due while no coordinator ran: once (the last of them is made up for) or skip
    #[arg(long, value_name = "WHAT", default_value = "once", value_parser = missed)]
    missed: Missed,
    /// While the last task has not ended: skip (the firing gives none) or allow
    #[arg(long, value_name = "WHAT", default_value = "skip", value_parser = overlap)]
    overlap: Overlap,
    /// Take the place of the one of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    task: TaskArgs,
}

fn missed(text: &str) -> Result<Missed, String> {
    match text {
        "once" => Ok(Missed::Once),
        "skip" => Ok(Missed::Skip),
        _ => Err("it is one of once, skip".to_owned()),
    }
}

fn overlap(text: &str) -> Result<Overlap, String> {
    match text {
        "skip" => Ok(Overlap::Skip),
        "allow" => Ok(Overlap::Allow),
        _ => Err("it is one of skip, allow".to_owned()),
    }
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let what = args.what.unwrap_or(What::List);
    let need = if matches!(what, What::List | What::Show { .. }) { Need::Read } else { Need::Write };
    let asked = match &what {
        What::Add(args) => Some(args.task.check(&cx)?),
        What::List
        | What::Show { .. }
        | What::Pause { .. }
        | What::Unpause { .. }
        | What::Remove { .. }
        | What::Run { .. }
        | What::Repin { .. } => None,
    };
    if let What::Add(args) = &what {
        // Before anything is pinned.
        let times = docket_coordinator::decide::Timetable::new(&args.cron, &args.tz).fail_as(Exit::Usage)?;
        if times.next(docket_coordinator::clock::Clock::new().now()).is_none() {
            let message =
                format!("--cron: the times of `{}` never come; give a line that has one", args.cron);
            return Err(Failure::new(Exit::Usage, message));
        }
        args.task.check_source(&cx).await?;
        if let Some(branch) = &args.task.branch {
            display::note(&display::line(&format!(
                "note: each task of the schedule gives its result as the branch {branch}, which must be gone by then; \
                 without --branch each has a branch of its own"
            )));
        }
    }
    let access = Access::open(&cx, need).await?;
    let client = &access.client;
    match what {
        What::Add(args) => {
            if let Some(asked) = asked {
                add(&cx, client, *args, asked).await?;
            }
        }
        What::List => list(&cx, client).await?,
        What::Show { name } => show(&cx, &client.schedule(&name).await?),
        What::Pause { name } => said(&cx, &client.pause_schedule(&name, true).await?),
        What::Unpause { name } => said(&cx, &client.pause_schedule(&name, false).await?),
        What::Remove { name } => {
            client.remove_schedule(&name).await?;
            match cx.json() {
                true => display::say_json(&serde_json::json!({ "name": name, "removed": true })),
                false => display::say(&format!("schedule {name} is no more")),
            }
        }
        What::Run { name } => {
            let task = TaskId(docket_coordinator::clock::new_id());
            let view = client.run_schedule(&name, &RunScheduleRequest { task }).await?;
            match cx.json() {
                true => display::say_json(&view),
                false => display::say(&task.to_string()),
            }
        }
        What::Repin { name, repo, commit } => {
            repin(&cx, client, &name, repo.as_deref(), commit).await?;
        }
    }
    access.close().await?;
    Ok(Exit::Ok)
}

async fn add(cx: &Context, client: &Client, args: AddArgs, asked: task_args::Asked) -> Outcome<()> {
    let AddArgs { name, cron, tz, missed, overlap, replace, task } = args;
    let spec = Box::new(task.spec(cx, client, asked, None).await?);
    let schedule = Schedule { cron, tz, spec, missed, overlap };
    let view = client.set_schedule(&name, &SetScheduleRequest { schedule, replace }).await?;
    said(cx, &view);
    Ok(())
}

/// What stands where the repository was is pinned anew; all else stays.
async fn repin(
    cx: &Context,
    client: &Client,
    name: &ScheduleName,
    repo: Option<&Path>,
    commit: Option<String>,
) -> Outcome<()> {
    let ScheduleView { mut schedule, .. } = client.schedule(name).await?;
    let known = schedule.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    let Some(folder) = repo.map(Path::to_owned).or(known) else {
        let message = format!("schedule {name} starts from an empty folder; name a repository with --repo");
        return Err(Failure::new(Exit::Usage, message));
    };
    let mut upload = blobs::Upload::new(client);
    let source = Source::Local(pinning::absolute(&folder)?);
    let base: Base = pinning::pinned(cx, &mut upload, source, commit, DirtyTree::Refuse).await?;
    upload.flush().await.fail_with(Exit::Failed, || "the repository could not be stored".to_owned())?;
    schedule.spec.base = base;
    let view = client.set_schedule(name, &SetScheduleRequest { schedule, replace: true }).await?;
    if !cx.json() {
        let commit =
            view.schedule.spec.base.git.as_ref().map_or("an empty folder", |git| git.commit.as_str());
        display::say(&format!("schedule {name} starts from {commit}"));
        return Ok(());
    }
    display::say_json(&view);
    Ok(())
}

fn next(view: &ScheduleView) -> String {
    match (view.paused, view.next_at) {
        (true, _) => "paused".to_owned(),
        (false, Some(at)) => at.to_string(),
        (false, None) => "never".to_owned(),
    }
}

fn said(cx: &Context, view: &ScheduleView) {
    if cx.json() {
        display::say_json(view);
        return;
    }
    display::say(&match view.paused {
        true => format!("schedule {} rests", view.name),
        false => format!("schedule {} fires next at {}", view.name, next(view)),
    });
}

async fn list(cx: &Context, client: &Client) -> Outcome<()> {
    let schedules = client.schedules().await?.schedules;
    if cx.json() {
        schedules.iter().for_each(display::say_json);
        return Ok(());
    }
    if schedules.is_empty() {
        display::note("there are no schedules; `docket schedule add` makes one");
        return Ok(());
    }
    let mut table = Table::new(&["NAME", "CRON", "ZONE", "NEXT", "LAST TASK", "TITLE"]);
    for view in &schedules {
        table.row(vec![
            Cell::new(view.name.as_str()),
            Cell::new(&view.schedule.cron),
            Cell::new(&view.schedule.tz),
            Cell::new(next(view)),
            Cell::new(view.task.map_or_else(|| "-".to_owned(), |task| task.short())),
            Cell::new(&view.schedule.spec.title),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
    Ok(())
}

fn show(cx: &Context, view: &ScheduleView) {
    if cx.json() {
        display::say_json(view);
        return;
    }
    let Schedule { cron, tz, spec, missed, overlap } = &view.schedule;
    let base = spec.base.git.as_ref();
    let base =
        base.map_or_else(|| "an empty folder".to_owned(), |git| format!("{} of {}", git.commit, git.source));
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let last = view.fired.as_ref();
    let last =
        last.map_or_else(|| "-".to_owned(), |fired| format!("{}: {}", fired.at, events::gave(&fired.gave)));
    let rows = [
        ("schedule", view.name.to_string()),
        ("title", spec.title.clone()),
        ("cron", format!("{cron} ({tz})")),
        ("next", next(view)),
        ("last", last),
        ("missed", word(serde_json::json!(missed))),
        ("overlap", word(serde_json::json!(overlap))),
        ("base", base),
        ("set", format!("{} by {}", view.set_at, view.by)),
    ];
    for (what, text) in rows {
        display::say(&display::line(&format!("{what:<9} {text}")));
    }
}
