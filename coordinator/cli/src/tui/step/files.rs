//! File panes: the changes of a turn, the tree after it, one file as of a turn. Pure.

use std::collections::BTreeSet;

use docket_schema::{
    content::WorkspacePath,
    history::{TurnDetail, TurnSummary},
    snapshot::{Entry, EntryKind},
};
use docket_worker::workspace::{ChangeView, FileDiff};

use super::{
    content_cache::{ContentRequest, LoadedContent, RunSide, TreePosition},
    page::PageSelection,
    pane_text::{PaneWriter, TextTone},
    run::Run,
};
use crate::output::display::format_count_with_plural;

/// The tree after a row of this run.
pub(super) const fn tree_after(row: &TurnSummary) -> TreePosition {
    TreePosition { side: RunSide::This, end: row.events.end }
}

/// Renders the changes of the turn, or since the turn it is compared with.
pub(super) fn render_diff(out: &mut PaneWriter<'_>, run: &Run, choice: &PageSelection) {
    let rows = |at: usize| run.turns().get(at);
    let Some(row) = rows(choice.row) else { return };
    if let Some(since) = choice.compared_row.and_then(rows) {
        // Whichever turn is marked, the older one is the left side.
        let (from, to) = if since.turn <= row.turn { (since, row) } else { (row, since) };
        out.write_line(
            TextTone::Bold,
            &format!("from the end of turn {} to the end of turn {}", from.turn, to.turn),
        );
        return render_tree_diff(out, tree_after(from), tree_after(to));
    }
    let detail = run.history.turn_detail(row);
    if detail.paths_by_run().next().is_none() {
        out.write_line(TextTone::Dim, "this turn changed no file");
    }
    if detail.changes.iter().any(|change| !change.paths.is_empty()) {
        render_turn_changes(out, row, &detail);
    }
    if detail.git_changes > 0 {
        out.write_gap();
        let paths = format_count_with_plural(detail.git_changes as u64, "path", "paths");
        let text = format!("under .git, {paths} changed: the model used git");
        out.write_line(TextTone::Dim, &text);
    }
    for left in &detail.left_out {
        out.write_file_line(
            TextTone::Dim,
            &format!("not in the snapshot: {} ({:?})", left.path, left.why),
            &left.path,
        );
    }
}

/// Renders the changes of the turn, separating changes that a person made by hand at its end.
fn render_turn_changes(out: &mut PaneWriter<'_>, row: &TurnSummary, detail: &TurnDetail) {
    let place = |end: usize| TreePosition { side: RunSide::This, end };
    let mut start = row.events.start;
    for (nth, change) in detail.changes.iter().enumerate() {
        match &change.by {
            Some(by) => out.write_heading(&format!("by hand: {by}")),
            None if nth > 0 => out.write_heading("the run, after that"),
            None => {}
        }
        render_tree_diff(out, place(start), place(change.end_index));
        start = change.end_index;
    }
}

/// Renders the differences between two trees.
pub(super) fn render_tree_diff(out: &mut PaneWriter<'_>, from: TreePosition, to: TreePosition) {
    let Some(LoadedContent::Diff(files)) = out.require(ContentRequest::Diff(from, to), "") else { return };
    if files.is_empty() {
        return out.write_line(TextTone::Dim, "the files are the same");
    }
    for file in files.iter() {
        out.write_gap();
        render_file_diff(out, file);
    }
}

fn render_file_diff(out: &mut PaneWriter<'_>, file: &FileDiff) {
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
    out.write_file_line(TextTone::Bold, &format!("{what} {}{modes}", file.path), &file.path);
    match &file.change {
        ChangeView::Text(text) => out.write_diff(text),
        ChangeView::Binary => {
            let size = |entry: Option<Entry>| entry.map_or(0, |entry| entry.size);
            let sizes = format!("  not text: {} bytes → {} bytes", size(file.old), size(file.new));
            out.write_line(TextTone::Dim, &sizes);
        }
        ChangeView::TooLarge => out.write_line(TextTone::Dim, "  too large to compare line by line"),
        ChangeView::ModeOnly => {}
    }
}

/// Renders the files after a turn; those changed by the turn, or by a person by hand, are marked.
pub(super) fn render_tree(out: &mut PaneWriter<'_>, run: &Run, at: usize, row: &TurnSummary) {
    let Some(LoadedContent::Tree(manifest)) = out.require(ContentRequest::Tree(tree_after(row)), "") else {
        return;
    };
    let detail = run.history.turn_detail(row);
    let count = manifest.entries.values().filter(|entry| entry.kind != EntryKind::Dir).count();
    let when = if at == 0 { "before the first turn".to_owned() } else { format!("after turn {}", row.turn) };
    out.write_line(TextTone::Dim, &format!("{count} files {when}; Enter opens one, o opens one by name"));
    for gone in detail.paths_by_run().chain(detail.paths_by_person()).filter(|change| change.entry.is_none())
    {
        out.write_line(TextTone::Bad, &format!("D {:>9}  {}", "", gone.path));
    }
    let touched: BTreeSet<&WorkspacePath> = detail.paths_by_run().map(|change| &change.path).collect();
    let by_hand: BTreeSet<&WorkspacePath> = detail.paths_by_person().map(|change| &change.path).collect();
    for (path, entry) in &manifest.entries {
        let (mark, tone) = match (by_hand.contains(path), touched.contains(path)) {
            (true, _) => ("H", TextTone::Warn),
            (false, true) => ("M", TextTone::Good),
            (false, false) => (" ", TextTone::Plain),
        };
        let text = match entry.kind {
            EntryKind::File if entry.mode & 0o111 != 0 => format!("{mark} {:>9}  {path}*", entry.size),
            EntryKind::File => format!("{mark} {:>9}  {path}", entry.size),
            EntryKind::Symlink => format!("{mark} {:>9}  {path} (a link)", entry.size),
            EntryKind::Dir => format!("{mark} {:>9}  {path}/", ""),
        };
        out.write_file_line(tone, &text, path);
    }
}

/// Renders a file as of a turn.
pub(super) fn render_file(out: &mut PaneWriter<'_>, place: TreePosition, path: &WorkspacePath) {
    let Some(LoadedContent::Bytes(bytes)) = out.require(ContentRequest::File(place, path.clone()), "") else {
        return;
    };
    if bytes.is_empty() {
        return out.write_line(TextTone::Dim, "it is empty");
    }
    out.write_bytes(TextTone::Plain, "", &bytes);
}
