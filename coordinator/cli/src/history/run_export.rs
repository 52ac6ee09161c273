//! A run as a file, in each of the formats.

mod atif;
mod file;
mod jsonl;
mod texts;

use crate::history::spans;
use std::io::Write as _;

use docket_schema::{
    ids::RunId,
    trace::{Resource, export_request},
    wire::ExportForm,
};
use docket_worker::client::{Client, Lineage};

use crate::{
    output::fail::{Exit, FailWith as _, Outcome},
    progress::Progress,
};

pub(crate) use atif::thought;

/// Longest text put in its place, unless said otherwise: more than any tool shows a model.
pub(crate) const TEXT_BYTES: usize = 1024 * 1024;

/// What is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub(crate) enum Format {
    /// docket's own
    #[default]
    Docket,
    /// Agent Trajectory Interchange Format v1.7
    Atif,
    /// JSON Lines of events
    Jsonl,
    /// OpenTelemetry spans, as a collector takes them
    Otlp,
}

/// How much was written.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Events, or lines of another kind.
    pub(crate) events: u64,
    /// Blobs.
    pub(crate) blobs: u64,
}

/// Writes a run in this form, as the API hands it out.
pub(crate) async fn of_run(
    client: &Client,
    run: RunId,
    form: ExportForm,
    to: &mut std::fs::File,
) -> Outcome<Written> {
    let format = match form {
        ExportForm::Docket => Format::Docket,
        ExportForm::Jsonl => Format::Jsonl,
        ExportForm::Atif => Format::Atif,
        ExportForm::Otlp => Format::Otlp,
    };
    write(client, run, (format, false, TEXT_BYTES), &Progress::hidden(), to).await
}

/// Writes a run in this format; `plain` leaves docket's own uncompressed.
pub(crate) async fn write(
    client: &Client,
    run: RunId,
    (format, plain, text_bytes): (Format, bool, usize),
    progress: &Progress,
    to: &mut std::fs::File,
) -> Outcome<Written> {
    match (format, plain) {
        (Format::Docket, true) => {
            let mut to = std::io::BufWriter::new(to);
            let written = file::write(client, run, progress, &mut to).await?;
            to.flush().fail_as(Exit::Failed)?;
            Ok(written)
        }
        (Format::Docket, false) => {
            let mut to = zstd::Encoder::new(to, ZSTD_LEVEL).fail_as(Exit::Failed)?;
            let written = file::write(client, run, progress, &mut to).await?;
            to.finish().fail_as(Exit::Failed)?;
            Ok(written)
        }
        (Format::Atif, _) => {
            let events = client.all_events(run, Lineage::Whole).await?;
            let texts = texts::read(client, &events, text_bytes).await?;
            let trajectory = atif::trajectory(run, &events, &texts)?;
            let mut text = serde_json::to_string_pretty(&trajectory).fail_as(Exit::Failed)?;
            text.push('\n');
            to.write_all(text.as_bytes()).fail_as(Exit::Failed)?;
            Ok(Written { events: events.len() as u64, blobs: texts.len() as u64 })
        }
        (Format::Otlp, _) => {
            let events = client.all_events(run, Lineage::Whole).await?;
            let spans = spans::of_events(run, &events).fail_with(Exit::EngineMissing, || {
                "this build does not know an event of the run".to_owned()
            })?;
            let resource = Resource {
                service: "docket".to_owned(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                attributes: Vec::new(),
            };
            let mut text =
                serde_json::to_string_pretty(&export_request(&resource, &spans)).fail_as(Exit::Failed)?;
            text.push('\n');
            to.write_all(text.as_bytes()).fail_as(Exit::Failed)?;
            Ok(Written { events: events.len() as u64, blobs: 0 })
        }
        (Format::Jsonl, _) => {
            let events = client.all_events(run, Lineage::Whole).await?;
            let texts = texts::read(client, &events, text_bytes).await?;
            for event in &events {
                let line = jsonl::line(event, &texts).fail_as(Exit::Failed)?;
                to.write_all(line.as_bytes()).fail_as(Exit::Failed)?;
            }
            Ok(Written { events: events.len() as u64, blobs: texts.len() as u64 })
        }
    }
}

/// Level of zstd: most of it is packs, which do not shrink, and texts, which do at any level.
const ZSTD_LEVEL: i32 = 6;
