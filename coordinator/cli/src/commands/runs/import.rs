//! `docket import`: imports a backlog of tasks, or a run written by `docket export`. The start of
//! the file decides which.

mod backlog_args;
mod backlog_import;
mod exported_run;
mod import_source;
mod submit;
mod task_specs;

use std::{io::Read as _, path::PathBuf};

use crate::{
    context::CliContext,
    output::error::{CliResult, ExitKind, FailWith as _},
};
use import_source::ImportSource;

/// Bytes read from the start of a file to detect its kind.
const SNIFF_BYTES: u64 = 64;

/// Command-line arguments of `docket import`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The backlog format is detected from the file's name and content: JSON Lines (one object per line
with `text`, and optionally the flags of `docket submit` by name: title, queue, priority, at,
dedup, tests, requires, setup, policy, branch, model, base_url, explore_model, fallback_model,
script, engine, repo, commit, tools, turns, complexity, delegate, effort, temperature, max_tokens,
max_cost, max_time, attempts; and `after`, with the `key`s of other lines or IDs of tasks that
come first, if_failed (hold, cancel, run), concurrency {key, max}, selector {label: value}),
Markdown checklists (each `- [ ]` with the text indented below it), GitHub issues, or SWE-bench
instances. Flags set the defaults for all lines. The whole file is checked before anything is
submitted. Its tasks form a batch: importing the same file again submits only its new entries,
and continues an interrupted import.

A run is a file written by `docket export`, compressed or plain. Everything is checked before
anything is written: every hash, every blob, and that each event can follow the one before it. The
run keeps its ID and its hashes. It is never executed automatically: a task that had not ended is
cancelled here. Importing the same file again changes nothing; a different history with the same
ID is refused.

Examples:
  docket import backlog.jsonl --repo . --model anthropic:claude-opus-5-5 --dry-run
  docket import TODO.md --repo . --tests \"make check\" --batch todo && docket batch todo --wait
  gh issue list --json number,title,body,labels,url,state | docket import - --repo . --label-priority bug=10
  docket import swe-bench-lite.jsonl --repos ~/clones --batch lite && docket export --predictions --batch lite
  docket import run.docket && docket verify 3f9c01ab && docket replay 3f9c01ab
  ssh there docket export 3f9c01ab | docket import -"
)]
pub(crate) struct ImportArgs {
    /// File to import; `-` is standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    flags: backlog_args::BacklogImportArgs,
}

/// Imports the file.
pub(crate) async fn run_import(cx: CliContext, args: ImportArgs) -> CliResult {
    let source = ImportSource::open(&cx, &args.file)?;
    let mut reader = source.open_first()?;
    let mut start = Vec::new();
    reader
        .as_mut()
        .take(SNIFF_BYTES)
        .read_to_end(&mut start)
        .fail_with(ExitKind::Usage, || format!("cannot read {}", source.path.display()))?;
    let is_run = args.flags.form.is_none() && exported_run::is_exported_run(&start);
    let whole = std::io::Cursor::new(start).chain(reader);
    if is_run {
        return exported_run::import_exported_run(cx, source, Box::new(whole)).await;
    }
    backlog_import::import_backlog(cx, &source.path, Box::new(whole), args.flags).await
}
