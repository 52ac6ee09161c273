//! `docket schedule`: tasks that come again and again.

use crate::history::blobs;
use crate::tasks::pinning;
use crate::tasks::task_args;
use docket_schema::{
    api::{RunScheduleRequest, ScheduleView, SetScheduleRequest},
    ids::TaskId,
    snapshot::WorkspaceBase,
    system::{MissedFiringPolicy, OverlapPolicy, ScheduleName, TaskSchedule},
};
use docket_worker::{
    client::CoordinatorClient,
    workspace::{BaseSource, DirtyTreePolicy},
};
use std::path::{Path, PathBuf};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind, FailWith as _},
        event_format,
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
pub(crate) struct ScheduleArgs {
    #[command(subcommand)]
    command: Option<ScheduleCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum ScheduleCommand {
    /// Add a schedule: a task as of `docket submit`, and when it comes
    Add(Box<ScheduleAddArgs>),
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
struct ScheduleAddArgs {
    /// Its name: letters, digits, . _ - after a first letter or digit
    name: ScheduleName,
    /// When: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "LINE")]
    cron: String,
    /// The zone of those times
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Firings that were due while no coordinator ran: once (the last of them is made up for) or skip
    #[arg(long, value_name = "WHAT", default_value = "once", value_parser = parse_missed)]
    missed: MissedFiringPolicy,
    /// While the last task has not ended: skip (the firing gives none) or allow
    #[arg(long, value_name = "WHAT", default_value = "skip", value_parser = parse_overlap)]
    overlap: OverlapPolicy,
    /// Take the place of the one of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    task: TaskArgs,
}

fn parse_missed(text: &str) -> Result<MissedFiringPolicy, String> {
    match text {
        "once" => Ok(MissedFiringPolicy::Once),
        "skip" => Ok(MissedFiringPolicy::Skip),
        _ => Err("it is one of once, skip".to_owned()),
    }
}

fn parse_overlap(text: &str) -> Result<OverlapPolicy, String> {
    match text {
        "skip" => Ok(OverlapPolicy::Skip),
        "allow" => Ok(OverlapPolicy::Allow),
        _ => Err("it is one of skip, allow".to_owned()),
    }
}

/// Does it.
pub(crate) async fn run_schedule(cx: CliContext, args: ScheduleArgs) -> CliResult {
    let what = args.command.unwrap_or(ScheduleCommand::List);
    let need = if matches!(what, ScheduleCommand::List | ScheduleCommand::Show { .. }) {
        AccessMode::Read
    } else {
        AccessMode::Write
    };
    let asked = match &what {
        ScheduleCommand::Add(args) => Some(args.task.check_flags(&cx)?),
        ScheduleCommand::List
        | ScheduleCommand::Show { .. }
        | ScheduleCommand::Pause { .. }
        | ScheduleCommand::Unpause { .. }
        | ScheduleCommand::Remove { .. }
        | ScheduleCommand::Run { .. }
        | ScheduleCommand::Repin { .. } => None,
    };
    if let ScheduleCommand::Add(args) = &what {
        // Before anything is pinned.
        let times =
            docket_coordinator::decide::CronTimetable::new(&args.cron, &args.tz).fail_as(ExitKind::Usage)?;
        if times.next_after(docket_coordinator::clock::Clock::new().now()).is_none() {
            let message =
                format!("--cron: the times of `{}` never come; give a line that has one", args.cron);
            return Err(CliError::new(ExitKind::Usage, message));
        }
        args.task.check_source(&cx).await?;
        if let Some(branch) = &args.task.branch {
            display::print_note(&display::sanitize_line(&format!(
                "note: each task of the schedule gives its result as the branch {branch}, which must be gone by then; \
                 without --branch each has a branch of its own"
            )));
        }
    }
    let access = Coordinator::connect(&cx, need).await?;
    let client = &access.client;
    match what {
        ScheduleCommand::Add(args) => {
            if let Some(asked) = asked {
                add_schedule(&cx, client, *args, asked).await?;
            }
        }
        ScheduleCommand::List => list_schedules(&cx, client).await?,
        ScheduleCommand::Show { name } => print_schedule(&cx, &client.get_schedule(&name).await?),
        ScheduleCommand::Pause { name } => {
            print_schedule_state(&cx, &client.pause_schedule(&name, true).await?)
        }
        ScheduleCommand::Unpause { name } => {
            print_schedule_state(&cx, &client.pause_schedule(&name, false).await?)
        }
        ScheduleCommand::Remove { name } => {
            client.remove_schedule(&name).await?;
            match cx.is_json() {
                true => display::print_json(&serde_json::json!({ "name": name, "removed": true })),
                false => display::print_line(&format!("schedule {name} is no more")),
            }
        }
        ScheduleCommand::Run { name } => {
            let task = TaskId(docket_coordinator::clock::new_id());
            let view = client.run_schedule(&name, &RunScheduleRequest { task }).await?;
            match cx.is_json() {
                true => display::print_json(&view),
                false => display::print_line(&task.to_string()),
            }
        }
        ScheduleCommand::Repin { name, repo, commit } => {
            repin_schedule(&cx, client, &name, repo.as_deref(), commit).await?;
        }
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

async fn add_schedule(
    cx: &CliContext,
    client: &CoordinatorClient,
    args: ScheduleAddArgs,
    asked: task_args::PreparedTask,
) -> CliResult<()> {
    let ScheduleAddArgs { name, cron, tz, missed, overlap, replace, task } = args;
    let spec = Box::new(task.build_spec(cx, client, asked, None).await?);
    let schedule = TaskSchedule { cron, tz, spec, missed, overlap };
    let view = client.set_schedule(&name, &SetScheduleRequest { schedule, replace }).await?;
    print_schedule_state(cx, &view);
    Ok(())
}

/// What stands where the repository was is pinned anew; all else stays.
async fn repin_schedule(
    cx: &CliContext,
    client: &CoordinatorClient,
    name: &ScheduleName,
    repo: Option<&Path>,
    commit: Option<String>,
) -> CliResult<()> {
    let ScheduleView { mut schedule, .. } = client.get_schedule(name).await?;
    let known = schedule.spec.base.git.as_ref().map(|git| PathBuf::from(&git.source));
    let Some(folder) = repo.map(Path::to_owned).or(known) else {
        let message = format!("schedule {name} starts from an empty folder; name a repository with --repo");
        return Err(CliError::new(ExitKind::Usage, message));
    };
    let mut upload = blobs::BlobUpload::new(client);
    let source = BaseSource::Local(pinning::canonicalize_folder(&folder)?);
    let base: WorkspaceBase =
        pinning::pin_and_note(cx, &mut upload, source, commit, DirtyTreePolicy::Refuse).await?;
    upload.flush().await.fail_with(ExitKind::Failed, || "the repository could not be stored".to_owned())?;
    schedule.spec.base = base;
    let view = client.set_schedule(name, &SetScheduleRequest { schedule, replace: true }).await?;
    if !cx.is_json() {
        let commit =
            view.schedule.spec.base.git.as_ref().map_or("an empty folder", |git| git.commit.as_str());
        display::print_line(&format!("schedule {name} starts from {commit}"));
        return Ok(());
    }
    display::print_json(&view);
    Ok(())
}

fn format_next(view: &ScheduleView) -> String {
    match (view.paused, view.next_at) {
        (true, _) => "paused".to_owned(),
        (false, Some(at)) => at.to_string(),
        (false, None) => "never".to_owned(),
    }
}

fn print_schedule_state(cx: &CliContext, view: &ScheduleView) {
    if cx.is_json() {
        display::print_json(view);
        return;
    }
    display::print_line(&match view.paused {
        true => format!("schedule {} rests", view.name),
        false => format!("schedule {} fires next at {}", view.name, format_next(view)),
    });
}

async fn list_schedules(cx: &CliContext, client: &CoordinatorClient) -> CliResult<()> {
    let schedules = client.list_schedules().await?.schedules;
    if cx.is_json() {
        schedules.iter().for_each(display::print_json);
        return Ok(());
    }
    if schedules.is_empty() {
        display::print_note("there are no schedules; `docket schedule add` makes one");
        return Ok(());
    }
    let mut table = TextTable::new(&["NAME", "CRON", "ZONE", "NEXT", "LAST TASK", "TITLE"]);
    for view in &schedules {
        table.add_row(vec![
            TableCell::new(view.name.as_str()),
            TableCell::new(&view.schedule.cron),
            TableCell::new(&view.schedule.tz),
            TableCell::new(format_next(view)),
            TableCell::new(view.task.map_or_else(|| "-".to_owned(), |task| task.short())),
            TableCell::new(&view.schedule.spec.title),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
    Ok(())
}

fn print_schedule(cx: &CliContext, view: &ScheduleView) {
    if cx.is_json() {
        display::print_json(view);
        return;
    }
    let TaskSchedule { cron, tz, spec, missed, overlap } = &view.schedule;
    let base = spec.base.git.as_ref();
    let base =
        base.map_or_else(|| "an empty folder".to_owned(), |git| format!("{} of {}", git.commit, git.source));
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let last = view.fired.as_ref();
    let last = last.map_or_else(
        || "-".to_owned(),
        |fired| format!("{}: {}", fired.at, event_format::format_firing(&fired.gave)),
    );
    let rows = [
        ("schedule", view.name.to_string()),
        ("title", spec.title.clone()),
        ("cron", format!("{cron} ({tz})")),
        ("next", format_next(view)),
        ("last", last),
        ("missed", word(serde_json::json!(missed))),
        ("overlap", word(serde_json::json!(overlap))),
        ("base", base),
        ("set", format!("{} by {}", view.set_at, view.by)),
    ];
    for (what, text) in rows {
        display::print_line(&display::sanitize_line(&format!("{what:<9} {text}")));
    }
}
