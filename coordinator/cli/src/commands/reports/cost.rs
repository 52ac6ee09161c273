//! `docket cost`: what model calls cost, as the log says it.

use crate::connect::batches;
use docket_schema::{
    ids::Timestamp,
    report::{CallEnd, CostBy, CostExport, CostLine, CostReport, CostSums, RunCost, Week},
    wire::CostQuery,
};
use docket_worker::client::Client;

use crate::{
    connect::{
        access::{Access, Need},
        filter::{Instant, instant},
        resolve::{self, Named},
    },
    context::Context,
    history::children,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Outcome},
    },
    progress::Progress,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without a task, a run or a batch: this week, by when calls ended, of whatever task. Money is what the log says by the
prices that each run pinned. A model without a price is no free one: its calls are told as unknown. What a
failed call cost no provider says; it is counted. What a fork shares with its parent counts there, once.

Savings compare with each run's main model alone, at its prices for the same tokens.
Archived tasks are not in it.

--jsonl gives a line a call: {ts, role, model, tokens_in, tokens_out, cost_usd}; null is unknown.

Examples:
  docket cost
  docket cost 3f9c01ab --by call
  docket cost --batch todo --by task
  docket cost --week 2026-W47 --by model --json
  docket cost --since 30d --jsonl > calls.jsonl"
)]
pub(crate) struct Args {
    /// A run, or a task: all its runs; with all that was given away in them
    id: Option<String>,
    /// The tasks of this batch: its name, the last part of it, or its id
    #[arg(long, value_name = "BATCH", conflicts_with = "id")]
    batch: Option<String>,
    /// Calls of this week, as 2026-W47; without one, of this week
    #[arg(long, value_name = "WEEK", num_args = 0..=1, default_missing_value = "", value_parser = week,
          conflicts_with_all = ["id", "batch", "since"])]
    week: Option<WeekTyped>,
    /// Calls since this instant, as 2026-01-31T02:00:00Z or 2026-01-31, or this long ago, as 90m or 2d
    #[arg(long, value_name = "TIME", value_parser = instant, conflicts_with_all = ["id", "batch"])]
    since: Option<Instant>,
    /// What makes a line
    #[arg(long, value_enum, default_value_t)]
    by: By,
    /// A line of JSON for each call, for other programs
    #[arg(long, conflicts_with_all = ["by", "json"])]
    jsonl: bool,
}

/// What makes a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
enum By {
    /// What a role asked of a model
    #[default]
    RoleModel,
    /// A role
    Role,
    /// A model
    Model,
    /// A run
    Run,
    /// A task
    Task,
    /// A call
    Call,
}

impl From<By> for CostBy {
    fn from(by: By) -> Self {
        match by {
            By::RoleModel => Self::RoleModel,
            By::Role => Self::Role,
            By::Model => Self::Model,
            By::Run => Self::Run,
            By::Task => Self::Task,
            By::Call => Self::Call,
        }
    }
}

/// A week as it is typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WeekTyped {
    This,
    Of(Week),
}

fn week(text: &str) -> Result<WeekTyped, String> {
    if text.is_empty() {
        return Ok(WeekTyped::This);
    }
    text.parse().map(WeekTyped::Of).map_err(|_| "it must be an ISO week, as 2026-W47".to_owned())
}

/// Tells it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Read).await?;
    let found = found(&cx, &access.client, &args).await;
    access.close().await?;
    let runs = found?;
    let by = if args.jsonl { By::Call } else { args.by };
    let report = CostReport::of(&runs, by.into());
    if args.jsonl {
        for call in report.lines.iter().filter_map(|line| line.call.as_ref()) {
            display::say_json(&CostExport::from(call));
        }
    } else if cx.json() {
        display::say_json(&report);
    } else {
        show(&cx, &report);
    }
    Ok(Exit::Ok)
}

async fn found(cx: &Context, client: &Client, args: &Args) -> Outcome<Vec<RunCost>> {
    let progress = Progress::counting(cx, "runs");
    let query = CostQuery { calls: args.jsonl || args.by == By::Call, ..CostQuery::default() };
    let Some(id) = &args.id else {
        // What was given away is of the same batch, and its calls have their own time.
        return pages(&progress, client, window(client, args, query).await?).await;
    };
    let (of, runs) = match resolve::named(client, id).await? {
        Named::Run(run) => (CostQuery { run: Some(run), ..query.clone() }, vec![run]),
        Named::Task(task) => {
            let runs = client.task(task).await?.runs.iter().map(|run| run.id).collect();
            (CostQuery { task: Some(task), ..query.clone() }, runs)
        }
    };
    let mut found = pages(&progress, client, of).await?;
    for child in children::below(client, &runs).await? {
        let of = CostQuery { task: Some(child.view.task.id), ..query.clone() };
        found.extend(pages(&progress, client, of).await?);
    }
    Ok(found)
}

async fn window(client: &Client, args: &Args, query: CostQuery) -> Outcome<CostQuery> {
    if let Some(name) = &args.batch {
        return Ok(CostQuery { batch: Some(batches::meant(client, name).await?), ..query });
    }
    let now = docket_coordinator::clock::Clock::new().now();
    if let Some(since) = args.since {
        return Ok(CostQuery { from: Some(since.from(now)), ..query });
    }
    let week = match args.week {
        Some(WeekTyped::Of(week)) => week,
        Some(WeekTyped::This) | None => Week::of(now),
    };
    Ok(CostQuery { from: Some(week.begins_at()), until: Some(week.ends_at()), ..query })
}

async fn pages(progress: &Progress, client: &Client, mut query: CostQuery) -> Outcome<Vec<RunCost>> {
    let mut runs = Vec::new();
    loop {
        let page = client.cost(&query).await?;
        progress.add(page.runs.len() as u64);
        runs.extend(page.runs);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return Ok(runs),
        }
    }
}

/// Money that is known, and that some is not.
fn money(sums: &CostSums) -> String {
    let known =
        || format!("${}.{:06}", sums.cost_nusd / 1_000_000_000, sums.cost_nusd % 1_000_000_000 / 1000);
    match (sums.answered, sums.unpriced) {
        (0, _) if sums.failed > 0 => "unknown".to_owned(),
        (_, 0) => known(),
        (answered, unpriced) if answered == unpriced => "unknown".to_owned(),
        (_, unpriced) => format!("{} + {unpriced} unknown", known()),
    }
}

fn name(line: &CostLine) -> Vec<String> {
    let mut name = Vec::new();
    name.extend(line.call.as_ref().map(|call| at(call.at)));
    name.extend(line.task.filter(|_| line.call.is_none()).map(|task| format!("task {}", task.short())));
    name.extend(line.run.map(|run| format!("run {}", run.short())));
    name.extend(line.call.as_ref().map(|call| match call.end {
        CallEnd::Answered => call.call.to_string(),
        CallEnd::Failed => format!("{} failed", call.call),
        CallEnd::Open => format!("{} open", call.call),
    }));
    name.extend(line.role.clone());
    name.extend(line.model.as_ref().map(ToString::to_string));
    name
}

/// An instant to the second.
fn at(at: Timestamp) -> String {
    at.to_string().chars().take("2026-01-31T02:00:00".len()).collect()
}

fn show(cx: &Context, report: &CostReport) {
    let mut table =
        Table::new(&["CALLS", "FAILED", "IN", "CACHE READ", "CACHE WRITE", "OUT", "TIME", "COST", "OF"]);
    let mut row = |sums: &CostSums, of: String| {
        let usage = sums.usage;
        table.row(vec![
            Cell::new(sums.calls().to_string()),
            Cell::new(sums.failed.to_string()),
            Cell::new(usage.input_tokens.to_string()),
            Cell::new(usage.cache_read_tokens.to_string()),
            Cell::new(usage.cache_write_tokens.to_string()),
            Cell::new(usage.output_tokens.to_string()),
            Cell::new(display::duration(sums.latency_ms)),
            Cell::new(money(sums)),
            Cell::new(of),
        ]);
    };
    for line in &report.lines {
        row(&line.sums, name(line).join("  "));
    }
    row(&report.total, "all".to_owned());
    display::say(&table.render(cx.screen));
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
        calls => format!(" ({} not compared)", display::count(calls, "call")),
    };
    let text = format!(
        "{}{percent} {word} than {} alone, which costs {} for the same tokens{not}; taken for granted: {}",
        dollars(savings.saved_nusd.unsigned_abs()),
        savings.strong.join(", "),
        dollars(savings.strong_nusd),
        savings.assumes
    );
    display::say(&cx.screen.prose(&display::line(&text)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_never_shown_as_nothing() {
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
            assert_eq!(money(&sums), shown, "{sums:?}");
        }
    }

    #[test]
    fn a_week_is_typed_whole_or_not_at_all() {
        assert_eq!(week(""), Ok(WeekTyped::This));
        assert!(matches!(week("2026-W47"), Ok(WeekTyped::Of(_))));
        assert!(week("47").is_err());
    }
}
