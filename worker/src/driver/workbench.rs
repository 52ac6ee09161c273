//! A workspace with its sandbox and tools, and what running calls and gates there leaves behind as events.
//!
//! The driver works here, and so does a replay that runs recorded calls again: what was recorded and what is
//! compared with it come about the same way.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use docket_schema::{
    content::{BlobRef, Content, WorkPath},
    ids::BlobHash,
    message::{CallId, ToolUse},
    run::{
        GateFinished, GateRequested, RunSettings, RunStarted, RunState, ToolFinished, ToolRequested,
        ToolStatus, Verdict,
    },
    tool::{RecoveryClass, ToolFacts},
};

use super::{
    journal::Outgoing,
    start::{SandboxRunner, StartError, sandbox, setup, tool_settings, workspace_options},
};
use crate::{
    bootstrap::SandboxChoice,
    tools::{self, TestRunnerConfig, ToolContext, ToolOutcome, ToolSettings},
    workspace::{Blobs, SnapshotError, Workspace, materialize},
};

/// See the module.
pub(crate) struct Workbench {
    pub(crate) workspace: Workspace,
    pub(super) root: cap_std::fs::Dir,
    pub(super) runner: SandboxRunner,
    pub(super) settings: ToolSettings,
    pub(super) tests: Option<TestRunnerConfig>,
}

/// Where a workbench is made, beside a run's own.
pub(crate) struct Site<'a> {
    /// A folder that is empty or not there.
    pub(crate) folder: &'a Path,
    /// Folder for packs of bases.
    pub(crate) cache: &'a Path,
    pub(crate) sandbox: SandboxChoice,
}

impl Workbench {
    /// A workbench for what `pins` began, with the walls that a run gets here. `tests` is the task's own test
    /// line.
    ///
    /// # Errors
    /// [`StartError`]: the workspace cannot be made, or the walls do not stand.
    pub(crate) async fn make<S: Blobs>(
        site: &Site<'_>,
        pins: &RunStarted,
        tests: Option<String>,
        blobs: &S,
    ) -> Result<Self, StartError> {
        let options = workspace_options(site.cache);
        let workspace = materialize(site.folder, &pins.base, blobs, &options)
            .await
            .map_err(|error| StartError::environment(&error))?;
        let runner = SandboxRunner(sandbox(site.sandbox, None, &workspace).await?);
        let root = cap_std::fs::Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority())
            .map_err(|error| StartError::environment(&error))?;
        let tests = tests.map(|command| TestRunnerConfig { command });
        Ok(Self { workspace, root, runner, settings: tool_settings(&pins.settings), tests })
    }

    /// Runs one setup line.
    ///
    /// # Errors
    /// [`StartError::Environment`]: it failed.
    pub(crate) async fn set_up(&self, line: &str, settings: &RunSettings) -> Result<(), StartError> {
        setup(&[line.to_owned()], settings, &self.runner).await.map(drop)
    }

    /// Runs the open tool calls: neighbouring readers together, changers in order; then a snapshot
    /// if anything may have changed.
    pub(crate) async fn run_tools(&mut self, state: &RunState) -> Result<Outgoing, SnapshotError> {
        let mut batch = Batch::new(state);
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let readers = calls.iter().take_while(|(open, _)| open.class == RecoveryClass::Reads).count();
            if readers > 1 {
                let (together, rest) = calls.split_at(readers);
                let read_set = batch.read_set.clone();
                let outcomes = futures_util::future::join_all(
                    together.iter().map(|(open, tool)| self.run_one(open, tool, &read_set)),
                );
                for ((open, _), done) in together.iter().zip(outcomes.await) {
                    batch.finished(open, done);
                }
                calls = rest;
            } else {
                let done = self.run_one(&first.0, &first.1, &batch.read_set).await;
                batch.finished(&first.0, done);
                calls = rest;
            }
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    /// Runs calls again after a crash, as their recovery classes allow: the workspace stands at the
    /// last snapshot. Whatever may have reached beyond it is not run again; the model is told.
    pub(super) async fn run_tools_again(&mut self, state: &RunState) -> Result<Outgoing, SnapshotError> {
        if super::turn::unknown_after_crash(state).is_empty() {
            return self.run_tools(state).await;
        }
        let mut batch = Batch::new(state);
        for (open, _) in &state.open_tools {
            batch.unknown(open);
        }
        Ok(batch.out)
    }

    async fn run_one(
        &self,
        open: &ToolRequested,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
    ) -> Done {
        let started = Instant::now();
        let outcome = match &open.policy {
            Verdict::Allow { .. } => self.execute(tool, read_set, self.tests.as_ref()).await,
            Verdict::Deny { rule, reason } => {
                let text = format!("Refused by policy ({rule}): {reason}");
                return Done::refused(refusal(&tool.name, text), started);
            }
            Verdict::Ask { rule, question } => {
                let text = format!("A person has to allow this first ({rule}): {question}");
                return Done::refused(refusal(&tool.name, text), started);
            }
        };
        let status = if outcome.is_error { ToolStatus::Error } else { ToolStatus::Ok };
        Done { status, outcome, duration: started.elapsed() }
    }

    async fn execute(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
        tests: Option<&TestRunnerConfig>,
    ) -> ToolOutcome {
        if let Some(text) = &tool.malformed {
            let shown: String = text.chars().take(400).collect();
            let text = format!(
                "The arguments of {} are not a JSON object. They were: {shown}\nCall it again with one JSON object.",
                tool.name
            );
            return refusal(&tool.name, text);
        }
        let context =
            ToolContext { root: &self.root, runner: &self.runner, read_set, settings: &self.settings, tests };
        tools::execute(context, &tool.name, &tool.args).await
    }

    async fn snapshot(&mut self, state: &RunState, batch: &mut Batch) -> Result<(), SnapshotError> {
        let delta = if batch.walk {
            self.workspace.snapshot_walk()?
        } else if batch.changed.is_empty() {
            return Ok(());
        } else {
            self.workspace.snapshot_paths(&batch.changed)?
        };
        if delta.is_empty() {
            return Ok(());
        }
        batch.out.snapshot(state.turn, delta);
        Ok(())
    }

    /// Runs the open gates in order, then a snapshot: a gate may leave files behind.
    pub(crate) async fn run_gates(&mut self, state: &RunState) -> Result<Outgoing, SnapshotError> {
        let mut batch = Batch::new(state);
        batch.walk = true;
        for open in &state.open_gates {
            let started = Instant::now();
            let outcome = self.run_gate(open).await;
            batch.gate_finished(open, outcome, started.elapsed());
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    async fn run_gate(&self, open: &GateRequested) -> ToolOutcome {
        let (tool, tests) = tool_of_gate(open);
        self.execute(&tool, &BTreeMap::new(), tests.as_ref()).await
    }
}

/// The call that a gate stands for. It runs the line that was pinned at the start, whatever the
/// workspace looks like by now: a model must not choose its own judge.
fn tool_of_gate(open: &GateRequested) -> (ToolUse, Option<TestRunnerConfig>) {
    let command = open.gate.command.clone();
    let (name, args, tests) = if open.gate.name == "tests" {
        ("run_tests", serde_json::json!({}), Some(TestRunnerConfig { command }))
    } else {
        ("run_command", serde_json::json!({ "command": command }), None)
    };
    (ToolUse { call: open.call.clone(), name: name.to_owned(), args, malformed: None }, tests)
}

/// A tool error that the runtime says, not the tool.
fn refusal(tool: &str, text: String) -> ToolOutcome {
    let signature = tools::error_signature(&format!("{tool}: {}", text.lines().next().unwrap_or_default()));
    let facts = ToolFacts { error_signature: Some(signature), ..ToolFacts::default() };
    ToolOutcome { content: text.into_bytes(), is_error: true, full: None, facts }
}

struct Done {
    status: ToolStatus,
    outcome: ToolOutcome,
    duration: Duration,
}

impl Done {
    fn refused(outcome: ToolOutcome, started: Instant) -> Self {
        Self { status: ToolStatus::Refused, outcome, duration: started.elapsed() }
    }
}

/// Results of one batch as they come.
struct Batch {
    turn: docket_schema::ids::Turn,
    out: Outgoing,
    read_set: BTreeMap<WorkPath, BlobHash>,
    changed: Vec<WorkPath>,
    walk: bool,
}

impl Batch {
    fn new(state: &RunState) -> Self {
        Self {
            turn: state.turn,
            out: Outgoing::default(),
            read_set: state.read_set.clone(),
            changed: Vec::new(),
            walk: false,
        }
    }

    fn finished(&mut self, open: &ToolRequested, done: Done) {
        let Done { status, outcome, duration } = done;
        for seen in &outcome.facts.read {
            self.read_set.insert(seen.path.clone(), seen.hash);
        }
        self.changed.extend(outcome.facts.changed.iter().cloned());
        self.walk |= outcome.facts.may_have_changed_tree;
        let (content, full) = self.placed(outcome.content, outcome.full);
        let event = ToolFinished {
            call: open.call.clone(),
            status,
            content,
            full,
            facts: outcome.facts,
            duration_ms: ms(duration),
        };
        self.out.push(self.turn, event);
    }

    /// A result whose id and bytes follow from the log alone, so that a resumed request is the same
    /// to the byte on any machine.
    fn unknown(&mut self, open: &ToolRequested) {
        let text = format!(
            "The worker crashed while `{}` ran; whether it took effect is unknown, and it is not run again by \
             itself. Look at the state of things before you decide whether to repeat it.",
            open.tool
        );
        let event = ToolFinished {
            call: open.call.clone(),
            status: ToolStatus::Unknown,
            content: text.into(),
            full: None,
            facts: ToolFacts::default(),
            duration_ms: 0,
        };
        self.out.push(self.turn, event);
    }

    fn gate_finished(&mut self, open: &GateRequested, outcome: ToolOutcome, duration: Duration) {
        let passed = !outcome.is_error && outcome.facts.exit == Some(0) && !outcome.facts.timed_out;
        let (content, full) = self.placed(outcome.content, outcome.full);
        let call: CallId = open.call.clone();
        let facts = outcome.facts;
        self.out
            .push(self.turn, GateFinished { call, passed, content, full, facts, duration_ms: ms(duration) });
    }

    fn placed(&mut self, content: Vec<u8>, full: Option<Vec<u8>>) -> (Content, Option<BlobRef>) {
        let (content, large) = Content::place(content);
        if let (Some(blob), Some(bytes)) = (content.blob(), large) {
            self.out.blob(blob, bytes);
        }
        let full = full.map(|bytes| {
            let blob = BlobRef::of(&bytes);
            self.out.blob(blob, bytes);
            blob
        });
        (content, full)
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::{DecisionHash, Turn},
        run::GateSpec,
    };

    use super::*;

    #[test]
    fn a_gate_runs_the_line_that_was_pinned() {
        for (name, tool) in [("tests", "run_tests"), ("requires", "run_command")] {
            let gate = GateSpec { name: name.to_owned(), command: "make test".to_owned() };
            let open =
                GateRequested { call: CallId::gate(Turn(3), 0), gate, decision: DecisionHash([0; 32]) };
            let (used, tests) = tool_of_gate(&open);
            let line = tests.map(|tests| tests.command);
            let line = line.or_else(|| used.args["command"].as_str().map(str::to_owned));
            assert_eq!((used.name.as_str(), line.as_deref()), (tool, Some("make test")));
        }
    }
}
