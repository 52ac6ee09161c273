//! `docket schedule`: manages recurring tasks.

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

/// Command-line arguments of `docket schedule`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The commit is pinned when you add the schedule, because the coordinator has no checkout: every
task of the schedule starts from that commit. `repin` moves it to the current one; run it from
cron on the machine that has the repository, or after a merge.

Schedules fire while a coordinator runs (`docket up`, `docket serve`); with several coordinators
each firing still creates one task. Cron expressions have five fields (minute, hour, day of the
month, month, day of the week), or are @hourly, @daily, @weekly or @monthly. A time that a clock
change skips or repeats fires once.

Examples:
  docket schedule add nightly --cron \"0 3 * * 1-5\" --tz Europe/Berlin \"Fix flaky tests\" --repo . --push
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
    /// Add a schedule: a task as for `docket submit`, and when to submit it
    Add(Box<ScheduleAddArgs>),
    /// List schedules and their next firings
    #[command(after_help = "Examples:
  docket schedule list
  docket schedule list --json")]
    List,
    /// Show one schedule
    #[command(after_help = "Examples:
  docket schedule show nightly")]
    Show {
        /// Name of the schedule
        name: ScheduleName,
    },
    /// Pause a schedule
    #[command(after_help = "Examples:
  docket schedule pause nightly")]
    Pause {
        /// Name of the schedule
        name: ScheduleName,
    },
    /// Unpause a schedule; missed firings are not caught up
    #[command(after_help = "Examples:
  docket schedule unpause nightly")]
    Unpause {
        /// Name of the schedule
        name: ScheduleName,
    },
    /// Remove a schedule; its tasks stay
    #[command(after_help = "Examples:
  docket schedule remove nightly")]
    Remove {
        /// Name of the schedule
        name: ScheduleName,
    },
    /// Submit its task now, even if the schedule is paused or its last task has not ended
    #[command(after_help = "Examples:
  docket schedule run nightly
  docket schedule run nightly --json")]
    Run {
        /// Name of the schedule
        name: ScheduleName,
    },
    /// Pin the repository's current commit
    #[command(after_help = "Examples:
  docket schedule repin nightly
  docket schedule repin nightly --repo ~/src/shop --commit main")]
    Repin {
        /// Name of the schedule
        name: ScheduleName,
        /// Repository [default: the one it was last pinned from]
        #[arg(long, value_name = "DIR")]
        repo: Option<PathBuf>,
        /// Branch, tag or commit to start from [default: HEAD]
        #[arg(long, value_name = "REV")]
        commit: Option<String>,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket schedule add nightly --cron \"0 3 * * 1-5\" --tz Europe/Berlin \"Fix flaky tests\" --repo . --push
  docket schedule add weekly --cron @weekly --file tidy.md --repo ~/src/shop --missed skip")]
struct ScheduleAddArgs {
    /// Name of the schedule: letters, digits and . _ - after a first letter or digit
    name: ScheduleName,
    /// When to fire: minute, hour, day of the month, month, day of the week
    #[arg(long, value_name = "LINE")]
    cron: String,
    /// Time zone of the cron expression
    #[arg(long, value_name = "ZONE", default_value = "UTC")]
    tz: String,
    /// Firings missed while no coordinator ran: `once` collapses them into one, `skip` drops them
    #[arg(long, value_name = "WHAT", default_value = "once", value_parser = parse_missed)]
    missed: MissedFiringPolicy,
    /// If the last task has not ended: `skip` submits nothing, `allow` submits another task
    #[arg(long, value_name = "WHAT", default_value = "skip", value_parser = parse_overlap)]
    overlap: OverlapPolicy,
    /// Replace an existing schedule of this name
    #[arg(long)]
    replace: bool,
    #[command(flatten)]
    task: TaskArgs,
}

fn parse_missed(text: &str) -> Result<MissedFiringPolicy, String> {
    match text {
        "once" => Ok(MissedFiringPolicy::Once),
        "skip" => Ok(MissedFiringPolicy::Skip),
        _ => Err("expected once or skip".to_owned()),
    }
}

fn parse_overlap(text: &str) -> Result<OverlapPolicy, String> {
    match text {
        "skip" => Ok(OverlapPolicy::Skip),
        "allow" => Ok(OverlapPolicy::Allow),
        _ => Err("expected skip or allow".to_owned()),
    }
}

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
        // Checked before anything is pinned.
        let times =
            docket_coordinator::decide::CronTimetable::new(&args.cron, &args.tz).fail_as(ExitKind::Usage)?;
        if times.next_after(docket_coordinator::clock::Clock::new().now()).is_none() {
            let message =
                format!("--cron: `{}` never fires; specify an expression that matches a date", args.cron);
            return Err(CliError::new(ExitKind::Usage, message));
        }
        args.task.check_source(&cx).await?;
        if let Some(branch) = &args.task.branch {
            display::print_note(&display::sanitize_line(&format!(
                "note: every task of the schedule delivers to branch {branch}, which must not exist at that point; \
                 without --branch each task gets its own branch"
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
                false => display::print_line(&format!("schedule {name} removed")),
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

/// Pins the repository again and keeps everything else.
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
        let message =
            format!("schedule {name} starts from an empty folder; specify a repository with --repo");
        return Err(CliError::new(ExitKind::Usage, message));
    };
    let mut upload = blobs::BlobUpload::new(client);
    let source = BaseSource::Local(pinning::canonicalize_folder(&folder)?);
    let base: WorkspaceBase =
        pinning::pin_and_note(cx, &mut upload, source, commit, DirtyTreePolicy::Refuse).await?;
    upload.flush().await.fail_with(ExitKind::Failed, || "cannot store the repository".to_owned())?;
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
        true => format!("schedule {} is paused", view.name),
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
        display::print_note("no schedules; create one with `docket schedule add`");
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
