//! `docket blame`: which turn wrote each line of a file.

use std::{collections::BTreeMap, ffi::OsString, fmt::Write as _};

use docket_schema::{
    content::{Content, WorkPath},
    ids::{RunId, Seq},
};
use docket_worker::workspace::{
    BlameError, BlamedLine, Cause, Contents, Standing, Touch, blame, standing_at, touches,
};
use serde::Serialize;
use unicode_width::UnicodeWidthStr as _;

use crate::{
    connect::{access::Access, resolve},
    context::Context,
    history::{
        blobs::Remote,
        past::{After, Past, path_in_tree},
    },
    output::{
        display::{self, Style, fit},
        events,
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// Columns that the left side, which says who wrote a line, takes at most: the line itself matters as much.
const WHO_COLUMNS_MAX: usize = 64;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Each line of the file is shown with the turn that wrote it, what the run was about, the tool call
and the model's first words in that turn; `base` is what the run started from. Of a forked or resumed
run, lines that a parent wrote name the parent. A file that was renamed is new at its new name. With
--json each line of output is one line of the file.

Examples:
  docket blame 3f9c01ab src/main.rs
  docket blame 3f9c01ab src/main.rs --turn 4
  docket blame 3f9c01ab src/main.rs --json | jq 'select(.turn == 4)'"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// A file in the run's workspace
    path: OsString,
    /// As it was after this turn [default: the last]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
}

/// A line as `--json` shows it: flat, and stable.
#[derive(Debug, Serialize)]
struct Row<'a> {
    run: RunId,
    path: &'a WorkPath,
    /// From 1.
    line: usize,
    /// The turn that wrote it; null for the base.
    turn: Option<u32>,
    /// The run in whose log that turn stands; null for the base.
    by_run: Option<RunId>,
    seq: Option<Seq>,
    phase: Option<&'static str>,
    /// The tools, checks or people that may have written it, in order.
    by: Vec<String>,
    /// The ids of the tool calls among them.
    calls: Vec<String>,
    /// The model's first words in that turn.
    said: Option<&'a str>,
    /// Without its line feed.
    text: Content,
}

/// Shows who wrote what.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let Some(path) = path_in_tree(&args.path)? else {
        return Err(Failure::new(Exit::Usage, "`.` is a folder, and only files have lines; name a file"));
    };
    let access = Access::to_read(&cx, &args.id).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let past = Past::open(&cx, &access.client, run).await?;
    let after = past.after(args.turn)?;
    after.note_if_open();
    match standing_at(&after.tree, Some(&path)) {
        None => return Err(past.not_there(&path, &after)),
        Some(Standing::Folder { .. }) => return Err(refused(&path, BlameError::NoFile("folder"))),
        Some(Standing::File(_) | Standing::Link(_)) => {}
    }
    let touches = touches_until(&past, &after, &path)?;
    let blobs = Remote(&access.client);
    let base = past.base.manifest().entries.get(&path).copied();
    let lines = blame(base, &touches, &Contents::new(&past.base, &blobs)).await;
    let lines = lines.map_err(|error| refused(&path, error))?;
    access.close().await?;
    if cx.json() {
        let rows = lines.iter().enumerate().map(|(at, line)| row(&past, &path, at + 1, line, &touches));
        rows.for_each(|row| display::say_json(&row));
    } else {
        say(&cx, &past, &lines, &touches);
    }
    Ok(Exit::Ok)
}

fn refused(path: &WorkPath, error: BlameError) -> Failure {
    let message = format!("`{}` cannot be blamed: {error}", display::line(&path.to_string()));
    match error {
        BlameError::Contents(cause) => {
            let error = anyhow::Error::from(cause).context(message);
            Failure { exit: Exit::Failed, error }
        }
        BlameError::NotThere | BlameError::NoFile(_) | BlameError::Binary | BlameError::TooLarge { .. } => {
            Failure::new(Exit::Refused, message)
        }
    }
}

fn touches_until(past: &Past, after: &After, path: &WorkPath) -> Outcome<Vec<Touch>> {
    let end = past.history.turn(after.turn).fail_as(Exit::NotFound)?.events.end;
    let touches = touches(&past.history.events()[..end], path);
    touches.fail_with(Exit::EngineMissing, || {
        format!("an event of run {} cannot be read by this build", past.run.short())
    })
}

/// What may have written it, in few words.
fn cause(cause: &Cause) -> String {
    match cause {
        Cause::Call(tool) => events::call(tool),
        Cause::Gate { name, .. } => format!("check {name}"),
        Cause::Setup(command) => format!("setup {command}"),
        Cause::Person(by) => format!("by hand: {by}"),
    }
}

fn row<'a>(
    past: &Past,
    path: &'a WorkPath,
    line: usize,
    blamed: &BlamedLine,
    touches: &'a [Touch],
) -> Row<'a> {
    let touch = blamed.touch.and_then(|at| touches.get(at));
    let causes = touch.map_or(&[][..], |touch| &touch.causes);
    let calls = causes.iter().filter_map(|cause| match cause {
        Cause::Call(tool) => Some(tool.call.0.clone()),
        Cause::Gate { .. } | Cause::Setup(_) | Cause::Person(_) => None,
    });
    Row {
        run: past.run,
        path,
        line,
        turn: touch.map(|touch| touch.turn.0),
        by_run: touch.and_then(|touch| touch.run),
        seq: touch.map(|touch| touch.seq),
        phase: touch.map(|touch| touch.phase.as_str()),
        by: causes.iter().map(cause).collect(),
        calls: calls.collect(),
        said: touch.map(|touch| touch.said.as_str()).filter(|said| !said.is_empty()),
        text: Content::inline(without_line_feed(&blamed.text)),
    }
}

fn without_line_feed(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\n").unwrap_or(line)
}

fn say(cx: &Context, past: &Past, lines: &[BlamedLine], touches: &[Touch]) {
    if lines.is_empty() {
        display::note("the file is empty");
        return;
    }
    let mut heads: BTreeMap<Option<usize>, String> = BTreeMap::new();
    for line in lines {
        heads.entry(line.touch).or_insert_with(|| head(past, line.touch.and_then(|at| touches.get(at))));
    }
    let room = (cx.screen.columns() / 2).min(WHO_COLUMNS_MAX);
    let heads: BTreeMap<_, _> = heads.into_iter().map(|(touch, head)| (touch, fit(&head, room))).collect();
    let width = heads.values().map(|head| head.width()).max().unwrap_or(0);
    let digits = lines.len().to_string().len();
    let mut last = None;
    for (at, line) in lines.iter().enumerate() {
        // Who wrote a block of lines is said at its first.
        let head = if last == Some(line.touch) { "" } else { heads[&line.touch].as_str() };
        last = Some(line.touch);
        let pad = " ".repeat(width - head.width());
        let text = String::from_utf8_lossy(without_line_feed(&line.text));
        let text = display::block(&text).replace('\n', "\\n");
        display::say(
            format!("{}{pad} {:>digits$} {text}", cx.screen.paint(Style::Dim, head), at + 1).trim_end(),
        );
    }
}

/// Who wrote a block of lines.
fn head(past: &Past, touch: Option<&Touch>) -> String {
    let Some(touch) = touch else { return "base".to_owned() };
    let mut head = format!("turn {}", touch.turn);
    if let Some(run) = touch.run.filter(|run| *run != past.run) {
        // Writing to a String cannot fail.
        let _ = write!(head, " of {}", run.short());
    }
    let _ = write!(head, " {}", touch.phase.as_str());
    let by: Vec<String> = touch.causes.iter().map(cause).collect();
    if !by.is_empty() {
        let _ = write!(head, ", {}", by.join("; "));
    }
    if !touch.said.is_empty() {
        let _ = write!(head, " \u{201c}{}\u{201d}", touch.said);
    }
    display::line(&head).into_owned()
}
