//! `docket token`: who may call the coordinator.

use docket_schema::{
    api::{CreateTokenRequest, TOKEN_LIFETIME_MS_MAX, TokenView},
    system::{TokenName, TokenRole},
};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliResult, ExitKind},
    },
};

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A token is shown once, when it is made; the log keeps its hash. Its name stands in the log for all that is
done with it. What is revoked is refused at once, at other coordinators of the same store within two seconds.
The file `token` of the home is an administrator's token of its own, and no token of this list.

Roles: admin may do everything; submit puts tasks in, steers and reads them; worker leases and reports;
read looks. Blobs are for admin alone (and run processes), and so are commands that need them, as diff, cat
and export: snapshots are exact, and may hold secrets that were struck out everywhere else.

Examples:
  docket token create --name ci --role submit --expires 90d
  DOCKET_TOKEN=$(docket token create --name builder --role worker --json | jq -r .secret)
  docket token list
  docket token revoke ci
  docket logs system/audit"
)]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    command: TokenCommand,
}

#[derive(Debug, clap::Subcommand)]
enum TokenCommand {
    /// Make a token, and show it this once
    Create(TokenCreateArgs),
    /// The tokens that were made, without themselves
    #[command(after_help = "Examples:
  docket token list
  docket token list --json")]
    List,
    /// End a token
    #[command(after_help = "Examples:
  docket token revoke ci")]
    Revoke {
        /// Its name
        name: TokenName,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket token create --name ci --role submit --expires 90d
  docket token create --name builder --role worker --json | jq -r .secret")]
struct TokenCreateArgs {
    /// Its name: letters, digits, . _ - after a first letter or digit
    #[arg(long, value_parser = parse_new_name)]
    name: TokenName,
    /// What it is good for: admin, submit, worker, read
    #[arg(long, value_parser = parse_role)]
    role: TokenRole,
    /// How long: 12h, 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    expires: Option<u64>,
}

fn parse_new_name(text: &str) -> Result<TokenName, String> {
    let name: TokenName =
        text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())?;
    if name.is_valid_for_creation() {
        Ok(name)
    } else {
        Err("it must begin with a letter or digit".to_owned())
    }
}

fn parse_role(text: &str) -> Result<TokenRole, String> {
    let role = TokenRole::ALL.into_iter().find(|role| role.as_str() == text);
    role.ok_or_else(|| "it is one of admin, submit, worker, read".to_owned())
}

/// A time as `12h` or `90d`, in milliseconds.
fn parse_lifetime(text: &str) -> Result<u64, String> {
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let ms = hours.and_then(|(n, hours)| n.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS));
    ms.filter(|ms| (1..=TOKEN_LIFETIME_MS_MAX).contains(ms))
        .ok_or_else(|| "it must be hours or days up to ten years, as 12h or 90d".to_owned())
}

/// Does it.
pub(crate) async fn run_token(cx: CliContext, args: TokenArgs) -> CliResult {
    match args.command {
        TokenCommand::Create(args) => create_token(&cx, args).await,
        TokenCommand::List => list_tokens(&cx).await,
        TokenCommand::Revoke { name } => revoke_token(&cx, &name).await,
    }
}

async fn create_token(cx: &CliContext, args: TokenCreateArgs) -> CliResult {
    let TokenCreateArgs { name, role, expires: expires_in_ms } = args;
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let made = access.client.create_token(&CreateTokenRequest { name, role, expires_in_ms }).await?;
    access.close().await?;
    if cx.is_json() {
        display::print_json(&made);
    } else {
        // The one line of standard output, so that it can be taken from there.
        display::print_line(&made.secret);
        display::print_note(&format!("{}; it is not shown again", describe_token(&made.token)));
    }
    Ok(ExitKind::Ok)
}

fn describe_token(token: &TokenView) -> String {
    let until = token.expires_at.map_or_else(|| "revoked".to_owned(), |at| at.to_string());
    format!("token {} of role {}, good until {until}", token.name, token.role.as_str())
}

async fn list_tokens(cx: &CliContext) -> CliResult {
    let access = Coordinator::connect(cx, AccessMode::Read).await?;
    let tokens = access.client.list_tokens().await?.tokens;
    access.close().await?;
    if cx.is_json() {
        for token in &tokens {
            display::print_json(token);
        }
        return Ok(ExitKind::Ok);
    }
    if tokens.is_empty() {
        display::print_note("no tokens were made; `docket token create` makes one");
        return Ok(ExitKind::Ok);
    }
    let mut table = TextTable::new(&["NAME", "ROLE", "STATE", "MADE BY", "MADE", "ENDS"]);
    for token in &tokens {
        let ends = token.revoked_at.or(token.expires_at).map_or_else(|| "-".to_owned(), |at| at.to_string());
        table.add_row(vec![
            TableCell::new(token.name.as_str()),
            TableCell::new(token.role.as_str()),
            TableCell::new(token.state.as_str()),
            TableCell::new(&token.created_by),
            TableCell::new(token.created_at.to_string()),
            TableCell::new(ends),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
    Ok(ExitKind::Ok)
}

async fn revoke_token(cx: &CliContext, name: &TokenName) -> CliResult {
    let access = Coordinator::connect(cx, AccessMode::Write).await?;
    let token = access.client.revoke_token(name).await?;
    access.close().await?;
    if cx.is_json() {
        display::print_json(&token);
    } else {
        display::print_line(&format!("token {name} is {}", token.state.as_str()));
    }
    Ok(ExitKind::Ok)
}
