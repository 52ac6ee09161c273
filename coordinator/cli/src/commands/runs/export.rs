//! `docket export`: writes a run to a file, in docket's own format for import elsewhere or in one
//! for other programs.

mod predictions;

use std::{io::Write as _, path::PathBuf};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    history::run_export::{ExportFormatArg, TEXT_BYTES_DEFAULT, write_export},
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Command-line arguments of `docket export`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Formats:
  docket  all events of the run and its task, shared parent history first, and the blobs they
          reference; `docket import` reads it. A zstd stream of JSON Lines; --plain is uncompressed
  atif    an ATIF v1.7 trajectory: messages, tool calls and results, with tokens and costs
  jsonl   one decoded event per line, with long texts inline
  otlp    the run as spans (OTLP JSON) for a collector's /v1/traces, without prompts, replies and
          outputs

Nothing is redacted: snapshots contain files as they were. Only the owner can read the file.

Examples:
  docket export 3f9c01ab -o run.docket
  docket export 3f9c01ab --plain -o tests/fixtures/run.jsonl
  docket export 3f9c01ab --format atif -o trajectory.json
  docket export 3f9c01ab --format jsonl | jq -r .kind
  docket export --predictions --batch lite > preds.jsonl")]
pub(crate) struct ExportArgs {
    /// Run ID, or task ID to use the task's last run
    #[arg(required_unless_present = "predictions", conflicts_with = "predictions")]
    id: Option<String>,
    /// Instead of a run: the patches of completed SWE-bench tasks, in the format of its harness
    #[arg(long, conflicts_with_all = ["format", "plain", "text_bytes"])]
    predictions: bool,
    /// With --predictions: only this batch (name or ID)
    #[arg(long, value_name = "BATCH", requires = "predictions", conflicts_with = "id")]
    batch: Option<String>,
    /// With --predictions: the model name to write [default: docket's name for it]
    #[arg(long, value_name = "NAME", requires = "predictions", conflicts_with = "id")]
    model_name: Option<String>,
    /// File to write; `-` is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    format: ExportFormatArg,
    /// With --format docket: write uncompressed text that can be read and compared
    #[arg(long)]
    plain: bool,
    /// With --format atif and jsonl: maximum size of an inline text in bytes; longer ones are truncated
    #[arg(long, value_name = "BYTES", default_value_t = TEXT_BYTES_DEFAULT)]
    text_bytes: usize,
}

pub(crate) async fn run_export(cx: CliContext, args: ExportArgs) -> CliResult {
    if args.plain && args.format != ExportFormatArg::Docket {
        return Err(CliError::new(
            ExitKind::Usage,
            "--plain applies only to --format docket; the other formats are always text",
        ));
    }
    let output = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    let is_binary = args.format == ExportFormatArg::Docket && !args.predictions;
    if cx.is_json() && output.is_none() && is_binary {
        let message = "--json describes the written file and cannot be combined with standard output; specify \
                       a file with -o FILE";
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let to_terminal = output.is_none() && std::io::IsTerminal::is_terminal(&std::io::stdout());
    if to_terminal && is_binary && !args.plain {
        return Err(CliError::new(
            ExitKind::Usage,
            "refusing to write binary data to a terminal; specify a file with -o FILE, or use --plain",
        ));
    }
    let access = match &args.id {
        Some(id) => Coordinator::connect_for_reading(&cx, id).await?,
        None => Coordinator::connect(&cx, AccessMode::Read).await?,
    };
    let run = match &args.id {
        Some(id) => Some(resolve::resolve_run(&access.client, id).await?),
        None => None,
    };
    // Written to a temporary file first, so that the destination is complete or absent at any time.
    let folder = match output {
        Some(path) => path
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty())
            .map_or_else(|| PathBuf::from("."), std::path::Path::to_path_buf),
        None => cx.home.ensure_folder("scratch")?,
    };
    let mut file = tempfile::NamedTempFile::new_in(&folder)
        .fail_with(ExitKind::Failed, || format!("cannot write in {}", folder.display()))?;
    let written = match run {
        Some(run) => {
            let progress = ProgressDisplay::bar(&cx, 0, "blobs");
            let how = (args.format, args.plain, args.text_bytes);
            write_export(&access.client, run, how, &progress, file.as_file_mut()).await?
        }
        None => {
            let asked = predictions::PredictionQuery {
                batch: args.batch.as_deref(),
                model_name: args.model_name.as_deref(),
            };
            predictions::write_predictions(&cx, &access.client, &asked, file.as_file_mut()).await?
        }
    };
    access.close().await?;
    file.flush().fail_as(ExitKind::Failed)?;
    let bytes = file.as_file().metadata().fail_as(ExitKind::Failed)?.len();
    let Some(path) = output else {
        return copy_to_stdout(file.into_file(), to_terminal);
    };
    persist_file(file, path)?;
    let Some(run) = run else {
        let count = written.events;
        if cx.is_json() {
            display::print_json(&serde_json::json!({ "file": path, "bytes": bytes, "predictions": count }));
        } else {
            let are = if count == 1 { "prediction" } else { "predictions" };
            display::print_line(&display::sanitize_line(&format!(
                "wrote {count} {are} to {}",
                path.display()
            )));
        }
        return Ok(ExitKind::Ok);
    };
    if cx.is_json() {
        display::print_json(&serde_json::json!({
            "run": run, "file": path, "bytes": bytes, "events": written.events, "blobs": written.blobs,
        }));
    } else {
        let counts = format!("{} events and {} blobs", written.events, written.blobs);
        display::print_line(&display::sanitize_line(&format!(
            "exported run {} to {}: {counts}, {bytes} bytes",
            run.short(),
            path.display()
        )));
    }
    Ok(ExitKind::Ok)
}

/// Moves the file into place. Only its owner can read it, because it contains files of a
/// repository.
fn persist_file(file: tempfile::NamedTempFile, path: &std::path::Path) -> CliResult<()> {
    let failed = || format!("cannot write {}", path.display());
    file.as_file().sync_all().fail_with(ExitKind::Failed, failed)?;
    file.persist(path).map(drop).fail_with(ExitKind::Failed, failed)
}

fn copy_to_stdout(mut file: std::fs::File, to_terminal: bool) -> CliResult {
    use std::io::{Read as _, Seek as _};
    file.rewind().fail_as(ExitKind::Failed)?;
    if to_terminal {
        let mut text = Vec::new();
        file.read_to_end(&mut text).fail_as(ExitKind::Failed)?;
        // Texts of models and files could contain control sequences, so they are escaped on a terminal.
        display::print_line(&display::sanitize_text(&String::from_utf8_lossy(&text)));
        return Ok(ExitKind::Ok);
    }
    match std::io::copy(&mut file, &mut std::io::stdout().lock()) {
        Ok(_) => Ok(ExitKind::Ok),
        // The reader closed the pipe; that is not an error.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitKind::Ok),
        Err(error) => Err(error).fail_as(ExitKind::Failed),
    }
}
