//! `docket limit`: how fast model providers may be asked, by all workers together.

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

/// Providers as limits name them.
const PROVIDERS: [ModelProvider; 3] =
    [ModelProvider::Anthropic, ModelProvider::OpenAi, ModelProvider::Scripted];

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A limit holds over all workers and coordinators of a store, from the next turn of each run on: before each call to
that provider a run asks for its moment, and waits for it. Calls are spaced evenly, without bursts. `openai` is every server
that speaks one of OpenAI's protocols, whatever --base-url. Tokens are estimated before a call, and put right after it.

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
    /// What is set (as without a subcommand)
    #[command(after_help = "Examples:
  docket limit list
  docket limit list --json")]
    List,
    /// Set how fast a provider may be asked; what is not named has no limit
    #[command(after_help = "Examples:
  docket limit set openai --requests 50/m --tokens 40000/m
  docket limit set anthropic --concurrent 8")]
    Set {
        /// anthropic, openai or scripted
        #[arg(value_parser = parse_provider)]
        provider: String,
        /// Requests, as 5/s, 50/m or 1000/h
        #[arg(long, value_name = "RATE", required_unless_present_any = ["tokens", "concurrent"])]
        requests: Option<RateLimit>,
        /// Tokens of requests and answers, as 40000/m
        #[arg(long, value_name = "RATE")]
        tokens: Option<RateLimit>,
        /// Calls under way at a time
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        concurrent: Option<u32>,
    },
    /// As fast as one likes
    #[command(after_help = "Examples:
  docket limit remove openai")]
    Remove {
        /// anthropic, openai or scripted
        #[arg(value_parser = parse_provider)]
        provider: String,
    },
}

fn parse_provider(text: &str) -> Result<String, String> {
    let known = PROVIDERS.into_iter().any(|provider| provider.key_name() == text);
    if known { Ok(text.to_owned()) } else { Err("it is one of anthropic, openai, scripted".to_owned()) }
}

/// Does it.
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
        display::print_note("no provider has a limit; `docket limit set` sets one");
        return;
    }
    let mut table = TextTable::new(&["PROVIDER", "REQUESTS", "TOKENS", "AT A TIME", "SET BY", "SET"]);
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
