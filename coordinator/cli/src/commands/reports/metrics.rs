//! `docket metrics`: how well tasks went, against their targets, from the log alone.

use crate::connect::batches;
use docket_schema::{
    report::{Metric, MetricView, MetricsReport, Side, Verdict, Week, WeekMetrics},
    wire::MetricsQuery,
};
use docket_worker::client::Client;

use crate::{
    connect::{
        access::{Access, Need},
        resolve,
    },
    context::Context,
    output::{
        display::{self, Cell, Style, Table},
        fail::{Exit, Outcome},
    },
    progress::Progress,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Twelve metrics, each with its target: + is met, ! is missed, - is not measured, which is neither. Without a task or
a batch: the tasks that ended in the last four weeks, week by week. A run's id means its task.

The row `unverified` counts completed tasks whose final checks did not run, or that have none. One whose checks did
not run is no success in task_success_rate, unless a person has accepted it since with `docket accept`.

Tests that failed before a run touched anything, and what they came to after it, are known where somebody ran
them then: docket does by itself unless run.base_checks is off. Tasks whose model follows a script are left out,
and so are archived ones.

Examples:
  docket metrics
  docket metrics --weeks 12
  docket metrics 3f9c01ab
  docket metrics --batch todo --json | jq '.all[] | select(.verdict == \"missed\")'"
)]
pub(crate) struct Args {
    /// A task, or one of its runs
    #[arg(value_name = "TASK", conflicts_with_all = ["batch", "weeks"])]
    id: Option<String>,
    /// The tasks of this batch: its name, the last part of it, or its id
    #[arg(long, value_name = "BATCH", conflicts_with = "weeks")]
    batch: Option<String>,
    /// So many weeks, with this one
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=520))]
    weeks: u32,
    /// Also tasks whose model follows a script
    #[arg(long)]
    scripted: bool,
}

/// Tells it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let found = found(&cx, &access.client, &args).await;
    access.close().await?;
    let report = found?;
    if cx.json() {
        display::say_json(&report);
    } else {
        show(&cx, &args, &report);
    }
    Ok(Exit::Ok)
}

async fn query(client: &Client, args: &Args) -> Outcome<MetricsQuery> {
    let query = MetricsQuery { scripted: args.scripted, ..MetricsQuery::default() };
    if let Some(id) = &args.id {
        return Ok(MetricsQuery { task: Some(resolve::task(client, id).await?), ..query });
    }
    if let Some(name) = &args.batch {
        return Ok(MetricsQuery { batch: Some(batches::meant(client, name).await?), ..query });
    }
    let this = Week::of(docket_coordinator::clock::Clock::new().now());
    let first = this.before(args.weeks - 1);
    Ok(MetricsQuery { from: Some(first.begins_at()), until: Some(this.ends_at()), ..query })
}

async fn found(cx: &Context, client: &Client, args: &Args) -> Outcome<MetricsReport> {
    let progress = Progress::counting(cx, "tasks");
    let mut query = query(client, args).await?;
    let (mut tasks, mut left_out) = (Vec::new(), 0);
    loop {
        let page = client.metrics(&query).await?;
        progress.add(page.tasks.len() as u64);
        tasks.extend(page.tasks);
        left_out += page.scripted_left_out;
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(MetricsReport::of(tasks, left_out)),
        }
    }
}

fn value(view: &MetricView) -> String {
    match view.value {
        None => "-".to_owned(),
        Some(value) if view.metric.is_time() => format!("{value:.1}"),
        Some(value) => format!("{value:.3}"),
    }
}

fn cell(view: &MetricView) -> Cell {
    let (sign, style) = match view.verdict {
        Verdict::Met => ("+", Style::Good),
        Verdict::Missed => ("!", Style::Bad),
        Verdict::NotMeasured => return Cell::styled("-", Style::Dim),
    };
    Cell::styled(format!("{sign} {}", value(view)), style)
}

fn target(view: &MetricView) -> String {
    let side = match view.side {
        Side::AtLeast => ">=",
        Side::AtMost => "<=",
    };
    format!("{side} {}", view.target)
}

/// The row of tasks that were completed and that nothing verified: a count, without a target.
fn unverified(report: &MetricsReport, weeks: Option<&[WeekMetrics]>) -> Vec<Cell> {
    let cell = |count: u64| match count {
        0 => Cell::new("0"),
        _ => Cell::styled(count.to_string(), Style::Bad),
    };
    let weeks = weeks.into_iter().flat_map(shown).map(|of| cell(of.unverified));
    [Cell::new("unverified"), Cell::new(""), cell(report.unverified)].into_iter().chain(weeks).collect()
}

/// The last weeks.
fn shown(weeks: &[WeekMetrics]) -> &[WeekMetrics] {
    &weeks[weeks.len().saturating_sub(WEEKS_SHOWN_MAX)..]
}

/// Weeks that fit beside each other.
const WEEKS_SHOWN_MAX: usize = 6;

fn show(cx: &Context, args: &Args, report: &MetricsReport) {
    let columns: Vec<(String, &[MetricView])> = shown(&report.weeks)
        .iter()
        .map(|of| {
            let week = of.week.map_or_else(|| "not ended".to_owned(), |week| week.to_string());
            (format!("{week} ({})", of.tasks), of.metrics.as_slice())
        })
        .collect();
    let mut table = Table::new(match columns.len() {
        0 | 1 => &["METRIC", "TARGET", "ALL"],
        2 => &["METRIC", "TARGET", "ALL", "", ""],
        3 => &["METRIC", "TARGET", "ALL", "", "", ""],
        4 => &["METRIC", "TARGET", "ALL", "", "", "", ""],
        5 => &["METRIC", "TARGET", "ALL", "", "", "", "", ""],
        _ => &["METRIC", "TARGET", "ALL", "", "", "", "", "", ""],
    });
    let several = columns.len() > 1;
    if several {
        let mut names = vec![Cell::new(""), Cell::new(""), Cell::new(report.tasks.len().to_string())];
        names.extend(columns.iter().map(|(name, _)| Cell::new(name)));
        table.row(names);
    }
    for (nth, metric) in Metric::ALL.into_iter().enumerate() {
        let Some(all) = report.all.get(nth) else { continue };
        let mut cells = vec![Cell::new(metric.as_str()), Cell::new(target(all)), cell(all)];
        if several {
            cells.extend(columns.iter().filter_map(|(_, views)| views.get(nth)).map(cell));
        }
        table.row(cells);
    }
    table.row(unverified(report, several.then_some(report.weeks.as_slice())));
    display::say(&table.render(cx.screen));
    let mut said = display::count(report.tasks.len() as u64, "task");
    if args.id.is_none() && args.batch.is_none() {
        said.push_str(&format!(" ended in {}", display::count(args.weeks.into(), "week")));
    }
    if report.scripted_left_out > 0 {
        let left_out = display::count(report.scripted_left_out, "scripted task");
        said.push_str(&format!("; {left_out} left out, `--scripted` counts them"));
    }
    display::say(&cx.screen.prose(&said));
}
