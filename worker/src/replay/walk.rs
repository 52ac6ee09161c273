//! The walk through a log that runs its calls again: what is run where, and what is compared with what.
//! [`super::rerun`] says what counts and why.

use std::collections::BTreeMap;

use docket_schema::{
    content::WorkPath,
    event::{Envelope, TypedEvent as _},
    history::FoldedRun,
    message::{CallId, ToolUse},
    run::{
        CorruptLog, GateFinished, RunEvent, RunState, SetupFinished, SnapshotTaken, Stage, ToolFinished,
        ToolStatus,
    },
    snapshot::{LeftOut, PathChange},
    tool::RecoveryClass,
    tool::ToolFacts,
};
use serde_json::{Value, json};

use super::{
    divergence::{Difference, leaves},
    rerun::{CallRerun, Gates, Ran, RerunError, RerunOptions, RerunTotals, Rerunning, TreeRerun, TurnRerun},
};
use crate::{
    bootstrap::SandboxChoice,
    engine,
    run::{Outgoing, Site, StartError, Workbench},
    tools,
    workspace::{Blobs, RestoreTarget, restore},
};

/// Paths of a tree that differs which are named; a build can leave thousands.
const PATHS_MAX: usize = 20;

/// Runs the recorded calls of `history` again and tells each turn as it is done.
///
/// # Errors
/// [`RerunError`]: something kept calls from being run. What differs is no error.
pub async fn rerun<S: Blobs>(
    history: &FoldedRun,
    options: &RerunOptions,
    blobs: &S,
    told: &mut (dyn FnMut(Rerunning<'_>) + Send),
) -> Result<RerunTotals, RerunError> {
    if options.sandbox == SandboxChoice::None {
        return Err(RerunError::NoWalls);
    }
    let mut walk = Walk {
        options,
        blobs,
        told,
        results: results_of(history.events())?,
        bench: None,
        state: RunState::default(),
        batch: None,
        stale: false,
        turn: TurnRerun::default(),
        totals: RerunTotals::default(),
    };
    let mut events = history.events().iter().peekable();
    while let Some(envelope) = events.next() {
        let event = decoded(envelope)?;
        walk.step(envelope, event, events.peek().map(|next| next.kind.as_str())).await?;
    }
    walk.end_turn().await?;
    Ok(walk.totals)
}

fn decoded(envelope: &Envelope) -> Result<RunEvent, CorruptLog> {
    RunEvent::decode(&envelope.kind, envelope.version, envelope.payload.as_str())
        .map_err(|source| CorruptLog::Decode { seq: envelope.seq, source })
}

/// How each call ended: only what has a result can be compared. Gates end as if they were tools.
fn results_of(events: &[Envelope]) -> Result<BTreeMap<CallId, ToolStatus>, CorruptLog> {
    let mut results = BTreeMap::new();
    for envelope in events.iter().filter(|event| event.kind.ends_with("Finished")) {
        let event = decoded(envelope)?;
        if let RunEvent::ToolFinished(e) = event {
            results.insert(e.call, e.status);
        } else if let RunEvent::GateFinished(e) = event {
            results.insert(e.call, ToolStatus::Ok);
        }
    }
    Ok(results)
}

struct Walk<'a, S> {
    options: &'a RerunOptions,
    blobs: &'a S,
    told: &'a mut (dyn FnMut(Rerunning<'_>) + Send),
    results: BTreeMap<CallId, ToolStatus>,
    /// None before the run's start.
    bench: Option<Workbench>,
    /// As the log has it.
    state: RunState,
    /// What was run again and is not judged yet.
    batch: Option<Batch>,
    /// The workspace is not as the log has it.
    stale: bool,
    turn: TurnRerun,
    totals: RerunTotals,
}

/// Calls that were run again, until their recorded results and snapshot are folded.
#[derive(Default)]
struct Batch {
    results: BTreeMap<CallId, RunEvent>,
    /// Setup lines leave their snapshot to be taken.
    walk: bool,
    git: Vec<PathChange>,
    git_recorded: Vec<PathChange>,
}

impl<S: Blobs> Walk<'_, S> {
    async fn step(
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
            self.settle()?;
        }
        match &event {
            RunEvent::RunStarted(pins) => {
                let RerunOptions { folder, cache, sandbox, .. } = self.options;
                let site = Site { folder, cache, sandbox: *sandbox };
                let tests = self.options.tests.clone();
                self.bench = Some(Workbench::make(&site, pins, tests, self.blobs).await?);
            }
            RunEvent::ModelRequested(_) if envelope.turn > self.state.turn => {
                self.end_turn().await?;
                self.turn.turn = envelope.turn;
            }
            RunEvent::SetupFinished(line) => self.set_up(line).await?,
            RunEvent::ToolFinished(result) => self.tool_finished(result),
            RunEvent::GateFinished(result) => self.gate_finished(result),
            RunEvent::SnapshotTaken(taken) => self.snapshot(taken),
            _ => {}
        }
        // An intent is run once, where the last of its batch is announced.
        let announced = matches!(event, RunEvent::ToolRequested(_) | RunEvent::GateRequested(_));
        let last = announced && next != Some(event.kind());
        self.state.apply(envelope.into(), event)?;
        match &self.state.stage {
            Stage::Tools if last => self.run_tools().await,
            Stage::Gates if last => self.run_gates().await,
            Stage::Tools
            | Stage::Gates
            | Stage::Unstarted
            | Stage::Deciding
            | Stage::Model(_)
            | Stage::Paused
            | Stage::Blocked
            | Stage::Ended(_) => Ok(()),
        }
    }

    fn is_wanted(&self) -> bool {
        self.options.turns.contains(&self.state.turn)
    }

    async fn run_tools(&mut self) -> Result<(), RerunError> {
        let open = &self.state.open_tools;
        let repeatable =
            |call: &CallId| self.results.get(call).is_some_and(|status| *status != ToolStatus::Unknown);
        let whole = !open.is_empty()
            && open.iter().all(|(call, _)| call.class != RecoveryClass::External && repeatable(&call.call));
        // What children did is theirs to prove; here their answers are taken from the log.
        let pins = self.state.pins.as_deref();
        let delegates = |tool: &ToolUse| pins.is_some_and(|pins| engine::delegates(pins, tool));
        if !whole || open.iter().any(|(_, tool)| delegates(tool)) || !self.is_wanted() {
            self.stale = true;
            return Ok(());
        }
        let tools = open.iter().map(|(call, _)| call.tool.as_str()).collect();
        (self.told)(Rerunning::Runs { turn: self.state.turn, tools });
        self.freshen().await?;
        let Some(bench) = &mut self.bench else { return Ok(()) };
        self.batch = Some(Batch::of(bench.run_tools(&self.state, self.blobs).await?));
        Ok(())
    }

    async fn run_gates(&mut self) -> Result<(), RerunError> {
        let open = &self.state.open_gates;
        let whole = open.iter().all(|gate| self.results.contains_key(&gate.call));
        if self.options.gates == Gates::Skip || !whole || !self.is_wanted() {
            self.stale = true;
            return Ok(());
        }
        let tools = open.iter().map(|gate| gate.gate.name.as_str()).collect();
        (self.told)(Rerunning::Runs { turn: self.state.turn, tools });
        self.freshen().await?;
        let Some(bench) = &mut self.bench else { return Ok(()) };
        self.batch = Some(Batch::of(bench.run_gates(&self.state).await?));
        Ok(())
    }

    /// Setup lines are run once, where they were first; where a workspace was made again they were run before
    /// the recorded tree was restored.
    async fn set_up(&mut self, line: &SetupFinished) -> Result<(), RerunError> {
        let first = !self.state.set_up || self.batch.as_ref().is_some_and(|batch| batch.walk);
        let (Some(bench), Some(pins), true) = (&self.bench, &self.state.pins, first) else { return Ok(()) };
        (self.told)(Rerunning::Runs { turn: self.state.turn, tools: vec![&line.command] });
        let differs = match bench.set_up(&line.command, &pins.settings).await {
            Ok(()) => Vec::new(),
            Err(StartError::Environment(said) | StartError::CommandMissing(said)) => {
                let (recorded, derived) = (Some(json!(line.exit)), Some(said.into()));
                vec![Difference { field: "/exit".to_owned(), recorded, derived }]
            }
            Err(other) => return Err(other.into()),
        };
        self.batch.get_or_insert_default().walk = true;
        let (tool, ran) = (line.command.clone(), Ran::Again);
        self.turn.calls.push(CallRerun { call: None, tool, ran, differs, content_differs: false });
        Ok(())
    }

    fn tool_finished(&mut self, recorded: &ToolFinished) {
        let open = self.state.open_tools.iter().find(|(open, _)| open.call == recorded.call);
        let Some((open, _)) = open else { return };
        let again = self.batch.as_mut().and_then(|batch| batch.results.remove(&recorded.call));
        let call = match again {
            Some(RunEvent::ToolFinished(again)) if !tools::is_beyond_run(&open.tool) => CallRerun {
                call: Some(recorded.call.clone()),
                tool: open.tool.clone(),
                ran: Ran::Again,
                differs: leaves(&of_tool(recorded), &of_tool(&again)),
                content_differs: recorded.content != again.content || recorded.full != again.full,
            },
            Some(_) | None => CallRerun {
                call: Some(recorded.call.clone()),
                tool: open.tool.clone(),
                ran: match (open.class, recorded.status) {
                    (_, ToolStatus::Unknown) => Ran::Unknown,
                    (RecoveryClass::External, _) => Ran::External,
                    _ if recorded.facts.child.is_some() || open.tool == tools::DELEGATE => Ran::External,
                    _ if tools::is_beyond_run(&open.tool) => Ran::External,
                    _ => Ran::Unknown,
                },
                differs: Vec::new(),
                content_differs: false,
            },
        };
        self.turn.calls.push(call);
    }

    fn gate_finished(&mut self, recorded: &GateFinished) {
        let open = self.state.open_gates.iter().find(|open| open.call == recorded.call);
        let Some(open) = open else { return };
        let again = self.batch.as_mut().and_then(|batch| batch.results.remove(&recorded.call));
        let (ran, differs, content_differs) = match again {
            Some(RunEvent::GateFinished(again)) => {
                let differs = leaves(&of_gate(recorded), &of_gate(&again));
                (Ran::Again, differs, recorded.content != again.content || recorded.full != again.full)
            }
            Some(_) | None => (Ran::Skipped, Vec::new(), false),
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

    fn snapshot(&mut self, taken: &SnapshotTaken) {
        match &mut self.batch {
            Some(batch) => batch.git_recorded.extend(taken.git_changes.iter().cloned()),
            None => self.stale = true,
        }
    }

    /// Compares the tree after a batch, whose results and snapshot are folded.
    fn settle(&mut self) -> Result<(), RerunError> {
        let (Some(batch), Some(bench)) = (self.batch.take(), &mut self.bench) else { return Ok(()) };
        let mut git = batch.git;
        if batch.walk {
            git = bench.workspace.snapshot_walk()?.git_changes;
        }
        if git != batch.git_recorded {
            self.turn.git_differs = true;
            self.stale = true;
        }
        let again = bench.workspace.tree();
        let Some(recorded) = self.state.tree.filter(|recorded| *recorded != again) else { return Ok(()) };
        self.stale = true;
        let paths = paths_that_differ(bench, &self.state);
        self.turn.trees.push(TreeRerun { recorded, again, paths });
        Ok(())
    }

    /// Brings the workspace to the recorded tree, where it is not there.
    async fn freshen(&mut self) -> Result<(), RerunError> {
        let (Some(bench), Some(tree), true) = (&mut self.bench, self.state.tree, self.stale) else {
            return Ok(());
        };
        let state = &self.state;
        let left_out = state.left_out.iter().map(|(path, why)| LeftOut { path: path.clone(), why: *why });
        let left_out: Vec<LeftOut> = left_out.collect();
        let (overlay, git_overlay) = (&state.overlay, &state.git_overlay);
        let target = RestoreTarget { overlay, git_overlay, left_out: &left_out, tree };
        restore(&mut bench.workspace, &target, self.blobs).await?;
        self.stale = false;
        Ok(())
    }

    async fn end_turn(&mut self) -> Result<(), RerunError> {
        if self.batch.as_ref().is_some_and(|batch| batch.results.is_empty()) {
            self.settle()?;
        }
        let mut turn = std::mem::take(&mut self.turn);
        if !self.is_wanted() {
            return Ok(());
        }
        turn.tree = self.state.tree;
        turn.ok = turn.trees.is_empty() && turn.calls.iter().all(|call| call.differs.is_empty());
        let count = |what: &dyn Fn(&CallRerun) -> bool| {
            u32::try_from(turn.calls.iter().filter(|call| what(call)).count()).unwrap_or(u32::MAX)
        };
        self.totals.turns += 1;
        self.totals.turns_differ += u32::from(!turn.ok);
        self.totals.ran += count(&|call| call.ran == Ran::Again);
        self.totals.not_run += count(&|call| call.ran != Ran::Again);
        self.totals.contents_differ += count(&|call| call.content_differs);
        (self.told)(Rerunning::Done(&turn));
        Ok(())
    }
}

impl Batch {
    fn of(out: Outgoing) -> Self {
        let mut batch = Self::default();
        for (_, event) in out.into_events() {
            if let RunEvent::SnapshotTaken(taken) = event {
                batch.git.extend(taken.git_changes);
            } else if let RunEvent::ToolFinished(ToolFinished { call, .. })
            | RunEvent::GateFinished(GateFinished { call, .. }) = &event
            {
                batch.results.insert(call.clone(), event);
            }
        }
        batch
    }
}

/// What of a tool's result counts.
fn of_tool(event: &ToolFinished) -> Value {
    json!({ "status": event.status, "facts": lasting(&event.facts) })
}

/// What of a gate's result counts.
fn of_gate(event: &GateFinished) -> Value {
    json!({ "passed": event.passed, "facts": lasting(&event.facts) })
}

/// Facts but for what is derived from the text, whose rules become better: logs of earlier releases hold it as it
/// was made then.
fn lasting(facts: &ToolFacts) -> ToolFacts {
    let error_signature = facts.error_signature.as_deref().map(crate::tools::error_signature);
    ToolFacts { error_signature, failing: Vec::new(), ..facts.clone() }
}

fn paths_that_differ(bench: &Workbench, state: &RunState) -> Vec<WorkPath> {
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
    let mut paths: Vec<WorkPath> = of_now.chain(gone).map(|(path, _)| path.clone()).collect();
    paths.sort_unstable();
    paths.truncate(PATHS_MAX);
    paths
}
