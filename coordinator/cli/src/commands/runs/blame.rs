//! `docket blame`: shows which turn wrote each line of a file.

use std::{collections::BTreeMap, ffi::OsString, fmt::Write as _};

use docket_schema::{
    content::{Content, WorkspacePath},
    ids::{RunId, Seq},
};
use docket_worker::workspace::{
    BlameError, BlamedLine, ChangeCause, ContentReader, PathChangeEvent, PathState, blame, path_changes,
    path_state_at,
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use crate::{
    connect::{coordinator::Coordinator, resolve},
    context::CliContext,
    history::{
        blobs::RemoteBlobs,
        recorded_run::{RecordedRun, RunAtTurn, parse_tree_path},
    },
    output::{
        display::{self, TextStyle, truncate_to_width},
        error::{CliError, CliResult, ExitKind, FailWith as _},
        event_format,
    },
};

/// Maximum width of the author column, so that the line itself has room.
const AUTHOR_COLUMNS_MAX: usize = 64;

/// Command-line arguments of `docket blame`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Shows each line of the file with the turn that wrote it, the run's task, the tool call and the
first words of the model in that turn; `base` is the commit the run started from. In a forked or
resumed run, lines written by a parent name the parent. A renamed file counts as new under its new
name. With --json, each line of output is one line of the file.

Examples:
  docket blame 3f9c01ab src/main.rs
  docket blame 3f9c01ab src/main.rs --turn 4
  docket blame 3f9c01ab src/main.rs --json | jq 'select(.turn == 4)'"
)]
pub(crate) struct BlameArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// File in the run's workspace
    path: OsString,
    /// State after turn N [default: the last turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
}

/// A line in the output of `--json`; flat and stable.
#[derive(Debug, Serialize)]
struct BlameRow<'a> {
    run: RunId,
    path: &'a WorkspacePath,
    /// Line number, starting at 1.
    line: usize,
    /// The turn that wrote the line; null for the base.
    turn: Option<u32>,
    /// The run whose log contains that turn; null for the base.
    by_run: Option<RunId>,
    seq: Option<Seq>,
    phase: Option<&'static str>,
    /// The tools, checks or people that may have written the line, in order.
    by: Vec<String>,
    /// IDs of the tool calls among them.
    calls: Vec<String>,
    /// The first words of the model in that turn.
    said: Option<&'a str>,
    /// The line without its line feed.
    text: Content,
}

pub(crate) async fn run_blame(cx: CliContext, args: BlameArgs) -> CliResult {
    let Some(path) = parse_tree_path(&args.path)? else {
        return Err(CliError::new(ExitKind::Usage, "`.` is a folder; specify a file"));
    };
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let past = RecordedRun::open(&cx, &access.client, run).await?;
    let after = past.at_turn(args.turn)?;
    after.note_if_open();
    match path_state_at(&after.tree, Some(&path)) {
        None => return Err(past.path_missing_error(&path, &after)),
        Some(PathState::Folder { .. }) => return Err(blame_error(&path, BlameError::NotAFile("folder"))),
        Some(PathState::File(_) | PathState::Link(_)) => {}
    }
    let touches = path_changes_until(&past, &after, &path)?;
    let blobs = RemoteBlobs(&access.client);
    let base = past.base.manifest().entries.get(&path).copied();
    let lines = blame(base, &touches, &ContentReader::new(&past.base, &blobs)).await;
    let lines = lines.map_err(|error| blame_error(&path, error))?;
    access.close().await?;
    if cx.is_json() {
        let rows = lines.iter().enumerate().map(|(at, line)| blame_row(&past, &path, at + 1, line, &touches));
        rows.for_each(|row| display::print_json(&row));
    } else {
        print_blame(&cx, &past, &lines, &touches);
    }
    Ok(ExitKind::Ok)
}

fn blame_error(path: &WorkspacePath, error: BlameError) -> CliError {
    let message = format!("cannot blame `{}`: {error}", display::sanitize_line(&path.to_string()));
    match error {
        BlameError::Contents(cause) => {
            let error = anyhow::Error::from(cause).context(message);
            CliError { exit: ExitKind::Failed, error }
        }
        BlameError::NotFound | BlameError::NotAFile(_) | BlameError::Binary | BlameError::TooLarge { .. } => {
            CliError::new(ExitKind::Refused, message)
        }
    }
}

fn path_changes_until(
    past: &RecordedRun,
    after: &RunAtTurn,
    path: &WorkspacePath,
) -> CliResult<Vec<PathChangeEvent>> {
    let end = past.history.turn(after.turn).fail_as(ExitKind::NotFound)?.events.end;
    let touches = path_changes(&past.history.events()[..end], path);
    touches.fail_with(ExitKind::EngineMissing, || {
        format!("this build cannot read an event of run {}", past.run.short())
    })
}

/// Describes briefly what may have written a line.
fn describe_cause(cause: &ChangeCause) -> String {
    match cause {
        ChangeCause::ToolCall(tool) => event_format::format_tool_call(tool),
        ChangeCause::Gate { name, .. } => format!("check {name}"),
        ChangeCause::Setup(command) => format!("setup {command}"),
        ChangeCause::Person(by) => format!("by hand: {by}"),
    }
}

fn blame_row<'a>(
    past: &RecordedRun,
    path: &'a WorkspacePath,
    line: usize,
    blamed: &BlamedLine,
    touches: &'a [PathChangeEvent],
) -> BlameRow<'a> {
    let touch = blamed.change_index.and_then(|at| touches.get(at));
    let causes = touch.map_or(&[][..], |touch| &touch.causes);
    let calls = causes.iter().filter_map(|cause| match cause {
        ChangeCause::ToolCall(tool) => Some(tool.call.0.clone()),
        ChangeCause::Gate { .. } | ChangeCause::Setup(_) | ChangeCause::Person(_) => None,
    });
    BlameRow {
        run: past.run,
        path,
        line,
        turn: touch.map(|touch| touch.turn.0),
        by_run: touch.and_then(|touch| touch.run),
        seq: touch.map(|touch| touch.seq),
        phase: touch.map(|touch| touch.phase.as_str()),
        by: causes.iter().map(describe_cause).collect(),
        calls: calls.collect(),
        said: touch.map(|touch| touch.model_text.as_str()).filter(|said| !said.is_empty()),
        text: Content::inline(strip_line_feed(&blamed.text)),
    }
}

fn strip_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn print_blame(cx: &CliContext, past: &RecordedRun, lines: &[BlamedLine], touches: &[PathChangeEvent]) {
    if lines.is_empty() {
        display::print_note("the file is empty");
        return;
    }
    let mut heads: BTreeMap<Option<usize>, String> = BTreeMap::new();
    for line in lines {
        heads
            .entry(line.change_index)
            .or_insert_with(|| describe_author(past, line.change_index.and_then(|at| touches.get(at))));
    }
    let room = (cx.screen.columns() / 2).min(AUTHOR_COLUMNS_MAX);
    let heads: BTreeMap<_, _> =
        heads.into_iter().map(|(touch, head)| (touch, truncate_to_width(&head, room))).collect();
    let width = heads.values().map(|head| head.width()).max().unwrap_or(0);
    let digits = lines.len().to_string().len();
    let mut last = None;
    for (at, line) in lines.iter().enumerate() {
        // The author is shown on the first line of a block only.
        let head = if last == Some(line.change_index) { "" } else { heads[&line.change_index].as_str() };
        last = Some(line.change_index);
        let pad = " ".repeat(width - head.width());
        let text = String::from_utf8_lossy(strip_line_feed(&line.text));
        let text = display::sanitize_text(&text).replace('\n', "\\n");
        display::print_line(
            format!("{}{pad} {:>digits$} {text}", cx.screen.paint(TextStyle::Dim, head), at + 1).trim_end(),
        );
    }
}

/// Describes the author of a block of lines.
fn describe_author(past: &RecordedRun, touch: Option<&PathChangeEvent>) -> String {
    let Some(touch) = touch else { return "base".to_owned() };
    let mut head = format!("turn {}", touch.turn);
    if let Some(run) = touch.run.filter(|run| *run != past.run) {
        // Writing to a String cannot fail.
        let _ = write!(head, " of {}", run.short());
    }
    let _ = write!(head, " {}", touch.phase.as_str());
    let by: Vec<String> = touch.causes.iter().map(describe_cause).collect();
    if !by.is_empty() {
        let _ = write!(head, ", {}", by.join("; "));
    }
    if !touch.model_text.is_empty() {
        let _ = write!(head, " \u{201c}{}\u{201d}", touch.model_text);
    }
    display::sanitize_line(&head).into_owned()
}
