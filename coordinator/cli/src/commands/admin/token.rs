//! `docket token`: manages the tokens that may call the coordinator.

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

/// Milliseconds per hour.
const HOUR_MS: u64 = 3_600_000;

/// Command-line arguments of `docket token`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A token is shown once, when it is created; the log keeps only its hash, and records the token's
name with everything done with it. A revoked token is refused at once, and within two seconds by
other coordinators of the same store. The file `token` in the home is a separate administrator
token and is not in this list.

Roles: `admin` may do everything; `submit` submits, manages and reads tasks; `worker` leases tasks
and reports on them; `read` only reads. Only `admin` (and run processes) can read blobs, and so
only `admin` can use commands that need them, such as diff, cat and export: snapshots are exact
and may contain secrets that are redacted elsewhere.

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
    /// Create a token (shown once)
    Create(TokenCreateArgs),
    /// List tokens (not their secrets)
    #[command(after_help = "Examples:
  docket token list
  docket token list --json")]
    List,
    /// Revoke a token
    #[command(after_help = "Examples:
  docket token revoke ci")]
    Revoke {
        /// Name of the token
        name: TokenName,
    },
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  docket token create --name ci --role submit --expires 90d
  docket token create --name builder --role worker --json | jq -r .secret")]
struct TokenCreateArgs {
    /// Name of the token: letters, digits and . _ - after a first letter or digit
    #[arg(long, value_parser = parse_new_name)]
    name: TokenName,
    /// Role: admin, submit, worker or read
    #[arg(long, value_parser = parse_role)]
    role: TokenRole,
    /// Lifetime, e.g. 12h or 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    expires: Option<u64>,
}

fn parse_new_name(text: &str) -> Result<TokenName, String> {
    let name: TokenName =
        text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())?;
    if name.is_valid_for_creation() { Ok(name) } else { Err("must start with a letter or digit".to_owned()) }
}

fn parse_role(text: &str) -> Result<TokenRole, String> {
    let role = TokenRole::ALL.into_iter().find(|role| role.as_str() == text);
    role.ok_or_else(|| "expected one of admin, submit, worker, read".to_owned())
}

/// Parses a duration such as `12h` or `90d` into milliseconds.
fn parse_lifetime(text: &str) -> Result<u64, String> {
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let ms = hours.and_then(|(n, hours)| n.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS));
    ms.filter(|ms| (1..=TOKEN_LIFETIME_MS_MAX).contains(ms))
        .ok_or_else(|| "expected hours or days up to ten years, for example 12h or 90d".to_owned())
}

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
        // The only line on standard output, so that scripts can capture it.
        display::print_line(&made.secret);
        display::print_note(&format!("{}; it will not be shown again", describe_token(&made.token)));
    }
    Ok(ExitKind::Ok)
}

fn describe_token(token: &TokenView) -> String {
    let until = token.expires_at.map_or_else(|| "revoked".to_owned(), |at| at.to_string());
    format!("token {} with role {}, valid until {until}", token.name, token.role.as_str())
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
        display::print_note("no tokens; create one with `docket token create`");
        return Ok(ExitKind::Ok);
    }
    let mut table = TextTable::new(&["NAME", "ROLE", "STATE", "CREATED BY", "CREATED", "EXPIRES"]);
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
