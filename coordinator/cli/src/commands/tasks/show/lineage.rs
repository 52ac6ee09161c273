//! The tree of runs that share history, as `docket show` draws it and as `--json` says it.

use docket_schema::{
    ids::{RunId, TaskId},
    run::ForkWhy,
    wire::{LINEAGE_VIEW_RUNS_MAX, LineageRun, LineageView},
};
use docket_worker::client::Client;
use serde::Serialize;

use crate::{
    context::Context,
    output::{
        display::{self, Style, line},
        fail::Outcome,
    },
};

/// A run of the tree as `--json` shows it: flat, and stable; parents stand before their children.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    run: RunId,
    task: TaskId,
    parent: Option<RunId>,
    why: Option<ForkWhy>,
    fork_turn: Option<u32>,
    status: String,
    turn: u32,
    model: Option<String>,
    engine: Option<String>,
}

impl Row {
    fn of(one: &LineageRun) -> Self {
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

/// The trees that `runs` belong to, each once.
pub(super) async fn of(client: &Client, runs: &[RunId]) -> Outcome<Vec<LineageView>> {
    let mut trees: Vec<LineageView> = Vec::new();
    for run in runs {
        let known = trees.iter().flat_map(|tree| &tree.runs).any(|one| one.run.id == *run);
        if !known {
            trees.push(client.lineage(*run).await?);
        }
    }
    Ok(trees)
}

/// All runs of the trees, for `--json`.
pub(super) fn rows(trees: &[LineageView]) -> Vec<Row> {
    trees.iter().flat_map(|tree| &tree.runs).map(Row::of).collect()
}

/// Draws the trees in which more than one run stands. `own` are the runs that were asked for.
pub(super) fn say(cx: &Context, trees: &[LineageView], own: &[RunId]) {
    for tree in trees.iter().filter(|tree| tree.runs.len() > 1) {
        display::say("");
        display::say(&cx.screen.paint(Style::Bold, "lineage"));
        for (one, branch) in tree.runs.iter().zip(branches(&tree.runs)) {
            let mark = if own.contains(&one.run.id) { "*" } else { " " };
            display::say(&format!("{mark} {branch}{}", words(cx, one)));
        }
        if tree.more {
            display::say(&format!("  only the first {LINEAGE_VIEW_RUNS_MAX} are shown"));
        }
    }
}

fn words(cx: &Context, one: &LineageRun) -> String {
    let from = match (one.why, one.fork_turn) {
        (Some(why), Some(turn)) => {
            let why = match why {
                ForkWhy::Resume => "resumed",
                ForkWhy::Fork => "forked",
                ForkWhy::Rejected => "rejected",
            };
            format!(", {why} at turn {turn}")
        }
        (Some(_) | None, _) => String::new(),
    };
    let style = match one.run.status.as_str() {
        "succeeded" => Style::Good,
        "failed" => Style::Bad,
        "running" | "waiting" | "blocked" | "paused" => Style::Warn,
        _ => Style::Dim,
    };
    let model = one.model.as_ref().map_or_else(String::new, |model| format!(", {model}"));
    format!(
        "{}{from}, {} after turn {}{}, task {}",
        one.run.id.short(),
        cx.screen.paint(style, &one.run.status),
        one.run.turn,
        line(&model),
        one.run.task.short()
    )
}

/// What stands before each run: lines from its parent. Runs come depth first.
fn branches(runs: &[LineageRun]) -> Vec<String> {
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
        event::Head,
        ids::Seq,
        wire::{ParentRef, RunView},
    };

    use super::*;

    fn one(id: u128, parent: u128) -> LineageRun {
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
    fn the_tree_is_drawn_with_its_branches() {
        let runs = [one(1, 0), one(2, 1), one(3, 2), one(4, 2), one(5, 1), one(6, 5)];
        let drawn = branches(&runs);
        assert_eq!(drawn, ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ ", "   └─ "]);
    }
}
