//! `docket cat`: a file as it was after a turn, byte for byte; a folder as a list.

use crate::history::file_view::{mode, size, view};
use std::{ffi::OsString, io::IsTerminal as _};

use docket_schema::snapshot::EntryKind;
use docket_worker::workspace::{Child, Contents, Standing, standing_at};

use crate::{
    connect::{access::Access, resolve},
    context::Context,
    history::{
        blobs::Remote,
        past::{Past, path_in_tree},
    },
    output::{
        display::{self, Cell, Style, Table},
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A file goes to standard output byte for byte; on a terminal, characters that it would obey are shown
instead, unless --raw is given. Of a symbolic link the target is printed; a folder is listed.

Examples:
  docket cat 3f9c01ab src/main.rs
  docket cat 3f9c01ab --turn 4 src/main.rs > main-at-4.rs
  docket cat 3f9c01ab --turn 0 .               the tree that turn 1 found"
)]
pub(crate) struct Args {
    /// A run, or a task whose last run is meant
    id: String,
    /// A path in the run's workspace; `.` is its root
    path: OsString,
    /// As it was after this turn [default: the last]
    #[arg(long, value_name = "N")]
    turn: Option<u32>,
    /// On a terminal too, the bytes as they are
    #[arg(long)]
    raw: bool,
}

/// Prints it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    let path = path_in_tree(&args.path)?;
    let access = Access::to_read(&cx, &args.id).await?;
    let run = resolve::run(&access.client, &args.id).await?;
    let past = Past::open(&cx, &access.client, run).await?;
    let after = past.after(args.turn)?;
    after.note_if_open();
    let standing = match (standing_at(&after.tree, path.as_ref()), &path) {
        (Some(standing), _) => standing,
        (None, Some(path)) => return Err(past.not_there(path, &after)),
        (None, None) => Standing::Folder { mode: 0o755, children: Vec::new() },
    };
    let content = match standing {
        Standing::File(entry) | Standing::Link(entry) => {
            let blobs = Remote(&access.client);
            let read = Contents::new(&past.base, &blobs).read(&entry).await;
            Some(read.fail_with(Exit::Failed, || "the recorded content cannot be read".to_owned())?)
        }
        Standing::Folder { .. } => None,
    };
    access.close().await?;
    if cx.json() {
        display::say_json(&view(past.run, after.turn, path.as_ref(), &standing, content.as_deref()));
        return Ok(Exit::Ok);
    }
    let bytes = content.unwrap_or_default();
    match standing {
        Standing::File(_) => say_bytes(&bytes, args.raw),
        Standing::Link(_) => {
            display::note("a symbolic link; its target is:");
            say_bytes(&bytes, args.raw);
            display::note("");
        }
        Standing::Folder { children, .. } => say_folder(&cx, &children),
    }
    Ok(Exit::Ok)
}

fn say_bytes(bytes: &[u8], raw: bool) {
    if raw || !std::io::stdout().is_terminal() {
        display::say_bytes(bytes);
        return;
    }
    let text = String::from_utf8_lossy(bytes);
    display::say(&display::block(text.strip_suffix('\n').unwrap_or(&text)));
}

fn say_folder(cx: &Context, children: &[Child]) {
    if children.is_empty() {
        display::note("an empty folder");
        return;
    }
    let mut table = Table::new(&["MODE", "BYTES", "NAME"]);
    for Child { name, entry } in children {
        let name = String::from_utf8_lossy(name);
        let name = match entry.kind {
            EntryKind::File => Cell::new(name),
            EntryKind::Symlink => Cell::styled(format!("{name}@"), Style::Dim),
            EntryKind::Dir => Cell::styled(format!("{name}/"), Style::Bold),
        };
        let or_dash = |text: Option<String>| Cell::new(text.unwrap_or_else(|| "-".to_owned()));
        table.row(vec![or_dash(mode(entry)), or_dash(size(entry).map(|size| size.to_string())), name]);
    }
    display::say(&table.render(cx.screen));
}
