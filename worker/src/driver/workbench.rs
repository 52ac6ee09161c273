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
    redact::Redactor,
    run::{
        ExternalTool, GateFinished, GateRequested, RunSettings, RunStarted, RunState, ToolFinished,
        ToolRequested, ToolStatus, Verdict,
    },
    tool::{RecoveryClass, ToolFacts},
};
use futures_util::FutureExt as _;

use super::{
    before, checks,
    granted::Grants,
    journal::Outgoing,
    known::result_of,
    redaction::redact_facts,
    remember::RunMemory,
    reread::Rereads,
    start::{SandboxRunner, StartError, sandbox, tests_line, tool_settings, workspace_options},
    together::together as at_once,
};
use crate::{
    bootstrap::SandboxChoice,
    engine,
    mcp::Servers,
    policy::Sight,
    tools::{
        self, BaseView, Memory, NoMemory, TestRunnerConfig, ToolContext, ToolOutcome, ToolSettings,
        WholeOutputs,
    },
    workspace::{Blobs, SnapshotDelta, SnapshotError, Workspace, materialize},
};

/// See the module.
pub(crate) struct Workbench {
    pub(crate) workspace: Workspace,
    pub(super) root: cap_std::fs::Dir,
    pub(super) runner: SandboxRunner,
    pub(super) settings: ToolSettings,
    pub(super) tests: Option<TestRunnerConfig>,
    /// What its calls say becomes part of the log, but for secrets.
    pub(super) redactor: Redactor,
    /// Whole outputs that the open calls ask for.
    pub(super) outputs: WholeOutputs,
    /// What stood before the run, as the open calls ask for it.
    pub(super) base: BaseView,
    /// What of the network the open calls may reach.
    pub(super) grants: Grants,
    /// What outlives the run; none where it is only replayed.
    pub(super) memory: Option<RunMemory>,
    /// The tools that the run pins, once they were looked up.
    pub(super) known: Option<Result<Vec<String>, String>>,
    /// Servers of this worker's; none where a run is only replayed.
    pub(super) servers: Servers,
    /// Tools of servers that the run pins.
    pub(super) external: Vec<ExternalTool>,
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
        let runner = SandboxRunner(sandbox((site.sandbox, None), None, &workspace).await?);
        let root = cap_std::fs::Dir::open_ambient_dir(workspace.path(), cap_std::ambient_authority())
            .map_err(|error| StartError::environment(&error))?;
        let (tests, settings) = (tests_line(pins, tests), tool_settings(&pins.settings));
        // What was configured where the run was carried out is not known here.
        let redactor = Redactor::default();
        // What was done again reaches nowhere.
        let (outputs, grants, memory) = (WholeOutputs::new(), Grants::default(), None);
        Ok(Self {
            workspace,
            root,
            runner,
            settings,
            tests,
            redactor,
            outputs,
            base: BaseView::default(),
            grants,
            memory,
            known: None,
            servers: Servers::default(),
            external: Vec::new(),
        })
    }

    /// Runs one setup line.
    ///
    /// # Errors
    /// [`StartError::Environment`] or [`StartError::CommandMissing`]: it failed.
    pub(crate) async fn set_up(&self, line: &str, settings: &RunSettings) -> Result<(), StartError> {
        super::setup::setup(&[line.to_owned()], settings, &self.runner, &self.redactor).await.map(drop)
    }

    /// Fetches what the open calls ask for beyond the workspace.
    async fn at_hand<S: Blobs>(&mut self, state: &RunState, blobs: &S) {
        self.outputs.clear();
        for call in state.open_tools.iter().filter_map(|(_, tool)| tools::whole_output_wanted(tool)) {
            // Shown whole, and perhaps made shorter by now for the model, not for the log.
            let result = state.transcript.put_aside(&call).or_else(|| result_of(state, &call));
            let bytes = match (state.outputs.get(&call), result) {
                (Some(blob), _) => Some(blobs.get(blob).await),
                (None, Some(Content::Blob(blob))) => Some(blobs.get(blob).await),
                (None, Some(content)) => content.inline_bytes().map(|bytes| Ok(bytes.into())),
                (None, None) => None,
            };
            if let Some(bytes) = bytes {
                self.outputs.insert(call, bytes.map_err(|error| error.to_string()));
            }
        }
        self.base = before::at_hand(&self.workspace, state, blobs).await;
    }

    /// Runs the open tool calls: neighbouring readers together, changers in order; then a snapshot
    /// if anything may have changed.
    pub(crate) async fn run_tools<S: Blobs>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<Outgoing, SnapshotError> {
        self.at_hand(state, blobs).await;
        self.look_up_tools(state, blobs).await;
        self.settings.time_ends_at = time_ends_at(state);
        self.settings.sight = Sight::in_run(state);
        self.grants.note(state);
        let first = self.lint_before(state).await;
        let mut batch = Batch::new(state, &self.redactor);
        // A linter may leave files behind, as any command may, whatever becomes of the edits.
        batch.walk = !first.is_empty();
        let mut rereads = Rereads::new(state);
        let mut all: Vec<(&ToolRequested, Done)> = Vec::new();
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let is_quick =
                |open: &ToolRequested| open.class == RecoveryClass::Reads && !tools::waits(&open.tool);
            let readers = calls.iter().take_while(|(open, _)| is_quick(open)).count();
            if readers > 1 {
                let (together, rest) = calls.split_at(readers);
                let read_set = batch.read_set.clone();
                // Whoever only reads waits for nothing; should one, it is run behind the others.
                let outcomes =
                    at_once(together, |(open, tool)| self.run_one(open, tool, &read_set).now_or_never());
                for ((open, tool), done) in together.iter().zip(outcomes) {
                    let done = match done {
                        Some(done) => done,
                        None => self.run_one(open, tool, &read_set).await,
                    };
                    let done = done.unrepeated(open, &mut rereads);
                    batch.took(&done);
                    all.push((open, done));
                }
                calls = rest;
            } else {
                let mut done = self.run_one(&first.0, &first.1, &batch.read_set).await;
                let held = self.hold(state, &first.0, &mut done, blobs).await?;
                let done = done.unrepeated(&first.0, &mut rereads);
                batch.took(&done);
                batch.hold(held);
                all.push((&first.0, done));
                calls = rest;
            }
        }
        self.lint(state, first, &mut batch, &mut all).await;
        for (open, done) in all {
            batch.finished(open, done);
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    /// Runs calls again after a crash, as their recovery classes allow: the workspace stands at the
    /// last snapshot. Whatever may have reached beyond it is not run again; the model is told.
    pub(super) async fn run_tools_again<S: Blobs>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<Outgoing, SnapshotError> {
        if super::turn::unknown_after_crash(state).is_empty() {
            return self.run_tools(state, blobs).await;
        }
        let mut batch = Batch::new(state, &self.redactor);
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
            Verdict::Allow { .. } => match (self.unknown(tool), self.grants.of(&open.call)) {
                (Some(unknown), _) => unknown,
                (None, network) if tools::is_external(&tool.name) => {
                    Box::pin(self.ask_server(tool, network)).await
                }
                (None, None) => self.execute(tool, read_set, self.tests.as_ref()).await,
                (None, Some(allow)) => Box::pin(self.execute_granted(tool, read_set, allow)).await,
            },
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

    pub(super) async fn execute(
        &self,
        tool: &ToolUse,
        read_set: &BTreeMap<WorkPath, BlobHash>,
        tests: Option<&TestRunnerConfig>,
    ) -> ToolOutcome {
        let malformed = tool.malformed.as_ref().map(|text| super::act::not_run(&tool.name, text));
        if let Some(text) = malformed.or_else(|| self.refuse_submodule(tool)) {
            return refusal(&tool.name, text);
        }
        let context = ToolContext { call: Some(&tool.call), ..self.context(read_set, tests) };
        tools::execute(context, &tool.name, &tool.args).await
    }

    pub(super) fn context<'a>(
        &'a self,
        read_set: &'a BTreeMap<WorkPath, BlobHash>,
        tests: Option<&'a TestRunnerConfig>,
    ) -> ToolContext<'a> {
        ToolContext {
            root: &self.root,
            runner: &self.runner,
            read_set,
            settings: &self.settings,
            tests,
            outputs: &self.outputs,
            base: &self.base,
            memory: self.memory.as_ref().map_or(&NoMemory as &dyn Memory, |memory| memory),
            call: None,
        }
    }

    /// The result of an open call that was carried out elsewhere.
    pub(super) fn result_of(
        &self,
        state: &RunState,
        open: &ToolRequested,
        (status, outcome): (ToolStatus, ToolOutcome),
        duration: Duration,
    ) -> Outgoing {
        let mut batch = Batch::new(state, &self.redactor);
        batch.finished(open, Done { status, outcome, duration });
        batch.out
    }

    async fn snapshot(&mut self, state: &RunState, batch: &mut Batch) -> Result<(), SnapshotError> {
        let delta = if batch.walk {
            self.workspace.snapshot_walk()?
        } else if batch.changed.is_empty() {
            return Ok(());
        } else {
            self.workspace.snapshot_paths(&batch.changed)?
        };
        let delta = batch.with_held(delta);
        if delta.is_empty() {
            return Ok(());
        }
        batch.out.snapshot(state.turn, delta);
        Ok(())
    }

    /// Facts of a check, as they may stand in a log.
    pub(super) fn redacted(&self, facts: ToolFacts) -> ToolFacts {
        redact_facts(&self.redactor, facts)
    }

    /// Runs the open gates in order, then a snapshot: a gate may leave files behind.
    pub(crate) async fn run_gates(&mut self, state: &RunState) -> Result<Outgoing, SnapshotError> {
        self.settings.time_ends_at = time_ends_at(state);
        let mut batch = Batch::new(state, &self.redactor);
        batch.walk = true;
        let mut done: Vec<(usize, checks::Done<'_>)> = Vec::new();
        // The check of syntax comes last: it asks what the others say.
        for late in [false, true] {
            let open = state.open_gates.iter().enumerate();
            for (at, open) in open.filter(|(_, open)| tools::is_syntax_check(&open.gate) == late) {
                let started = Instant::now();
                let outcome = checks::run(self, state, open, &done).await;
                done.push((at, checks::Done { open, outcome, duration: started.elapsed() }));
            }
        }
        done.sort_by_key(|(at, _)| *at);
        for (_, checks::Done { open, outcome, duration }) in done {
            batch.gate_finished(open, outcome, duration);
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }
}

/// When what calls may use of the run's budget of time ends, if it has one and works on from now.
pub(super) fn time_ends_at(state: &RunState) -> Option<Instant> {
    let pins = state.pins.as_ref()?;
    let time_max_ms = pins.settings.time_max_ms;
    let for_calls =
        engine::engine(&pins.engine).map_or(time_max_ms, |engine| engine.time_for_calls(state, time_max_ms));
    let left_ms = for_calls.saturating_sub(state.asking.spent(&state.totals).worked_ms);
    (time_max_ms > 0).then(|| Instant::now().checked_add(Duration::from_millis(left_ms))).flatten()
}

/// A tool error that the runtime says, not the tool.
pub(super) fn refusal(tool: &str, text: String) -> ToolOutcome {
    ToolOutcome::error(tool, text)
}

pub(super) struct Done {
    status: ToolStatus,
    pub(super) outcome: ToolOutcome,
    pub(super) duration: Duration,
}

impl Done {
    fn unrepeated(self, open: &ToolRequested, rereads: &mut Rereads) -> Self {
        Self { outcome: rereads.unrepeated(&open.call, self.outcome), ..self }
    }

    fn refused(outcome: ToolOutcome, started: Instant) -> Self {
        Self { status: ToolStatus::Refused, outcome, duration: started.elapsed() }
    }
}

/// Results of one batch as they come.
pub(super) struct Batch {
    redactor: Redactor,
    turn: docket_schema::ids::Turn,
    out: Outgoing,
    pub(super) read_set: BTreeMap<WorkPath, BlobHash>,
    pub(super) changed: Vec<WorkPath>,
    pub(super) walk: bool,
    /// What of it a snapshot has seen already.
    pub(super) held: Option<SnapshotDelta>,
}

impl Batch {
    fn new(state: &RunState, redactor: &Redactor) -> Self {
        Self {
            redactor: redactor.clone(),
            turn: state.turn,
            out: Outgoing::default(),
            read_set: state.read_set.clone(),
            changed: Vec::new(),
            walk: false,
            held: None,
        }
    }

    /// Notes what the calls that follow must know.
    fn took(&mut self, done: &Done) {
        let facts = &done.outcome.facts;
        self.read_set.extend(facts.read.iter().map(|seen| (seen.path.clone(), seen.hash)));
        self.changed.extend(facts.changed.iter().cloned());
        self.walk |= facts.may_have_changed_tree;
    }

    fn finished(&mut self, open: &ToolRequested, done: Done) {
        let Done { status, outcome, duration } = done;
        let (content, full) = self.placed(&open.call, &outcome.facts, outcome.content, outcome.full);
        let event = ToolFinished {
            call: open.call.clone(),
            status,
            content,
            full,
            facts: self.redacted(outcome.facts),
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
        let passed = checks::passed(open, &outcome);
        let (content, full) = self.placed(&open.call, &outcome.facts, outcome.content, outcome.full);
        let call: CallId = open.call.clone();
        let facts = self.redacted(outcome.facts);
        self.out.push(
            self.turn,
            GateFinished { call, step: open.step, passed, content, full, facts, duration_ms: ms(duration) },
        );
    }

    /// A signature is made of the error's own words.
    fn redacted(&self, facts: ToolFacts) -> ToolFacts {
        redact_facts(&self.redactor, facts)
    }

    fn placed(
        &mut self,
        call: &CallId,
        facts: &ToolFacts,
        mut content: Vec<u8>,
        full: Option<Vec<u8>>,
    ) -> (Content, Option<BlobRef>) {
        // Nobody asks what tests said that passed.
        let passed = facts.tests.is_some() && facts.exit == Some(0);
        if let Some(full) = full.as_ref().filter(|_| !passed) {
            content.extend_from_slice(tools::whole_output_note(call, full).as_bytes());
        }
        let (content, large) = Content::place(self.redactor.bytes(content));
        if let (Some(blob), Some(bytes)) = (content.blob(), large) {
            self.out.blob(blob, bytes);
        }
        let full = full.map(|bytes| {
            let bytes = self.redactor.bytes(bytes);
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
