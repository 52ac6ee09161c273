//! `docket cost`: what model calls cost, computed from the log.

use crate::connect::batch_lookup;
use docket_schema::{
    api::CostQuery,
    ids::Timestamp,
    report::{
        CostExportLine, CostGrouping, CostLine, CostReport, CostSums, IsoWeek, ModelCallOutcome, RunCost,
    },
};
use docket_worker::client::CoordinatorClient;

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve::{self, ResolvedId},
        task_filter::{InstantArg, parse_instant},
    },
    context::CliContext,
    history::children,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliResult, ExitKind},
    },
    progress::ProgressDisplay,
};

/// Command-line arguments of `docket cost`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a task, a run or a batch: all calls that ended this week. Costs use the prices that each
run pinned. Calls of a model without a price are shown as unknown, not as free. Providers do not
report the cost of failed calls; these are counted. History that a fork shares with its parent
counts once, in the parent.

Savings are relative to using each run's main model alone, at its prices and for the same tokens.
Archived tasks are not included.

--jsonl prints one line per call: {ts, role, model, tokens_in, tokens_out, cost_usd}; null means
unknown.

Examples:
  docket cost
  docket cost 3f9c01ab --by call
  docket cost --batch todo --by task
  docket cost --week 2026-W47 --by model --json
  docket cost --since 30d --jsonl > calls.jsonl"
)]
pub(crate) struct CostArgs {
    /// Run ID, or task ID for all its runs; includes everything delegated by them
    id: Option<String>,
    /// Only tasks in this batch (name, last part of the name, or ID)
    #[arg(long, value_name = "BATCH", conflicts_with = "id")]
    batch: Option<String>,
    /// Calls of an ISO week such as 2026-W47 [default: this week]
    #[arg(long, value_name = "WEEK", num_args = 0..=1, default_missing_value = "", value_parser = parse_week,
          conflicts_with_all = ["id", "batch", "since"])]
    week: Option<WeekArg>,
    /// Calls since an instant, e.g. 2026-01-31T02:00:00Z or 2026-01-31, or since this long ago, e.g.
    /// 90m or 2d
    #[arg(long, value_name = "TIME", value_parser = parse_instant, conflicts_with_all = ["id", "batch"])]
    since: Option<InstantArg>,
    /// Grouping of the lines
    #[arg(long, value_enum, default_value_t)]
    by: CostGroupingArg,
    /// Print one JSON line per call, for other programs
    #[arg(long, conflicts_with_all = ["by", "json"])]
    jsonl: bool,
}

/// Grouping of the lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum CostGroupingArg {
    /// One line per role and model
    #[default]
    RoleModel,
    /// One line per role
    Role,
    /// One line per model
    Model,
    /// One line per run
    Run,
    /// One line per task
    Task,
    /// One line per call
    Call,
}

impl From<CostGroupingArg> for CostGrouping {
    fn from(by: CostGroupingArg) -> Self {
        match by {
            CostGroupingArg::RoleModel => Self::RoleModel,
            CostGroupingArg::Role => Self::Role,
            CostGroupingArg::Model => Self::Model,
            CostGroupingArg::Run => Self::Run,
            CostGroupingArg::Task => Self::Task,
            CostGroupingArg::Call => Self::Call,
        }
    }
}

/// A week argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WeekArg {
    Current,
    Named(IsoWeek),
}

fn parse_week(text: &str) -> Result<WeekArg, String> {
    if text.is_empty() {
        return Ok(WeekArg::Current);
    }
    text.parse().map(WeekArg::Named).map_err(|_| "expected an ISO week such as 2026-W47".to_owned())
}

pub(crate) async fn run_cost(cx: CliContext, args: CostArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Read).await?;
    let found = fetch_costs(&cx, &access.client, &args).await;
    access.close().await?;
    let runs = found?;
    let by = if args.jsonl { CostGroupingArg::Call } else { args.by };
    let report = CostReport::from_runs(&runs, by.into());
    if args.jsonl {
        for call in report.lines.iter().filter_map(|line| line.call.as_ref()) {
            display::print_json(&CostExportLine::from(call));
        }
    } else if cx.is_json() {
        display::print_json(&report);
    } else {
        print_cost(&cx, &report);
    }
    Ok(ExitKind::Ok)
}

async fn fetch_costs(
    cx: &CliContext,
    client: &CoordinatorClient,
    args: &CostArgs,
) -> CliResult<Vec<RunCost>> {
    let progress = ProgressDisplay::counter(cx, "runs");
    let query = CostQuery { calls: args.jsonl || args.by == CostGroupingArg::Call, ..CostQuery::default() };
    let Some(id) = &args.id else {
        // Delegated calls belong to the same batch and have their own timestamps.
        return fetch_pages(&progress, client, time_window(client, args, query).await?).await;
    };
    let (of, runs) = match resolve::resolve_id(client, id).await? {
        ResolvedId::Run(run) => (CostQuery { run: Some(run), ..query.clone() }, vec![run]),
        ResolvedId::Task(task) => {
            let runs = client.get_task(task).await?.runs.iter().map(|run| run.id).collect();
            (CostQuery { task: Some(task), ..query.clone() }, runs)
        }
    };
    let mut found = fetch_pages(&progress, client, of).await?;
    for child in children::list_descendants(client, &runs).await? {
        let of = CostQuery { task: Some(child.view.task.id), ..query.clone() };
        found.extend(fetch_pages(&progress, client, of).await?);
    }
    Ok(found)
}

async fn time_window(client: &CoordinatorClient, args: &CostArgs, query: CostQuery) -> CliResult<CostQuery> {
    if let Some(name) = &args.batch {
        return Ok(CostQuery { batch: Some(batch_lookup::resolve_batch(client, name).await?), ..query });
    }
    let now = docket_coordinator::clock::Clock::new().now();
    if let Some(since) = args.since {
        return Ok(CostQuery { from: Some(since.resolve(now)), ..query });
    }
    let week = match args.week {
        Some(WeekArg::Named(week)) => week,
        Some(WeekArg::Current) | None => IsoWeek::from_timestamp(now),
    };
    Ok(CostQuery { from: Some(week.begins_at()), until: Some(week.ends_at()), ..query })
}

async fn fetch_pages(
    progress: &ProgressDisplay,
    client: &CoordinatorClient,
    mut query: CostQuery,
) -> CliResult<Vec<RunCost>> {
    let mut runs = Vec::new();
    loop {
        let page = client.get_cost(&query).await?;
        progress.advance(page.runs.len() as u64);
        runs.extend(page.runs);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(runs),
        }
    }
}

/// Formats the known cost and the number of unpriced calls.
fn format_money(sums: &CostSums) -> String {
    let known =
        || format!("${}.{:06}", sums.cost_nusd / 1_000_000_000, sums.cost_nusd % 1_000_000_000 / 1000);
    match (sums.answered, sums.unpriced) {
        (0, _) if sums.failed > 0 => "unknown".to_owned(),
        (_, 0) => known(),
        (answered, unpriced) if answered == unpriced => "unknown".to_owned(),
        (_, unpriced) => format!("{} + {unpriced} unknown", known()),
    }
}

fn line_label(line: &CostLine) -> Vec<String> {
    let mut name = Vec::new();
    name.extend(line.call.as_ref().map(|call| format_second(call.at)));
    name.extend(line.task.filter(|_| line.call.is_none()).map(|task| format!("task {}", task.short())));
    name.extend(line.run.map(|run| format!("run {}", run.short())));
    name.extend(line.call.as_ref().map(|call| match call.end {
        ModelCallOutcome::Answered => call.call.to_string(),
        ModelCallOutcome::Failed => format!("{} failed", call.call),
        ModelCallOutcome::Open => format!("{} open", call.call),
    }));
    name.extend(line.role.clone());
    name.extend(line.model.as_ref().map(ToString::to_string));
    name
}

/// Formats an instant to the second.
fn format_second(at: Timestamp) -> String {
    at.to_string().chars().take("2026-01-31T02:00:00".len()).collect()
}

fn print_cost(cx: &CliContext, report: &CostReport) {
    let mut table =
        TextTable::new(&["CALLS", "FAILED", "IN", "CACHE READ", "CACHE WRITE", "OUT", "TIME", "COST", "OF"]);
    let mut row = |sums: &CostSums, of: String| {
        let usage = sums.usage;
        table.add_row(vec![
            TableCell::new(sums.call_count().to_string()),
            TableCell::new(sums.failed.to_string()),
            TableCell::new(usage.input_tokens.to_string()),
            TableCell::new(usage.cache_read_tokens.to_string()),
            TableCell::new(usage.cache_write_tokens.to_string()),
            TableCell::new(usage.output_tokens.to_string()),
            TableCell::new(display::format_duration(sums.latency_ms)),
            TableCell::new(format_money(sums)),
            TableCell::new(of),
        ]);
    };
    for line in &report.lines {
        row(&line.sums, line_label(line).join("  "));
    }
    row(&report.total, "all".to_owned());
    display::print_line(&table.render(cx.screen));
    let savings = &report.savings;
    if savings.compared == 0 || savings.cost_nusd == savings.strong_nusd {
        return;
    }
    let dollars = |nusd: u64| format!("${}.{:06}", nusd / 1_000_000_000, nusd % 1_000_000_000 / 1000);
    let percent =
        savings.saved_percent.map(|percent| format!(" ({:.0} %)", percent.abs())).unwrap_or_default();
    let word = if savings.saved_nusd < 0 { "more" } else { "less" };
    let not = match savings.not_compared {
        0 => String::new(),
        calls => format!(" ({} not compared)", display::format_count(calls, "call")),
    };
    let text = format!(
        "{}{percent} {word} than {} alone, which would cost {} for the same tokens{not}; assumption: {}",
        dollars(savings.saved_nusd.unsigned_abs()),
        savings.strong.join(", "),
        dollars(savings.strong_nusd),
        savings.assumes
    );
    display::print_line(&cx.screen.wrap_prose(&display::sanitize_line(&text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_cost_is_never_shown_as_zero() {
        let sums = |answered, failed, unpriced, cost_nusd| CostSums {
            answered,
            failed,
            unpriced,
            cost_nusd,
            ..CostSums::default()
        };
        for (sums, shown) in [
            (sums(0, 0, 0, 0), "$0.000000"),
            (sums(2, 0, 0, 0), "$0.000000"),
            (sums(2, 0, 0, 1_500_002_000), "$1.500002"),
            (sums(2, 0, 2, 0), "unknown"),
            (sums(3, 0, 1, 1_000), "$0.000001 + 1 unknown"),
            (sums(0, 1, 0, 0), "unknown"),
        ] {
            assert_eq!(format_money(&sums), shown, "{sums:?}");
        }
    }

    #[test]
    fn week_argument_is_complete_or_absent() {
        assert_eq!(parse_week(""), Ok(WeekArg::Current));
        assert!(matches!(parse_week("2026-W47"), Ok(WeekArg::Named(_))));
        assert!(parse_week("47").is_err());
    }
}
