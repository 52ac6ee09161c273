//! What each event does to the state of a run: one method per event that does more than set a field.

mod answers;
mod checks;
mod delegation;
mod policy;
mod roles;

use std::sync::Arc;

use crate::run::{
    events::{
        compacted::Compacted,
        event::{Forked, RunEvent, RunRecovered, RunStarted},
        inbox::{RunBlocked, RunEnded},
        work::{
            ModelAnswered, ModelFailed, ModelRequested, Purpose, SnapshotParts, SnapshotTaken, ToolFinished,
            ToolRequested, ToolStatus, Verdict,
        },
    },
    state::{
        asking::is_cut,
        compaction::{Measured, MeasuredSize, Summary},
        hands::edited_words,
        run_state::{EventMeta, Overlay, RunState},
        stage::Stage,
        transcript::calls_of,
    },
};
use crate::{
    content::Content,
    ids::{Epoch, Turn},
    message::{CallId, Part, Role, ToolUse},
    snapshot::PathChange,
    tool::{LintSeen, LintStatus, RecoveryClass},
};

impl RunState {
    /// One arm per event; each arm is one line, the work is in the method it names.
    pub(in crate::run) fn transition(&mut self, meta: EventMeta, event: RunEvent) -> Result<(), String> {
        if matches!(self.stage, Stage::Ended(_)) && !matches!(event, RunEvent::Forked(_)) {
            return Err(String::new());
        }
        self.hands.take(&event);
        self.reads.take(self.turn, &event);
        self.ledger.take(&event, &self.open_tools, &self.open_gates);
        match event {
            RunEvent::RunStarted(e) => self.started(e),
            RunEvent::Forked(e) => self.forked(e),
            RunEvent::RunRecovered(e) => self.recovered(e),
            RunEvent::SetupFinished(_) => {
                self.require_pins()?;
                self.set_up = true;
                Ok(())
            }
            RunEvent::BaseChecked(e) => self.base_checked(&e),
            RunEvent::PhaseChanged(e) => {
                self.phase = e.phase;
                Ok(())
            }
            RunEvent::ModelRequested(e) => self.model_requested(meta.turn, e),
            RunEvent::ModelAnswered(e) => self.model_answered(e),
            RunEvent::ModelFailed(e) => self.model_failed(e),
            RunEvent::ToolRequested(e) => self.tool_requested(e),
            RunEvent::ToolFinished(e) => self.tool_finished(e),
            RunEvent::SnapshotTaken(e) => self.snapshot_taken(meta.epoch, e),
            RunEvent::GateRequested(e) => self.gate_requested(e),
            RunEvent::GateFinished(e) => self.gate_finished(e),
            RunEvent::Told(e) => self.told(e.text),
            RunEvent::CancelRequested(_) => {
                self.cancel_requested = true;
                Ok(())
            }
            RunEvent::PauseRequested(_) => {
                self.pause_requested = true;
                Ok(())
            }
            RunEvent::Unpaused(_) => self.unpaused(),
            RunEvent::PolicyChanged(e) => {
                self.policy_changed(e);
                Ok(())
            }
            RunEvent::LimitReached(e) => {
                self.limit = Some(e.which);
                self.limit_said = e.message;
                Ok(())
            }
            RunEvent::RunPaused(_) => self.leave(Stage::Paused),
            RunEvent::RunBlocked(e) => self.blocked(e),
            RunEvent::BlockerAnswered(e) => self.answered(e),
            RunEvent::Delegated(e) => {
                self.gave_away(e);
                Ok(())
            }
            RunEvent::ChildAnswered(e) => self.child_answered(e),
            RunEvent::Compacted(e) => self.compacted(e),
            RunEvent::WorkspaceEdited(_) => {
                // What passed was another tree.
                self.work.checked = None;
                self.require_deciding()
            }
            RunEvent::RolesPinned(e) => self.roles_pinned(e),
            RunEvent::RoleBegan(e) => self.role_began(e),
            RunEvent::Concluded(e) => self.concluded(e),
            RunEvent::RunEnded(e) => self.ended(e),
        }
    }

    fn started(&mut self, event: RunStarted) -> Result<(), String> {
        if self.stage != Stage::Unstarted {
            return Err(String::new());
        }
        self.transcript.note(Part::Text { text: Content::Blob(event.prompts.task) });
        self.tree = Some(event.base.tree);
        self.policy = event.policy;
        let changed = self.policy_wanted.take();
        self.policies.clone_from(&event.policies);
        if let Some(rules) = changed {
            self.tasks_policy(rules);
        }
        self.sandbox = event.sandbox.clone();
        self.tool_set = event.settings.tool_set;
        self.known_failures.at_worker(event.worker);
        self.pins = Some(Arc::new(event));
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn forked(&mut self, event: Forked) -> Result<(), String> {
        if self.seq != event.seq || self.hash != event.hash {
            return Err(format!(": the shared history ends at {}, not at {}", self.seq, event.seq));
        }
        let Some(pins) = &self.pins else { return Err(": the parent never started".to_owned()) };
        let mut pins = RunStarted::clone(pins);
        pins.run = event.run;
        pins.task = event.task;
        if let Some(engine) = event.engine {
            self.another_engine(&mut pins);
            pins.engine = engine;
        }
        if let Some(models) = event.models {
            // A model that somebody names at a fork plays every role.
            pins.roles.iter_mut().for_each(|role| role.model = models.main.clone());
            pins.models = models;
        }
        if let Some(text) = event.hint {
            // Whoever takes up a role next is told, too.
            self.hear(text);
        }
        self.pins = Some(Arc::new(pins));
        self.lineage.push((event.parent, event.seq));
        // Wishes, limits, what was under way and what went wrong were the parent's.
        self.troubles.clear();
        self.snapshot_parts = SnapshotParts::default();
        self.children.clear();
        self.delegation.forget();
        self.cancel_requested = false;
        self.pause_requested = false;
        self.limit = None;
        self.waived_checks.clear();
        self.counts_anew();
        Ok(())
    }

    fn recovered(&mut self, event: RunRecovered) -> Result<(), String> {
        self.require_pins()?;
        self.sandbox = event.sandbox;
        self.known_failures.at_worker(event.worker);
        if !event.missing.is_empty() {
            let names: Vec<String> = event.missing.iter().map(ToString::to_string).collect();
            let text = format!(
                "The run moved to another workspace. These ignored paths did not come along; make them again if you need them: {}",
                names.join(", ")
            );
            self.transcript.aside(Part::Text { text: text.into() });
        }
        Ok(())
    }

    fn model_requested(&mut self, turn: Turn, event: ModelRequested) -> Result<(), String> {
        self.require_deciding()?;
        if turn != self.turn && turn != self.turn.next() {
            return Err(format!(": turn {turn} follows turn {}", self.turn));
        }
        if event.purpose == Purpose::Compact {
            // It is no decision of the agent: the conversation stays as it is.
            self.summaries += 1;
            self.stage = Stage::Model(Box::new(event));
            return Ok(());
        }
        if let Some(nudge) = &event.nudge {
            self.transcript.note(Part::Text { text: nudge.as_str().into() });
        }
        self.transcript.seal();
        self.work.heard.clear();
        self.turn = turn;
        self.answered_without_tools = false;
        self.gates_passed = false;
        self.gates_in_turn = 0;
        self.mended = false;
        self.mends_due.clear();
        self.undecided_due = false;
        self.stage = Stage::Model(Box::new(event));
        Ok(())
    }

    fn model_answered(&mut self, event: ModelAnswered) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.usage = self.totals.usage.plus(event.usage);
        self.totals.cost_nusd = self.totals.cost_nusd.saturating_add(event.cost_nusd);
        self.totals.model_calls += 1;
        if self.asks_for_summary() {
            self.summary = match summary_of(&event) {
                Some(text) => Summary::Given(text),
                None => Summary::Failed,
            };
            self.stage = Stage::Deciding;
            return Ok(());
        }
        self.failed_attempts = 0;
        self.forgiven_attempts = 0;
        self.last_failure = None;
        let text = event.texts().next_back().cloned();
        self.wanted = calls_of(&event.parts).cloned().collect();
        let empty = self.wanted.is_empty() && text.as_ref().is_none_or(is_blank);
        self.answered_so(empty);
        if !empty {
            self.last_text = text.clone();
        }
        self.work.answered(text);
        self.transcript.answer(event.parts);
        let asked = event.usage.asked_tokens();
        self.measured = (asked > 0 && !event.usage.estimated)
            .then(|| self.counted(asked.saturating_add(event.usage.output_tokens)));
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn counted(&self, tokens: u64) -> Measured {
        let sealed = self.transcript.sealed();
        // What a person says next becomes part of a last message of the user's.
        let stays = sealed.last().is_some_and(|last| last.message.role == Role::Assistant);
        let size = MeasuredSize::Messages(sealed.len());
        let measured = Measured { tokens, size };
        if stays {
            measured
        } else {
            Measured { size: MeasuredSize::Bytes(self.bytes_of(measured)), ..measured }
        }
    }

    fn asks_for_summary(&self) -> bool {
        matches!(&self.stage, Stage::Model(open) if open.purpose == Purpose::Compact)
    }

    fn model_failed(&mut self, event: ModelFailed) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.model_failures += 1;
        if self.asks_for_summary() {
            self.summary = Summary::Failed;
            self.stage = Stage::Deciding;
            return Ok(());
        }
        self.failed_attempts += 1;
        self.last_failure = Some(event);
        self.stage = Stage::Deciding;
        Ok(())
    }

    fn tool_requested(&mut self, event: ToolRequested) -> Result<(), String> {
        if !matches!(self.stage, Stage::Deciding | Stage::Tools) {
            return Err(String::new());
        }
        match self.wanted.pop_front() {
            Some(tool) if tool.call == event.call => {
                self.open_tools.push((event, tool));
                self.stage = Stage::Tools;
                Ok(())
            }
            Some(tool) => Err(format!(": {} is next, not {}", tool.call, event.call)),
            None => Err(format!(": no call {} is wanted", event.call)),
        }
    }

    fn tool_finished(&mut self, event: ToolFinished) -> Result<(), String> {
        let Some(at) = self.open_tools.iter().position(|(open, _)| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        let (asked, tool) = self.open_tools.remove(at);
        self.work.finished(&tool, &event);
        self.troubles.take(self.turn, (&asked, &tool), &event);
        self.known_failures.ran(self.turn, &tool, &event);
        if asked.class != RecoveryClass::Reads {
            self.tests_passed = passed_whole(&tool, &event);
        }
        self.totals.tool_calls += 1;
        let is_error = !matches!(event.status, ToolStatus::Ok);
        if is_error {
            self.totals.tool_errors += 1;
            self.totals.denials += u32::from(matches!(asked.policy, Verdict::Deny { .. }));
        }
        self.exceeded.extend(event.facts.exceeded.map(|what| (self.turn, what)));
        self.outputs.extend(event.full.map(|blob| (event.call.clone(), blob)));
        self.delegation.finished(&event);
        self.totals.children.add(event.facts.child.as_ref());
        self.linted(&event.facts.lint);
        for seen in event.facts.read {
            self.read_set.insert(seen.path, seen.hash);
        }
        if event.facts.changed.is_empty() {
            let tests_failed = event.facts.tests.is_some_and(|tests| tests.failed + tests.errors > 0);
            self.fixing |= tests_failed;
        } else {
            self.fixing = event.facts.lint.iter().any(|seen| seen.status == LintStatus::Findings);
            self.files_written.extend(event.facts.changed);
        }
        if !event.call.is_own() {
            let part = Part::ToolResult { call: event.call.clone(), content: event.content, is_error };
            self.transcript.result(&event.call, part);
        }
        if self.open_tools.is_empty() {
            self.stage = Stage::Deciding;
        }
        Ok(())
    }

    fn linted(&mut self, lint: &[LintSeen]) {
        for seen in lint {
            if let Some(before) = &seen.before {
                let known = self.lint_before.entry(seen.linter.clone()).or_default();
                known.files.extend_from_slice(&before.files);
                known.findings.extend_from_slice(&before.findings);
            }
        }
        for seen in lint {
            match seen.status {
                // One that ran before is missing because of the run: it stays a final check.
                LintStatus::Missing if !self.known_failures.has_run(&seen.linter) => {
                    self.linters_missing.insert(seen.linter.clone());
                }
                LintStatus::Missing => {}
                LintStatus::Clean | LintStatus::Findings | LintStatus::TimedOut => {
                    self.known_failures.linter_ran(&seen.linter);
                }
            }
        }
        for seen in lint.iter().filter(|seen| seen.status == LintStatus::TimedOut) {
            *self.lint_timeouts.entry(seen.linter.clone()).or_default() += 1;
        }
        if lint.iter().any(|seen| seen.status == LintStatus::Findings) {
            self.lint_failures += 1;
        } else if lint.iter().any(|seen| seen.status == LintStatus::Clean) {
            self.lint_failures = 0;
        }
    }

    fn snapshot_taken(&mut self, epoch: Epoch, event: SnapshotTaken) -> Result<(), String> {
        self.require_pins()?;
        let parts = self.snapshot_parts.take(epoch, event);
        self.tree = parts.last().map(|last| last.tree).or(self.tree);
        for part in parts {
            if self.hands.person().is_some() {
                self.hear(edited_words(&part).into());
            }
            self.known_failures.snapshot(self.turn, &part.changes);
            lay_over(&mut self.overlay, part.changes);
            lay_over(&mut self.git_overlay, part.git_changes);
            self.left_out.extend(part.left_out.into_iter().map(|left| (left.path, left.why)));
        }
        Ok(())
    }

    fn told(&mut self, text: Content) -> Result<(), String> {
        self.hear(text);
        Ok(())
    }

    fn unpaused(&mut self) -> Result<(), String> {
        self.pause_requested = false;
        if self.stage == Stage::Paused {
            self.stage = Stage::Deciding;
            self.take_back();
        }
        Ok(())
    }

    fn leave(&mut self, stage: Stage) -> Result<(), String> {
        self.require_deciding()?;
        self.stage = stage;
        Ok(())
    }

    fn blocked(&mut self, event: RunBlocked) -> Result<(), String> {
        self.leave(Stage::Blocked)?;
        self.asked = Some(event);
        Ok(())
    }

    fn compacted(&mut self, event: Compacted) -> Result<(), String> {
        self.require_deciding()?;
        self.summary = if event.summary_follows { Summary::Wanted } else { Summary::NotWanted };
        if let Some(failure) = self.last_failure.as_mut() {
            // Whatever was refused for its length is shorter now, and another request.
            failure.retry_in_ms = Some(0);
        }
        // What was counted is about to be replaced.
        if let Some(measured) = self.measured {
            self.measured = Some(Measured { size: MeasuredSize::Bytes(self.bytes_of(measured)), ..measured });
        }
        self.transcript.compact(event)?;
        self.reads.settle(&self.transcript)
    }

    fn ended(&mut self, event: RunEnded) -> Result<(), String> {
        // A role's last words may be for the runtime alone.
        self.last_text = event.summary.or(self.last_text.take());
        self.unverified = event.unverified;
        self.stage = Stage::Ended(event.result);
        Ok(())
    }

    /// Whether nothing is under way: no model asked, no call open or due, no failed attempt behind it. Another run can
    /// continue from here.
    pub fn is_at_rest(&self) -> bool {
        let nothing_open =
            self.wanted.is_empty() && self.last_failure.is_none() && self.snapshot_parts.is_empty();
        self.stage == Stage::Deciding && nothing_open
    }

    fn require_pins(&self) -> Result<(), String> {
        if self.pins.is_some() { Ok(()) } else { Err(String::new()) }
    }

    fn require_deciding(&self) -> Result<(), String> {
        if self.stage == Stage::Deciding { Ok(()) } else { Err(String::new()) }
    }

    fn require_model(&self, call: &CallId) -> Result<(), String> {
        match &self.stage {
            Stage::Model(open) if open.call == *call => Ok(()),
            Stage::Model(open) => Err(format!(": {} is open, not {call}", open.call)),
            _ => Err(String::new()),
        }
    }
}

fn lay_over(overlay: &mut Overlay, changes: Vec<PathChange>) {
    for change in changes {
        overlay.insert(change.path, change.entry);
    }
}

/// The words of an answer; none where it has none in place, or not all of them: what was cut may lack the best.
fn summary_of(event: &ModelAnswered) -> Option<String> {
    if is_cut(&event.stop) {
        return None;
    }
    let texts = event.parts.iter().filter_map(|part| match part {
        Part::Text { text: Content::Text(text) } => Some(text.trim()),
        Part::Text { .. } | Part::Thinking { .. } | Part::ToolUse(_) | Part::ToolResult { .. } => None,
    });
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}

/// All tests there are ran, some at least, and none failed.
fn passed_whole(tool: &ToolUse, event: &ToolFinished) -> bool {
    let whole = tool.name == "run_tests" && tool.args.get("test_path").is_none_or(serde_json::Value::is_null);
    let passed = event.facts.tests.is_some_and(|tests| tests.passed > 0 && tests.failed + tests.errors == 0);
    whole && passed && event.status == ToolStatus::Ok
}

fn is_blank(content: &Content) -> bool {
    match content {
        Content::Text(text) => text.trim().is_empty(),
        Content::B64(_) | Content::Blob(_) => false,
    }
}
