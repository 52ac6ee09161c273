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
        GateFinished, GateRequested, GateStep, RunSettings, RunStarted, RunState, ToolFinished,
        ToolRequested, ToolStatus, Verdict,
    },
    tool::{LintSeen, LintStatus, RecoveryClass, ToolFacts},
};
use futures_util::FutureExt as _;

use super::{
    journal::Outgoing,
    reread::Rereads,
    start::{SandboxRunner, StartError, sandbox, setup, tests_line, tool_settings, workspace_options},
    together::together as at_once,
};
use crate::{
    bootstrap::SandboxChoice,
    engine,
    tools::{self, TestRunnerConfig, ToolContext, ToolOutcome, ToolSettings, WholeOutputs},
    workspace::{Blobs, SnapshotError, Workspace, materialize},
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
        let (tests, settings) = (tests_line(pins, tests), tool_settings(&pins.settings));
        // What was configured where the run was carried out is not known here.
        let redactor = Redactor::default();
        Ok(Self { workspace, root, runner, settings, tests, redactor, outputs: WholeOutputs::new() })
    }

    /// Runs one setup line.
    ///
    /// # Errors
    /// [`StartError::Environment`]: it failed.
    pub(crate) async fn set_up(&self, line: &str, settings: &RunSettings) -> Result<(), StartError> {
        setup(&[line.to_owned()], settings, &self.runner, &self.redactor).await.map(drop)
    }

    /// Fetches what the open calls ask for beyond the workspace.
    async fn at_hand<S: Blobs>(&mut self, state: &RunState, blobs: &S) {
        self.outputs.clear();
        for call in state.open_tools.iter().filter_map(|(_, tool)| tools::whole_output_wanted(tool)) {
            if let Some(blob) = state.outputs.get(&call) {
                let bytes = blobs.get(blob).await.map_err(|error| error.to_string());
                self.outputs.insert(call, bytes);
            }
        }
    }

    /// Runs the open tool calls: neighbouring readers together, changers in order; then a snapshot
    /// if anything may have changed.
    pub(crate) async fn run_tools<S: Blobs>(
        &mut self,
        state: &RunState,
        blobs: &S,
    ) -> Result<Outgoing, SnapshotError> {
        self.at_hand(state, blobs).await;
        self.settings.time_ends_at = time_ends_at(state);
        let first = self.lint_before(state).await;
        let mut batch = Batch::new(state, &self.redactor);
        // A linter may leave files behind, as any command may, whatever becomes of the edits.
        batch.walk = !first.is_empty();
        let mut rereads = Rereads::new(state);
        let mut all: Vec<(&ToolRequested, Done)> = Vec::new();
        let mut calls = state.open_tools.as_slice();
        while let Some((first, rest)) = calls.split_first() {
            let readers = calls.iter().take_while(|(open, _)| open.class == RecoveryClass::Reads).count();
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
                let done = self.run_one(&first.0, &first.1, &batch.read_set).await;
                let done = done.unrepeated(&first.0, &mut rereads);
                batch.took(&done);
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
        tools::execute(self.context(read_set, tests), &tool.name, &tool.args).await
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
        }
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
        self.settings.time_ends_at = time_ends_at(state);
        let mut batch = Batch::new(state, &self.redactor);
        batch.walk = true;
        let mut done: Vec<(usize, GateDone<'_>)> = Vec::new();
        // The check of syntax comes last: it asks what the others say.
        for late in [false, true] {
            let open = state.open_gates.iter().enumerate();
            for (at, open) in open.filter(|(_, open)| tools::is_syntax_check(&open.gate) == late) {
                let started = Instant::now();
                let outcome = self.run_gate(state, open, &done).await;
                done.push((at, GateDone { open, outcome, duration: started.elapsed() }));
            }
        }
        done.sort_by_key(|(at, _)| *at);
        for (_, GateDone { open, outcome, duration }) in done {
            batch.gate_finished(open, outcome, duration);
        }
        self.snapshot(state, &mut batch).await?;
        Ok(batch.out)
    }

    async fn run_gate(
        &self,
        state: &RunState,
        open: &GateRequested,
        others: &[(usize, GateDone<'_>)],
    ) -> ToolOutcome {
        if tools::is_syntax_check(&open.gate) {
            let mut files = Vec::new();
            for path in engine::must_parse(state) {
                // What the base cannot tell is nobody's fault.
                if let Ok(before) = self.workspace.base_objects().file(path).await {
                    files.push((path.clone(), before));
                }
            }
            let nothing_read = BTreeMap::new();
            return tools::check_syntax(self.context(&nothing_read, None), &files, &others_of(others)).await;
        }
        match open.step {
            GateStep::Check => {}
            GateStep::Mend => return tools::mend(self.context(&BTreeMap::new(), None), &open.gate).await,
        }
        let (tool, tests) = tool_of_gate(open, self.settings.command_timeout_ms_max);
        let mut outcome = self.execute(&tool, &BTreeMap::new(), tests.as_ref()).await;
        if is_absent(open, &outcome) {
            let name = &open.gate.name;
            let told = format!("{name} is not installed or cannot run here: nothing was checked\n");
            outcome.content.splice(0..0, told.into_bytes());
            outcome.facts.lint = vec![LintSeen::plain(name, LintStatus::Missing)];
        }
        outcome
    }
}

/// A gate that ran.
struct GateDone<'a> {
    open: &'a GateRequested,
    outcome: ToolOutcome,
    duration: Duration,
}

/// What the check of syntax needs to know of the others.
fn others_of(done: &[(usize, GateDone<'_>)]) -> tools::Others {
    let mut others = tools::Others::default();
    for GateDone { open, outcome, .. } in done.iter().map(|(_, done)| done) {
        let passed = passed(open, outcome);
        others.failed |= !passed;
        if passed && outcome.facts.exit == Some(0) {
            let ran = outcome.facts.tests.is_none_or(|tests| tests.passed > 0);
            others.tests_passed |= open.gate.name == "tests" && ran;
            let lints = open.gate.mend.as_ref().filter(|mend| mend.imports.is_none());
            others.linted.extend(lints.into_iter().flat_map(|mend| mend.files.iter().cloned()));
        }
    }
    others
}

/// When the run's budget of time ends, if it has one and works on from now.
fn time_ends_at(state: &RunState) -> Option<Instant> {
    let time_max_ms = state.pins.as_ref()?.settings.time_max_ms;
    let left_ms = time_max_ms.saturating_sub(state.asking.spent(&state.totals).worked_ms);
    (time_max_ms > 0).then(|| Instant::now().checked_add(Duration::from_millis(left_ms))).flatten()
}

/// The call that a gate stands for. It runs the line that was pinned at the start, whatever the
/// workspace looks like by now: a model must not choose its own judge. A linter has as much time as tests:
/// the first look at a project may build all of it.
fn tool_of_gate(open: &GateRequested, timeout_ms_max: u64) -> (ToolUse, Option<TestRunnerConfig>) {
    let command = open.gate.command.clone();
    let (name, args, tests) = if open.gate.name == "tests" {
        ("run_tests", serde_json::json!({}), Some(TestRunnerConfig { command }))
    } else if open.gate.mend.is_some() && timeout_ms_max >= 1000 {
        ("run_command", serde_json::json!({ "command": command, "timeout_s": timeout_ms_max / 1000 }), None)
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
        let passed = passed(open, &outcome);
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
        let signature = facts.error_signature.as_deref().map(|text| self.redactor.text(text).into_owned());
        let failing = facts.failing.iter().map(|name| self.redactor.text(name).into_owned()).collect();
        ToolFacts { error_signature: signature, failing, ..facts }
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

/// Whether a linter's check could not run.
fn is_absent(open: &GateRequested, outcome: &ToolOutcome) -> bool {
    let is_linter = open.gate.mend.as_ref().is_some_and(|mend| mend.imports.is_none());
    open.step.is_check() && is_linter && outcome.facts.exit == Some(NOT_FOUND)
}

/// Whether a check passed, and whether a mending mended anything. A linter that is not installed judges nobody.
fn passed(open: &GateRequested, outcome: &ToolOutcome) -> bool {
    let ended = !outcome.is_error && !outcome.facts.timed_out;
    match open.step {
        GateStep::Mend => ended && !outcome.facts.changed.is_empty(),
        GateStep::Check => ended && (outcome.facts.exit == Some(0) || is_absent(open, outcome)),
    }
}

/// Exit status of a shell that does not find a program.
const NOT_FOUND: i32 = 127;

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
            let gate = GateSpec { name: name.to_owned(), command: "make test".to_owned(), mend: None };
            let open = GateRequested {
                call: CallId::gate(Turn(3), 0),
                gate,
                step: GateStep::Check,
                decision: DecisionHash([0; 32]),
            };
            let (used, tests) = tool_of_gate(&open, 300_000);
            let line = tests.map(|tests| tests.command);
            let line = line.or_else(|| used.args["command"].as_str().map(str::to_owned));
            assert_eq!((used.name.as_str(), line.as_deref()), (tool, Some("make test")));
        }
    }
}
