//! The effect of each event on the state of a run: one method for each event that does more than set a field.

mod blocker_answers;
mod checks;
mod delegation;
mod policy;
mod roles;

use std::sync::Arc;

use crate::run::{
    events::{
        compaction::Compacted,
        control_events::{RunBlocked, RunEnded},
        run_event::{Forked, RunEvent, RunRecovered, RunStarted},
        turn_events::{
            CallPurpose, ModelAnswered, ModelFailed, ModelRequested, PolicyVerdict, SnapshotParts,
            SnapshotTaken, ToolFinished, ToolRequested, ToolStatus,
        },
    },
    state::{
        change_attribution::describe_person_changes,
        compaction::{MeasuredSize, SummaryState, TokenMeasurement},
        model_attempts::is_truncated,
        run_stage::RunStage,
        run_state::{EventMeta, Overlay, RunState},
        transcript::tool_uses,
    },
};
use crate::{
    content::Content,
    ids::{Epoch, Turn},
    message::{CallId, MessagePart, MessageRole, ToolUse},
    snapshot::PathChange,
    tool::{LintResult, LintStatus, RecoveryClass},
};

impl RunState {
    /// One line per event; the work is in the methods.
    pub(in crate::run) fn apply_transition(
        &mut self,
        meta: EventMeta,
        event: RunEvent,
    ) -> Result<(), String> {
        if matches!(self.stage, RunStage::Ended(_)) && !matches!(event, RunEvent::Forked(_)) {
            return Err(String::new());
        }
        self.attribution.attribute_event(&event);
        self.read_index.apply_event(self.turn, &event);
        self.ledger.apply_event(&event, &self.open_tools, &self.open_gates);
        match event {
            RunEvent::RunStarted(e) => self.apply_started(e),
            RunEvent::Forked(e) => self.apply_forked(e),
            RunEvent::RunRecovered(e) => self.apply_recovered(e),
            RunEvent::SetupFinished(_) => {
                self.require_pins()?;
                self.is_set_up = true;
                Ok(())
            }
            RunEvent::BaseChecked(e) => self.apply_base_checked(&e),
            RunEvent::PhaseChanged(e) => {
                self.phase = e.phase;
                Ok(())
            }
            RunEvent::ModelRequested(e) => self.apply_model_requested(meta.turn, e),
            RunEvent::ModelAnswered(e) => self.apply_model_answered(e),
            RunEvent::ModelFailed(e) => self.apply_model_failed(e),
            RunEvent::ToolRequested(e) => self.apply_tool_requested(e),
            RunEvent::ToolFinished(e) => self.apply_tool_finished(e),
            RunEvent::SnapshotTaken(e) => self.apply_snapshot_taken(meta.epoch, e),
            RunEvent::GateRequested(e) => self.apply_gate_requested(e),
            RunEvent::GateFinished(e) => self.apply_gate_finished(e),
            RunEvent::Told(e) => self.apply_user_message(e.text),
            RunEvent::CancelRequested(_) => {
                self.cancel_requested = true;
                Ok(())
            }
            RunEvent::PauseRequested(_) => {
                self.pause_requested = true;
                Ok(())
            }
            RunEvent::Unpaused(_) => self.apply_unpaused(),
            RunEvent::PolicyChanged(e) => {
                self.apply_policy_changed(e);
                Ok(())
            }
            RunEvent::LimitReached(e) => {
                self.limit = Some(e.which);
                self.limit_message = e.message;
                Ok(())
            }
            RunEvent::RunPaused(_) => self.enter_stage(RunStage::Paused),
            RunEvent::RunBlocked(e) => self.apply_blocked(e),
            RunEvent::BlockerAnswered(e) => self.apply_blocker_answered(e),
            RunEvent::Delegated(e) => {
                self.apply_delegated(e);
                Ok(())
            }
            RunEvent::ChildAnswered(e) => self.apply_child_answered(e),
            RunEvent::Compacted(e) => self.apply_compacted(e),
            RunEvent::WorkspaceEdited(_) => {
                // The checks passed on another tree.
                self.engine_state.checks_passed = None;
                self.require_deciding()
            }
            RunEvent::RolesPinned(e) => self.apply_roles_pinned(e),
            RunEvent::RoleBegan(e) => self.apply_role_began(e),
            RunEvent::Concluded(e) => self.apply_concluded(e),
            RunEvent::RunEnded(e) => self.apply_ended(e),
        }
    }

    fn apply_started(&mut self, event: RunStarted) -> Result<(), String> {
        if self.stage != RunStage::Unstarted {
            return Err(String::new());
        }
        self.transcript.add_note(MessagePart::Text { text: Content::Blob(event.prompts.task) });
        self.tree = Some(event.base.tree);
        self.policy = event.policy;
        let changed = self.requested_policy.take();
        self.policies.clone_from(&event.policies);
        if let Some(rules) = changed {
            self.replace_task_policy(rules);
        }
        self.sandbox = event.sandbox.clone();
        self.tool_set = event.settings.tool_set;
        self.known_failures.set_worker(event.worker);
        self.pins = Some(Arc::new(event));
        self.stage = RunStage::Deciding;
        Ok(())
    }

    fn apply_forked(&mut self, event: Forked) -> Result<(), String> {
        if self.seq != event.seq || self.hash != event.hash {
            return Err(format!(": the shared history ends at {}, not at {}", self.seq, event.seq));
        }
        let Some(pins) = &self.pins else { return Err(": the parent never started".to_owned()) };
        let mut pins = RunStarted::clone(pins);
        pins.run = event.run;
        pins.task = event.task;
        if let Some(engine) = event.engine {
            self.switch_engine(&mut pins);
            pins.engine = engine;
        }
        if let Some(models) = event.models {
            // A model given with a fork plays every role.
            pins.roles.iter_mut().for_each(|role| role.model = models.main.clone());
            pins.models = models;
        }
        if let Some(text) = event.hint {
            // The role that starts next receives the message as well.
            self.add_user_message(text);
        }
        self.pins = Some(Arc::new(pins));
        self.lineage.push((event.parent, event.seq));
        // Requests, limits, open work and failures belong to the parent.
        self.unresolved_failures.clear();
        self.snapshot_parts = SnapshotParts::default();
        self.child_tasks.clear();
        self.delegation.reset();
        self.cancel_requested = false;
        self.pause_requested = false;
        self.limit = None;
        self.waived_checks.clear();
        self.reset_limit_counts();
        Ok(())
    }

    fn apply_recovered(&mut self, event: RunRecovered) -> Result<(), String> {
        self.require_pins()?;
        self.sandbox = event.sandbox;
        self.known_failures.set_worker(event.worker);
        if !event.missing.is_empty() {
            let names: Vec<String> = event.missing.iter().map(ToString::to_string).collect();
            let text = format!(
                "The run moved to another workspace. These ignored paths did not come along; make them again if you need them: {}",
                names.join(", ")
            );
            self.transcript.add_aside(MessagePart::Text { text: text.into() });
        }
        Ok(())
    }

    fn apply_model_requested(&mut self, turn: Turn, event: ModelRequested) -> Result<(), String> {
        self.require_deciding()?;
        if turn != self.turn && turn != self.turn.next() {
            return Err(format!(": turn {turn} follows turn {}", self.turn));
        }
        if event.purpose == CallPurpose::Compact {
            // Not a decision of the agent: the conversation is unchanged.
            self.summaries_requested += 1;
            self.stage = RunStage::Model(Box::new(event));
            return Ok(());
        }
        if let Some(nudge) = &event.nudge {
            self.transcript.add_note(MessagePart::Text { text: nudge.as_str().into() });
        }
        self.transcript.seal_pending();
        self.engine_state.unread_messages.clear();
        self.turn = turn;
        self.answered_without_tools = false;
        self.gates_passed = false;
        self.gates_in_turn = 0;
        self.fix_tried = false;
        self.fixes_due.clear();
        self.undecided_due = false;
        self.stage = RunStage::Model(Box::new(event));
        Ok(())
    }

    fn apply_model_answered(&mut self, event: ModelAnswered) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.usage = self.totals.usage.plus(event.usage);
        self.totals.cost_nusd = self.totals.cost_nusd.saturating_add(event.cost_nusd);
        self.totals.model_calls += 1;
        if self.is_summary_call() {
            self.summary = match summary_text(&event) {
                Some(text) => SummaryState::Ready(text),
                None => SummaryState::Failed,
            };
            self.stage = RunStage::Deciding;
            return Ok(());
        }
        self.failed_attempts = 0;
        self.forgiven_attempts = 0;
        self.last_failure = None;
        let text = event.answer_texts().next_back().cloned();
        self.pending_calls = tool_uses(&event.parts).cloned().collect();
        let empty = self.pending_calls.is_empty() && text.as_ref().is_none_or(is_blank);
        self.count_answer(empty);
        if !empty {
            self.last_text = text.clone();
        }
        self.engine_state.record_answer(text);
        self.transcript.add_answer(event.parts);
        let asked = event.usage.request_tokens();
        self.measured_tokens = (asked > 0 && !event.usage.estimated)
            .then(|| self.measure_conversation(asked.saturating_add(event.usage.output_tokens)));
        self.stage = RunStage::Deciding;
        Ok(())
    }

    fn measure_conversation(&self, tokens: u64) -> TokenMeasurement {
        let sealed = self.transcript.sealed_entries();
        // A person's next message is appended to a final user message.
        let stays = sealed.last().is_some_and(|last| last.message.role == MessageRole::Assistant);
        let size = MeasuredSize::Messages(sealed.len());
        let measured = TokenMeasurement { tokens, size };
        if stays {
            measured
        } else {
            TokenMeasurement { size: MeasuredSize::Bytes(self.measured_bytes(measured)), ..measured }
        }
    }

    fn is_summary_call(&self) -> bool {
        matches!(&self.stage, RunStage::Model(open) if open.purpose == CallPurpose::Compact)
    }

    fn apply_model_failed(&mut self, event: ModelFailed) -> Result<(), String> {
        self.require_model(&event.call)?;
        self.totals.model_failures += 1;
        if self.is_summary_call() {
            self.summary = SummaryState::Failed;
            self.stage = RunStage::Deciding;
            return Ok(());
        }
        self.failed_attempts += 1;
        self.last_failure = Some(event);
        self.stage = RunStage::Deciding;
        Ok(())
    }

    fn apply_tool_requested(&mut self, event: ToolRequested) -> Result<(), String> {
        if !matches!(self.stage, RunStage::Deciding | RunStage::Tools) {
            return Err(String::new());
        }
        match self.pending_calls.pop_front() {
            Some(tool) if tool.call == event.call => {
                self.open_tools.push((event, tool));
                self.stage = RunStage::Tools;
                Ok(())
            }
            Some(tool) => Err(format!(": {} is next, not {}", tool.call, event.call)),
            None => Err(format!(": no call {} is wanted", event.call)),
        }
    }

    fn apply_tool_finished(&mut self, event: ToolFinished) -> Result<(), String> {
        let Some(at) = self.open_tools.iter().position(|(open, _)| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        let (asked, tool) = self.open_tools.remove(at);
        self.engine_state.record_tool_result(&tool, &event);
        self.unresolved_failures.record_result(self.turn, (&asked, &tool), &event);
        self.known_failures.record_tool_result(self.turn, &tool, &event);
        if asked.class != RecoveryClass::Reads {
            self.tests_passed = has_passed_full_suite(&tool, &event);
        }
        self.totals.tool_calls += 1;
        let is_error = !matches!(event.status, ToolStatus::Ok);
        if is_error {
            self.totals.tool_errors += 1;
            self.totals.denials += u32::from(matches!(asked.policy, PolicyVerdict::Deny { .. }));
        }
        self.exceeded.extend(event.facts.exceeded.map(|what| (self.turn, what)));
        self.full_outputs.extend(event.full.map(|blob| (event.call.clone(), blob)));
        self.delegation.record_result(&event);
        self.totals.children.add_child(event.facts.child.as_ref());
        self.apply_lint_results(&event.facts.lint);
        for seen in event.facts.read {
            self.known_hashes.insert(seen.path, seen.hash);
        }
        if event.facts.changed.is_empty() {
            let tests_failed = event.facts.tests.is_some_and(|tests| tests.failed + tests.errors > 0);
            self.fix_is_next |= tests_failed;
        } else {
            self.fix_is_next = event.facts.lint.iter().any(|seen| seen.status == LintStatus::Findings);
            self.files_written.extend(event.facts.changed);
        }
        if !event.call.is_runtime() {
            let part = MessagePart::ToolResult { call: event.call.clone(), content: event.content, is_error };
            self.transcript.add_result(&event.call, part);
        }
        if self.open_tools.is_empty() {
            self.stage = RunStage::Deciding;
        }
        Ok(())
    }

    fn apply_lint_results(&mut self, lint: &[LintResult]) {
        for seen in lint {
            if let Some(before) = &seen.before {
                let known = self.lint_before.entry(seen.linter.clone()).or_default();
                known.files.extend_from_slice(&before.files);
                known.findings.extend_from_slice(&before.findings);
            }
        }
        for seen in lint {
            match seen.status {
                // A check that ran before is missing because of the run: it remains a final check.
                LintStatus::Missing if !self.known_failures.has_linter_run(&seen.linter) => {
                    self.linters_missing.insert(seen.linter.clone());
                }
                LintStatus::Missing => {}
                LintStatus::Clean | LintStatus::Findings | LintStatus::TimedOut => {
                    self.known_failures.record_linter_run(&seen.linter);
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

    fn apply_snapshot_taken(&mut self, epoch: Epoch, event: SnapshotTaken) -> Result<(), String> {
        self.require_pins()?;
        let parts = self.snapshot_parts.push_part(epoch, event);
        self.tree = parts.last().map(|last| last.tree).or(self.tree);
        for part in parts {
            if self.attribution.person().is_some() {
                self.add_user_message(describe_person_changes(&part).into());
            }
            self.known_failures.record_snapshot(self.turn, &part.changes);
            overlay_changes(&mut self.overlay, part.changes);
            overlay_changes(&mut self.git_overlay, part.git_changes);
            self.left_out.extend(part.left_out.into_iter().map(|left| (left.path, left.why)));
        }
        Ok(())
    }

    fn apply_user_message(&mut self, text: Content) -> Result<(), String> {
        self.add_user_message(text);
        Ok(())
    }

    fn apply_unpaused(&mut self) -> Result<(), String> {
        self.pause_requested = false;
        if self.stage == RunStage::Paused {
            self.stage = RunStage::Deciding;
            self.reopen_delegated_calls();
        }
        Ok(())
    }

    fn enter_stage(&mut self, stage: RunStage) -> Result<(), String> {
        self.require_deciding()?;
        self.stage = stage;
        Ok(())
    }

    fn apply_blocked(&mut self, event: RunBlocked) -> Result<(), String> {
        self.enter_stage(RunStage::Blocked)?;
        self.blocker = Some(event);
        Ok(())
    }

    fn apply_compacted(&mut self, event: Compacted) -> Result<(), String> {
        self.require_deciding()?;
        self.summary = if event.summary_follows { SummaryState::Requested } else { SummaryState::NotNeeded };
        if let Some(failure) = self.last_failure.as_mut() {
            // The request that was too long is shorter now, so it can be sent at once.
            failure.retry_in_ms = Some(0);
        }
        // The measured conversation is about to be replaced.
        if let Some(measured) = self.measured_tokens {
            self.measured_tokens = Some(TokenMeasurement {
                size: MeasuredSize::Bytes(self.measured_bytes(measured)),
                ..measured
            });
        }
        self.transcript.compact(event)?;
        self.read_index.retain_in_transcript(&self.transcript)
    }

    fn apply_ended(&mut self, event: RunEnded) -> Result<(), String> {
        // A role's last message may be for the runtime only.
        self.last_text = event.summary.or(self.last_text.take());
        self.unverified = event.unverified;
        self.stage = RunStage::Ended(event.result);
        Ok(())
    }

    /// Whether nothing is in progress: no model call, no open or due tool call, no failed attempt. Another
    /// run can continue from here.
    pub fn is_at_rest(&self) -> bool {
        let nothing_open =
            self.pending_calls.is_empty() && self.last_failure.is_none() && self.snapshot_parts.is_empty();
        self.stage == RunStage::Deciding && nothing_open
    }

    fn require_pins(&self) -> Result<(), String> {
        if self.pins.is_some() { Ok(()) } else { Err(String::new()) }
    }

    fn require_deciding(&self) -> Result<(), String> {
        if self.stage == RunStage::Deciding { Ok(()) } else { Err(String::new()) }
    }

    fn require_model(&self, call: &CallId) -> Result<(), String> {
        match &self.stage {
            RunStage::Model(open) if open.call == *call => Ok(()),
            RunStage::Model(open) => Err(format!(": {} is open, not {call}", open.call)),
            _ => Err(String::new()),
        }
    }
}

fn overlay_changes(overlay: &mut Overlay, changes: Vec<PathChange>) {
    for change in changes {
        overlay.insert(change.path, change.entry);
    }
}

/// Returns the text of an answer; none if it is stored in a blob or truncated, because the most important
/// part may be missing.
fn summary_text(event: &ModelAnswered) -> Option<String> {
    if is_truncated(&event.stop) {
        return None;
    }
    let texts = event.parts.iter().filter_map(|part| match part {
        MessagePart::Text { text: Content::Text(text) } => Some(text.trim()),
        MessagePart::Text { .. }
        | MessagePart::Thinking { .. }
        | MessagePart::ToolUse(_)
        | MessagePart::ToolResult { .. } => None,
    });
    let text = texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n");
    (!text.is_empty()).then_some(text)
}

/// Whether all tests ran, at least one, and none failed.
fn has_passed_full_suite(tool: &ToolUse, event: &ToolFinished) -> bool {
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
