//! `docket batch budget`: sets and shows the budget that the runs of a batch share.

use crate::connect::batch_lookup;
use docket_schema::{
    api::{BatchBudget, BudgetUpdateMode, BudgetView},
    ids::BatchId,
    system::{BatchSpending, Budget},
};
use serde_json::json;

use crate::connect::batch_lookup::{check_batch_name, look_up_batch};
use crate::{
    config::values::parse_dollars,
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
};

/// Command-line arguments of `docket batch budget`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Usage is what all runs of the batch spent on model calls according to the log. A call is allowed
if the most it may use fits in the remaining budget; otherwise runs pause before their next call,
and no further task of the batch starts. After the budget is raised, the paused runs continue.
Limits that are not given stay as they are; --none removes both.

Examples:
  docket batch budget todo --usd 20 --tokens 5000000
  docket batch budget todo --none"
)]
pub(crate) struct BatchBudgetArgs {
    /// Name or ID of the batch; for a batch without tasks, its full name
    #[arg(value_name = "BATCH")]
    batch: String,
    #[command(flatten)]
    amounts: BudgetArgs,
    /// Remove all limits
    #[arg(long, conflicts_with = "BudgetArgs", required_unless_present = "BudgetArgs")]
    none: bool,
}

/// The budget of a batch.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = true)]
pub(crate) struct BudgetArgs {
    /// Cost limit for all runs of the batch together, in dollars, e.g. 20 or 2.50
    #[arg(long = "usd", value_name = "DOLLARS", value_parser = parse_dollars)]
    usd: Option<u64>,
    /// Token limit for all runs of the batch together, requests and replies
    #[arg(long = "tokens", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
}

impl BudgetArgs {
    const fn budget(&self) -> Budget {
        Budget { tokens: self.tokens, cost_nusd: self.usd }
    }
}

/// Sets the budget and prints the remainder.
pub(super) async fn run_batch_budget(cx: CliContext, args: BatchBudgetArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let (batch, is_new) = match look_up_batch(&access.client, &args.batch).await? {
        batch_lookup::BatchLookup::Known(batch) => (batch, false),
        batch_lookup::BatchLookup::Unknown(batch) => {
            if args.batch.parse::<BatchId>().is_err() {
                check_batch_name(args.batch.trim())?;
            }
            (batch, true)
        }
    };
    let how = if args.none { BudgetUpdateMode::All } else { BudgetUpdateMode::Named };
    let view = access.client.set_budget(batch, args.amounts.budget(), how).await?;
    let name = if is_new { None } else { access.client.get_batch(batch).await?.name };
    access.close().await?;
    if cx.is_json() {
        let BudgetView { batch, budget, used } = &view;
        display::print_json(
            &json!({ "batch": batch, "name": name, "budget": budget, "used": used, "new": is_new }),
        );
        return Ok(ExitKind::Ok);
    }
    let BudgetView { budget, used, .. } = view;
    let said = match budget.is_none() {
        true => format!("no budget; {} used", format_used(&used)),
        false => format_budget_use(&budget, &used),
    };
    let name = name.unwrap_or_else(|| args.batch.trim().to_owned());
    display::print_line(&display::sanitize_line(&format!("batch {name}: {said}")));
    if is_new {
        let text = "the batch has no tasks yet: the budget applies to tasks submitted to a batch of exactly this name; `docket \
                    batch` lists batches that have tasks";
        display::print_note(text);
    }
    Ok(ExitKind::Ok)
}

/// Formats the usage.
pub(super) fn format_used(used: &BatchSpending) -> String {
    format!("{} tokens, {}", used.tokens, display::format_money(used.cost_nusd))
}

/// Formats the usage and the budget.
pub(super) fn format_budget_use(budget: &BatchBudget, used: &BatchSpending) -> String {
    let all = format!(
        "{} used of {}",
        format_used(used),
        crate::output::value_format::format_budget(&budget.budget)
    );
    match &budget.spent {
        None => all,
        Some(why) => format!("{all}; used up: {why}"),
    }
}
