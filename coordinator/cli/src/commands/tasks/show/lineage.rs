//! The tree of runs that share history, as drawn by `docket show` and listed in `--json`.

use docket_schema::{
    api::{LINEAGE_VIEW_RUNS_MAX, LineageRun, LineageView},
    ids::{RunId, TaskId},
    run::ForkReason,
};
use docket_worker::client::CoordinatorClient;
use serde::Serialize;

use crate::{
    context::CliContext,
    output::{
        display::{self, TextStyle, sanitize_line},
        error::CliResult,
    },
};

/// A run of the tree in the output of `--json`; flat and stable. Parents come before their
/// children.
#[derive(Debug, Serialize)]
pub(super) struct LineageRow {
    run: RunId,
    task: TaskId,
    parent: Option<RunId>,
    why: Option<ForkReason>,
    fork_turn: Option<u32>,
    status: String,
    turn: u32,
    model: Option<String>,
    engine: Option<String>,
}

impl LineageRow {
    fn from_run(one: &LineageRun) -> Self {
        Self {
            run: one.run.id,
            task: one.run.task,
            parent: one.run.parent.map(|parent| parent.run),
            why: one.why,
            fork_turn: one.fork_turn,
            status: one.run.status.clone(),
            turn: one.run.turn,
            model: one.model.as_ref().map(ToString::to_string),
            engine: one.engine.as_ref().map(ToString::to_string),
        }
    }
}

/// Returns the trees that `runs` belong to, each once.
pub(super) async fn fetch_trees(client: &CoordinatorClient, runs: &[RunId]) -> CliResult<Vec<LineageView>> {
    let mut trees: Vec<LineageView> = Vec::new();
    for run in runs {
        let known = trees.iter().flat_map(|tree| &tree.runs).any(|one| one.run.id == *run);
        if !known {
            trees.push(client.get_lineage(*run).await?);
        }
    }
    Ok(trees)
}

/// Returns all runs of the trees, for `--json`.
pub(super) fn lineage_rows(trees: &[LineageView]) -> Vec<LineageRow> {
    trees.iter().flat_map(|tree| &tree.runs).map(LineageRow::from_run).collect()
}

/// Draws the trees that have more than one run. `own` are the requested runs.
pub(super) fn print_trees(cx: &CliContext, trees: &[LineageView], own: &[RunId]) {
    for tree in trees.iter().filter(|tree| tree.runs.len() > 1) {
        display::print_line("");
        display::print_line(&cx.screen.paint(TextStyle::Bold, "lineage"));
        for (one, branch) in tree.runs.iter().zip(branch_prefixes(&tree.runs)) {
            let mark = if own.contains(&one.run.id) { "*" } else { " " };
            display::print_line(&format!("{mark} {branch}{}", describe_run(cx, one)));
        }
        if tree.more {
            display::print_line(&format!("  only the first {LINEAGE_VIEW_RUNS_MAX} are shown"));
        }
    }
}

fn describe_run(cx: &CliContext, one: &LineageRun) -> String {
    let from = match (one.why, one.fork_turn) {
        (Some(why), Some(turn)) => {
            let why = match why {
                ForkReason::Resume => "resumed",
                ForkReason::Fork => "forked",
                ForkReason::Rejected => "rejected",
            };
            format!(", {why} at turn {turn}")
        }
        (Some(_) | None, _) => String::new(),
    };
    let style = match one.run.status.as_str() {
        "succeeded" => TextStyle::Good,
        "failed" => TextStyle::Bad,
        "running" | "waiting" | "blocked" | "paused" => TextStyle::Warn,
        _ => TextStyle::Dim,
    };
    let model = one.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    format!(
        "{}{from}, {} after turn {}{}, task {}",
        one.run.id.short(),
        cx.screen.paint(style, &one.run.status),
        one.run.turn,
        sanitize_line(&model),
        one.run.task.short()
    )
}

/// Returns the tree prefix of each run. Runs come depth first.
fn branch_prefixes(runs: &[LineageRun]) -> Vec<String> {
    let parent = |at: usize| runs[at].run.parent.map(|parent| parent.run);
    let is_last = |at: usize| !(at + 1..runs.len()).any(|later| parent(later) == parent(at));
    let mut stems: std::collections::HashMap<RunId, String> = std::collections::HashMap::new();
    (0..runs.len())
        .map(|at| {
            let Some(stem) = parent(at).and_then(|parent| stems.get(&parent).cloned()) else {
                stems.insert(runs[at].run.id, String::new());
                return String::new();
            };
            let (turn, below) = if is_last(at) { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            stems.insert(runs[at].run.id, format!("{stem}{below}"));
            format!("{stem}{turn}")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        api::{ParentRef, RunView},
        event::Head,
        ids::Seq,
    };

    use super::*;

    fn lineage_run(id: u128, parent: u128) -> LineageRun {
        let run = |id| RunId(uuid::Uuid::from_u128(id));
        LineageRun {
            run: RunView {
                id: run(id),
                task: TaskId(uuid::Uuid::from_u128(99)),
                head: Head::EMPTY,
                parent: (parent > 0).then(|| ParentRef { run: run(parent), seq: Seq(1) }),
                status: "succeeded".to_owned(),
                turn: 3,
                started_at: None,
                ended_at: None,
            },
            why: None,
            fork_turn: None,
            model: None,
            engine: None,
        }
    }

    #[test]
    fn lineage_tree_has_branch_prefixes() {
        let runs = [
            lineage_run(1, 0),
            lineage_run(2, 1),
            lineage_run(3, 2),
            lineage_run(4, 2),
            lineage_run(5, 1),
            lineage_run(6, 5),
        ];
        let drawn = branch_prefixes(&runs);
        assert_eq!(drawn, ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ "]);
    }
}
