//! `docket tool`: a tool of the agent by itself, so that its behaviour can be scored on any corpus.

use std::io::{BufReader, stdin, stdout};

use docket_edit::edit_jsonl;

use crate::output::fail::{Exit, FailWith as _, Outcome};

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
pub(crate) struct Args {
    #[command(subcommand)]
    tool: Tool,
}

#[derive(Debug, clap::Subcommand)]
enum Tool {
    /// The edit engine: search and replace on text that comes with the call
    #[command(name = "edit_file")]
    #[command(after_help = "Examples:
  docket tool edit_file --jsonl < cases.jsonl > answers.jsonl")]
    EditFile(EditArgs),
}

#[derive(Debug, clap::Args)]
struct EditArgs {
    /// One call a line on standard input, one answer a line on standard output
    #[arg(long, required = true)]
    jsonl: bool,
}

/// Answers each line.
pub(crate) fn run(args: &Args) -> Outcome {
    match &args.tool {
        Tool::EditFile(EditArgs { jsonl: _ }) => {
            edit_jsonl(BufReader::new(stdin().lock()), stdout().lock()).fail_as(Exit::Failed)?;
        }
    }
    Ok(Exit::Ok)
}
