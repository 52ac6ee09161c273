//! `docket inbox`: what applications enqueued within their own transactions and what is no task; drop it, try again.

use docket_schema::api::InboxRow;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("inbox.txt"))]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    command: Option<InboxCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum InboxCommand {
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
pub(crate) async fn run_inbox(cx: CliContext, args: InboxArgs) -> CliResult {
    let need = if matches!(args.command, None | Some(InboxCommand::List)) {
        AccessMode::Read
    } else {
        AccessMode::Write
    };
    let access = Coordinator::connect(&cx, need).await?;
    match args.command {
        None | Some(InboxCommand::List) => print_inbox(&cx, access.client.list_inbox().await?.rows),
        Some(InboxCommand::Drop { rows }) => {
            for row in &rows {
                access.client.drop_inbox_row(row).await?;
                print_row_state(&cx, row, "dropped");
            }
        }
        Some(InboxCommand::Retry { rows, all }) => {
            let rows = if all { refused_ids(access.client.list_inbox().await?.rows) } else { rows };
            if rows.is_empty() {
                access.close().await?;
                return Err(CliError::new(ExitKind::NotFound, "nothing in the inbox was refused"));
            }
            for row in &rows {
                access.client.retry_inbox_row(row).await?;
                print_row_state(&cx, row, "waiting");
            }
        }
    }
    access.close().await?;
    Ok(ExitKind::Ok)
}

fn refused_ids(rows: Vec<InboxRow>) -> Vec<String> {
    rows.into_iter().filter(|row| row.refused.is_some()).map(|row| row.id).collect()
}

fn print_row_state(cx: &CliContext, row: &str, state: &str) {
    if cx.is_json() {
        display::print_json(&serde_json::json!({ "id": row, "state": state }));
    } else {
        display::print_line(&format!("{row} {state}"));
    }
}

fn print_inbox(cx: &CliContext, rows: Vec<InboxRow>) {
    if cx.is_json() {
        rows.iter().for_each(display::print_json);
        return;
    }
    if rows.is_empty() {
        display::print_note("the inbox is empty: all that was enqueued are tasks; `docket ps` lists them");
        return;
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = TextTable::new(&["ID", "BY", "AGE", "WHY IT IS NO TASK"]);
    for row in &rows {
        let by = if row.submitted_by.is_empty() { "-" } else { &row.submitted_by };
        table.add_row(vec![
            TableCell::new(&row.id),
            TableCell::new(by),
            TableCell::new(display::format_duration(now.ms_since(row.created_at))),
            TableCell::new(row.refused.as_deref().unwrap_or("- (waits for its turn)")),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
}
