//! `docket verify`: checks that the log is complete and unaltered, and that all of it folds.
//!
//! Each stream is walked ([`docket_coordinator::store::walk`]): its hash chain up to its head,
//! including the shared history of a fork, and its folded state. Then every decision and request of
//! a run is derived again, and its blobs are checked for presence. Finally every stored blob is
//! hashed again. If this process has the store open, streams are walked in place. Verification only
//! reads and repairs nothing. It does not cover positions (they only order writes across streams),
//! the last access times of blobs, and columns that only serve lookups (`docket db rebuild`
//! compares those too). For one run this is the *verify* kind of replay, like `docket replay RUN
//! --verify`; `--tools` also runs the recorded calls again.

mod archived_streams;
mod stored_blobs;

use docket_coordinator::store::{LogReader as _, StoreError, StreamFold, StreamReport, walk_stream};
use docket_schema::{
    api::{ProblemCode, StreamHead},
    event::{Envelope, Head},
    ids::{RunId, StreamId, TaskId, Turn},
};
use docket_worker::{
    client::{ClientError, CoordinatorClient},
    replay::{Divergence, VerifyError, verify},
    run::BlobCache,
};
use serde::Serialize;

use crate::{
    commands::runs::replay::{RerunChoice, rerun_and_report},
    connect::{
        coordinator::{AccessMode, Coordinator},
        resolve::{self, ResolvedId},
    },
    context::CliContext,
    history::{blobs::RemoteBlobs, children, lineage::HistorySource},
    output::{
        display::{self, TextStyle},
        error::{CauseDisplay, CliError, CliResult, ExitKind},
    },
    progress::ProgressDisplay,
};

/// Maximum number of faults that are listed; further ones are only counted.
const FAULTS_LISTED_MAX: usize = 100;

/// Command-line arguments of `docket verify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is 0 if everything is correct and 6 if not; each fault is one line. A decision that
differs is reported with its event, both values, and the first fields that differ. The exit code
is 7 if this build lacks a run's engine.

This is the `verify` kind of replay: no model is called. --tools also runs the recorded tool calls
again, sandboxed, in a scratch workspace (`docket replay --help` describes the comparison). To
call a model again from some turn on, fork the run there: `docket fork RUN --turn N`.

Examples:
  docket verify
  docket verify 3f9c01ab
  docket verify 3f9c01ab --tools
  docket verify --store postgres://docket@db/docket --json"
)]
pub(crate) struct VerifyArgs {
    /// Task or run ID [default: the whole log]
    id: Option<String>,
    /// Also run the recorded tool calls again and compare them; of a task, for each run
    #[arg(long, requires = "id")]
    tools: bool,
    /// With --tools: also run the final checks
    #[arg(long, requires = "tools")]
    gates: bool,
    /// Include delegated runs
    #[arg(long, requires = "id")]
    children: bool,
    /// Also read every archive file and compare it with the stubs in the store
    #[arg(long, conflicts_with = "id")]
    archives: bool,
    /// Store to use instead of this home's
    #[arg(long, value_name = "URL", value_parser = crate::config::values::parse_store_address)]
    store: Option<String>,
}

/// The findings.
#[derive(Debug, Default, Serialize)]
pub(crate) struct VerifyReport {
    /// `verify`: derived again from the log.
    pub(crate) replay: &'static str,
    pub(crate) ok: bool,
    pub(crate) streams: usize,
    pub(crate) tasks: usize,
    pub(crate) runs: usize,
    pub(crate) events: u64,
    /// Blobs that the runs' events reference.
    pub(crate) blobs: usize,
    /// Stored blobs that were hashed again.
    pub(crate) blobs_checked: u64,
    /// Archived streams, which the store has as stubs.
    pub(crate) archived: usize,
    /// Archive files that were read and verified.
    pub(crate) archive_files: usize,
    /// Archives that do not respond: what was not read there, and why.
    pub(crate) archives_unread: Vec<String>,
    /// Decisions derived again and found equal.
    pub(crate) decisions: u64,
    /// Requests rendered again and found equal.
    pub(crate) requests: u64,
    /// Engines of runs whose decisions this build cannot derive.
    pub(crate) engines_missing: Vec<String>,
    /// Events of a version that this build does not know.
    pub(crate) events_unknown: Vec<String>,
    pub(crate) faults_count: usize,
    pub(crate) faults: Vec<String>,
    /// Where a run's log and this build disagree; each is a fault too.
    pub(crate) divergences: Vec<Divergence>,
}

impl VerifyReport {
    fn new() -> Self {
        Self { replay: "verify", ..Self::default() }
    }

    /// The exit code for these findings.
    pub(crate) fn exit(&self) -> ExitKind {
        let all_known = self.engines_missing.is_empty() && self.events_unknown.is_empty();
        match (self.ok, self.archives_unread.is_empty(), all_known) {
            (false, _, _) => ExitKind::Verification,
            (true, false, _) => ExitKind::Unreachable,
            (true, true, false) => ExitKind::EngineMissing,
            (true, true, true) => ExitKind::Ok,
        }
    }

    fn add_fault(&mut self, text: String) {
        if self.faults.contains(&text) {
            return;
        }
        self.faults_count += 1;
        if self.faults.len() < FAULTS_LISTED_MAX {
            self.faults.push(text);
        }
    }
}

impl VerifyReport {
    /// Returns the response, or records a fault if the coordinator found its own store altered or
    /// unreadable.
    fn read_or_fault<T>(&mut self, answer: Result<T, ClientError>) -> CliResult<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error)
                if matches!(error.problem_code(), Some(ProblemCode::Corrupt | ProblemCode::Internal)) =>
            {
                self.add_fault(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Adds a walked stream, and returns its folded state if the stream is valid.
    fn add_walked(&mut self, walked: StreamReport) -> Option<StreamFold> {
        self.events += walked.events;
        match walked.fault {
            None => return Some(walked.fold),
            Some(fault) if fault.unknown => self.events_unknown.push(fault.what),
            Some(fault) => self.add_fault(fault.what),
        }
        None
    }
}

pub(crate) async fn run_verify(mut cx: CliContext, args: VerifyArgs) -> CliResult {
    let named = args.store.is_some();
    cx.config.store = args.store.or(cx.config.store);
    let opened = match &args.id {
        // A running coordinator for this home uses another store.
        _ if named => Coordinator::serve_configured_store(&cx).await,
        None => Coordinator::connect(&cx, AccessMode::Read).await,
        Some(id) => Coordinator::connect_for_reading(&cx, id).await,
    };
    let access = opened.map_err(|failure| {
        let damaged = failure.error.chain().any(|cause| {
            matches!(
                cause.downcast_ref::<StoreError>(),
                Some(StoreError::Damaged { .. } | StoreError::Corrupt { .. })
            )
        });
        CliError { exit: if damaged { ExitKind::Verification } else { failure.exit }, ..failure }
    })?;
    let mut runs = Vec::new();
    let report = match &args.id {
        None => {
            let mut report = verify_whole_log(&cx, &access.client, &access.history_source()).await?;
            archived_streams::check_archived(&cx, &access.client, args.archives, &mut report).await?;
            report.ok = report.faults_count == 0;
            report
        }
        Some(id) => match resolve::resolve_id(&access.client, id).await? {
            ResolvedId::Task(task) => {
                let mut report = VerifyReport::new();
                let log = LogVerifier {
                    client: &access.client,
                    source: &access.history_source(),
                    blobs: BlobScope::NamedByRun,
                };
                log.check_task(task, &mut report).await?;
                runs.extend(access.client.get_task(task).await?.runs.into_iter().map(|run| run.id));
                let progress = ProgressDisplay::bar(&cx, runs.len() as u64, "runs");
                for run in &runs {
                    log.check_run(*run, None, &mut report).await?;
                    progress.advance(1);
                }
                drop(progress);
                report.streams = report.tasks + report.runs;
                report.ok = report.faults_count == 0;
                report
            }
            ResolvedId::Run(run) => {
                runs.push(run);
                let progress = ProgressDisplay::spinner(&cx);
                progress.set_message("deriving decisions again");
                verify_run(&access.client, &access.history_source(), run).await?
            }
        },
    };
    let report = if args.children { verify_children(&cx, &access, &mut runs, report).await? } else { report };
    print_report(&cx, &report);
    let mut exit = report.exit();
    if args.tools && report.ok {
        for run in runs {
            let history = crate::history::lineage::read_folded_run(&access.client, run).await?;
            let last = history.turns().last().map_or(Turn(0), |span| span.turn);
            let choice = RerunChoice { turns: Turn(0)..=last, gates: args.gates };
            exit = exit.more_severe(rerun_and_report(&cx, &access.client, run, &history, choice).await?);
        }
    }
    access.close().await?;
    Ok(exit)
}

/// Also verifies the delegated runs of `runs`, and adds them.
async fn verify_children(
    cx: &CliContext,
    access: &Coordinator,
    runs: &mut Vec<RunId>,
    mut report: VerifyReport,
) -> CliResult<VerifyReport> {
    let log = LogVerifier {
        client: &access.client,
        source: &access.history_source(),
        blobs: BlobScope::NamedByRun,
    };
    let below = children::list_descendants(&access.client, runs).await?;
    let progress = ProgressDisplay::bar(cx, below.len() as u64, "children");
    for child in below {
        log.check_task(child.view.task.id, &mut report).await?;
        for run in child.view.runs {
            log.check_run(run.id, None, &mut report).await?;
            runs.push(run.id);
        }
        progress.advance(1);
    }
    report.streams = report.tasks + report.runs;
    report.ok = report.faults_count == 0;
    Ok(report)
}

/// Verifies one run: its hash chain, its blobs and its decisions.
pub(crate) async fn verify_run(
    client: &CoordinatorClient,
    source: &HistorySource,
    run: RunId,
) -> CliResult<VerifyReport> {
    let mut report = VerifyReport::new();
    LogVerifier { client, source, blobs: BlobScope::NamedByRun }.check_run(run, None, &mut report).await?;
    report.streams = report.runs;
    report.ok = report.faults_count == 0;
    Ok(report)
}

/// Prints the findings.
pub(crate) fn print_report(cx: &CliContext, report: &VerifyReport) {
    if cx.is_json() {
        display::print_json(report);
        return;
    }
    let note = "decisions derived again from the log; no model is called, nothing is run, no file is changed";
    display::print_line(&cx.screen.paint(TextStyle::Bold, "replay (verify)"));
    display::print_line(&cx.screen.paint(TextStyle::Dim, note));
    for fault in &report.faults {
        display::print_line(&display::sanitize_line(&format!("fault: {fault}")));
    }
    for unread in &report.archives_unread {
        display::print_line(&display::sanitize_line(&format!("not read: {unread}")));
    }
    let counts = format!(
        "{} events of {} tasks and {} runs, {} blobs",
        report.events,
        report.tasks,
        report.runs,
        report.blobs_checked.max(report.blobs as u64)
    );
    if report.ok {
        display::print_line(&format!("the log is valid: {counts}"));
        display::print_line(&format!(
            "every hash matches; {} decisions and {} requests derived again are identical",
            report.decisions, report.requests
        ));
        if report.archived > 0 {
            let files = match report.archive_files {
                0 => "use --archives to read their files as well".to_owned(),
                count => format!("their {count} files are valid"),
            };
            display::print_line(&format!("{} streams are archived; {files}", report.archived));
        }
        for engine in &report.engines_missing {
            display::print_line(&format!(
                "not derived again: this build lacks engine {}",
                display::sanitize_line(engine)
            ));
        }
        for event in &report.events_unknown {
            display::print_line(&format!("not folded: {}", display::sanitize_line(event)));
        }
    } else {
        display::print_line(&format!("the log is not valid: {} faults in {counts}", report.faults_count));
    }
}

/// Verifies the whole log.
pub(crate) async fn verify_whole_log(
    cx: &CliContext,
    client: &CoordinatorClient,
    source: &HistorySource,
) -> CliResult<VerifyReport> {
    let mut report = VerifyReport::new();
    let progress = ProgressDisplay::bar(cx, 0, "streams");
    if progress.is_visible() {
        progress.set_total(count_streams(client).await);
    }
    let log = LogVerifier { client, source, blobs: BlobScope::AllStored };
    let mut after = None;
    while let Some(page) = report.read_or_fault(client.list_streams(after.as_ref()).await)? {
        for StreamHead { stream, head } in &page.streams {
            report.streams += 1;
            progress.advance(1);
            let before = (report.faults_count, report.faults.len());
            match log.check_stream(stream, *head, &mut report).await {
                Err(failure) if failure.exit != ExitKind::Unreachable => {
                    // A stream that the coordinator cannot read is a fault of that stream; the others are still
                    // checked.
                    report.add_fault(format!("{stream}: {}", failure.format_message(CauseDisplay::Hidden)));
                }
                other => other?,
            }
            // A stream that was archived since it was listed is not a fault.
            if report.faults_count > before.0 && client.get_archived(stream).await.is_ok() {
                report.faults_count = before.0;
                report.faults.truncate(before.1);
            }
        }
        match page.streams.last() {
            Some(last) if page.more => after = Some(last.stream.clone()),
            Some(_) | None => break,
        }
    }
    drop(progress);
    stored_blobs::check_blobs(cx, client, &mut report).await?;
    report.ok = report.faults_count == 0;
    Ok(report)
}

/// Returns the number of streams; only their heads are read. Used for progress.
async fn count_streams(client: &CoordinatorClient) -> u64 {
    let (mut count, mut after) = (0, None);
    while let Ok(page) = client.list_streams(after.as_ref()).await {
        count += page.streams.len() as u64;
        after = page.streams.last().filter(|_| page.more).map(|last| last.stream.clone());
        if after.is_none() {
            break;
        }
    }
    count
}

/// Which blobs still have to be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BlobScope {
    /// None: all stored blobs are hashed anyway.
    AllStored,
    /// Those that the run references.
    NamedByRun,
}

/// A log under verification.
struct LogVerifier<'a> {
    client: &'a CoordinatorClient,
    source: &'a HistorySource,
    blobs: BlobScope,
}

impl LogVerifier<'_> {
    async fn check_stream(&self, stream: &StreamId, head: Head, report: &mut VerifyReport) -> CliResult<()> {
        match stream {
            StreamId::Task(task) => self.check_task_from(*task, Some(head), report).await,
            StreamId::Run(run) => self.check_run(*run, Some(head), report).await,
            StreamId::Queue(_) | StreamId::System(_) => {
                report.add_walked(walk_stream(self.source, stream, Some(head)).await?);
                Ok(())
            }
        }
    }

    async fn check_task(&self, task: TaskId, report: &mut VerifyReport) -> CliResult<()> {
        let head = self.source.stream_head(StreamId::Task(task)).await?;
        self.check_task_from(task, head, report).await
    }

    async fn check_task_from(
        &self,
        task: TaskId,
        head: Option<Head>,
        report: &mut VerifyReport,
    ) -> CliResult<()> {
        report.tasks += 1;
        let folded = report.add_walked(walk_stream(self.source, &StreamId::Task(task), head).await?);
        let Some(StreamFold::Task(Some(folded))) = folded else { return Ok(()) };
        let stored = self.client.get_task(task).await?.task;
        // The task may have advanced since its events were read.
        if stored.seq == folded.seq && stored != *folded {
            report.add_fault(format!(
                "task {task}: the table differs from the log; fix it with `docket db rebuild`"
            ));
        }
        Ok(())
    }

    async fn check_run(&self, run: RunId, head: Option<Head>, report: &mut VerifyReport) -> CliResult<()> {
        let head = match head {
            Some(head) => Some(head),
            None => self.source.stream_head(StreamId::Run(run)).await?,
        };
        report.runs += 1;
        let walked = walk_stream(self.source, &StreamId::Run(run), head).await?;
        let folds = walked.all_folded;
        report.add_walked(walked);
        let whole = self.source.read_events(run).await?;
        let faults = report.faults_count;
        stored_blobs::check_named_blobs(self.client, run, &whole, self.blobs, report).await?;
        // If the chain is broken, the derived decisions still show which field was altered.
        if report.faults_count == faults && folds {
            verify_decisions(self.client, run, &whole, report).await;
        }
        Ok(())
    }
}

/// Derives every decision and renders every request again, if the rest of the run is valid.
async fn verify_decisions(
    client: &CoordinatorClient,
    run: RunId,
    events: &[Envelope],
    report: &mut VerifyReport,
) {
    match verify(events, &BlobCache::new(RemoteBlobs(client))).await {
        Ok(verified) => {
            report.decisions += verified.decisions;
            report.requests += verified.requests;
            if let Some(kind) = verified.missing_intent {
                report.add_fault(format!("run {run}: its log ends within an append: a {kind} must follow"));
            }
        }
        Err(VerifyError::NoEngine(engine)) => {
            report.engines_missing.push(engine.to_string());
        }
        Err(error) => {
            report.add_fault(format!("run {run}: {}", format_error_chain(&error)));
            if let VerifyError::Diverged(divergence) = error {
                report.divergences.push(*divergence);
            }
        }
    }
}

fn format_error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
