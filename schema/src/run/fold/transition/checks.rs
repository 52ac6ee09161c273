//! Final checks: their intents, results and fixes.

use crate::{
    message::MessagePart,
    run::{
        config::{run_config::GateSpec, unverified_policy::UnverifiedPolicy},
        events::turn_events::{BaseChecked, GateFinished, GateRequested, GateStep},
        state::{
            checks::{
                check_verdict::{CheckResult, CheckVerdict, OldFailurePolicy},
                known_failures::format_names,
                quality_gate::FinishedCheck,
            },
            engine_state::FailedCheck,
            run_stage::RunStage,
            run_state::{RunState, UndecidedCheck},
        },
    },
    tool::{LintStatus, ToolFacts},
};

impl RunState {
    pub(super) fn apply_base_checked(&mut self, event: &BaseChecked) -> Result<(), String> {
        self.require_deciding()?;
        self.base_checked = true;
        self.known_failures.record_base_check(event);
        Ok(())
    }

    pub(super) fn apply_gate_requested(&mut self, event: GateRequested) -> Result<(), String> {
        match self.stage {
            RunStage::Deciding if self.fix_rules() > 0 && !event.step.is_check() => {
                self.fix_changed_files = false
            }
            RunStage::Deciding => {
                self.round_failed = false;
                self.known_failures.begin_round();
                self.round_fixes.clear();
                self.round_notes.clear();
                self.failed_checks.clear();
                self.engine_state.failed_checks.clear();
                self.engine_state.finished_checks.clear();
                self.undecided.clear();
                self.undecided_due = false;
            }
            RunStage::Gates => {}
            _ => return Err(String::new()),
        }
        self.gates_in_turn += 1;
        self.open_gates.push(event);
        self.stage = RunStage::Gates;
        Ok(())
    }

    pub(super) fn apply_gate_finished(&mut self, event: GateFinished) -> Result<(), String> {
        let Some(at) = self.open_gates.iter().position(|open| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        let open = self.open_gates.remove(at);
        self.full_outputs.extend(event.full.map(|blob| (event.call.clone(), blob)));
        match open.step {
            GateStep::Check => self.record_check(open.gate, event),
            GateStep::Mend => self.record_fix(open.gate, event),
        }
        Ok(())
    }

    fn record_check(&mut self, gate: GateSpec, event: GateFinished) {
        let old = self.old_failure_policy(&gate);
        let end = CheckResult::from_facts(event.passed, &event.facts);
        let judged = self.known_failures.decide_verdict(&gate.name, &end, old);
        let verdict = if gate.is_linter() { judged.for_linter() } else { judged };
        if !verdict.is_failure() {
            let missing = event.facts.lint.iter().filter(|seen| seen.status == LintStatus::Missing);
            self.linters_missing.extend(missing.map(|seen| seen.linter.clone()));
        }
        self.engine_state.finished_checks.push(FinishedCheck {
            call: event.call.clone(),
            name: gate.name.clone(),
            command: gate.command.clone(),
            verdict,
            not_run: event.facts.not_run.clone(),
            content: event.content.clone(),
            tests: event.facts.tests,
            failing: event.facts.failing.clone(),
            duration_ms: event.duration_ms,
        });
        match (verdict, event.facts.not_run.clone()) {
            (CheckVerdict::Passed | CheckVerdict::Excused, _) => {}
            (CheckVerdict::Undecided, Some(why)) => self.undecided.push(UndecidedCheck { gate, why }),
            (CheckVerdict::Failed | CheckVerdict::NoLongerRuns | CheckVerdict::Undecided, _) => {
                self.record_check_failure(gate, event, verdict);
            }
        }
        // A failure that can still be fixed is not reported yet.
        if self.round_fixes.is_empty() && !self.has_fixable_checks() {
            self.round_notes.drain(..).for_each(|note| self.transcript.add_note(note));
        }
        if self.open_gates.is_empty() {
            self.end_round();
        }
    }

    /// Records a failed check to be reported to the model.
    fn record_check_failure(&mut self, gate: GateSpec, event: GateFinished, verdict: CheckVerdict) {
        self.round_failed = true;
        self.failed_checks.push(describe_failed_check(&gate, &event.facts));
        let mut text =
            format!("The final check `{}` (`{}`) failed. Mend the cause.", gate.name, gate.command);
        if let (CheckVerdict::NoLongerRuns, Some(why)) = (verdict, &event.facts.not_run) {
            let base = self.known_failures.base_check_result(&gate.name);
            let before = match base.and_then(CheckResult::not_run) {
                Some(_) => "came further before your work than it does now",
                None => "ran before your work and does not run now",
            };
            text = format!(
                "The final check `{}` (`{}`) {before}: {}. A check that does not run is a failed one. Fix what keeps \
                 it from running.",
                gate.name, gate.command, why.reason
            );
        }
        text.push_str(&self.known_failures.describe_failures(&event.facts, self.old_failure_policy(&gate)));
        self.round_notes.push(MessagePart::Text { text: text.into() });
        self.engine_state
            .failed_checks
            .push(FailedCheck { name: gate.name.clone(), content: event.content.clone() });
        self.round_notes.push(MessagePart::Text { text: event.content });
        let hangs = self.fix_rules() > 0 && event.facts.timed_out;
        let runs = event.facts.not_run.is_none() || !gate.is_linter();
        if gate.mend.is_some() && !self.fix_tried && !hangs && runs {
            self.round_fixes.push(gate);
        }
    }

    /// Whether tests that failed before the run may fail at its end: only for tests that docket detected
    /// itself.
    fn old_failure_policy(&self, gate: &GateSpec) -> OldFailurePolicy {
        let found = self.pins.as_ref().is_some_and(|pins| pins.tests.is_none());
        if found && gate.name == "tests" { OldFailurePolicy::Excused } else { OldFailurePolicy::NotExcused }
    }

    /// Ends the round once every check has its result.
    fn end_round(&mut self) {
        self.stage = RunStage::Deciding;
        self.undecided_due = !self.round_failed && self.has_unsettled_checks();
        let passed = !self.round_failed && !self.undecided_due;
        self.gates_passed = passed;
        self.engine_state.checks_passed = Some(passed);
        self.fix_is_next = self.round_failed;
        self.fixes_due = std::mem::take(&mut self.round_fixes);
        self.tests_passed &= !self.round_failed;
        if self.round_failed && self.fixes_due.is_empty() {
            self.return_to_model();
        }
    }

    /// Whether a check is undecided and neither a setting nor a person determines what follows.
    fn has_unsettled_checks(&self) -> bool {
        let policy = self.pins.as_ref().map_or(UnverifiedPolicy::Ask, |pins| pins.settings.unverified);
        let completes = policy == UnverifiedPolicy::Complete;
        !completes && self.undecided.iter().any(|check| !self.waived_checks.contains(&check.gate.name))
    }

    fn return_to_model(&mut self) {
        self.round_notes.drain(..).for_each(|note| self.transcript.add_note(note));
        self.corrections += 1;
        self.answered_without_tools = false;
    }

    fn fix_rules(&self) -> u32 {
        self.pins.as_ref().map_or(0, |pins| pins.settings.mend_rules)
    }

    /// Whether a pending check of this round could be fixed automatically.
    fn has_fixable_checks(&self) -> bool {
        !self.fix_tried && self.open_gates.iter().any(|open| open.gate.mend.is_some())
    }

    fn record_fix(&mut self, gate: GateSpec, event: GateFinished) {
        self.fix_tried = true;
        self.fixes_due.retain(|due| *due != gate);
        // A linter's own fix may change files that are not examined here.
        let has_own = gate.mend.is_some_and(|mend| mend.command.is_some());
        self.fix_changed_files |= has_own || !event.facts.changed.is_empty();
        if !event.facts.changed.is_empty() {
            // If the run ends now, the note is not needed.
            self.transcript.add_aside(MessagePart::Text { text: event.content });
            self.files_written.extend(event.facts.changed);
        }
        if self.open_gates.is_empty() {
            self.stage = RunStage::Deciding;
            self.fixes_due.clear();
            if self.fix_rules() > 0 && !self.fix_changed_files {
                self.return_to_model();
            } else {
                self.engine_state.checks_passed = None;
            }
        }
    }
}

/// Describes a failed check: its name, and the known reason.
fn describe_failed_check(gate: &GateSpec, facts: &ToolFacts) -> String {
    let why = match facts.exit {
        _ if facts.timed_out => "it did not end in time".to_owned(),
        _ if !facts.failing.is_empty() => format_names(&facts.failing.iter().cloned().collect()),
        _ if facts.tests.is_some_and(|tests| tests.total() == 0) => "no test was run".to_owned(),
        _ if facts.not_run.as_ref().is_some_and(|why| !why.by_run) => {
            facts.not_run.as_ref().map(|why| why.reason.clone()).unwrap_or_default()
        }
        // A linter's exit status adds nothing to its name.
        Some(status) if gate.name == "tests" => format!("exit status {status}"),
        Some(_) | None => return gate.name.clone(),
    };
    format!("{} ({why})", gate.name)
}
