//! `docket gc`: finds and deletes unreferenced blobs.

use docket_schema::api::{GC_AGE_MS_MIN, GC_DEFAULT_AGE_MS, GcRequest, GcResponse};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display,
        error::{CliResult, ExitKind},
    },
    progress::ProgressDisplay,
};

/// Milliseconds per hour.
const HOUR_MS: u64 = 3_600_000;

/// Command-line arguments of `docket gc`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Deletes blobs that no event references, directly or through another blob, and that have not been
touched for 24 hours: a submit stores its blobs first and references them later. Without --delete,
blobs are only counted. Collection runs in small steps while the system is in use; blobs that
become referenced meanwhile are kept. The database file does not shrink, but its free space is
reused. If blobs are stored outside the database (`blobs.to`), their files are deleted too,
including files that were written but never referenced: run this on the live store, never on a
copy of its database.

Examples:
  docket gc
  docket gc --delete
  docket gc --delete --untouched-for 7d --json"
)]
pub(crate) struct GcArgs {
    /// Delete the blobs instead of only counting them
    #[arg(long)]
    delete: bool,
    /// Minimum time since a blob was last touched, e.g. 24h or 7d; at least 2h
    #[arg(long, value_name = "TIME", value_parser = parse_untouched_time, default_value = "24h")]
    untouched_for: u64,
}

const _: () = assert!(GC_DEFAULT_AGE_MS == 24 * HOUR_MS, "the help says 24h");

/// Parses a duration such as `24h` or `7d` into milliseconds.
fn parse_untouched_time(text: &str) -> Result<u64, String> {
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let parsed = hours.and_then(|(n, hours)| n.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS));
    match parsed {
        None => Err("expected hours or days, for example 24h or 7d".to_owned()),
        Some(ms) if ms < GC_AGE_MS_MIN => Err(format!(
            "must be at least {}h, so that recently stored blobs are not deleted",
            GC_AGE_MS_MIN / HOUR_MS
        )),
        Some(ms) => Ok(ms),
    }
}

pub(crate) async fn run_gc(cx: CliContext, args: GcArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let request = GcRequest { delete: args.delete, untouched_for_ms: Some(args.untouched_for) };
    let progress = ProgressDisplay::spinner(&cx);
    progress.set_message("reading blob references from the log");
    let report = access.client.collect_garbage(&request).await?;
    drop(progress);
    access.close().await?;
    if cx.is_json() {
        display::print_json(&report);
    } else {
        print_gc_report(&report, args.untouched_for / HOUR_MS);
    }
    Ok(ExitKind::Ok)
}

fn print_gc_report(report: &GcResponse, hours: u64) {
    let GcResponse { blobs, bytes, recent, named, named_by_blobs, .. } = report;
    display::print_line(&format!("{blobs} blobs stored, {bytes} bytes uncompressed"));
    display::print_line(&format!("  kept: {recent} touched within {hours} hours"));
    display::print_line(&format!(
        "  kept: {named} referenced by events, {named_by_blobs} more referenced by those blobs"
    ));
    display::print_line(&match (report.delete, report.orphans) {
        (_, 0) => "  unreferenced: none".to_owned(),
        (false, n) => {
            format!("  unreferenced: {n}, {} bytes; use --delete to delete them", report.orphan_bytes)
        }
        (true, n) => {
            let kept = match n.saturating_sub(report.dropped) {
                0 => String::new(),
                kept => format!("; {kept} became referenced meanwhile and were kept"),
            };
            format!("  deleted: {} unreferenced, {} bytes{kept}", report.dropped, report.dropped_bytes)
        }
    });
    if report.strays > 0 {
        let done = if report.delete { "deleted" } else { "unreferenced" };
        let (files, bytes) = (report.strays, report.stray_bytes);
        display::print_line(&format!("  {done}: {files} external files without a blob, {bytes} bytes"));
    }
}
