//! `docket tool`: a tool of the agent by itself, so that its behaviour can be scored on any corpus.

use std::io::{BufReader, stdin, stdout};

use docket_edit::edit_jsonl;

use crate::output::error::{CliResult, ExitKind, FailWith as _};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line of standard input is {\"id\", \"before\", \"edits\": [{\"search\", \"replace\"}]}, with near_line, occurrence
or replace_all in an edit where its search stands in several places; or {\"id\", \"before\", \"path\", \"patch\"}, a unified
diff, apply_patch text or SEARCH/REPLACE blocks. Each line of standard output is {\"id\", \"ok\", \"after\", \"level\",
\"error\"}. No file is touched.

Examples:
  docket tool edit_file --jsonl < cases.jsonl > answers.jsonl"
)]
pub(crate) struct ToolArgs {
    #[command(subcommand)]
    tool: ToolCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ToolCommand {
    /// The edit engine: search and replace on text that comes with the call
    #[command(name = "edit_file")]
    #[command(after_help = "Examples:
  docket tool edit_file --jsonl < cases.jsonl > answers.jsonl")]
    EditFile(EditFileArgs),
}

#[derive(Debug, clap::Args)]
struct EditFileArgs {
    /// One call a line on standard input, one answer a line on standard output
    #[arg(long, required = true)]
    jsonl: bool,
}

/// Answers each line.
pub(crate) fn run_tool(args: &ToolArgs) -> CliResult {
    match &args.tool {
        ToolCommand::EditFile(EditFileArgs { jsonl: _ }) => {
            edit_jsonl(BufReader::new(stdin().lock()), stdout().lock()).fail_as(ExitKind::Failed)?;
        }
    }
    Ok(ExitKind::Ok)
}
