//! `docket tool`: runs a single agent tool standalone, so that it can be scored on any corpus.

use std::io::{BufReader, stdin, stdout};

use docket_edit::edit_jsonl;

use crate::output::error::{CliResult, ExitKind, FailWith as _};

/// Command-line arguments of `docket tool`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line of standard input is {\"id\", \"before\", \"edits\": [{\"search\", \"replace\"}]}, where an edit
whose search occurs more than once takes near_line, occurrence or replace_all; or {\"id\", \"before\",
\"path\", \"patch\"} with a unified diff, apply_patch text or SEARCH/REPLACE blocks. Each line of
standard output is {\"id\", \"ok\", \"after\", \"level\", \"error\"}. No files are changed.

Examples:
  docket tool edit_file --jsonl < cases.jsonl > answers.jsonl"
)]
pub(crate) struct ToolArgs {
    #[command(subcommand)]
    tool: ToolCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ToolCommand {
    /// The edit engine: search and replace on text given in the call
    #[command(name = "edit_file")]
    #[command(after_help = "Examples:
  docket tool edit_file --jsonl < cases.jsonl > answers.jsonl")]
    EditFile(EditFileArgs),
}

#[derive(Debug, clap::Args)]
struct EditFileArgs {
    /// Read one call per line from standard input and write one result per line to standard output
    #[arg(long, required = true)]
    jsonl: bool,
}

/// Runs the tool for each line.
pub(crate) fn run_tool(args: &ToolArgs) -> CliResult {
    match &args.tool {
        ToolCommand::EditFile(EditFileArgs { jsonl: _ }) => {
            edit_jsonl(BufReader::new(stdin().lock()), stdout().lock()).fail_as(ExitKind::Failed)?;
        }
    }
    Ok(ExitKind::Ok)
}
