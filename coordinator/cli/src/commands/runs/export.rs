//! `docket export`: a run as a file: docket's own format, which another installation can import, or one
//! that other programs read.

mod predictions;

use std::{io::Write as _, path::PathBuf};

use crate::{
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve,
    },
    context::CliContext,
    history::run_export::{ExportFormat, TEXT_BYTES_DEFAULT, write_export},
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(after_help = "Formats:
  docket  all events of the run and of its task, its parents' shared part first, and every blob they name;
          `docket import` takes it in elsewhere. One zstd stream of JSON Lines; --plain leaves it uncompressed
  atif    an ATIF v1.7 trajectory: what was said, called and answered, with tokens and costs
  jsonl   one event a line, decoded, with long texts in their place
  otlp    the run as spans (OTLP's JSON), without prompts, answers and outputs: for a collector's /v1/traces

Nothing is redacted: snapshots hold files as they were. The file is readable by its owner alone.

Examples:
  docket export 3f9c01ab -o run.docket
  docket export 3f9c01ab --plain -o tests/fixtures/run.jsonl
  docket export 3f9c01ab --format atif -o trajectory.json
  docket export 3f9c01ab --format jsonl | jq -r .kind
  docket export --predictions --batch lite > preds.jsonl")]
pub(crate) struct ExportArgs {
    /// A run, or a task whose last run is meant
    #[arg(required_unless_present = "predictions", conflicts_with = "predictions")]
    id: Option<String>,
    /// In place of a run: the patches of completed SWE-bench tasks, as its harness reads predictions
    #[arg(long, conflicts_with_all = ["format", "plain", "text_bytes"])]
    predictions: bool,
    /// With --predictions: those of this batch, by its name or its id
    #[arg(long, value_name = "BATCH", requires = "predictions", conflicts_with = "id")]
    batch: Option<String>,
    /// With --predictions: what the model is called there [default: as docket does]
    #[arg(long, value_name = "NAME", requires = "predictions", conflicts_with = "id")]
    model_name: Option<String>,
    /// Where to write it; `-` is standard output [default: -]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// What is written
    #[arg(long, value_enum, default_value_t)]
    format: ExportFormat,
    /// With --format docket: text that can be read and compared, not compressed
    #[arg(long)]
    plain: bool,
    /// With --format atif and jsonl: longest text put in its place, in bytes; longer ones are cut
    #[arg(long, value_name = "BYTES", default_value_t = TEXT_BYTES_DEFAULT)]
    text_bytes: usize,
}

/// Writes it.
pub(crate) async fn run_export(cx: CliContext, args: ExportArgs) -> CliResult {
    if args.plain && args.format != ExportFormat::Docket {
        return Err(CliError::new(
            ExitKind::Usage,
            "--plain is for --format docket; the others are text anyway",
        ));
    }
    let output = args.output.as_deref().filter(|path| path.as_os_str() != "-");
    let is_binary = args.format == ExportFormat::Docket && !args.predictions;
    if cx.is_json() && output.is_none() && is_binary {
        let message = "--json tells of the file that was written, and standard output would be that file; name \
                       one with -o FILE";
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let to_terminal = output.is_none() && std::io::IsTerminal::is_terminal(&std::io::stdout());
    if to_terminal && is_binary && !args.plain {
        return Err(CliError::new(
            ExitKind::Usage,
            "the file is not for a terminal; name one with -o FILE, or take --plain",
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
    // Beside its goal first: a file is there whole or not at all, whatever happens meanwhile.
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
            let are = if count == 1 { "prediction is" } else { "predictions are" };
            display::print_line(&display::sanitize_line(&format!("{count} {are} in {}", path.display())));
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
            "run {} is in {}: {counts}, {bytes} bytes",
            run.short(),
            path.display()
        )));
    }
    Ok(ExitKind::Ok)
}

/// Puts the file where it belongs. It stays its owner's alone: files of a repository are in it.
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
        // Texts of models and files; on a terminal they would be obeyed.
        display::print_line(&display::sanitize_text(&String::from_utf8_lossy(&text)));
        return Ok(ExitKind::Ok);
    }
    match std::io::copy(&mut file, &mut std::io::stdout().lock()) {
        Ok(_) => Ok(ExitKind::Ok),
        // Who reads has seen enough.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(ExitKind::Ok),
        Err(error) => Err(error).fail_as(ExitKind::Failed),
    }
}
