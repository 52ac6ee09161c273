//! Walks through a log, reruns its calls, and compares the results. [`super::rerun`] says what counts and why.

use std::collections::BTreeMap;

use docket_schema::{
    content::WorkspacePath,
    event::{Envelope, TypedEvent as _},
    history::FoldedRun,
    message::{CallId, ToolUse},
    run::{
        CorruptLog, GateFinished, RunEvent, RunStage, RunState, SetupFinished, SnapshotTaken, ToolFinished,
        ToolStatus,
    },
    snapshot::{OmittedPath, PathChange},
    tool::RecoveryClass,
    tool::ToolFacts,
};
use serde_json::{Value, json};

use super::{
    divergence::{FieldDifference, json_differences},
    rerun::{
        CallRerun, CallRerunStatus, GateRerun, RerunError, RerunOptions, RerunProgress, RerunTotals,
        TreeRerun, TurnRerun,
    },
};
use crate::{
    bootstrap::SandboxChoice,
    engine,
    run::{ExecutorConfig, PendingAppend, StartError, ToolExecutor},
    tools,
    workspace::{BlobReader, RestoreTarget, restore},
};

/// Differing paths named per tree; a build can leave thousands.
const PATHS_MAX: usize = 20;

/// Reruns the recorded calls of `history` and reports each turn when it is done.
///
/// # Errors
/// [`RerunError`]: calls could not be rerun. A difference is not an error.
pub async fn rerun_calls<S: BlobReader>(
    history: &FoldedRun,
    options: &RerunOptions,
    blobs: &S,
    told: &mut (dyn FnMut(RerunProgress<'_>) + Send),
) -> Result<RerunTotals, RerunError> {
    if options.sandbox == SandboxChoice::None {
        return Err(RerunError::NoSandbox);
    }
    let mut walk = RerunWalk {
        options,
        blobs,
        report: told,
        results: recorded_results(history.events())?,
        executor: None,
        state: RunState::default(),
        batch: None,
        is_stale: false,
        turn: TurnRerun::default(),
        totals: RerunTotals::default(),
    };
    let mut events = history.events().iter().peekable();
    while let Some(envelope) = events.next() {
        let event = decode_event(envelope)?;
        walk.apply_event(envelope, event, events.peek().map(|next| next.kind.as_str())).await?;
    }
    walk.end_turn().await?;
    Ok(walk.totals)
}

fn decode_event(envelope: &Envelope) -> Result<RunEvent, CorruptLog> {
    RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
        .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })
}

/// Returns how each call ended: only calls with a result can be compared. Gates are treated like tools.
fn recorded_results(events: &[Envelope]) -> Result<BTreeMap<CallId, ToolStatus>, CorruptLog> {
    let mut results = BTreeMap::new();
    for envelope in events.iter().filter(|event| event.kind.ends_with("Finished")) {
        let event = decode_event(envelope)?;
        if let RunEvent::ToolFinished(e) = event {
            results.insert(e.call, e.status);
        } else if let RunEvent::GateFinished(e) = event {
            results.insert(e.call, ToolStatus::Ok);
        }
    }
    Ok(results)
}

struct RerunWalk<'a, S> {
    options: &'a RerunOptions,
    blobs: &'a S,
    report: &'a mut (dyn FnMut(RerunProgress<'_>) + Send),
    results: BTreeMap<CallId, ToolStatus>,
    /// `None` before the run's start.
    executor: Option<ToolExecutor>,
    /// The state in the log.
    state: RunState,
    /// Calls that were rerun but not compared yet.
    batch: Option<RerunBatch>,
    /// The workspace differs from the log.
    is_stale: bool,
    turn: TurnRerun,
    totals: RerunTotals,
}

/// Rerun calls, until their recorded results and snapshot are folded.
#[derive(Default)]
struct RerunBatch {
    results: BTreeMap<CallId, RunEvent>,
    /// Setup lines do not take their own snapshot.
    needs_snapshot: bool,
    git_changes: Vec<PathChange>,
    recorded_git_changes: Vec<PathChange>,
}

impl<S: BlobReader> RerunWalk<'_, S> {
    async fn apply_event(
        &mut self,
        envelope: &Envelope,
        event: RunEvent,
        next: Option<&str>,
    ) -> Result<(), RerunError> {
        let of_a_batch = matches!(
            event,
            RunEvent::ToolFinished(_)
                | RunEvent::GateFinished(_)
                | RunEvent::SetupFinished(_)
                | RunEvent::SnapshotTaken(_)
        );
        if !of_a_batch && self.batch.as_ref().is_some_and(|batch| batch.results.is_empty()) {
            self.compare_tree()?;
        }
        match &event {
            RunEvent::RunStarted(pins) => {
                let RerunOptions { folder, cache, sandbox, .. } = self.options;
                let site = ExecutorConfig { folder, cache, sandbox: *sandbox };
                let tests = self.options.tests.clone();
                self.executor = Some(ToolExecutor::materialize(&site, pins, tests, self.blobs).await?);
            }
            RunEvent::ModelRequested(_) if envelope.turn > self.state.turn => {
                self.end_turn().await?;
                self.turn.turn = envelope.turn;
            }
            RunEvent::SetupFinished(line) => self.rerun_setup(line).await?,
            RunEvent::ToolFinished(result) => self.compare_tool(result),
            RunEvent::GateFinished(result) => self.compare_gate(result),
            RunEvent::SnapshotTaken(taken) => self.collect_recorded_git_changes(taken),
            _ => {}
        }
        // An intent is executed once, when the last one of its batch is announced.
        let announced = matches!(event, RunEvent::ToolRequested(_) | RunEvent::GateRequested(_));
        let last = announced && next != Some(event.kind());
        self.state.apply(envelope.into(), event)?;
        match &self.state.stage {
            RunStage::Tools if last => self.rerun_tools().await,
            RunStage::Gates if last => self.rerun_gates().await,
            RunStage::Tools
            | RunStage::Gates
            | RunStage::Unstarted
            | RunStage::Deciding
            | RunStage::Model(_)
            | RunStage::Paused
            | RunStage::Blocked
            | RunStage::Ended(_) => Ok(()),
        }
    }

    fn is_selected_turn(&self) -> bool {
        self.options.turns.contains(&self.state.turn)
    }

    async fn rerun_tools(&mut self) -> Result<(), RerunError> {
        let open = &self.state.open_tools;
        let repeatable =
            |call: &CallId| self.results.get(call).is_some_and(|status| *status != ToolStatus::Unknown);
        let whole = !open.is_empty()
            && open.iter().all(|(call, _)| call.class != RecoveryClass::External && repeatable(&call.call));
        // Children are verified separately; here their replies are taken from the log.
        let pins = self.state.pins.as_deref();
        let delegates = |tool: &ToolUse| pins.is_some_and(|pins| engine::is_delegation(pins, tool));
        if !whole || open.iter().any(|(_, tool)| delegates(tool)) || !self.is_selected_turn() {
            self.is_stale = true;
            return Ok(());
        }
        let tools = open.iter().map(|(call, _)| call.tool.as_str()).collect();
        (self.report)(RerunProgress::Runs { turn: self.state.turn, tools });
        self.restore_recorded_tree().await?;
        let Some(bench) = &mut self.executor else { return Ok(()) };
        self.batch = Some(RerunBatch::from_pending(bench.run_tools(&self.state, self.blobs).await?));
        Ok(())
    }

    async fn rerun_gates(&mut self) -> Result<(), RerunError> {
        let open = &self.state.open_gates;
        let whole = open.iter().all(|gate| self.results.contains_key(&gate.call));
        if self.options.gates == GateRerun::Skip || !whole || !self.is_selected_turn() {
            self.is_stale = true;
            return Ok(());
        }
        let tools = open.iter().map(|gate| gate.gate.name.as_str()).collect();
        (self.report)(RerunProgress::Runs { turn: self.state.turn, tools });
        self.restore_recorded_tree().await?;
        let Some(bench) = &mut self.executor else { return Ok(()) };
        self.batch = Some(RerunBatch::from_pending(bench.run_gates(&self.state).await?));
        Ok(())
    }

    /// Runs setup lines only where they first ran. When a workspace was recreated later, they ran before the recorded
    /// tree was restored.
    async fn rerun_setup(&mut self, line: &SetupFinished) -> Result<(), RerunError> {
        let first = !self.state.is_set_up || self.batch.as_ref().is_some_and(|batch| batch.needs_snapshot);
        let (Some(bench), Some(pins), true) = (&self.executor, &self.state.pins, first) else {
            return Ok(());
        };
        (self.report)(RerunProgress::Runs { turn: self.state.turn, tools: vec![&line.command] });
        let differs = match bench.run_setup_line(&line.command, &pins.settings).await {
            Ok(()) => Vec::new(),
            Err(StartError::Environment(said) | StartError::CommandMissing(said)) => {
                let (recorded, derived) = (Some(json!(line.exit)), Some(said.into()));
                vec![FieldDifference { field: "/exit".to_owned(), recorded, derived }]
            }
            Err(other) => return Err(other.into()),
        };
        self.batch.get_or_insert_default().needs_snapshot = true;
        let (tool, ran) = (line.command.clone(), CallRerunStatus::Again);
        self.turn.calls.push(CallRerun { call: None, tool, ran, differs, content_differs: false });
        Ok(())
    }

    fn compare_tool(&mut self, recorded: &ToolFinished) {
        let open = self.state.open_tools.iter().find(|(open, _)| open.call == recorded.call);
        let Some((open, _)) = open else { return };
        let again = self.batch.as_mut().and_then(|batch| batch.results.remove(&recorded.call));
        let call = match again {
            Some(RunEvent::ToolFinished(again)) if !tools::uses_external_state(&open.tool) => CallRerun {
                call: Some(recorded.call.clone()),
                tool: open.tool.clone(),
                ran: CallRerunStatus::Again,
                differs: json_differences(&comparable_tool_result(recorded), &comparable_tool_result(&again)),
                content_differs: recorded.content != again.content || recorded.full != again.full,
            },
            Some(_) | None => CallRerun {
                call: Some(recorded.call.clone()),
                tool: open.tool.clone(),
                ran: match (open.class, recorded.status) {
                    (_, ToolStatus::Unknown) => CallRerunStatus::Unknown,
                    (RecoveryClass::External, _) => CallRerunStatus::External,
                    _ if recorded.facts.child.is_some() || open.tool == tools::DELEGATE => {
                        CallRerunStatus::External
                    }
                    _ if tools::uses_external_state(&open.tool) => CallRerunStatus::External,
                    _ => CallRerunStatus::Unknown,
                },
                differs: Vec::new(),
                content_differs: false,
            },
        };
        self.turn.calls.push(call);
    }

    fn compare_gate(&mut self, recorded: &GateFinished) {
        let open = self.state.open_gates.iter().find(|open| open.call == recorded.call);
        let Some(open) = open else { return };
        let again = self.batch.as_mut().and_then(|batch| batch.results.remove(&recorded.call));
        let (ran, differs, content_differs) = match again {
            Some(RunEvent::GateFinished(again)) => {
                let differs =
                    json_differences(&comparable_gate_result(recorded), &comparable_gate_result(&again));
                (
                    CallRerunStatus::Again,
                    differs,
                    recorded.content != again.content || recorded.full != again.full,
                )
            }
            Some(_) | None => (CallRerunStatus::Skipped, Vec::new(), false),
        };
        let tool = open.gate.name.clone();
        self.turn.calls.push(CallRerun {
            call: Some(recorded.call.clone()),
            tool,
            ran,
            differs,
            content_differs,
        });
    }

    fn collect_recorded_git_changes(&mut self, taken: &SnapshotTaken) {
        match &mut self.batch {
            Some(batch) => batch.recorded_git_changes.extend(taken.git_changes.iter().cloned()),
            None => self.is_stale = true,
        }
    }

    /// Compares the tree after a batch, once its results and snapshot are folded.
    fn compare_tree(&mut self) -> Result<(), RerunError> {
        let (Some(batch), Some(bench)) = (self.batch.take(), &mut self.executor) else { return Ok(()) };
        let mut git = batch.git_changes;
        if batch.needs_snapshot {
            git = bench.workspace.snapshot_walk()?.git_changes;
        }
        if git != batch.recorded_git_changes {
            self.turn.git_differs = true;
            self.is_stale = true;
        }
        let again = bench.workspace.tree_hash();
        let Some(recorded) = self.state.tree.filter(|recorded| *recorded != again) else { return Ok(()) };
        self.is_stale = true;
        let paths = differing_paths(bench, &self.state);
        self.turn.trees.push(TreeRerun { recorded, again, paths });
        Ok(())
    }

    /// Restores the recorded tree if the workspace differs from it.
    async fn restore_recorded_tree(&mut self) -> Result<(), RerunError> {
        let (Some(bench), Some(tree), true) = (&mut self.executor, self.state.tree, self.is_stale) else {
            return Ok(());
        };
        let state = &self.state;
        let left_out = state.left_out.iter().map(|(path, why)| OmittedPath { path: path.clone(), why: *why });
        let left_out: Vec<OmittedPath> = left_out.collect();
        let (overlay, git_overlay) = (&state.overlay, &state.git_overlay);
        let target = RestoreTarget { overlay, git_overlay, left_out: &left_out, tree };
        restore(&mut bench.workspace, &target, self.blobs).await?;
        self.is_stale = false;
        Ok(())
    }

    async fn end_turn(&mut self) -> Result<(), RerunError> {
        if self.batch.as_ref().is_some_and(|batch| batch.results.is_empty()) {
            self.compare_tree()?;
        }
        let mut turn = std::mem::take(&mut self.turn);
        if !self.is_selected_turn() {
            return Ok(());
        }
        turn.tree = self.state.tree;
        turn.ok = turn.trees.is_empty() && turn.calls.iter().all(|call| call.differs.is_empty());
        let count = |what: &dyn Fn(&CallRerun) -> bool| {
            u32::try_from(turn.calls.iter().filter(|call| what(call)).count()).unwrap_or(u32::MAX)
        };
        self.totals.turns += 1;
        self.totals.turns_differ += u32::from(!turn.ok);
        self.totals.ran += count(&|call| call.ran == CallRerunStatus::Again);
        self.totals.not_run += count(&|call| call.ran != CallRerunStatus::Again);
        self.totals.contents_differ += count(&|call| call.content_differs);
        (self.report)(RerunProgress::TurnDone(&turn));
        Ok(())
    }
}

impl RerunBatch {
    fn from_pending(out: PendingAppend) -> Self {
        let mut batch = Self::default();
        for (_, event) in out.into_events() {
            if let RunEvent::SnapshotTaken(taken) = event {
                batch.git_changes.extend(taken.git_changes);
            } else if let RunEvent::ToolFinished(ToolFinished { call, .. })
            | RunEvent::GateFinished(GateFinished { call, .. }) = &event
            {
                batch.results.insert(call.clone(), event);
            }
        }
        batch
    }
}

/// Returns the part of a tool's result that counts.
fn comparable_tool_result(event: &ToolFinished) -> Value {
    json!({ "status": event.status, "facts": comparable_facts(&event.facts) })
}

/// Returns the part of a gate's result that counts.
fn comparable_gate_result(event: &GateFinished) -> Value {
    json!({ "passed": event.passed, "facts": comparable_facts(&event.facts) })
}

/// Returns the facts except those parsed from the text: the parsing rules improve, and logs of earlier releases
/// contain the facts as they were parsed then.
fn comparable_facts(facts: &ToolFacts) -> ToolFacts {
    let error_signature = facts.error_signature.as_deref().map(crate::tools::error_signature);
    ToolFacts { error_signature, failing: Vec::new(), ..facts.clone() }
}

fn differing_paths(bench: &ToolExecutor, state: &RunState) -> Vec<WorkspacePath> {
    let now = bench.workspace.manifest().entries;
    let mut recorded = bench.workspace.base_manifest().entries.clone();
    for (path, entry) in &state.overlay {
        match entry {
            Some(entry) => drop(recorded.insert(path.clone(), *entry)),
            None => drop(recorded.remove(path)),
        }
    }
    let of_now = now.iter().filter(|(path, entry)| recorded.get(*path) != Some(entry));
    let gone = recorded.iter().filter(|(path, _)| !now.contains_key(*path));
    let mut paths: Vec<WorkspacePath> = of_now.chain(gone).map(|(path, _)| path.clone()).collect();
    paths.sort_unstable();
    paths.truncate(PATHS_MAX);
    paths
}
