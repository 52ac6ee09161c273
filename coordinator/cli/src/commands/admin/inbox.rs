//! `docket inbox`: lists, drops and retries transactional outbox entries that could not become
//! tasks.

use docket_schema::api::InboxRow;

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
    },
};

/// Command-line arguments of `docket inbox`.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("inbox.txt"))]
pub(crate) struct InboxArgs {
    #[command(subcommand)]
    command: Option<InboxCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum InboxCommand {
    /// List entries (the default subcommand)
    #[command(after_help = "Examples:
  docket inbox list
  docket inbox list --json | jq -r 'select(.refused) | .id'")]
    List,
    /// Remove an entry without creating a task
    #[command(after_help = "Examples:
  docket inbox drop 0190c8d2-7a55-7c3e-9d1b-2f6f0a4b8c1d")]
    Drop {
        /// Entry ID, as shown by `docket inbox`
        #[arg(required = true)]
        rows: Vec<String>,
    },
    /// Retry a refused entry
    #[command(after_help = "Examples:
  docket inbox retry 0190c8d2-7a55-7c3e-9d1b-2f6f0a4b8c1d
  docket inbox retry --all")]
    Retry {
        /// Entry ID, as shown by `docket inbox`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        rows: Vec<String>,
        /// Retry all refused entries
        #[arg(long)]
        all: bool,
    },
}

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
                return Err(CliError::new(ExitKind::NotFound, "the inbox has no refused entries"));
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
        display::print_note("the inbox is empty: everything was turned into tasks; see `docket ps`");
        return;
    }
    let now = docket_coordinator::clock::Clock::new().now();
    let mut table = TextTable::new(&["ID", "BY", "AGE", "REASON"]);
    for row in &rows {
        let by = if row.submitted_by.is_empty() { "-" } else { &row.submitted_by };
        table.add_row(vec![
            TableCell::new(&row.id),
            TableCell::new(by),
            TableCell::new(display::format_duration(now.ms_since(row.created_at))),
            TableCell::new(row.refused.as_deref().unwrap_or("- (not processed yet)")),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
}
