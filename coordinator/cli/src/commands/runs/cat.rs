//! `docket cat`: prints a file exactly as it was after a turn, or lists a folder.

use crate::history::file_view::{build_file_view, entry_size, octal_mode};
use std::{ffi::OsString, io::IsTerminal as _};

use docket_schema::snapshot::EntryKind;
use docket_worker::workspace::{ContentReader, FolderEntry, PathState, path_state_at};

use crate::{
    connect::{coordinator::Coordinator, resolve},
    context::CliContext,
    history::{
        blobs::RemoteBlobs,
        recorded_run::{RecordedRun, parse_tree_path},
    },
    output::{
        display::{self, TableCell, TextStyle, TextTable},
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Command-line arguments of `docket cat`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file is written to standard output byte for byte; on a terminal, control characters are escaped
unless --raw is given. For a symbolic link the target is printed; a folder is listed.

Examples:
  docket cat 3f9c01ab src/main.rs
  docket cat 3f9c01ab --turn 4 src/main.rs > main-at-4.rs
  docket cat 3f9c01ab --turn 0 .               the tree at the start of turn 1"
)]
pub(crate) struct CatArgs {
    /// Run ID, or task ID to use the task's last run
    id: String,
    /// Path in the run's workspace; `.` is its root
    path: OsString,
    /// State after turn N [default: the last turn]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// Write the exact bytes even to a terminal
    #[arg(long)]
    raw: bool,
}

pub(crate) async fn run_cat(cx: CliContext, args: CatArgs) -> CliResult {
    let path = parse_tree_path(&args.path)?;
    let access = Coordinator::connect_for_reading(&cx, &args.id).await?;
    let run = resolve::resolve_run(&access.client, &args.id).await?;
    let past = RecordedRun::open(&cx, &access.client, run).await?;
    let after = past.at_turn(args.turn)?;
    after.note_if_open();
    let standing = match (path_state_at(&after.tree, path.as_ref()), &path) {
        (Some(standing), _) => standing,
        (None, Some(path)) => return Err(past.path_missing_error(path, &after)),
        (None, None) => PathState::Folder { mode: 0o755, children: Vec::new() },
    };
    let content = match standing {
        PathState::File(entry) | PathState::Link(entry) => {
            let blobs = RemoteBlobs(&access.client);
            let read = ContentReader::new(&past.base, &blobs).read_entry(&entry).await;
            Some(read.fail_with(ExitKind::Failed, || "cannot read the recorded content".to_owned())?)
        }
        PathState::Folder { .. } => None,
    };
    access.close().await?;
    if cx.is_json() {
        display::print_json(&build_file_view(
            past.run,
            after.turn,
            path.as_ref(),
            &standing,
            content.as_deref(),
        ));
        return Ok(ExitKind::Ok);
    }
    let bytes = content.unwrap_or_default();
    match standing {
        PathState::File(_) => print_bytes(&bytes, args.raw),
        PathState::Link(_) => {
            display::print_note("symbolic link to:");
            print_bytes(&bytes, args.raw);
            display::print_note("");
        }
        PathState::Folder { children, .. } => print_folder(&cx, &children),
    }
    Ok(ExitKind::Ok)
}

fn print_bytes(bytes: &[u8], raw: bool) {
    if raw || !std::io::stdout().is_terminal() {
        display::print_bytes(bytes);
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    display::print_line(&display::sanitize_text(text.strip_suffix('\n').unwrap_or(&text)));
}

fn print_folder(cx: &CliContext, children: &[FolderEntry]) {
    if children.is_empty() {
        display::print_note("empty folder");
        return;
    }
    let mut table = TextTable::new(&["MODE", "BYTES", "NAME"]);
    for FolderEntry { name, entry } in children {
        let name = String::from_utf8_lossy(name);
        let name = match entry.kind {
            EntryKind::File => TableCell::new(name),
            EntryKind::Symlink => TableCell::styled(format!("{name}@"), TextStyle::Dim),
            EntryKind::Dir => TableCell::styled(format!("{name}/"), TextStyle::Bold),
        };
        let or_dash = |text: Option<String>| TableCell::new(text.unwrap_or_else(|| "-".to_owned()));
        table.add_row(vec![
            or_dash(octal_mode(entry)),
            or_dash(entry_size(entry).map(|size| size.to_string())),
            name,
        ]);
    }
    display::print_line(&table.render(cx.screen));
}
