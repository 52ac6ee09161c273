//! Renders a diff as JSON, line counts or names.

use std::{collections::BTreeMap, fmt::Write as _};

use docket_schema::{
    content::{Content, WorkspacePath},
    ids::RunId,
    snapshot::{Entry, EntryKind},
};
use docket_worker::workspace::{LineCounts, PathDiff, TreeDiff};
use serde::Serialize;

use super::ComparedTrees;
use crate::{
    history::recorded_run::RecordedRun,
    output::{
        display::{self, OutputScreen, TextStyle},
        error::{CliResult, ExitKind, FailWith as _},
    },
};

/// Maximum width of the bars of plus and minus signs.
const BAR_COLUMNS_MAX: u64 = 40;

/// A diff in the output of `--json`; a stable format.
#[derive(Debug, Serialize)]
pub(super) struct DiffRow {
    run: RunId,
    /// The turn after which the old tree was recorded; null for the base.
    from: Option<u32>,
    /// The turn after which the new tree was recorded.
    to: u32,
    from_tree: String,
    to_tree: String,
    paths: Vec<WorkspacePath>,
    /// With `--turn`: paths that a person changed at the end of the turn. The patch includes them only
    /// with `--by-hand`.
    by_hand: Vec<WorkspacePath>,
    files: Vec<DiffFileRow>,
    patch: Content,
}

/// A path that differs.
#[derive(Debug, Serialize)]
struct DiffFileRow {
    path: WorkspacePath,
    /// `added`, `changed`, `removed`.
    what: &'static str,
    old_kind: Option<EntryKind>,
    new_kind: Option<EntryKind>,
    /// Octal file mode, as for `chmod`.
    old_mode: Option<String>,
    new_mode: Option<String>,
    /// Null for files that are not text or that git cannot see.
    added: Option<u64>,
    removed: Option<u64>,
    /// Why the patch does not include this path.
    beyond_git: Option<&'static str>,
}

type PathLineCounts = BTreeMap<WorkspacePath, Option<LineCounts>>;

async fn count_lines(diff: &TreeDiff) -> CliResult<PathLineCounts> {
    Ok(diff.count_lines().await.fail_as(ExitKind::Failed)?.into_iter().collect())
}

const fn change_kind(diff: &PathDiff) -> &'static str {
    match (diff.old, diff.new) {
        (None, _) => "added",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "changed",
    }
}

impl DiffRow {
    pub(super) async fn from_diff(
        past: &RecordedRun,
        compared: &ComparedTrees,
        diff: &TreeDiff,
    ) -> CliResult<Self> {
        let lines = count_lines(diff).await?;
        let mode = |entry: Option<Entry>| {
            entry.filter(|entry| entry.kind != EntryKind::Symlink).map(|entry| format!("{:o}", entry.mode))
        };
        let files = diff.paths().iter().map(|path| {
            let counts = lines.get(&path.path).copied().flatten();
            let beyond = diff.patch_omissions().iter().find(|(beyond, _)| *beyond == path.path);
            DiffFileRow {
                path: path.path.clone(),
                what: change_kind(path),
                old_kind: path.old.map(|entry| entry.kind),
                new_kind: path.new.map(|entry| entry.kind),
                old_mode: mode(path.old),
                new_mode: mode(path.new),
                added: counts.map(|lines| lines.added),
                removed: counts.map(|lines| lines.removed),
                beyond_git: beyond.map(|(_, why)| why.as_str()),
            }
        });
        let patch = diff.to_patch().await.fail_as(ExitKind::Failed)?;
        Ok(Self {
            run: past.run,
            from: compared.from,
            to: compared.to,
            from_tree: compared.old.tree_hash().to_string(),
            to_tree: compared.new.tree_hash().to_string(),
            paths: diff.paths().iter().map(|path| path.path.clone()).collect(),
            by_hand: compared.by_hand.clone(),
            files: files.collect(),
            patch: Content::inline(&patch),
        })
    }
}

/// Prints the differing paths: sanitized, one per line, or exact and terminated by zero bytes.
pub(super) fn print_names(diff: &TreeDiff, null: bool) {
    for path in diff.paths() {
        if null {
            display::print_exact(&[path.path.as_bytes(), b"\0"].concat());
        } else {
            display::print_line(&display::sanitize_line(&path.path.to_string()));
        }
    }
}

/// Formats a line with counts and a bar for each path, and a line with totals.
pub(super) async fn format_stat(screen: OutputScreen, diff: &TreeDiff) -> CliResult<String> {
    let lines = count_lines(diff).await?;
    let most = lines.values().flatten().map(|lines| lines.added + lines.removed).max().unwrap_or(0);
    let scaled = |count: u64| match most {
        0..=BAR_COLUMNS_MAX => count,
        // Any change shows at least one sign.
        most => (count * BAR_COLUMNS_MAX / most).max(u64::from(count > 0)),
    };
    let bar = |sign: &str, count: u64| sign.repeat(usize::try_from(scaled(count)).unwrap_or(0));
    let (mut out, mut sum) = (String::new(), LineCounts::default());
    for path in diff.paths() {
        let name = display::sanitize_line(&path.path.to_string()).into_owned();
        let detail = match lines.get(&path.path) {
            Some(Some(lines)) if *lines != LineCounts::default() => {
                sum.added += lines.added;
                sum.removed += lines.removed;
                let plus = screen.paint(TextStyle::Good, &bar("+", lines.added));
                let minus = screen.paint(TextStyle::Bad, &bar("-", lines.removed));
                format!("{:>5} {plus}{minus}", lines.added + lines.removed)
            }
            Some(Some(_)) => "    0".to_owned(),
            Some(None) => format!("  bin {} -> {} bytes", entry_size(path.old), entry_size(path.new)),
            None => "    - not in the patch".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<7} {detail}  {name}", change_kind(path));
    }
    let count = diff.paths().len();
    let differ = if count == 1 { "path differs" } else { "paths differ" };
    Ok(format!("{out}{count} {differ}, {} lines added, {} removed", sum.added, sum.removed))
}

fn entry_size(entry: Option<Entry>) -> u64 {
    entry.map_or(0, |entry| entry.size)
}
