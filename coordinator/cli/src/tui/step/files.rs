//! Panes about files: what a turn changed, the tree after it, one file as it was. Pure.

use std::collections::BTreeSet;

use docket_schema::{
    content::WorkPath,
    history::{TurnDetail, TurnSummary},
    snapshot::{Entry, EntryKind},
};
use docket_worker::workspace::{ChangeView, FileDiff};

use super::{
    doc::{Tone, Writer},
    page::Choice,
    run::Run,
    shelf::{Loaded, Place, Side, Want},
};
use crate::output::display::counted;

/// The tree after a row of this run.
pub(super) const fn after(row: &TurnSummary) -> Place {
    Place { side: Side::This, end: row.events.end }
}

/// What changed: in the turn, or since the turn that it is compared with.
pub(super) fn diff(out: &mut Writer<'_>, run: &Run, choice: &Choice) {
    let rows = |at: usize| run.turns().get(at);
    let Some(row) = rows(choice.row) else { return };
    if let Some(since) = choice.since.and_then(rows) {
        // Whichever is marked: the older one is what there was before.
        let (from, to) = if since.turn <= row.turn { (since, row) } else { (row, since) };
        out.line(Tone::Bold, &format!("from the end of turn {} to the end of turn {}", from.turn, to.turn));
        return differences(out, after(from), after(to));
    }
    let detail = run.history.detail(row);
    if detail.own_paths().next().is_none() {
        out.line(Tone::Dim, "this turn changed no file");
    }
    if detail.changes.iter().any(|change| !change.paths.is_empty()) {
        of_turn(out, row, &detail);
    }
    if detail.git_changes > 0 {
        out.gap();
        let paths = counted(detail.git_changes as u64, "path", "paths");
        let text = format!("under .git, {paths} changed: what the model did with git");
        out.line(Tone::Dim, &text);
    }
    for left in &detail.left_out {
        out.file(Tone::Dim, &format!("not in the snapshot: {} ({:?})", left.path, left.why), &left.path);
    }
}

/// What the turn changed; and, apart from it, what a person changed by hand where it ended.
fn of_turn(out: &mut Writer<'_>, row: &TurnSummary, detail: &TurnDetail) {
    let place = |end: usize| Place { side: Side::This, end };
    let mut start = row.events.start;
    for (nth, change) in detail.changes.iter().enumerate() {
        match &change.by {
            Some(by) => out.heading(&format!("by hand: {by}")),
            None if nth > 0 => out.heading("the run, after that"),
            None => {}
        }
        differences(out, place(start), place(change.end));
        start = change.end;
    }
}

/// The differences between two trees.
pub(super) fn differences(out: &mut Writer<'_>, from: Place, to: Place) {
    let Some(Loaded::Diff(files)) = out.need(Want::Diff(from, to), "") else { return };
    if files.is_empty() {
        return out.line(Tone::Dim, "the files are the same");
    }
    for file in files.iter() {
        out.gap();
        one(out, file);
    }
}

fn one(out: &mut Writer<'_>, file: &FileDiff) {
    let what = match (file.old, file.new) {
        (None, _) => "added",
        (Some(_), None) => "removed",
        (Some(old), Some(new)) if old.hash == new.hash && old.kind == new.kind => "mode changed",
        (Some(_), Some(_)) => "changed",
    };
    let modes = match (file.old, file.new) {
        (Some(old), Some(new)) if old.mode != new.mode => format!(" ({:o} → {:o})", old.mode, new.mode),
        (Some(_) | None, Some(_) | None) => String::new(),
    };
    out.file(Tone::Bold, &format!("{what} {}{modes}", file.path), &file.path);
    match &file.change {
        ChangeView::Text(text) => out.diff(text),
        ChangeView::Binary => {
            let size = |entry: Option<Entry>| entry.map_or(0, |entry| entry.size);
            let sizes = format!("  not text: {} bytes → {} bytes", size(file.old), size(file.new));
            out.line(Tone::Dim, &sizes);
        }
        ChangeView::TooLarge => out.line(Tone::Dim, "  too large to be compared line by line"),
        ChangeView::ModeOnly => {}
    }
}

/// The files after a turn; those that the turn changed, or a person by hand, are marked.
pub(super) fn tree(out: &mut Writer<'_>, run: &Run, at: usize, row: &TurnSummary) {
    let Some(Loaded::Tree(manifest)) = out.need(Want::Tree(after(row)), "") else { return };
    let detail = run.history.detail(row);
    let count = manifest.entries.values().filter(|entry| entry.kind != EntryKind::Dir).count();
    let when = if at == 0 { "before the first turn".to_owned() } else { format!("after turn {}", row.turn) };
    out.line(Tone::Dim, &format!("{count} files {when}; Enter opens one, o asks for its name"));
    for gone in detail.own_paths().chain(detail.paths_by_hand()).filter(|change| change.entry.is_none()) {
        out.line(Tone::Bad, &format!("D {:>9}  {}", "", gone.path));
    }
    let touched: BTreeSet<&WorkPath> = detail.own_paths().map(|change| &change.path).collect();
    let by_hand: BTreeSet<&WorkPath> = detail.paths_by_hand().map(|change| &change.path).collect();
    for (path, entry) in &manifest.entries {
        let (mark, tone) = match (by_hand.contains(path), touched.contains(path)) {
            (true, _) => ("H", Tone::Warn),
            (false, true) => ("M", Tone::Good),
            (false, false) => (" ", Tone::Plain),
        };
        let text = match entry.kind {
            EntryKind::File if entry.mode & 0o111 != 0 => format!("{mark} {:>9}  {path}*", entry.size),
            EntryKind::File => format!("{mark} {:>9}  {path}", entry.size),
            EntryKind::Symlink => format!("{mark} {:>9}  {path} (a link)", entry.size),
            EntryKind::Dir => format!("{mark} {:>9}  {path}/", ""),
        };
        out.file(tone, &text, path);
    }
}

/// A file as it was.
pub(super) fn file(out: &mut Writer<'_>, place: Place, path: &WorkPath) {
    let Some(Loaded::Bytes(bytes)) = out.need(Want::File(place, path.clone()), "") else { return };
    if bytes.is_empty() {
        return out.line(Tone::Dim, "it is empty");
    }
    out.bytes(Tone::Plain, "", &bytes);
}
