//! `docket inbox`: what applications enqueued within their own transactions and what is no task; drop it, try again.

use docket_schema::wire::InboxRow;

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Failure, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("inbox.txt"))]
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What stands there (as without a subcommand)
    #[command(after_help = "Examples:
  docket inbox list
  docket inbox list --json | jq -r 'select(.refused) | .id'")]
    List,
    /// Take it out and make no task of it
    #[command(after_help = "Examples:
  docket inbox drop 0190c8d2-7a55-7c3e-9d1b-2f6f0a4b8c1d")]
    Drop {
        /// Its id, as `docket inbox` shows it
        #[arg(required = true)]
        rows: Vec<String>,
    },
    /// Look once more at what was refused
    #[command(after_help = "Examples:
  docket inbox retry 0190c8d2-7a55-7c3e-9d1b-2f6f0a4b8c1d
  docket inbox retry --all")]
    Retry {
        /// Its id, as `docket inbox` shows it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        rows: Vec<String>,
        /// All that was refused
        #[arg(long)]
        all: bool,
    },
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let need = if matches!(args.what, None | Some(What::List)) { Need::Read } else { Need::Write };
    let access = Access::open(&cx, need).await?;
    match args.what {
        None | Some(What::List) => list(&cx, access.client.inbox().await?.rows),
        Some(What::Drop { rows }) => {
            for row in &rows {
                access.client.drop_inbox(row).await?;
                said(&cx, row, "dropped");
            }
        }
        Some(What::Retry { rows, all }) => {
            let rows = if all { refused(access.client.inbox().await?.rows) } else { rows };
            if rows.is_empty() {
                access.close().await?;
                return Err(Failure::new(Exit::NotFound, "nothing in the inbox was refused"));
            }
            for row in &rows {
                access.client.retry_inbox(row).await?;
                said(&cx, row, "waiting");
            }
        }
    }
    access.close().await?;
    Ok(Exit::Ok)
}

fn refused(rows: Vec<InboxRow>) -> Vec<String> {
    rows.into_iter().filter(|row| row.refused.is_some()).map(|row| row.id).collect()
}

fn said(cx: &Context, row: &str, state: &str) {
    if cx.json() {
        display::say_json(&serde_json::json!({ "id": row, "state": state }));
    } else {
        display::say(&format!("{row} {state}"));
    }
}

fn list(cx: &Context, rows: Vec<InboxRow>) {
    if cx.json() {
        rows.iter().for_each(display::say_json);
        return;
    }
    if rows.is_empty() {
        display::note("the inbox is empty: all that was enqueued are tasks; `docket ps` lists them");
        return;
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = Table::new(&["ID", "BY", "AGE", "WHY IT IS NO TASK"]);
    for row in &rows {
        let by = if row.submitted_by.is_empty() { "-" } else { &row.submitted_by };
        table.row(vec![
            Cell::new(&row.id),
            Cell::new(by),
            Cell::new(display::duration(now.ms_since(row.created_at))),
            Cell::new(row.refused.as_deref().unwrap_or("- (waits for its turn)")),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
}
