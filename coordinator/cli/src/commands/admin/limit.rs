//! `docket limit`: rate limits of model providers, shared by all workers.

use docket_schema::{
    api::LimitList,
    system::{ProviderLimits, RateLimit},
};
use docket_worker::model::ModelProvider;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliResult, ExitKind},
    },
};

/// Provider names that limits accept.
const PROVIDERS: [ModelProvider; 3] =
    [ModelProvider::Anthropic, ModelProvider::OpenAi, ModelProvider::Scripted];

/// Command-line arguments of `docket limit`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A limit applies to all workers and coordinators of a store, from the next turn of each run: a run
waits for a permit before each call to that provider. Calls are spaced evenly, without bursts.
`openai` covers every server that speaks one of OpenAI's protocols, whatever its --base-url. Token
counts are estimated before a call and corrected afterwards.

Examples:
  docket limit set openai --requests 50/m --tokens 40000/m
  docket limit set anthropic --concurrent 8
  docket limit list
  docket limit remove openai"
)]
pub(crate) struct LimitArgs {
    #[command(subcommand)]
    command: Option<LimitCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum LimitCommand {
    /// List limits (the default subcommand)
    #[command(after_help = "Examples:
  docket limit list
  docket limit list --json")]
    List,
    /// Set a provider's limits; anything not given is unlimited
    #[command(after_help = "Examples:
  docket limit set openai --requests 50/m --tokens 40000/m
  docket limit set anthropic --concurrent 8")]
    Set {
        /// Provider: anthropic, openai or scripted
        #[arg(value_parser = parse_provider)]
        provider: String,
        /// Request rate, e.g. 5/s, 50/m or 1000/h
        #[arg(long, value_name = "RATE", required_unless_present_any = ["tokens", "concurrent"])]
        requests: Option<RateLimit>,
        /// Token rate, requests and replies together, e.g. 40000/m
        #[arg(long, value_name = "RATE")]
        tokens: Option<RateLimit>,
        /// Maximum number of concurrent calls
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        concurrent: Option<u32>,
    },
    /// Remove a provider's limits
    #[command(after_help = "Examples:
  docket limit remove openai")]
    Remove {
        /// Provider: anthropic, openai or scripted
        #[arg(value_parser = parse_provider)]
        provider: String,
    },
}

fn parse_provider(text: &str) -> Result<String, String> {
    let known = PROVIDERS.into_iter().any(|provider| provider.key_name() == text);
    if known { Ok(text.to_owned()) } else { Err("expected one of anthropic, openai, scripted".to_owned()) }
}

pub(crate) async fn run_limit(cx: CliContext, args: LimitArgs) -> CliResult {
    let what = args.command.unwrap_or(LimitCommand::List);
    let need = if matches!(what, LimitCommand::List) { AccessMode::Read } else { AccessMode::Write };
    let access = Coordinator::connect(&cx, need).await?;
    let limits = match what {
        LimitCommand::List => access.client.list_limits().await?,
        LimitCommand::Set { provider, requests, tokens, concurrent } => {
            access.client.set_limit(&provider, ProviderLimits { requests, tokens, concurrent }).await?
        }
        LimitCommand::Remove { provider } => access.client.remove_limit(&provider).await?,
    };
    access.close().await?;
    print_limits(&cx, &limits);
    Ok(ExitKind::Ok)
}

fn print_limits(cx: &CliContext, limits: &LimitList) {
    if cx.is_json() {
        limits.limits.iter().for_each(display::print_json);
        return;
    }
    if limits.limits.is_empty() {
        display::print_note("no provider has a limit; set one with `docket limit set`");
        return;
    }
    let mut table = TextTable::new(&["PROVIDER", "REQUESTS", "TOKENS", "CONCURRENT", "SET BY", "SET"]);
    let shown = |rate: Option<RateLimit>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    for view in &limits.limits {
        table.add_row(vec![
            TableCell::new(&view.provider),
            TableCell::new(shown(view.limits.requests)),
            TableCell::new(shown(view.limits.tokens)),
            TableCell::new(view.limits.concurrent.map_or_else(|| "-".to_owned(), |max| max.to_string())),
            TableCell::new(&view.by),
            TableCell::new(view.set_at.to_string()),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
}
