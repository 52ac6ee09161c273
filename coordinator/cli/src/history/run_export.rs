//! Exports a run to a file in one of the formats.

mod atif;
mod docket_file;
mod jsonl;
mod texts;

use crate::history::spans;
use std::io::Write as _;

use docket_schema::{
    api::ExportFormat,
    ids::RunId,
    trace::{TraceResource, export_request},
};
use docket_worker::client::{CoordinatorClient, HistoryScope};

use crate::{
    output::error::{CliResult, ExitKind, FailWith as _},
    progress::ProgressDisplay,
};

pub(crate) use atif::reasoning_text;

/// Default limit of inlined texts: more than any tool shows a model.
pub(crate) const TEXT_BYTES_DEFAULT: usize = 1024 * 1024;

/// The export format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum ExportFormatArg {
    /// docket's own format
    #[default]
    Docket,
    /// Agent Trajectory Interchange Format v1.7
    Atif,
    /// Events as JSON Lines
    Jsonl,
    /// OpenTelemetry spans, as accepted by a collector
    Otlp,
}

/// How much was written.
#[derive(Debug, Default)]
pub(crate) struct ExportStats {
    /// Events, or lines of another format.
    pub(crate) events: u64,
    pub(crate) blobs: u64,
}

/// Exports a run in this format, as the API returns it.
pub(crate) async fn export_run(
    client: &CoordinatorClient,
    run: RunId,
    form: ExportFormat,
    to: &mut std::fs::File,
) -> CliResult<ExportStats> {
    let format = match form {
        ExportFormat::Docket => ExportFormatArg::Docket,
        ExportFormat::Jsonl => ExportFormatArg::Jsonl,
        ExportFormat::Atif => ExportFormatArg::Atif,
        ExportFormat::Otlp => ExportFormatArg::Otlp,
    };
    write_export(client, run, (format, false, TEXT_BYTES_DEFAULT), &ProgressDisplay::hidden(), to).await
}

/// Writes a run in this format; `plain` leaves docket's own format uncompressed.
pub(crate) async fn write_export(
    client: &CoordinatorClient,
    run: RunId,
    (format, plain, text_bytes): (ExportFormatArg, bool, usize),
    progress: &ProgressDisplay,
    to: &mut std::fs::File,
) -> CliResult<ExportStats> {
    match (format, plain) {
        (ExportFormatArg::Docket, true) => {
            let mut to = std::io::BufWriter::new(to);
            let written = docket_file::write_docket_file(client, run, progress, &mut to).await?;
            to.flush().fail_as(ExitKind::Failed)?;
            Ok(written)
        }
        (ExportFormatArg::Docket, false) => {
            let mut to = zstd::Encoder::new(to, ZSTD_LEVEL).fail_as(ExitKind::Failed)?;
            let written = docket_file::write_docket_file(client, run, progress, &mut to).await?;
            to.finish().fail_as(ExitKind::Failed)?;
            Ok(written)
        }
        (ExportFormatArg::Atif, _) => {
            let events = client.all_events(run, HistoryScope::WithAncestors).await?;
            let texts = texts::fetch_texts(client, &events, text_bytes).await?;
            let trajectory = atif::build_trajectory(run, &events, &texts)?;
            let mut text = serde_json::to_string_pretty(&trajectory).fail_as(ExitKind::Failed)?;
            text.push('\n');
            to.write_all(text.as_bytes()).fail_as(ExitKind::Failed)?;
            Ok(ExportStats { events: events.len() as u64, blobs: texts.len() as u64 })
        }
        (ExportFormatArg::Otlp, _) => {
            let events = client.all_events(run, HistoryScope::WithAncestors).await?;
            let spans = spans::spans_from_events(run, &events).fail_with(ExitKind::EngineMissing, || {
                "this build does not support an event of the run".to_owned()
            })?;
            let resource = TraceResource {
                service: "docket".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                attributes: Vec::new(),
            };
            let mut text =
                serde_json::to_string_pretty(&export_request(&resource, &spans)).fail_as(ExitKind::Failed)?;
            text.push('\n');
            to.write_all(text.as_bytes()).fail_as(ExitKind::Failed)?;
            Ok(ExportStats { events: events.len() as u64, blobs: 0 })
        }
        (ExportFormatArg::Jsonl, _) => {
            let events = client.all_events(run, HistoryScope::WithAncestors).await?;
            let texts = texts::fetch_texts(client, &events, text_bytes).await?;
            for event in &events {
                let line = jsonl::format_event_line(event, &texts).fail_as(ExitKind::Failed)?;
                to.write_all(line.as_bytes()).fail_as(ExitKind::Failed)?;
            }
            Ok(ExportStats { events: events.len() as u64, blobs: texts.len() as u64 })
        }
    }
}

/// The zstd level: most of the data is packs, which do not compress, and texts, which compress well at any
/// level.
const ZSTD_LEVEL: i32 = 6;
