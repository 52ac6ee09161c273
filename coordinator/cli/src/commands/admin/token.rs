//! `docket token`: who may call the coordinator.

use docket_schema::{
    system::{Role, TokenName},
    wire::{CreateTokenRequest, TOKEN_LIFE_MS_MAX, TokenView},
};

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Outcome},
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
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Make a token, and show it this once
    Create(CreateArgs),
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
struct CreateArgs {
    /// Its name: letters, digits, . _ - after a first letter or digit
    #[arg(long, value_parser = new_name)]
    name: TokenName,
    /// What it is good for: admin, submit, worker, read
    #[arg(long, value_parser = role)]
    role: Role,
    /// How long: 12h, 90d [default: until it is revoked]
    #[arg(long, value_name = "TIME", value_parser = life)]
    expires: Option<u64>,
}

fn new_name(text: &str) -> Result<TokenName, String> {
    let name: TokenName =
        text.parse().map_err(|error: docket_schema::ids::ParseIdError| error.to_string())?;
    if name.is_new() { Ok(name) } else { Err("it must begin with a letter or digit".to_owned()) }
}

fn role(text: &str) -> Result<Role, String> {
    let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
    role.ok_or_else(|| "it is one of admin, submit, worker, read".to_owned())
}

/// A time as `12h` or `90d`, in milliseconds.
fn life(text: &str) -> Result<u64, String> {
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let ms = hours.and_then(|(n, hours)| n.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS));
    ms.filter(|ms| (1..=TOKEN_LIFE_MS_MAX).contains(ms))
        .ok_or_else(|| "it must be hours or days up to ten years, as 12h or 90d".to_owned())
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    match args.what {
        What::Create(args) => create(&cx, args).await,
        What::List => list(&cx).await,
        What::Revoke { name } => revoke(&cx, &name).await,
    }
}

async fn create(cx: &Context, args: CreateArgs) -> Outcome {
    let CreateArgs { name, role, expires: expires_in_ms } = args;
    let access = Access::open(cx, Need::Write).await?;
    let made = access.client.create_token(&CreateTokenRequest { name, role, expires_in_ms }).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&made);
    } else {
        // The one line of standard output, so that it can be taken from there.
        display::say(&made.secret);
        display::note(&format!("{}; it is not shown again", told(&made.token)));
    }
    Ok(Exit::Ok)
}

fn told(token: &TokenView) -> String {
    let until = token.expires_at.map_or_else(|| "revoked".to_owned(), |at| at.to_string());
    format!("token {} of role {}, good until {until}", token.name, token.role.as_str())
}

async fn list(cx: &Context) -> Outcome {
    let access = Access::open(cx, Need::Read).await?;
    let tokens = access.client.tokens().await?.tokens;
    access.close().await?;
    if cx.json() {
        for token in &tokens {
            display::say_json(token);
        }
        return Ok(Exit::Ok);
    }
    if tokens.is_empty() {
        display::note("no tokens were made; `docket token create` makes one");
        return Ok(Exit::Ok);
    }
    let mut table = Table::new(&["NAME", "ROLE", "STATE", "MADE BY", "MADE", "ENDS"]);
    for token in &tokens {
        let ends = token.revoked_at.or(token.expires_at).map_or_else(|| "-".to_owned(), |at| at.to_string());
        table.row(vec![
            Cell::new(token.name.as_str()),
            Cell::new(token.role.as_str()),
            Cell::new(token.state.as_str()),
            Cell::new(&token.created_by),
            Cell::new(token.created_at.to_string()),
            Cell::new(ends),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
    Ok(Exit::Ok)
}

async fn revoke(cx: &Context, name: &TokenName) -> Outcome {
    let access = Access::open(cx, Need::Write).await?;
    let token = access.client.revoke_token(name).await?;
    access.close().await?;
    if cx.json() {
        display::say_json(&token);
    } else {
        display::say(&format!("token {name} is {}", token.state.as_str()));
    }
    Ok(Exit::Ok)
}
