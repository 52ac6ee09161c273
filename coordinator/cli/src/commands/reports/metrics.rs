//! `docket metrics`: task quality metrics and their targets, computed from the log alone.

use crate::connect::batch_lookup;
use docket_schema::{
    api::MetricsQuery,
    report::{IsoWeek, Metric, MetricView, MetricsReport, TargetBound, TargetVerdict, WeekMetrics},
};
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    output::{
        display::{self, TableCell, TextStyle, TextTable},
        error::{CliResult, ExitKind},
    },
    progress::ProgressDisplay,
};

/// Command-line arguments of `docket metrics`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Twelve metrics, each with its target: + met, ! missed, - not measured (neither met nor missed).
Without a task or a batch: tasks that ended in the last four weeks, by week. A run ID means its
task.

The row `unverified` counts completed tasks whose final checks did not run, or that have none. A
task whose checks did not run is not a success in task_success_rate, unless a person has since
accepted it with `docket accept`.

Tests that already failed before a run changed anything are known only if they were run at that
point, which docket does unless run.base_checks is off. Tasks with scripted models and archived
tasks are not included.

Examples:
  docket metrics
  docket metrics --weeks 12
  docket metrics 3f9c01ab
  docket metrics --batch todo --json | jq '.all[] | select(.verdict == \"missed\")'"
)]
pub(crate) struct MetricsArgs {
    /// Task ID, or the ID of one of its runs
    #[arg(value_name = "TASK", conflicts_with_all = ["batch", "weeks"])]
    id: Option<String>,
    /// Only tasks in this batch (name, last part of the name, or ID)
    #[arg(long, value_name = "BATCH", conflicts_with = "weeks")]
    batch: Option<String>,
    /// Number of weeks, including the current one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=520))]
    weeks: u32,
    /// Include tasks with scripted models
    #[arg(long)]
    scripted: bool,
}

pub(crate) async fn run_metrics(cx: CliContext, args: MetricsArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let found = fetch_report(&cx, &access.client, &args).await;
    access.close().await?;
    let report = found?;
    if cx.is_json() {
        display::print_json(&report);
    } else {
        print_metrics(&cx, &args, &report);
    }
    Ok(ExitKind::Ok)
}

async fn build_query(client: &CoordinatorClient, args: &MetricsArgs) -> CliResult<MetricsQuery> {
    let query = MetricsQuery { scripted: args.scripted, ..MetricsQuery::default() };
    if let Some(id) = &args.id {
        return Ok(MetricsQuery { task: Some(resolve::resolve_task(client, id).await?), ..query });
    }
    if let Some(name) = &args.batch {
        return Ok(MetricsQuery { batch: Some(batch_lookup::resolve_batch(client, name).await?), ..query });
    }
    let this = IsoWeek::from_timestamp(docket_coordinator::clock::Clock::new().now());
    let first = this.weeks_before(args.weeks - 1);
    Ok(MetricsQuery { from: Some(first.begins_at()), until: Some(this.ends_at()), ..query })
}

async fn fetch_report(
    cx: &CliContext,
    client: &CoordinatorClient,
    args: &MetricsArgs,
) -> CliResult<MetricsReport> {
    let progress = ProgressDisplay::counter(cx, "tasks");
    let mut query = build_query(client, args).await?;
    let (mut tasks, mut left_out) = (Vec::new(), 0);
    loop {
        let page = client.get_metrics(&query).await?;
        progress.advance(page.tasks.len() as u64);
        tasks.extend(page.tasks);
        left_out += page.scripted_left_out;
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(MetricsReport::from_tasks(tasks, left_out)),
        }
    }
}

fn format_value(view: &MetricView) -> String {
    match view.value {
        None => "-".to_owned(),
        Some(value) if view.metric.is_time() => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn verdict_cell(view: &MetricView) -> TableCell {
    let (sign, style) = match view.verdict {
        TargetVerdict::Met => ("+", TextStyle::Good),
        TargetVerdict::Missed => ("!", TextStyle::Bad),
        TargetVerdict::NotMeasured => return TableCell::styled("-", TextStyle::Dim),
    };
    TableCell::styled(format!("{sign} {}", format_value(view)), style)
}

fn format_target(view: &MetricView) -> String {
    let side = match view.side {
        TargetBound::AtLeast => ">=",
        TargetBound::AtMost => "<=",
    };
    format!("{side} {}", view.target)
}

/// Returns the row that counts completed but unverified tasks. It has no target.
fn unverified_row(report: &MetricsReport, weeks: Option<&[WeekMetrics]>) -> Vec<TableCell> {
    let cell = |count: u64| match count {
        0 => TableCell::new("0"),
        _ => TableCell::styled(count.to_string(), TextStyle::Bad),
    };
    let weeks = weeks.into_iter().flat_map(last_weeks).map(|of| cell(of.unverified));
    [TableCell::new("unverified"), TableCell::new(""), cell(report.unverified)]
        .into_iter()
        .chain(weeks)
        .collect()
}

/// Returns the most recent weeks that fit on the screen.
fn last_weeks(weeks: &[WeekMetrics]) -> &[WeekMetrics] {
    &weeks[weeks.len().saturating_sub(WEEKS_SHOWN_MAX)..]
}

/// Maximum number of week columns.
const WEEKS_SHOWN_MAX: usize = 6;

fn print_metrics(cx: &CliContext, args: &MetricsArgs, report: &MetricsReport) {
    let columns: Vec<(String, &[MetricView])> = last_weeks(&report.weeks)
        .iter()
        .map(|of| {
            let week = of.week.map_or_else(|| "not ended".to_owned(), |week| week.to_string());
            (format!("{week} ({})", of.tasks), of.metrics.as_slice())
        })
        .collect();
    let mut table = TextTable::new(match columns.len() {
        0 | 1 => &["METRIC", "TARGET", "ALL"],
        2 => &["METRIC", "TARGET", "ALL", "", ""],
        3 => &["METRIC", "TARGET", "ALL", "", "", ""],
        4 => &["METRIC", "TARGET", "ALL", "", "", "", ""],
        5 => &["METRIC", "TARGET", "ALL", "", "", "", "", ""],
        _ => &["METRIC", "TARGET", "ALL", "", "", "", "", "", ""],
    });
    let several = columns.len() > 1;
    if several {
        let mut names =
            vec![TableCell::new(""), TableCell::new(""), TableCell::new(report.tasks.len().to_string())];
        names.extend(columns.iter().map(|(name, _)| TableCell::new(name)));
        table.add_row(names);
    }
    for (nth, metric) in Metric::ALL.into_iter().enumerate() {
        let Some(all) = report.all.get(nth) else { continue };
        let mut cells =
            vec![TableCell::new(metric.as_str()), TableCell::new(format_target(all)), verdict_cell(all)];
        if several {
            cells.extend(columns.iter().filter_map(|(_, views)| views.get(nth)).map(verdict_cell));
        }
        table.add_row(cells);
    }
    table.add_row(unverified_row(report, several.then_some(report.weeks.as_slice())));
    display::print_line(&table.render(cx.screen));
    let mut said = display::format_count(report.tasks.len() as u64, "task");
    if args.id.is_none() && args.batch.is_none() {
        said.push_str(&format!(" ended in {}", display::format_count(args.weeks.into(), "week")));
    }
    if report.scripted_left_out > 0 {
        let left_out = display::format_count(report.scripted_left_out, "scripted task");
        said.push_str(&format!("; {left_out} not included, use `--scripted` to include them"));
    }
    display::print_line(&cx.screen.wrap_prose(&said));
}
