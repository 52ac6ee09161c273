//! `docket batch budget`: what the runs of a batch may use together, set and shown.

use crate::connect::batches;
use docket_schema::{
    ids::BatchId,
    system::{Budget, Spending},
    wire::{BatchBudget, BudgetView, SetBudget},
};
use serde_json::json;

use crate::connect::batches::{check_name, look_up};
use crate::{
    config::values::dollars,
    connect::access::{Access, Need},
    context::Context,
    output::{
        display,
        fail::{Exit, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Counted is what the models' answers of all its runs had, as the log has it. A call is let through where the most
that it may use fits into what is left; where it does not, runs rest before their next call, and no task
of the batch begins. Raised, all of it goes on by itself, where it stood. What is not named stays as it was;
--none takes both limits away.

Examples:
  docket batch budget todo --usd 20 --tokens 5000000
  docket batch budget todo --none"
)]
pub(crate) struct Args {
    /// The batch: its name, or its id; one that has no task yet by its whole name
    #[arg(value_name = "BATCH")]
    batch: String,
    #[command(flatten)]
    amounts: BudgetArgs,
    /// It may use whatever it wants
    #[arg(long, conflicts_with = "BudgetArgs", required_unless_present = "BudgetArgs")]
    none: bool,
}

/// What a batch may use.
#[derive(Debug, Clone, Default, clap::Args)]
#[group(multiple = true)]
pub(crate) struct BudgetArgs {
    /// Dollars that all runs of the batch may cost together, as 20 or 2.50
    #[arg(long = "usd", value_name = "DOLLARS", value_parser = dollars)]
    usd: Option<u64>,
    /// Tokens that all of them may use together, of requests and answers
    #[arg(long = "tokens", value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    tokens: Option<u64>,
}

impl BudgetArgs {
    const fn budget(&self) -> Budget {
        Budget { tokens: self.tokens, cost_nusd: self.usd }
    }
}

/// Sets it, and says what is left.
pub(super) async fn run(cx: Context, args: Args) -> Outcome {
    let access = Access::open(&cx, Need::Write).await?;
    let (batch, is_new) = match look_up(&access.client, &args.batch).await? {
        batches::Meant::Known(batch) => (batch, false),
        batches::Meant::New(batch) => {
            if args.batch.parse::<BatchId>().is_err() {
                check_name(args.batch.trim())?;
            }
            (batch, true)
        }
    };
    let how = if args.none { SetBudget::All } else { SetBudget::Named };
    let view = access.client.set_budget(batch, args.amounts.budget(), how).await?;
    let name = if is_new { None } else { access.client.batch(batch).await?.name };
    access.close().await?;
    if cx.json() {
        let BudgetView { batch, budget, used } = &view;
        display::say_json(
            &json!({ "batch": batch, "name": name, "budget": budget, "used": used, "new": is_new }),
        );
        return Ok(Exit::Ok);
    }
    let BudgetView { budget, used, .. } = view;
    let said = match budget.is_none() {
        true => format!("no budget; {} used", used_words(&used)),
        false => words(&budget, &used),
    };
    let name = name.unwrap_or_else(|| args.batch.trim().to_owned());
    display::say(&display::line(&format!("batch {name}: {said}")));
    if is_new {
        let text = "no task is in it yet: this holds for those that are submitted into a batch of exactly this name; `docket \
                    batch` lists those that have tasks";
        display::note(text);
    }
    Ok(Exit::Ok)
}

/// What was used, for people.
pub(super) fn used_words(used: &Spending) -> String {
    format!("{} tokens, {}", used.tokens, display::money(used.cost_nusd))
}

/// What was used of what is set.
pub(super) fn words(budget: &BatchBudget, used: &Spending) -> String {
    let all = format!("{} used of {}", used_words(used), crate::output::words::budget(&budget.budget));
    match &budget.spent {
        None => all,
        Some(why) => format!("{all}; used up: {why}"),
    }
}
