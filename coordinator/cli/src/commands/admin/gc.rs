//! `docket gc`: which blobs nothing names any more, and dropping them.

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

/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A blob goes if no event of the log names it, directly or through another blob, and nobody touched it for
24 hours: a submit stores its blobs first and names them later. Without --delete it only counts. It runs
beside everything else, in small steps; what is named meanwhile stays. The database file does not shrink,
what is freed in it is used again. Where blobs are kept outside of the database (`blobs.to`) their files go with
them, and files that were written and never named: run it on the store itself, never on a copy of its database.

Examples:
  docket gc
  docket gc --delete
  docket gc --delete --untouched-for 7d --json"
)]
pub(crate) struct GcArgs {
    /// Really drop them
    #[arg(long)]
    delete: bool,
    /// How long nobody must have touched them: 24h, 7d; at least 2h
    #[arg(long, value_name = "TIME", value_parser = parse_untouched_time, default_value = "24h")]
    untouched_for: u64,
}

const _: () = assert!(GC_DEFAULT_AGE_MS == 24 * HOUR_MS, "the help says 24h");

/// A time as `24h` or `7d`, in milliseconds.
fn parse_untouched_time(text: &str) -> Result<u64, String> {
    let hours = text.strip_suffix('h').map(|n| (n, 1)).or_else(|| text.strip_suffix('d').map(|n| (n, 24)));
    let parsed = hours.and_then(|(n, hours)| n.parse::<u64>().ok()?.checked_mul(hours * HOUR_MS));
    match parsed {
        None => Err("it must be hours or days, as 24h or 7d".to_owned()),
        Some(ms) if ms < GC_AGE_MS_MIN => {
            Err(format!("at least {}h, or what was just stored could go", GC_AGE_MS_MIN / HOUR_MS))
        }
        Some(ms) => Ok(ms),
    }
}

/// Collects.
pub(crate) async fn run_gc(cx: CliContext, args: GcArgs) -> CliResult {
    let access = Coordinator::connect(&cx, AccessMode::Write).await?;
    let request = GcRequest { delete: args.delete, untouched_for_ms: Some(args.untouched_for) };
    let progress = ProgressDisplay::spinner(&cx);
    progress.set_message("the log is read for what it names");
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
    display::print_line(&format!("{blobs} blobs are stored, {bytes} bytes uncompressed"));
    display::print_line(&format!("  kept: {recent} touched within {hours} hours"));
    display::print_line(&format!(
        "  kept: {named} that events name, {named_by_blobs} more that those blobs name"
    ));
    display::print_line(&match (report.delete, report.orphans) {
        (_, 0) => "  to go: none".to_owned(),
        (false, n) => {
            format!("  to go: {n} that nothing names, {} bytes; --delete drops them", report.orphan_bytes)
        }
        (true, n) => {
            let kept = match n.saturating_sub(report.dropped) {
                0 => String::new(),
                kept => format!("; {kept} were taken up again meanwhile and stay"),
            };
            format!("  dropped: {} that nothing names, {} bytes{kept}", report.dropped, report.dropped_bytes)
        }
    });
    if report.strays > 0 {
        let done = if report.delete { "deleted" } else { "to go" };
        let (files, bytes) = (report.strays, report.stray_bytes);
        display::print_line(&format!(
            "  {done}: {files} files outside that belong to no blob, {bytes} bytes"
        ));
    }
}
