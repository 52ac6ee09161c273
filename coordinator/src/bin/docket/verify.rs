//! `docket verify`: the log is whole and unaltered, and everything in it folds.
//!
//! First the hash chain of every stream, in the order of the log, up to where its head says it ends; then
//! every stored blob is hashed again; then every task and run is folded from its events, the blobs that a
//! run names are asked for, and every decision and request is derived again. It reads, and repairs
//! nothing. Not proven are positions (they only say which of two streams was written first) and when a
//! blob was last asked for. For one run this is the *verify* kind of replay, and `docket replay RUN
//! --verify` says the same; `--tools` runs the recorded calls again as well.

mod stored;

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{DecodeError, Envelope, Head, TypedEvent as _, follow},
    ids::{Position, RunId, Seq, StreamId, TaskId, Turn},
    run::{CorruptLog, RunEvent, RunState},
    task::TaskRecord,
    wire::ProblemCode,
};
use docket_worker::{
    client::{Client, ClientError, Lineage},
    driver::Material,
    replay::{Divergence, VerifyError, verify},
};
use serde::Serialize;

use crate::{
    access::{Access, Need},
    context::Context,
    delivery::Remote,
    display::{self, Style},
    fail::{Chain, Exit, Outcome},
    replay::{Choice, run_again},
    resolve::{self, Named},
};

/// Faults that are listed; more are only counted.
const FAULTS_LISTED_MAX: usize = 100;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Ends with 0 where all holds and with 6 where something does not; each fault is one line. A decision
that comes out otherwise is named with its event, what each side has there, and the first fields
that differ. Ends with 7 where this build lacks a run's engine.

This is replay of the kind `verify`: no model is asked. --tools runs the recorded tool calls again
too, sandboxed, in a scratch workspace (`docket replay --help` says what is compared). To ask a model
again from some turn on, fork the run there: `docket fork RUN --turn N`.

Examples:
  docket verify
  docket verify 3f9c01ab
  docket verify 3f9c01ab --tools
  docket verify --store postgres://docket@db/docket --json"
)]
pub(crate) struct Args {
    /// A task or a run [default: the whole log]
    id: Option<String>,
    /// Run the recorded tool calls of the run, or of each run of the task, again and compare
    #[arg(long, requires = "id")]
    tools: bool,
    /// With --tools: run the final checks too
    #[arg(long, requires = "tools")]
    gates: bool,
    /// Another store than this home's
    #[arg(long, value_name = "URL", value_parser = crate::db::store)]
    store: Option<String>,
}

/// What was found.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    /// `verify`: derived again from the log.
    pub(crate) replay: &'static str,
    pub(crate) ok: bool,
    pub(crate) streams: usize,
    pub(crate) tasks: usize,
    pub(crate) runs: usize,
    pub(crate) events: u64,
    /// Blobs that the events of the runs name.
    pub(crate) blobs: usize,
    /// Stored blobs that were hashed again.
    pub(crate) blobs_checked: u64,
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

impl Report {
    fn new() -> Self {
        Self { replay: "verify", ..Self::default() }
    }

    /// How a command that found this ends.
    pub(crate) fn exit(&self) -> Exit {
        match (self.ok, self.engines_missing.is_empty() && self.events_unknown.is_empty()) {
            (false, _) => Exit::Verification,
            (true, false) => Exit::EngineMissing,
            (true, true) => Exit::Ok,
        }
    }

    fn fault(&mut self, text: String) {
        if self.faults.contains(&text) {
            return;
        }
        self.faults_count += 1;
        if self.faults.len() < FAULTS_LISTED_MAX {
            self.faults.push(text);
        }
    }
}

impl Report {
    /// An answer, or a fault where the coordinator found its own store altered.
    fn read<T>(&mut self, answer: Result<T, ClientError>) -> Outcome<Option<T>> {
        match answer {
            Ok(answer) => Ok(Some(answer)),
            Err(error) if error.code() == Some(ProblemCode::Corrupt) => {
                self.fault(error.to_string());
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Events that do not fold: a fault, but for those that only a newer build knows.
    fn unfolded(&mut self, whose: &str, error: &CorruptLog) {
        let text = format!("{whose}: {}", with_cause(error));
        match error {
            CorruptLog::Decode { source: DecodeError::Unknown { .. }, .. } => self.events_unknown.push(text),
            CorruptLog::Decode { source: DecodeError::Shape { .. }, .. }
            | CorruptLog::Gap { .. }
            | CorruptLog::Illegal { .. } => self.fault(text),
        }
    }
}

/// Verifies.
pub(crate) async fn run(mut cx: Context, args: Args) -> Outcome {
    cx.config.store = args.store.or(cx.config.store);
    let access = Access::open(&cx, Need::Read).await?;
    let mut runs = Vec::new();
    let report = match &args.id {
        None => whole_log(&access.client).await?,
        Some(id) => match resolve::named(&access.client, id).await? {
            Named::Task(task) => {
                let mut report = Report::new();
                check_task(&access.client, task, &mut report).await?;
                runs.extend(access.client.task(task).await?.runs.into_iter().map(|run| run.id));
                for run in &runs {
                    check_run(&access.client, *run, Blobs::OfTheRun, &mut report).await?;
                }
                report.streams = report.tasks + report.runs;
                report.ok = report.faults_count == 0;
                report
            }
            Named::Run(run) => {
                runs.push(run);
                of_run(&access.client, run).await?
            }
        },
    };
    say(&cx, &report);
    let mut exit = report.exit();
    if args.tools && report.ok {
        for run in runs {
            let history = crate::replay::history(&access.client, run).await?;
            let last = history.turns().last().map_or(Turn(0), |span| span.turn);
            let choice = Choice { turns: Turn(0)..=last, gates: args.gates };
            exit = exit.worse(run_again(&cx, &access.client, run, &history, choice).await?);
        }
    }
    access.close().await?;
    Ok(exit)
}

/// Verifies one run: its chain, its blobs, its decisions.
pub(crate) async fn of_run(client: &Client, run: RunId) -> Outcome<Report> {
    let mut report = Report::new();
    check_run(client, run, Blobs::OfTheRun, &mut report).await?;
    report.streams = report.runs;
    report.ok = report.faults_count == 0;
    Ok(report)
}

/// Prints what was found.
pub(crate) fn say(cx: &Context, report: &Report) {
    if cx.json() {
        display::say_json(report);
        return;
    }
    let note = "decisions derived again from the log; no model is asked, nothing is run, no file is touched";
    display::say(&cx.screen.paint(Style::Bold, "replay (verify)"));
    display::say(&cx.screen.paint(Style::Dim, note));
    for fault in &report.faults {
        display::say(&display::line(&format!("fault: {fault}")));
    }
    let counts = format!(
        "{} events of {} tasks and {} runs, {} blobs",
        report.events,
        report.tasks,
        report.runs,
        report.blobs_checked.max(report.blobs as u64)
    );
    if report.ok {
        display::say(&format!("the log holds: {counts}"));
        display::say(&format!(
            "every hash follows from the one before; {} decisions and {} requests derived again are the same",
            report.decisions, report.requests
        ));
        for engine in &report.engines_missing {
            display::say(&format!("not derived again: this build has no engine {}", display::line(engine)));
        }
        for event in &report.events_unknown {
            display::say(&format!("not folded: {}", display::line(event)));
        }
    } else {
        display::say(&format!("the log does not hold: {} faults in {counts}", report.faults_count));
    }
}

/// Verifies everything.
pub(crate) async fn whole_log(client: &Client) -> Outcome<Report> {
    let mut report = Report::new();
    let mut heads: BTreeMap<StreamId, Head> = BTreeMap::new();
    let mut broken: BTreeSet<StreamId> = BTreeSet::new();
    let mut after = Position(0);
    loop {
        let Some(page) = report.read(client.feed(after, None).await)? else { break };
        for event in &page.events {
            report.events += 1;
            if event.position <= after {
                report.fault(format!("position {} follows {after} in the feed", event.position));
            }
            after = after.max(event.position);
            let head = heads.entry(event.stream.clone()).or_insert_with(|| start_of(event));
            match follow(*head, event) {
                Ok(next) => *head = next,
                Err(error) => {
                    // One fault a stream: what follows a break is broken too.
                    *head = Head { seq: event.seq, hash: event.hash };
                    if broken.insert(event.stream.clone()) {
                        report.fault(error.to_string());
                    }
                }
            }
        }
        if !page.more || page.events.is_empty() {
            break;
        }
    }
    stored::check_heads(client, &mut heads, &broken, &mut report).await?;
    stored::check_blobs(client, &mut report).await?;
    report.streams = heads.len();
    let counted = report.events;
    for stream in heads.keys() {
        let checked = match stream {
            StreamId::Task(task) => check_task(client, *task, &mut report).await,
            StreamId::Run(run) => check_run(client, *run, Blobs::All, &mut report).await,
            StreamId::Queue(_) | StreamId::System(_) => Ok(()),
        };
        match checked {
            // What the coordinator itself could not make sense of is a fault of this stream; the rest is
            // looked at all the same.
            Err(failure) if failure.exit == Exit::Verification => {
                report.fault(failure.text(Chain::Hidden));
            }
            other => other?,
        }
    }
    report.events = counted;
    report.ok = report.faults_count == 0;
    Ok(report)
}

/// The head before a stream's first event: its parent's, where it stands on one.
fn start_of(event: &Envelope) -> Head {
    match RunEvent::decode(&event.kind, event.version, event.payload.as_str()) {
        Ok(RunEvent::Forked(forked)) => Head { seq: Seq(0), hash: forked.hash },
        Ok(_) | Err(_) => Head::EMPTY,
    }
}

fn check_chain(events: &[Envelope], report: &mut Report) {
    let Some(first) = events.first() else { return };
    let mut head = start_of(first);
    for event in events {
        match follow(head, event) {
            Ok(next) => head = next,
            Err(error) => return report.fault(error.to_string()),
        }
    }
}

async fn check_task(client: &Client, task: TaskId, report: &mut Report) -> Outcome<()> {
    let (mut events, mut after) = (Vec::new(), Seq(0));
    loop {
        let page = client.stream_events(&StreamId::Task(task), after, None).await?;
        let more = page.more && !page.events.is_empty();
        events.extend(page.events);
        match events.last() {
            Some(last) if more => after = last.seq,
            Some(_) | None => break,
        }
    }
    report.tasks += 1;
    report.events += events.len() as u64;
    check_chain(&events, report);
    match TaskRecord::fold(task, &events) {
        Ok(Some(folded)) => {
            let stored = client.task(task).await?.task;
            // It may have gone on since its events were read.
            if stored.seq == folded.seq && stored != folded {
                report.fault(format!(
                    "task {task}: the table differs from the log; `docket db rebuild` mends it"
                ));
            }
        }
        Ok(None) => report.fault(format!("task {task} has no events")),
        Err(error) => report.unfolded(&format!("task {task}"), &error),
    }
    Ok(())
}

/// Which blobs are still to be hashed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blobs {
    /// None: all that are stored were.
    All,
    /// Those that the run names.
    OfTheRun,
}

async fn check_run(client: &Client, run: RunId, blobs: Blobs, report: &mut Report) -> Outcome<()> {
    let own = client.all_events(run, Lineage::Own).await?;
    report.runs += 1;
    report.events += own.len() as u64;
    check_chain(&own, report);
    let mut state = RunState::default();
    let whole = client.all_events(run, Lineage::Whole).await?;
    for event in &whole {
        if let Err(error) = state.apply_envelope(event) {
            report.unfolded(&format!("run {run}"), &error);
            break;
        }
    }
    let faults = report.faults_count;
    stored::check_named(client, run, &whole, blobs, report).await?;
    // Where the chain is broken, what is derived still says which field was altered.
    if report.faults_count == faults && state.seq == whole.last().map_or(Seq(0), |event| event.seq) {
        derive_again(client, run, &whole, report).await;
    }
    Ok(())
}

/// Derives every decision again and renders every request again, where the rest of the run holds.
async fn derive_again(client: &Client, run: RunId, events: &[Envelope], report: &mut Report) {
    match verify(events, &Material::new(Remote(client))).await {
        Ok(verified) => {
            report.decisions += verified.decisions;
            report.requests += verified.requests;
            if let Some(kind) = verified.lacking {
                report.fault(format!("run {run}: its log ends within an append: a {kind} has to follow"));
            }
        }
        Err(VerifyError::NoEngine(engine)) => {
            report.engines_missing.push(engine.to_string());
        }
        Err(error) => {
            report.fault(format!("run {run}: {}", with_cause(&error)));
            if let VerifyError::Diverged(divergence) = error {
                report.divergences.push(*divergence);
            }
        }
    }
}

fn with_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
