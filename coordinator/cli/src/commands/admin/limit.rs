//! `docket limit`: how fast model providers may be asked, by all workers together.

use docket_schema::{
    system::{ProviderLimits, Rate},
    wire::LimitList,
};
use docket_worker::model::Provider;

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Outcome},
    },
};

/// Providers as limits name them.
const PROVIDERS: [Provider; 3] = [Provider::Anthropic, Provider::OpenAi, Provider::Scripted];

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
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
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
        #[arg(value_parser = provider)]
        provider: String,
        /// Requests, as 5/s, 50/m or 1000/h
        #[arg(long, value_name = "RATE", required_unless_present_any = ["tokens", "concurrent"])]
        requests: Option<Rate>,
        /// Tokens of requests and answers, as 40000/m
        #[arg(long, value_name = "RATE")]
        tokens: Option<Rate>,
        /// Calls under way at a time
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
        concurrent: Option<u32>,
    },
    /// As fast as one likes
    #[command(after_help = "Examples:
  docket limit remove openai")]
    Remove {
        /// anthropic, openai or scripted
        #[arg(value_parser = provider)]
        provider: String,
    },
}

fn provider(text: &str) -> Result<String, String> {
    let known = PROVIDERS.into_iter().any(|provider| provider.key_name() == text);
    if known { Ok(text.to_owned()) } else { Err("it is one of anthropic, openai, scripted".to_owned()) }
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let what = args.what.unwrap_or(What::List);
    let need = if matches!(what, What::List) { Need::Read } else { Need::Write };
    let access = Access::open(&cx, need).await?;
    let limits = match what {
        What::List => access.client.limits().await?,
        What::Set { provider, requests, tokens, concurrent } => {
            access.client.set_limit(&provider, ProviderLimits { requests, tokens, concurrent }).await?
        }
        What::Remove { provider } => access.client.remove_limit(&provider).await?,
    };
    access.close().await?;
    list(&cx, &limits);
    Ok(Exit::Ok)
}

fn list(cx: &Context, limits: &LimitList) {
    if cx.json() {
        limits.limits.iter().for_each(display::say_json);
        return;
    }
    if limits.limits.is_empty() {
        display::note("no provider has a limit; `docket limit set` sets one");
        return;
    }
    let mut table = Table::new(&["PROVIDER", "REQUESTS", "TOKENS", "AT A TIME", "SET BY", "SET"]);
    let shown = |rate: Option<Rate>| rate.map_or_else(|| "-".to_owned(), |rate| rate.to_string());
    for view in &limits.limits {
        table.row(vec![
            Cell::new(&view.provider),
            Cell::new(shown(view.limits.requests)),
            Cell::new(shown(view.limits.tokens)),
            Cell::new(view.limits.concurrent.map_or_else(|| "-".to_owned(), |max| max.to_string())),
            Cell::new(&view.by),
            Cell::new(view.set_at.to_string()),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
}
