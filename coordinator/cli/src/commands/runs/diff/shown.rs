//! A difference in other forms than a patch: JSON, counts of lines, names.

use std::{collections::BTreeMap, fmt::Write as _};

use docket_schema::{
    content::{Content, WorkPath},
    ids::RunId,
    snapshot::{Entry, EntryKind},
};
use docket_worker::workspace::{LinesChanged, PathDiff, TreeDiff};
use serde::Serialize;

use super::Compared;
use crate::{
    history::past::Past,
    output::{
        display::{self, Screen, Style},
        fail::{Exit, FailWith as _, Outcome},
    },
};

/// Columns of the bars of plus and minus at most.
const BAR_COLUMNS_MAX: u64 = 40;

/// A difference as `--json` shows it: stable.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    run: RunId,
    /// The turn after which the old tree stood; null for the base.
    from: Option<u32>,
    /// The turn after which the new tree stood.
    to: u32,
    from_tree: String,
    to_tree: String,
    paths: Vec<WorkPath>,
    /// With `--turn`: what a person changed by hand where the turn ended. The patch holds it with `--by-hand`,
    /// and only then.
    by_hand: Vec<WorkPath>,
    files: Vec<FileRow>,
    patch: Content,
}

/// A path that differs.
#[derive(Debug, Serialize)]
struct FileRow {
    path: WorkPath,
    /// `added`, `changed`, `removed`.
    what: &'static str,
    old_kind: Option<EntryKind>,
    new_kind: Option<EntryKind>,
    /// Octal, as `chmod` takes it.
    old_mode: Option<String>,
    new_mode: Option<String>,
    /// Null for what is not text, or what git does not see.
    added: Option<u64>,
    removed: Option<u64>,
    /// Why the patch does not carry it, where it does not.
    beyond_git: Option<&'static str>,
}

type Counted = BTreeMap<WorkPath, Option<LinesChanged>>;

async fn counted(diff: &TreeDiff) -> Outcome<Counted> {
    Ok(diff.lines().await.fail_as(Exit::Failed)?.into_iter().collect())
}

const fn what(diff: &PathDiff) -> &'static str {
    match (diff.old, diff.new) {
        (None, _) => "added",
        (Some(_), None) => "removed",
        (Some(_), Some(_)) => "changed",
    }
}

impl Row {
    pub(super) async fn of(past: &Past, compared: &Compared, diff: &TreeDiff) -> Outcome<Self> {
        let lines = counted(diff).await?;
        let mode = |entry: Option<Entry>| {
            entry.filter(|entry| entry.kind != EntryKind::Symlink).map(|entry| format!("{:o}", entry.mode))
        };
        let files = diff.paths().iter().map(|path| {
            let counts = lines.get(&path.path).copied().flatten();
            let beyond = diff.beyond_git().iter().find(|(beyond, _)| *beyond == path.path);
            FileRow {
                path: path.path.clone(),
                what: what(path),
                old_kind: path.old.map(|entry| entry.kind),
                new_kind: path.new.map(|entry| entry.kind),
                old_mode: mode(path.old),
                new_mode: mode(path.new),
                added: counts.map(|lines| lines.added),
                removed: counts.map(|lines| lines.removed),
                beyond_git: beyond.map(|(_, why)| why.as_str()),
            }
        });
        let patch = diff.patch().await.fail_as(Exit::Failed)?;
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

/// The differing paths: one harmless line each, or exact and ended by zero bytes.
pub(super) fn names(diff: &TreeDiff, null: bool) {
    for path in diff.paths() {
        if null {
            display::say_exact(&[path.path.as_bytes(), b"\0"].concat());
        } else {
            display::say(&display::line(&path.path.to_string()));
        }
    }
}

/// A line for each path with its counts and a bar, and a line of sums.
pub(super) async fn stat(screen: Screen, diff: &TreeDiff) -> Outcome<String> {
    let lines = counted(diff).await?;
    let most = lines.values().flatten().map(|lines| lines.added + lines.removed).max().unwrap_or(0);
    let scaled = |count: u64| match most {
        0..=BAR_COLUMNS_MAX => count,
        // What changed at all shows at least one sign.
        most => (count * BAR_COLUMNS_MAX / most).max(u64::from(count > 0)),
    };
    let bar = |sign: &str, count: u64| sign.repeat(usize::try_from(scaled(count)).unwrap_or(0));
    let (mut out, mut sum) = (String::new(), LinesChanged::default());
    for path in diff.paths() {
        let name = display::line(&path.path.to_string()).into_owned();
        let detail = match lines.get(&path.path) {
            Some(Some(lines)) if *lines != LinesChanged::default() => {
                sum.added += lines.added;
                sum.removed += lines.removed;
                let plus = screen.paint(Style::Good, &bar("+", lines.added));
                let minus = screen.paint(Style::Bad, &bar("-", lines.removed));
                format!("{:>5} {plus}{minus}", lines.added + lines.removed)
            }
            Some(Some(_)) => "    0".to_owned(),
            Some(None) => format!("  bin {} -> {} bytes", size(path.old), size(path.new)),
            None => "    - not in a patch".to_owned(),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{:<7} {detail}  {name}", what(path));
    }
    let count = diff.paths().len();
    let differ = if count == 1 { "path differs" } else { "paths differ" };
    Ok(format!("{out}{count} {differ}, {} lines added, {} removed", sum.added, sum.removed))
}

fn size(entry: Option<Entry>) -> u64 {
    entry.map_or(0, |entry| entry.size)
}
